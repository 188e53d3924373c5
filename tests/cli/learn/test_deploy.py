"""Fine-tunes towards the grid that an adapter is stored in."""

import numpy as np
import pytest

from gradloom.delivery import codes
from gradloom.models.adapters.lora import load_lora
from gradloom.models.adapters.peft import read_peft
from gradloom.models.files.language.gguf_blocks import q8_0_blocks, q8_0_values
from gradloom.systems.text.card.deployed import MergedLinears, rounded
from gradloom.systems.text.reference.llama import FloatLinears

from ..small import MODEL, TUNE, tuned

OPTIONS = (
    "--engine",
    "float",
    "--steps",
    "12",
    "--lr",
    "0.02",
    "--seq",
    "42",
    "--rank",
    "4",
    "--held-out",
    "judged.txt",
)


@pytest.mark.parametrize("method, grid", [("lora", "nf4"), ("lora-xs", "int8"), ("lora", "q8_0")])
def test_metrics_have_the_loss_of_the_deployed_form(run, here, method, grid):  # noqa: F811
    """Trained towards it, and not; what is deployed is what a package of these bits brings."""
    (here / "judged.txt").write_text("the weft is thrown across the warp, which is strung once and stays a while.")
    made = {
        each: tuned(run, *OPTIONS, "--held-out", "judged.txt", "--method", method, *more, output=each)
        for each, more in (("towards", ("--deploy", grid)), ("plain", ()))
    }
    towards, plain = made["towards"], made["plain"]
    assert plain["held_out_before"] == towards["held_out_before"] > plain["held_out_after"]
    assert "loss_deployed" not in plain and towards["request"]["deploy"] == grid
    assert towards["loss"][-1] != plain["loss"][-1]
    off = towards["held_out_deployed"] / towards["held_out_after"] - 1
    assert 0 < abs(off) < 0.02 and towards["loss_deployed"] != towards["loss_after"]
    assert towards["units"]["held_out_deployed"].startswith("nats")
    if method == "lora" and grid == "nf4":
        found = load_lora(here / "towards", MODEL)
        name, each = next(iter(rounded(found, grid).items()))
        assert np.array_equal(each.b.reshape(-1), codes.decode(codes.encode(found[name].b, 4), each.b.size, 4))
    if method == "lora-xs":
        assert read_peft(here / "towards" / "core")[1]


def test_q8_0_is_llama_cpps():
    quants = pytest.importorskip("gguf.quants")
    from gguf import GGMLQuantizationType

    random = np.random.default_rng(0)
    values = random.normal(size=(6, 64)).astype(np.float32)
    values[2, 32:] = 0
    expected = quants.quantize(values, GGMLQuantizationType.Q8_0)
    assert np.array_equal(q8_0_blocks(values).reshape(-1), expected.reshape(-1))
    assert np.array_equal(q8_0_values(values), quants.dequantize(expected, GGMLQuantizationType.Q8_0))
    with pytest.raises(ValueError, match="rows of 48: Q8_0 has blocks of 32"):
        q8_0_blocks(values[:, :48])


def test_gradients_pass_the_rounding():
    random = np.random.default_rng(1)
    from gradloom.models.adapters.lora import Adapter

    w, x, dy = (random.normal(size=size).astype(np.float32) for size in ((32, 64), (3, 64), (3, 32)))
    adapter = Adapter(random.normal(size=(2, 64)).astype("f4"), random.normal(size=(32, 2)).astype("f4"), 2.0)
    merged, plain = MergedLinears({"w": w}), FloatLinears({"w": w})
    y = merged.forward("w", x, adapter)
    np.testing.assert_allclose(y, x @ q8_0_values(w + 2 * adapter.b @ adapter.a).T, rtol=1e-5)
    assert 0 < np.abs(y - plain.forward("w", x, adapter)).max() < 0.5
    dx, found = merged.backward("w", dy, x, adapter)
    other, expected = plain.backward("w", dy, x, adapter)
    assert all(np.array_equal(one, two) for one, two in zip(found, expected)) and not np.array_equal(dx, other)


@pytest.mark.parametrize(
    "more, named",
    [
        (("--deploy", "int7"), "deploy=int7: must be one of none, int8, nf4, q8_0"),
        (("--deploy", "int8"), "deploy=int8: must be left out with --engine reference; give --engine float"),
        (
            ("--deploy", "int8", "--engine", "float", "--method", "ia3"),
            "deploy=int8: must be none with --method ia3; or give --method lora",
        ),
        (("--held-out", "no.txt", "--engine", "float"), "held_out=no.txt: no such file"),
        (("--held-out", "short.txt", "--engine", "float"), "held_out=short.txt: has 3 tokens"),
        (("--held-out", "2"), "held_out=2: must be above 0 and below 1, or a file"),
        (("--patience", "2"), "patience=2: must be 0, or give --held-out"),
        (("--answer",), "--answer: no such option of gradloom finetune"),
    ],
)
def test_one_line_says_what_is_wrong(run, here, more, named):  # noqa: F811
    (here / "short.txt").write_text("abc")
    code, out, err = run(*TUNE, *more)
    assert code == 2 and named in " ".join(err.split()) and not (here / "out").exists(), err
