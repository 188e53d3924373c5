"""Networks that the cell engine does not hold: the part, its value, the bound and what to change."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.example import example_lstm, example_network
from gradloom.models.recurrent.stored import save_network
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.program import CellProgram

SMALL = RecurrentConfig(hidden=16, inputs=8, parallel=2, sequences=2, state_bits=8, window=16)
WHOLE = example_network(1, 16, 3, kernel=4, stride=2, outputs=8, classes=5)
LSTM = example_lstm(1, 16, 8)


def cell(**changes):
    return replace(LSTM, cell=replace(LSTM.cell, **changes))


def gates(**changes):
    """Each gate of the LSTM with other weights."""
    return cell(gates={name: replace(each, **changes) for name, each in LSTM.cell.gates.items()})


def levels(gate):
    """Thresholds that no multiplication has, in place of a gate's quantiser."""
    steps = np.sort(np.random.default_rng(0).integers(-2000, 2000, (1, 20))) / 256.0
    changed = replace(LSTM.cell.gates[gate], accumulator=Coding(0.125, -10, 10, levels=steps, name="mt"))
    return cell(gates=LSTM.cell.gates | {gate: changed})


def conv(**changes):
    return replace(WHOLE, front=(replace(WHOLE.front[0], **changes),))


BAD = {
    "hidden": (example_lstm(1, 20, 8), SMALL, "with hidden=16: set hidden=32 .20 elements of a hidden state.$"),
    "inputs": (example_lstm(1, 16, 9), SMALL, "with inputs=8: set inputs=16 .9 of an input.$"),
    "window": (WHOLE, SMALL.replace(window=8), "with window=8: set window=16 .windows of 12 codes.$"),
    "classes": (
        replace(
            WHOLE,
            head=replace(
                WHOLE.head, **{"weight": np.ones((60, 16), np.int64), "scale": np.ones(60), "bias": np.zeros(60)}
            ),
        ),
        SMALL,
        "with hidden=16: set hidden=32 .8 outputs of a convolution and 60 classes.$",
    ),
    "outputs": (
        example_network(1, 8, 3, kernel=2, stride=1, outputs=40, classes=2),
        RecurrentConfig(hidden=8, inputs=64, parallel=2, window=8),
        "with hidden=8: set hidden=16 .40 outputs of a convolution and 2 classes.$",
    ),
    "state": (LSTM, SMALL.replace(state_bits=7), "with state_bits=7: set state_bits=8 .states -128 to 127.$"),
    "sums": (
        gates(
            u=np.full((256, 256), 127),
            w=np.full((256, 8), 127),
            w_scale=np.ones(256),
            u_scale=np.ones(256),
            bias=np.zeros(256),
        ),
        SMALL.replace(hidden=256, parallel=1),
        "sums of a lane of products of the cell reach",
    ),
    "sums of the convolution": (
        replace(conv(weight=np.full((8, 256, 1), 127)), input=Coding(1 / 16, -128, 127)),
        SMALL.replace(window=256, parallel=1),
        "products of the convolution reach 4161536",
    ),
    "a pair": (gates(u=np.full((16, 16), -128), w=np.full((16, 8), -128)), SMALL, "a weight of -128 shares a slice"),
    "thresholds": (levels("cell"), SMALL, "cell accumulator: became a table of 320 thresholds"),
    "wide codes": (
        replace(LSTM, input=Coding(2.0**-5, -200, 100)),
        SMALL,
        "codes of the input are -200 to 100: must be within -128 and 127",
    ),
    "wide windows": (
        replace(WHOLE, input=Coding(2.0**-4, -1, 200)),
        SMALL,
        "codes of the window are -1 to 200: must be within 0 and 255",
    ),
    "a state's scale": (cell(kept=Coding(2.0**-4, -128, 127)), SMALL, "ratio is 2/1: must be 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_network_that_does_not_fit_is_refused_by_its_part(case):
    network, config, said = BAD[case]
    with pytest.raises(ValueError, match=said) as refused:
        CellImage(network, config).check()
    assert "\n" not in str(refused.value)


def test_too_many_steps_are_refused():
    image = CellImage(LSTM, SMALL)
    with pytest.raises(ValueError, match="steps=65536: must be at most 65535"):
        CellProgram(image, np.zeros((1, 1 << 16, 8), np.int64), SMALL)


def test_from_the_command_line_it_is_one_line(run, tmp_path):
    """And nothing is simulated or written."""
    save_network(example_lstm(1, 300, 260), tmp_path / "net")
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 260)))
    code, out, err = run(
        "infer",
        tmp_path / "net",
        "--board",
        "zcu104",
        "--data",
        tmp_path / "x.npz",
        "--engine",
        "rtl",
        "-o",
        tmp_path / "o.npz",
    )
    assert (code, out) == (2, "")
    assert "is beyond every design: hidden=300 (300 elements of a hidden state; at most 256), inputs=260" in " ".join(
        err.split()
    )
    assert not (tmp_path / "o.npz").exists()
