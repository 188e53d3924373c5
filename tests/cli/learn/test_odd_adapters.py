"""Verbs that take an adapter: the same is right for all of them, whatever PEFT or another tool has made it of."""

import json

import numpy as np
import pytest

from gradloom.models.adapters.lora import load_lora
from gradloom.models.adapters.peft import read_peft
from gradloom.models.adapters.peft_files import write_peft
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.systems.text.quantized import Quantized

from ..small import MODEL

TEXT = ("--data", "text.txt")
Q, V = (f"model.layers.{{}}.self_attn.{each}_proj" for each in "qv")
EVERY = [each.format(n) for n in (0, 1) for each in (Q, V)]


def write(folder, names=EVERY, ranks=None, **fields):
    """An adapter of some linears, as PEFT writes it."""
    random, tensors = np.random.default_rng(3), {}
    linears = {each.name: each for each in MODEL.linears}
    for name in names:
        rank = (ranks or {}).get(name, 2)
        for which, shape in (("A", (rank, linears[name].inputs)), ("B", (linears[name].outputs, rank))):
            tensors[f"base_model.model.{name}.lora_{which}.weight"] = random.normal(0, 0.1, shape)
    write_peft(folder, tensors, {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": list(names), **fields})


def test_ranks_and_scales_of_their_own_are_merged_and_not_fine_tuned(run, here):  # noqa: F811
    patterns = {"rank_pattern": {Q.format(1): 3}, "alpha_pattern": {"layers.0.*": 1}, "use_rslora": True}
    write("odd", ranks={Q.format(1): 3}, **patterns)
    assert run("merge", "odd", "--model", "small", "-o", "merged")[0] == 0
    base, found = Quantized(open_checkpoint("small")), open_checkpoint("merged")
    scales = dict(zip(EVERY, (2**-0.5, 2**-0.5, 4 * 3**-0.5, 4 * 2**-0.5), strict=True))
    for name, each in load_lora("odd", MODEL).items():
        expected = base.tensor(f"{name}.weight") + scales[name] * (each.b @ each.a)
        np.testing.assert_allclose(found.tensor(f"{name}.weight"), expected, rtol=1e-5, atol=1e-6)
    code, _, err = run("finetune", "small", *TEXT, "--adapter", "odd", "-o", "out")
    assert code == 2 and "different ranks or scales (2 with 0.707107, 2 with 2.82843, 3 with 2.3094)" in err


def test_rslora_is_fine_tuned_at_its_scale(run, here):  # noqa: F811
    write("odd", use_rslora=True)
    write("plain", lora_alpha=4 * 2**0.5)
    options = (*TEXT, "--steps", "1", "--seq", "30", "--engine", "float", "--json")
    told = [run("finetune", "small", *options, "--adapter", each, "-o", f"{each}-out")[1] for each in ("odd", "plain")]
    first, second = (json.loads(each)["loss"] for each in told)
    assert first == second
    assert all(each.scale == pytest.approx(8**0.5) for each in load_lora("odd-out", MODEL).values())


def test_linears_that_differ_by_layer_are_refused_before_the_work(run, here):  # noqa: F811
    write("odd", EVERY[:3])
    code, _, err = run("finetune", "small", *TEXT, "--adapter", "odd", "-o", "out")
    assert code == 2 and "odd: adapters has 3 linears: q_proj, v_proj in 2 layers are 4" in " ".join(err.split())


def test_values_that_float32_cannot_hold_are_not_merged(run, here):  # noqa: F811
    write("odd")
    config, tensors = read_peft("odd")
    write_peft("odd", {name: np.full(each.shape, 1e20) for name, each in tensors.items()}, config)
    code, _, err = run("merge", "odd", "--model", "small", "-o", "merged")
    assert code == 2 and "is beyond float32 with the adapter merged" in err and not (here / "merged").exists()


@pytest.mark.parametrize(
    "key, value", [("lora_alpha", float("nan")), ("lora_alpha", 1e308), ("init_lora_weights", "pissa"), ("magic", True)]
)
def test_every_verb_says_the_same_of_a_wrong_value(run, here, key, value):  # noqa: F811
    pytest.importorskip("monocypher")
    write("odd", **{key: value})
    write("right")
    (here / "base.bin").write_bytes(b"base")
    assert run("package", "keys", "-o", "root.key")[0] == 0
    said = set()
    for words in (
        ("merge", "odd", "--model", "small", "-o", "out"),
        ("finetune", "small", *TEXT, "--adapter", "odd", "-o", "out"),
        ("infer", "small", "--prompt", "the", "--adapter", "odd", "--tokens", "1"),
        ("infer", "instantft-kv260", "--adapter", "odd", "-o", "out.npz"),
        ("package", "sign", "odd", "--base", "base.bin", "--key", "root.key", "--version", "1", "-o", "out"),
        (
            "package",
            "sign",
            "odd",
            "--parent",
            "odd",
            "--base",
            "base.bin",
            "--key",
            "root.key",
            "--version",
            "1",
            "-o",
            "out",
        ),
        ("package", "average", "odd", "right", "-o", "out"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, ""), (words, out, err)
        said.add(" ".join(err.split()))
    assert len(said) == 1, said
    (line,) = said
    assert line.startswith(f"gradloom: odd/adapter_config.json: {key}=")
    assert not (here / "out").exists()
