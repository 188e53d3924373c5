"""Sizes of a design for a network: refusals name all that is too small, and what is chosen is the least that holds."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gradloom
from gradloom import boards
from gradloom.models import onnx_import
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.preset import PRESETS
from gradloom.program.assembler import most
from gradloom.rtl.engines.array.commands import ConvolveOperands, DenseOperands
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.fit import check_fit
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import asked_for
from gradloom.systems.images.expectation import expectation
from gradloom.systems.images.program.lowered import BLOCK
from gradloom.systems.images.program.lowering import FIRST_BLOCK, LEAST_POSITIONS, MAXIMA, SizeError, lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.sizes_for import choose, sizes

ROOT = Path(__file__).parents[3]
LENET5 = Path(onnx_import.__file__).parent / "data" / "lenet5.onnx"
DIGITS = LENET5.with_name("digits.onnx")
#: Too small for nearly everything.
SMALL = ImageConfig(
    rows=9,
    kernel=3,
    adapter_depth=64,
    weight_depth=256,
    bias_depth=2,
    feature_depth=64,
    image_depth=128,
    dense_depth=64,
    blocks=4,
    width=8,
    positions=16,
    cache_slots=64,
    taps=2,
    classes=2,
)


def conv(inputs, outputs, edge=3, *, stride=1, pool=1):
    return ConvLayer(
        weight=np.full((outputs, inputs, edge, edge), 0.001),
        bias=np.zeros(outputs),
        stride=(stride, stride),
        pool=pool,
        relu=True,
    )


def network(shape, *convolutions, hidden=(), classes=4):
    layers, size = list(convolutions), shape
    for layer in layers:
        size = layer.output_shape(size)
    for outputs in (*hidden, classes):
        layers.append(DenseLayer(weight=np.full((outputs, int(np.prod(size))), 0.0001), bias=np.zeros(outputs)))
        size = (outputs,)
    return LayerNetwork(name="drawn", input_shape=shape, layers=tuple(layers))


def planned(net, config, rank, samples=2):
    """A fine-tune's program; an operand that its field does not hold is refused."""
    zeros = np.zeros
    return plan_finetune(
        lower(net, config, rank),
        Settings(samples=samples, epochs=1, batch=samples),
        zeros((samples, *net.input_shape), np.int64),
        zeros(samples, np.int64),
        [zeros((rank, n), np.int64) for n in net.taps],
        [zeros((net.classes, rank), np.int64) for _ in net.taps],
    )


def drawn(seed):
    """A network and a rank."""
    random = np.random.default_rng(seed)
    layers, channels, edge = [], int(random.integers(1, 4)), int(random.integers(12, 40))
    shape = channels, edge, edge
    for _ in range(random.integers(0, 4)):
        kernel, outputs = int(random.integers(1, 6)), int(random.integers(1, 40))
        stride, pool = (int(random.integers(1, 3)) for _ in range(2))
        after = ((edge - kernel) // stride + 1) // pool if edge >= kernel else 0
        if after < 3:
            break
        layers.append(conv(channels, outputs, kernel, stride=stride, pool=pool))
        channels, edge = outputs, after
    hidden = tuple(int(n) for n in random.integers(2, 300, random.integers(0, 3)))
    return network(shape, *layers, hidden=hidden, classes=int(random.integers(2, 17))), int(random.integers(1, 13))


@pytest.mark.parametrize("seed", range(30))
def test_sizes_of_a_refusal_hold_together_and_none_is_larger_than_it_must_be(seed):
    net, rank = drawn(seed)
    with pytest.raises(SizeError) as refused:
        lower(net, SMALL, rank)
    message, changes = str(refused.value), refused.value.changes
    if changes is None:
        assert (
            "beyond the maxima of every design" in message
            and "at most" in message
            and "gradloom generate" not in message
        )
        return
    sizes = {field: value for field, (value, _) in changes.items()}
    assert set(re.findall(r"--set (\w+=\d+)", message)) == {f"{field}={value}" for field, value in sizes.items()}
    planned(net, SMALL.replace(**sizes), rank)
    for field, value in sizes.items():
        # The largest legal value below.
        below = next(each for each in range(value - 1, 0, -1) if ImageConfig.smallest(field, each) == each)
        try:
            config = SMALL.replace(**sizes | {field: below})
        except ValueError:
            continue
        with pytest.raises(SizeError, match=f"--set {field}={value}"):
            lower(net, config, rank)


def test_several_are_named_at_once_and_legal(run, tmp_path):
    """The rank whose adapters need 3,004 words: once the advice was adapter_depth=3004, which is no power of two."""
    arguments = ("finetune", "digits-ulx3s", "--engine", "reference", "--rank", 8, "-o", tmp_path / "run")
    code, out, err = run(*arguments)
    assert code == 2 and not out and err.count("\n") == 1 and not (tmp_path / "run").exists()
    assert "taps=12 (12 adapters of rank 2, this design has 8)" in err
    assert "adapter_depth=512 (448 adapter words a column, this design has 256)" in err
    assert "gradloom generate MODEL --rank 8" in err and "--set taps=12 --set adapter_depth=512" in err


def test_maxima_are_said_and_nothing_is_advised():
    net = network((1, 40, 40), conv(1, 8, 7), conv(8, 300), conv(300, 4), hidden=(10,), classes=20)
    with pytest.raises(SizeError) as refused:
        lower(net, ImageConfig(), 4)
    message = str(refused.value)
    for said in ("20 classes (at most 16)", "7 kernel rows or columns (at most 5)", "300 input channels (at most 255)"):
        assert said in message, message
    assert "--set" not in message and "gradloom generate" not in message and refused.value.changes is None


def test_another_array_is_advised_where_it_takes_more_ranks():
    """20 adapters of rank 4, or 10 of rank 8."""
    net, rank = onnx_import.load_pretrained(), 16
    with pytest.raises(SizeError, match="20 adapters of rank 4 .at most 16; 10 of rank 8 with --set panels=2 "):
        lower(net, ImageConfig(), rank)
    config, _ = choose(net, ImageConfig(panels=2, rank=8), rank=rank, samples=1)
    planned(net, config, rank)


def test_bounds_of_sizes_are_those_of_the_commands():
    largest = ImageConfig.largest
    assert largest("bias_depth") == most(ConvolveOperands, "bias") + 1 == most(DenseOperands, "bias") + 1
    assert largest("width") == most(ConvolveOperands, "height") == most(ConvolveOperands, "out_height")
    assert largest("weight_depth") == most(ConvolveOperands, "weights") + 1 == most(DenseOperands, "weights") + 1
    assert largest("dense_depth") == most(DenseOperands, "target") + 1
    assert largest("kernel") ** 2 <= largest("rows") < (largest("kernel") + 1) ** 2
    assert ImageConfig.smallest("adapter_depth", 3004) == 4096 and ImageConfig.smallest("cache_slots", 65) == 65
    assert ImageConfig.smallest("kernel", 1) == 2 and ImageConfig.smallest("weight_depth", 65537) is None


# -- maxima -----------------------------------------------------------------------------------------------------------


FEW = conv(1, 2)
#: ``(network, rank)`` with all that docs/reference/networks.md allows of one thing, and with more of it.
ENDS = {
    "classes": [(network((1, 8, 8), FEW, classes=n), 4) for n in (16, 17)],
    "edge of a kernel, stride": [(network((1, 3 * n, 3 * n), conv(1, 2, n, stride=n)), 4) for n in (5, 6)],
    "edge of a max-pool": [(network((1, 18, 18), conv(1, 2, pool=n)), 4) for n in (4, 5)],
    "edge of an image or feature map": [(network((1, n, 12), conv(1, 1, 5, stride=5)), 4) for n in (255, 256)],
    "input channels of a convolution": [(network((n, 4, 4), conv(n, 2)), 4) for n in (255, 256)],
    "channels before the first dense layer": [(network((1, 4, 4), conv(1, n)), 1) for n in (1023, 1024)],
    # Its inputs, a layer each, and ranks of 5 to 8 in two parts.
    "layers, times parts of a rank": [(network((1, 4, 4), FEW, hidden=(4,) * n), 8) for n in (6, 7)],
    "rank": [(network((1, 4, 4), FEW), n) for n in (16, 17)],
    # An image, and the 4 inputs of the last layer but one and its own block.
    "inputs of all layers but the last": [
        (network((1, 254, n), conv(1, 1, 5, stride=5, pool=4), hidden=(4,)), 1) for n in (63, 65)
    ],
    "adapter words of a column": [(network((1, 127, 128), conv(1, 1, 5, stride=5, pool=4)), n) for n in (8, 9)],
    "weights of a column": [(network((1, 4, 4), FEW, hidden=(n, 1024)), 1) for n in (999, 1000)],
    # A convolution's, the last layer's, and 16 outputs each.
    "biases of a column": [(network((1, 4, 4), FEW, hidden=(16 * n,)), 1) for n in (254, 255)],
}


@pytest.mark.parametrize("name", MAXIMA)
def test_a_maximum_is_held_and_no_more(name):
    (net, rank), (more, higher) = ENDS[name]
    config, _ = choose(net, ImageConfig(), rank=rank, samples=1)
    planned(net, config, rank)
    said = "255 blocks" if name.startswith("inputs of all") else f"{MAXIMA[name]:,}"
    with pytest.raises(ValueError, match=rf"(at most |must be from 1 to ){said.split()[0]}\b") as refused:
        choose(more, ImageConfig(), rank=higher, samples=1)
    assert not isinstance(refused.value, SizeError) or refused.value.changes is None


def test_the_page_says_the_maxima():
    text = (ROOT / "docs" / "reference" / "networks.md").read_text(encoding="utf-8")
    table = text[text.index("| at most |") :].split("\n\n")[0]
    rows = dict(re.findall(r"^ *\| ([^|]+?) \| ([\d,]+) \|$", table, re.M))
    said = {name: int(number.replace(",", "")) for name, number in rows.items()}
    assert said == MAXIMA
    words = " ".join(text.split())
    for bound in (
        f"at least {LEAST_POSITIONS} outputs a channel",
        f"at most {ImageConfig.largest('rows')} elements",
        f"in blocks of {BLOCK} and",
        f"at most {FIRST_BLOCK} blocks before those of the last layer",
    ):
        assert bound in words


# -- what is chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_choice_is_never_below_the_presets_and_holds(seed):
    net, rank = drawn(seed)
    preset = PRESETS["instantft-kv260"].config
    try:
        config, why = choose(net, preset, rank=rank, samples=50)
    except SizeError as error:
        assert error.changes is None
        return
    for field, value in vars(config).items():
        assert value >= getattr(preset, field) and (field in why) == (value != getattr(preset, field))
    assert forecast(planned(net, config, rank)).total > 0


def test_slots_are_chosen_for_the_samples(tmp_path):
    net = onnx_import.load_pretrained()
    config, why = choose(net, ImageConfig(), rank=4, samples=20_000)
    assert config.cache_slots == 20_025 and set(why) == {"cache_slots"}
    assert choose(net, ImageConfig(), rank=4, samples=60_000)[0].cache_slots == ImageConfig.largest("cache_slots")
    assert choose(net, ImageConfig(cache_slots=64), rank=4, samples=200, fixed={"cache_slots"})[0].cache_slots == 64
    images = np.zeros((50, 28, 28), np.uint8)
    np.savez(tmp_path / "d.npz", x_train=images, y_train=np.arange(50) % 10, x_test=images, y_test=np.arange(50) % 10)
    asked = asked_for("lenet5", verb="sizes")
    config, said = sizes(asked, asked.preset.config.replace(cache_slots=64), (), data=tmp_path / "d.npz")
    assert said["samples"] == 50 and config.cache_slots == 75


def test_a_forecast_of_few_samples_is_the_whole_one():
    said = expectation(ImageConfig(), rank=2, model=LENET5, samples=30)
    net = onnx_import.load_pretrained()
    whole = plan_finetune(
        lower(net, ImageConfig(), 2),
        Settings(samples=30),
        np.zeros((30, 1, 28, 28), np.int64),
        np.zeros(30, np.int64),
        [np.zeros((2, n), np.int64) for n in net.taps],
        [np.zeros((10, 2), np.int64) for _ in net.taps],
    )
    assert said["workload"]["samples"] == 30 and said["forecast"]["commands"] == whole.commands
    assert said["forecast"]["cycles"] == pytest.approx(forecast(whole).total, rel=1e-3)


def test_generate_chooses_and_what_comes_out_fine_tunes(tmp_path, run):
    """The smallest preset for a rank that it does not hold."""
    out = tmp_path / "design"
    code, said, err = run("generate", DIGITS, "--board", "ulx3s", "--rank", 8, "--samples", 40, "-o", out)
    assert code == 0, err
    report = json.loads((out / "report.json").read_text())
    sizes = report["sizes"]
    assert (sizes["network"], sizes["rank"], sizes["samples"]) == ("digits", 8, 40)
    assert {name: (each["value"], each["preset"]) for name, each in sizes["chosen"].items()} == {
        "taps": (12, 8),
        "adapter_depth": (512, 256),
    }
    assert all(report["parameters"][name] == each["value"] and each["for"] for name, each in sizes["chosen"].items())
    assert report["forecast"]["cycles"] > 0 and report["workload"]["rank"] == 8 and report["workload"]["samples"] == 40
    assert "taps=12" in said and "adapter_depth=512" in said
    metrics = gradloom.finetune(
        "digits-ulx3s", output=tmp_path / "run", engine="reference", rank=8, epochs=1, design=out
    )
    assert metrics["rank"] == 8


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("mesh", "--rank", "8"), "rank=8: must be left out with mesh, a unit"),
        (("cdm-qta-kv260", "--samples", "8"), "samples=8: must be left out, no sizes are chosen for cdm-qta-kv260"),
        (("edge-qlora-genesys2", "--samples", "8"), "samples=8: must be left out of a language model"),
        # A shipped model without sizes has its preset's design.
        (("digits-unet", "--set", "rowz=3"), "rowz: no such parameter"),
        ((LENET5, "--board", "genesys2"), "board=genesys2: no preset is sized for"),
        (("nowhere.onnx", "--board", "kv260"), "nowhere.onnx"),
        ((LENET5, "--board", "kv260", "--data", "d.npz", "--samples", "3"), "samples=3: d.npz says how many"),
        ((LENET5, "--board", "kv260", "--rank", "16"), "20 adapters of rank 4 (at most 16"),
        (
            (LENET5, "--board", "kv260", "--set", "blocks=16", "--set", "adapter_depth=512"),
            "blocks=16: lenet5 at rank 4 needs 64 (49 blocks of 64 cached activations); "
            "adapter_depth=512: lenet5 at rank 4 needs 1024 (737 adapter words a column)",
        ),
        # 25 rows in place of 4, and all that LeNet-5 needs.
        ((LENET5, "--board", "ulx3s"), "ulx3s has 156 DSP slices, this design needs 172 (100 for array)"),
        ((LENET5, "--board", "ulx3s"), "of block RAM and URAM, this design needs 5,199,872 (2,097,152 for weights)"),
        ((LENET5, "--board", "ulx3s"), "lenet5 at rank 4 needs rows=25, image_depth=2048, kernel=5, "),
    ],
)
def test_a_choice_that_cannot_be_is_one_message(run, tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("generate", *arguments, "-o", "out")
    assert code == 2 and not out and err.count("\n") == 1 and named in err, err
    assert list(tmp_path.iterdir()) == []


def test_all_resources_that_do_not_suffice_are_named():
    config = ImageConfig(rows=32, weight_depth=65536, feature_depth=65536, adapter_depth=8192)
    with pytest.raises(ValueError) as refused:
        check_fit(config, boards.find("ulx3s"))
    message = str(refused.value)
    assert "156 DSP slices" in message and "(512 for array)" in message
    assert "bits of block RAM" in message and "for feature maps)" in message and message.count("ulx3s has") == 2


def test_from_python(tmp_path):
    with pytest.raises(ValueError, match="samples=0: must be from 1"):
        gradloom.generate(str(LENET5), tmp_path / "out", board="kv260", samples=0)
    assert not (tmp_path / "out").exists()
