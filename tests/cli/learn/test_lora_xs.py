"""LoRA-XS on the command line: a fine-tune, its files, packages and averages."""

import json

import numpy as np
import pytest

from gradloom.models.adapters.lora import load_lora
from gradloom.models.adapters.peft import read_peft
from gradloom.models.language import BUILT_IN

from ..small import MODEL, SAY, TUNE, tuned

XS = ("--method", "lora-xs", "--targets", "q,v", "--rank", "4", "--seq", "42", "--lr", "0.03")
NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"


def test_a_fine_tune_leaves_plain_lora_and_its_matrices(run, here):  # noqa: F811
    """In integers as in float; what was kept goes on, and says what the plain adapter says."""
    options = (*XS, "--steps", "6")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert (integers["method"], integers["rank"], integers["alpha"], integers["saturated"]) == ("lora-xs", 4, 8, 0)
    assert integers["adapter_parameters"] == 4 * 16 and integers["loss_after"] < integers["loss_before"] - 0.03
    plain, cores = load_lora(here / "reference", MODEL), read_peft(here / "reference" / "core")[1]
    assert len(plain) == len(cores) == 4 and all(each.shape == (4, 4) for each in cores.values())
    b = plain["model.layers.0.self_attn.q_proj"].b
    _, values, _ = np.linalg.svd(b.astype(np.float64))
    # B has orthonormal columns, so B R has R's singular values.
    np.testing.assert_allclose(values, np.linalg.svd(cores[NAME.format("R")].astype(np.float64))[1], rtol=1e-4)
    further = tuned(run, *XS, "--engine", "float", "--steps", "1", "--adapter", "float", output="further")
    assert further["loss_before"] == pytest.approx(exact["loss_after"], rel=1e-6)
    said = [
        json.loads(run(*SAY, "--tokens", "3", "--json", "--adapter", each)[1])["tokens"]
        for each in ("float", "float/core")
    ]
    assert said[0] == said[1]


def test_averages_are_exact(run, here):  # noqa: F811
    """Of R, and of the plain adapters, whose A is one."""
    for seed, text in enumerate(("a", "b")):
        (here / "text.txt").write_text(text.join(["the warp is strung ", " once and stays; the weft"]) * 2)
        tuned(run, *XS, "--engine", "float", "--steps", "3", "--seed", str(seed), output=text)
    for end in ("", "/core"):
        code, out, err = run("package", "average", f"a{end}", f"b{end}", "-o", f"mean{end}", "--json")
        assert code == 0 and json.loads(out)["exact"], err
    parts = [read_peft(here / each / "core")[1] for each in ("a", "b", "mean")]
    for name in parts[0]:
        assert parts[0][name].any() and not np.array_equal(parts[0][name], parts[1][name])
        np.testing.assert_allclose(parts[2][name], (parts[0][name] + parts[1][name]) / 2, rtol=1e-6, atol=1e-12)
    mean = load_lora(here / "mean", MODEL)["model.layers.0.self_attn.q_proj"]
    first, second = (load_lora(here / each, MODEL)["model.layers.0.self_attn.q_proj"] for each in ("a", "b"))
    assert np.array_equal(mean.a, first.a) and np.array_equal(mean.a, second.a)
    np.testing.assert_allclose(mean.b, (first.b + second.b) / 2, rtol=1e-5, atol=1e-8)
    tuned(run, *XS[:4], "--rank", "2", "--seq", "42", "--engine", "float", "--steps", "1", output="other")
    for more, named in (
        (("other/core",), "other/core: has r=2, a/core has 4: clients must be of one base and rank"),
        (("b",), "b: has peft_type=LORA, a/core has LORA_XS: clients must be of one base and rank"),
        (("b/core", "--rank", "2"), "rank=2: must be left out"),
    ):
        code, out, err = run("package", "average", "a/core", *more, "-o", "none")
        assert code == 2 and named in " ".join(err.split()) and not (here / "none").exists(), err


def test_a_package_has_the_matrices_alone(run, here):  # noqa: F811
    pytest.importorskip("monocypher")
    tuned(run, *XS, "--engine", "float", "--steps", "2")
    (here / "base").write_bytes(b"base")
    assert run("package", "keys", "-o", "key")[0] == 0
    signed = ("--base", "base", "--key", "key", "--version", "1", "--json")
    sizes = [
        json.loads(run("package", "sign", each, *signed, "-o", f"{name}.pkg", "--bits", "32")[1])["bytes"]
        for each, name in (("out", "plain"), ("out/core", "core"))
    ]
    assert sizes[1] < sizes[0] / 3 and sizes[1] < 4 * 4 * 16 + 512 + 512
    code, _, err = run("package", "apply", "core.pkg", "--trust", "key.pub", "--base", "base", "-o", "there")
    assert code == 0, err
    for name, array in read_peft(here / "out" / "core")[1].items():
        np.testing.assert_array_equal(read_peft(here / "there")[1][name], array)
    further = tuned(run, *XS, "--engine", "float", "--steps", "1", "--adapter", "there", output="further")
    assert further["loss_before"] < json.loads((here / "out" / "metrics.json").read_text())["loss_before"]


def test_a_plan(run, monkeypatch):
    """Its step is shorter than LoRA's, by what has no gradient; only R has moments."""
    import dataclasses

    model = dataclasses.replace(BUILT_IN["smollm2-135m"], layers=3)
    monkeypatch.setitem(BUILT_IN, "smollm2-135m", model)
    told = json.loads(run("plan", "smollm2-135m", "--method", "lora-xs", "--json")[1])
    assert told["fits"] and (told["method"], told["rank"]) == ("lora-xs", 8)
    assert told["adapter_parameters"] == 3 * 2 * 64
    # R has a tile's features in memory.
    assert told["memory"]["adapters"] == 3 * 2 * 4 * 8 * 64 and told["memory"]["optimizer"] == 2 * 3 * 2 * 4 * 8 * 64
    assert "measured" in told["memory"]
    code, out, err = run("plan", "smollm2-135m", "--method", "lora-xs")
    assert code == 0 and "lora-xs, rank 8" in " ".join((out + err).split())


@pytest.mark.parametrize(
    "command, named",
    [
        ((*TUNE, *XS[:4], "--engine", "float", "--rank", "64", "--layers", "2"), None),
        ((*TUNE, *XS[:4], "--engine", "float", "--rank", "65"), "rank=65: must be from 1 to 64"),
        ((*TUNE, *XS, "--store", "int8"), "store=int8: must be left out with --method lora-xs; or give --method lora"),
        ((*TUNE, *XS[:4], "--rank", "9"), "rank=9: a layer of 64 x 128 carries at most 8"),
        ((*TUNE, *XS[:2], "--targets", "norm"), "targets=norm: must be all, or some of q, k, v, o, gate, up, down"),
    ],
)
def test_one_line_says_what_is_wrong(run, here, command, named):  # noqa: F811
    code, out, err = run(*command, "--seq", "42", "--steps", "1")
    assert code == (0 if named is None else 2), err
    assert named is None or (named in " ".join(err.split()) and not (here / "out").exists()), err


def test_another_adapter_is_refused(run, here):  # noqa: F811
    tuned(run, "--engine", "float", "--steps", "1", "--seq", "42")
    code, _, err = run(*TUNE[:-2], "-o", "new", *XS[:2], "--seq", "42", "--adapter", "out")
    assert code == 2 and 'peft_type="LORA": must be "LORA_XS" for lora-xs; name the folder core' in " ".join(
        err.split()
    )
    tuned(run, *XS, "--engine", "float", "--steps", "1", output="xs")
    code, _, err = run(*TUNE[:-2], "-o", "new", "--method", "lora", "--seq", "42", "--adapter", "xs/core")
    assert code == 2 and "LORA_XS" in err
