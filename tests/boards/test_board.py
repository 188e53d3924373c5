import json
import re

import pytest

from gradloom import boards
from gradloom.boards.integrate.files import integration_files
from gradloom.boards.links.reach import BoardReach


def test_the_kv260_is_what_its_data_sheet_says():
    board = boards.find("kv260")
    assert board.part == "xck26-sfvc784-2LV-c"
    assert board.family == "xcup"
    assert board.resources == {"lut": 117_120, "ff": 234_240, "dsp": 1_248, "bram36": 144, "uram": 64}
    assert board.memory_bits == 144 * 36_864 + 64 * 294_912
    assert (board.memory_bytes, board.port_bits, board.port_reads) == (4 * 1024**3, 128, 8)


def test_the_genesys2_is_what_its_data_sheet_says():
    board = boards.find("genesys2")
    assert board.part == "xc7k325tffg900-2"
    assert board.family == "xc7"
    assert board.resources == {"lut": 203_800, "ff": 407_600, "dsp": 840, "bram36": 445, "uram": 0}
    assert (board.memory_bytes, board.memory_bandwidth, board.port_bits) == (1024**3, 7_200_000_000, 256)


def test_all_boards_are_found_by_their_names():
    assert boards.all_boards()
    for board in boards.all_boards():
        assert boards.find(board.name) is board
        assert json.loads(json.dumps(board.as_dict()))["name"] == board.name


def test_an_unknown_board_is_named_beside_the_known():
    with pytest.raises(ValueError, match="board 'zcu999': must be one of genesys2, kr260, kv260, ulx3s, zcu104"):
        boards.find("zcu999")


def test_a_core_has_primitives_for_synthesis_and_their_namesakes_for_simulation(design):
    (text,) = integration_files(design, {"module": "gradloom"}).values()
    sets = {
        name: re.findall(r"(?:rtl|synth)/\w+\.v", part)
        for name, part in re.findall(r"\n  (\w+):(.*?)(?=\n  ?\w)", text, re.S)
    }
    assert sets["rtl"] == ["rtl/gradloom.v", "rtl/pe.v"] and sets["synthesis"] == ["rtl/gradloom.v", "synth/pe.v"]


def test_an_agent_that_has_ended_is_told_by_its_last_line_or_its_exit_code():
    said = [BoardReach(name="board", command=()).explain(*each) for each in ((1, "no device"), (1, ""), (None, ""))]
    assert said == ["no device", "the agent has ended (exit code 1)", "the agent does not answer"]


def test_a_design_that_does_not_fit_is_refused_by_resource():
    board = boards.find("kv260")
    board.require(lut=117_120, dsp=1_248)
    with pytest.raises(ValueError, match="dsp: the design needs 1249, kv260 .* has 1248"):
        board.require(lut=1, dsp=1_249)
    with pytest.raises(ValueError, match="'brams'"):
        board.require(brams=1)


@pytest.mark.parametrize(
    "field, value", [("name", "KV 260"), ("family", "xc9"), ("lut", 0), ("dsp", -1), ("port_reads", -1)]
)
def test_a_board_with_a_bad_fact_is_refused(field, value):
    facts = boards.find("kv260").as_dict() | {field: value}
    with pytest.raises(ValueError, match=f"{field} must"):
        boards.Board(**facts)
