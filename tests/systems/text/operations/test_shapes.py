"""The machine that a model and a rank need: the preset's, larger where they need more."""

from dataclasses import replace

import pytest

from gradloom import boards
from gradloom.models.language import BUILT_IN, PROJECTIONS
from gradloom.preset import PRESETS
from gradloom.systems.text.costs.fit import board_misfits
from gradloom.systems.text.operations.shapes import larger, suited

GENESYS2, KV260 = (PRESETS[f"edge-qlora-{name}"].config for name in ("genesys2", "kv260"))
SMOLLM2, TINYLLAMA = BUILT_IN["smollm2-135m"], BUILT_IN["tinyllama-1.1b"]
Q_V, ALL = ("q_proj", "v_proj"), tuple(PROJECTIONS)
#: Shapes of Llama 3.2 3B, and of Mistral 7B.
WIDE = replace(BUILT_IN["llama-3.2-1b"], hidden=3072, layers=28, heads=24, head_dim=128)
WIDER = replace(TINYLLAMA, hidden=4096, inter=14336, layers=32, kv_heads=8, head_dim=128)


@pytest.mark.parametrize("config", [GENESYS2, KV260], ids=["genesys2", "kv260"])
@pytest.mark.parametrize(
    "model, rank, targets, more",
    [
        (SMOLLM2, 8, ALL, {}),
        (SMOLLM2, 8, (), {}),
        (SMOLLM2, 64, (), {}),
        (SMOLLM2, 9, Q_V, {"rank": 10}),
        (SMOLLM2, 16, ALL, {"rank": 16}),
        (SMOLLM2, 17, Q_V, {"rank": 16}),
        (replace(SMOLLM2, gate="gelu_tanh"), 2, Q_V, {"gelu": 1}),
        (TINYLLAMA, 8, ALL, {}),
        (TINYLLAMA, 16, ALL, {"rank": 16, "lane_depth": 2048}),
        (WIDE, 8, Q_V, {"features": 4096, "groups": 2048}),
        (replace(TINYLLAMA, heads=48, joint_norms=True), 8, Q_V, {"features": 4096}),
        (WIDER, 16, Q_V, {"features": 4096, "groups": 4096, "rank": 16, "lane_depth": 2048}),
        (replace(WIDER, hidden=8192), 8, Q_V, {"features": 4096, "groups": 4096, "lane_depth": 2048}),
    ],
    ids=str,
)
def test_a_machine_has_what_a_request_needs_and_nothing_else(config, model, rank, targets, more):
    assert larger(suited(config, model, rank=rank, targets=targets), config) == more


def test_what_a_machine_has_more_than_is_needed_stays():
    config = replace(KV260, rank=16, lane_depth=2048, features=4096, groups=4096, gelu=1, packing=1)
    assert suited(config, SMOLLM2, rank=2, targets=Q_V, packing=0) == config
    assert larger(suited(KV260, SMOLLM2, packing=1), KV260) == {"packing": 1}


def test_a_machine_that_the_board_does_not_hold_is_refused():
    board = replace(boards.find("kv260"), dsp=1010)
    told = {"rank": 16, "targets": Q_V}
    assert not board_misfits(KV260, SMOLLM2, boards.find("kv260"), **told)
    assert list(map(str, board_misfits(KV260, SMOLLM2, board, **told))) == [
        "rank=16: needs a machine with rank=16; kv260 has 1,010 DSP slices, this design needs 1,018 (832 for array); "
        "give --rank 14"
    ]
    (found,) = board_misfits(KV260, WIDE, replace(board, dsp=900), rank=8, targets=Q_V)
    assert str(found).startswith("hidden=3072: needs a machine with groups=2048, features=4096; kv260 has 900 DSP")
    # What does not fit as a preset is the preset's.
    assert not board_misfits(KV260, SMOLLM2, replace(board, dsp=900), rank=8, targets=Q_V)
