"""Boards that share the KV260's project: what differs between them, in every file that has it."""

import json
import subprocess

import pytest

from gradloom import boards
from gradloom.boards.kv260.carriers import CARRIERS
from gradloom.preset import find_preset
from gradloom.systems.asked import asked_for

#: Part, name of the board files as Vivado gives it, address of the registers, PLL of 200 MHz.
TABLE = {
    "kv260": ("xck26-sfvc784-2lv-c", "xilinx.com:kv260_som:part0:1.4", "0xa0010000", "DPLL"),
    "kr260": ("xck26-sfvc784-2lv-c", "xilinx.com:kr260_som:part0:1.1", "0xa0010000", "DPLL"),
    "zcu104": ("xczu7ev-ffvc1156-2-e", "xilinx.com:zcu104:part0:1.1", "0xa0000000", "RPLL"),
}
#: What the device trees of these boards hold, by Linux.
TREES = {
    "kv260": "xlnx,zynqmp-sk-kv260-rev1\0xlnx,zynqmp-sk-kv260\0xlnx,zynqmp\0",
    "kr260": "xlnx,zynqmp-sk-kr260-revB\0xlnx,zynqmp-sk-kr260\0xlnx,zynqmp\0",
    "zcu104": "xlnx,zynqmp-zcu104-revC\0xlnx,zynqmp-zcu104\0xlnx,zynqmp\0",
}
MACHINE = {"table": "", "data_bits": 128}


def test_every_board_of_the_table_is_known():
    assert set(TABLE) == set(CARRIERS) == {each.name for each in boards.all_boards() if each.shell == "zynqmp"}


@pytest.mark.parametrize("name", TABLE)
def test_a_project_builds_for_its_part_and_board(design, make_report, vivado, name):
    part, store, base, pll = TABLE[name]
    boards.write_project(boards.find(name), design, make_report(machine=MACHINE))
    journal, error = vivado(design, board_parts=store)
    assert error is None
    assert {args[args.index("-part") + 1] for args in journal.calls("create_project")} == {part}
    ((pattern, *_),) = journal.calls("get_board_parts")
    assert pattern == f"*:{name}*" and pattern.strip("*:") in store
    assert ["board_part", store, "current_project"] in journal.calls("set_property")
    words = next(args[1] for args in journal.calls("set_property") if args[-1] == "ps").split()
    settings = dict(zip(words[::2], words[1::2]))
    assert settings["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL"] == pll
    registers = next(args for args in journal.calls("assign_bd_address") if "accelerator/s_axi/*" in args)
    assert registers[registers.index("-offset") + 1] == base
    overlay = (design / "board/instantft-kv260.dtso").read_text()
    assert f"gradloom@{base[2:]} {{" in overlay
    assert json.loads((design / "firmware/gradloom_host/design.json").read_text())["clock_mhz"] == 199.999998
    _, error = vivado(design, board_parts="")
    assert f"no board files of the {name.upper()}: install them" in error


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("there", TREES)
def test_a_design_is_loaded_on_its_own_board_only(design, make_report, tmp_path, name, there):
    boards.write_project(boards.find(name), design, make_report())
    tree = tmp_path / "root/proc/device-tree"
    tree.mkdir(parents=True)
    (tree / "compatible").write_text(TREES[there])
    done = subprocess.run(
        ["sh", design / "board/load.sh", "mine", tmp_path / "root"], capture_output=True, text=True, check=False
    )
    # Nothing else is there, so that its own board fails at a later check.
    refused = f"this is no {name.upper()}: its device tree names another board"
    assert done.returncode == 1 and (refused in done.stderr) is (name != there)


@pytest.mark.parametrize("name", TABLE)
def test_flash_asks_for_its_own_board_and_knows_its_usual_host(design, make_report, name):
    boards.write_project(boards.find(name), design, make_report())
    first, *_, last = boards.flash(boards.find(name), design, dry_run=True, echo=lambda line: None)
    host = CARRIERS[name].host
    assert f"is no {name.upper()}: its device tree" in first and f"-e {name}" in first
    assert f" {host} " in first and f" {host} " in last
    commands = boards.build(boards.find(name), design, dry_run=True, echo=lambda line: None)
    assert any("vivado -mode batch" in line for line in commands)


@pytest.mark.parametrize(
    "preset, board", [("instantft-kv260", "kr260"), ("lstm-zcu104", "kv260"), ("lenet5", "zcu104")]
)
def test_boards_of_one_shell_take_each_others_presets(preset, board):
    asked = asked_for(preset, board=board, verb=None)
    assert (asked.board, asked.preset.board, asked.elsewhere) == (board, board, False)
    own = find_preset(asked.preset.name)
    assert own.board != board and asked.preset.config == own.config
    boards.check(boards.find(board), asked.preset)


@pytest.mark.parametrize(
    "preset, board, message",
    [
        ("instantft-kv260", "genesys2", "board=genesys2: must be left out or kv260"),
        ("edge-qlora-genesys2", "kr260", "board=kr260: must be left out or genesys2"),
    ],
)
def test_another_shell_does_not(preset, board, message):
    with pytest.raises(ValueError, match=message):
        asked_for(preset, board=board, verb=None)
    with pytest.raises(ValueError, match="board=kr260: must be left out or kv260"):
        asked_for("instantft-kv260", board="kr260")
