"""Clocks that are asked for, in everything that is timed by them; and the clock that a build's worst slack allows."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import pytest

from gradloom import boards
from gradloom.boards.flow import FlowError
from gradloom.boards.kv260.ps_clock import clocks
from gradloom.boards.kv260.settle import settle
from gradloom.cli.design.generate import configured
from gradloom.preset import find_preset
from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.forecast import forecast

from .conftest import timing_report

BOARD = boards.find("kv260")
MACHINE = {"table": "", "data_bits": 128}
#: Asked for, made in Hz, the PLL and its divider, and the period of the constraint.
TABLE = [
    ("100", 99_999_999, "IOPLL", 15, "10.000"),
    ("125", 124_999_998, "IOPLL", 12, "8.000"),
    ("150", 149_999_998, "IOPLL", 10, "6.667"),
    ("166.67", 166_666_665, "IOPLL", 9, "6.000"),
    ("187.5", 187_499_998, "IOPLL", 8, "5.333"),
    ("200", 199_999_998, "DPLL", 6, "5.000"),
]


def test_a_clock_is_the_pll_behind_two_dividers():
    """Each divides by 1 to 63, so that by a product of both, which one alone cannot reach."""
    pll = 33_333_333 * 45
    made = {pll // (one * other) for one in range(1, 64) for other in range(1, 64)}
    found = [each.hz for each in clocks()]
    assert found == sorted((hz for hz in made if hz <= 333_000_000), reverse=True)
    assert pll // 100 in found and pll // (63 * 63) == found[-1] and pll // 67 not in found
    assert all(each.hz == pll // each.divisors[0] // each.divisors[1] for each in clocks())


def project(design, make_report, asked, **more):
    config = configured(find_preset("instantft-kv260").config, {"clock_mhz": asked})
    report = make_report(parameters=dataclasses.asdict(config), machine=MACHINE, **more)
    boards.write_project(BOARD, design, report)
    return config


def overlays_hz(design):
    return re.findall(r"assigned-clock-rates = <(\d+)>", (design / "board/instantft-kv260.dtso").read_text())


def hosts_mhz(design):
    return json.loads((design / "firmware/gradloom_host/design.json").read_text())["clock_mhz"]


@pytest.mark.parametrize("asked, hz, pll, divider, period", TABLE)
def test_a_clock_is_in_tcl_constraint_overlay_host_and_forecast(
    design, make_report, vivado, asked, hz, pll, divider, period
):
    config = project(design, make_report, asked)
    assert 33_333_333 * {"IOPLL": 45, "DPLL": 36}[pll] // divider == hz
    journal, error = vivado(design, period=period)
    assert error is None
    words = next(args[1] for args in journal.calls("set_property") if args[-1] == "ps").split()
    settings = dict(zip(words[::2], words[1::2]))
    made = settings["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ"], settings["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL"]
    assert made == (f"{hz / 1e6:g}", pll)
    assert f" -period {period} " in (design / "board/clock.xdc").read_text()
    assert overlays_hz(design) == [str(hz)]
    assert hosts_mhz(design) == hz / 1e6
    told = forecast([Instruction(CONTROL, ControlOpcode.END, {})], config=config)
    assert told.seconds == pytest.approx(told.total / hz, rel=1e-4)


@pytest.mark.parametrize(
    "preset, asked, refused",
    [
        ("instantft-kv260", "160", "must be a clock that the processing system of kv260 makes: 150 or 166.667"),
        ("instantft-kv260", "334", "must be at most 333 on kv260, the clock of an AXI port .DS925."),
        ("edge-qlora-genesys2", "250", "must be 200 or 166.667 on genesys2, whose memory controller"),
    ],
)
def test_a_clock_that_the_board_does_not_make_is_refused_with_those_that_it_makes(preset, asked, refused):
    found = find_preset(preset)
    config = configured(found.config, {"clock_mhz": asked})
    with pytest.raises(ValueError, match=f"^clock_mhz={asked}: {refused}"):
        boards.check(boards.find(found.board), dataclasses.replace(found, config=config))


@pytest.mark.parametrize("text", ["fast", "nan", "inf", "0", "-5", "1000.5"])
def test_what_is_no_clock_is_refused(text):
    with pytest.raises(ValueError, match=f"^clock_mhz={text}: must be a number"):
        configured(find_preset("instantft-kv260").config, {"clock_mhz": text})


def test_a_whole_number_stays_an_integer_however_it_is_written():
    config = find_preset("instantft-kv260").config
    for text in ("150", "150.0", "1.5e2"):
        assert repr(configured(config, {"clock_mhz": text}).clock_mhz) == "150"


@pytest.mark.parametrize(
    "slack, hz",
    [
        ("0.003", 199_999_998),
        ("-0.001", 187_499_998),
        ("-0.333", 187_499_998),
        ("-0.334", 166_666_665),
        ("-1.000", 166_666_665),
        ("-1.001", 149_999_998),
        ("-4.100", 107_142_856),
    ],
)
def test_a_build_takes_the_clock_that_the_worst_slack_allows(design, make_report, vivado, slack, hz):
    project(design, make_report, "200")
    missed = timing_report(wns=slack, failing=(slack.startswith("-"), 0, 0))
    journal, error = vivado(design, timing_summary=missed, timing_retimed=timing_report())
    assert error is None
    out = design / "board/build/out"
    assert int((out / "clock.txt").read_text()) == hz
    retimed = journal.calls("create_clock")
    if hz == 199_999_998:
        assert not retimed and not (out / "timing_asked.rpt").exists()
    else:
        # The gates read what the design does at its clock; the bitstream is that of the first run.
        ((_, name, _, period, pin),) = retimed
        assert (name, pin) == ("clk_pl_0", "ps/PLCLK[0]") and float(period) == pytest.approx(1e9 / hz, abs=1e-3)
        assert float(period) <= 1e9 / hz and ["clk_pl_0", "0.05"] in journal.calls("set_input_jitter")
        assert slack in (out / "timing_asked.rpt").read_text() and slack not in (out / "timing.rpt").read_text()
    (out / "instantft-kv260.hwh").write_text(HANDOFF)
    assert settle(design, "instantft-kv260") == hz / 1e6
    assert overlays_hz(design) == [str(hz)] and hosts_mhz(design) == hz / 1e6


HANDOFF = "\n".join(
    f'<PARAMETER NAME="PSU__CRL_APB__PL0_REF_CTRL__{name}" VALUE="{value}"/>'
    for name, value in {"SRCSEL": "DPLL", "FREQMHZ": "200", "DIVISOR0": "6", "DIVISOR1": "1"}.items()
)


def test_a_design_that_is_still_too_slow_is_kept_back(design, make_report, vivado):
    project(design, make_report, "200")
    missed = timing_report(wns="-0.300", failing=(9, 0, 0))
    _, error = vivado(design, timing_summary=missed, timing_retimed=timing_report(wns="-0.050", failing=(1, 0, 0)))
    assert "timing is not met (WNS is -0.050 ns, 1 endpoints)" in error
    # No clock repairs hold, and none of the processing system's is slow enough for the last one.
    for slack, whs in (("-0.300", "-0.010"), ("-20.000", "0.020")):
        missed = timing_report(wns=slack, whs=whs, failing=(9, 0, 0))
        _, error = vivado(design, timing_summary=missed, timing_retimed=missed)
        assert "timing is not met" in error


def test_every_build_starts_from_the_clock_that_was_asked_for(design, make_report):
    project(design, make_report, "200")
    out = design / "board/build/out"
    out.mkdir(parents=True)
    for hz, divider in ((187_499_998, "8"), (187_499_998, "8"), (93_749_999, "16"), (199_999_998, "6")):
        (out / "instantft-kv260.hwh").write_text(HANDOFF)
        (out / "clock.txt").write_text(f"{hz}\n")
        settle(design, "instantft-kv260")
        assert overlays_hz(design) == [str(hz)] and hosts_mhz(design) == hz / 1e6
        handoff = (out / "instantft-kv260.hwh").read_text()
        assert f'DIVISOR0" VALUE="{divider}"' in handoff
        assert f'SRCSEL" VALUE="{"DPLL" if divider == "6" else "IOPLL"}"' in handoff


def test_a_file_that_does_not_take_the_clock_leaves_all_as_they_were(design, make_report):
    project(design, make_report, "200")
    out = design / "board/build/out"
    out.mkdir(parents=True)
    with pytest.raises(FlowError, match="did not create clock.txt"):
        settle(design, "instantft-kv260")
    (out / "clock.txt").write_text("187499998\n")
    (out / "instantft-kv260.hwh").write_text("<hwh/>")
    with pytest.raises(FlowError, match="instantft-kv260.hwh: holds 0 places for the clock"):
        settle(design, "instantft-kv260")
    assert overlays_hz(design) == ["199999998"] and hosts_mhz(design) == 199.999998


def test_the_genesys_2_takes_its_second_clock_from_a_slower_memory(design, make_report, vivado):
    board = boards.find("genesys2")
    boards.write_project(board, design, make_report(data_bits=256, parameters={"clock_mhz": 166.67}))
    controller = ElementTree.fromstring((design / "board/mig.prj").read_text()).find("Controller")
    read = {
        name: controller.findtext(name) for name in ("TimePeriod", "MMCM_VCO", "mrCasLatency", "mr2CasWriteLatency")
    }
    assert read == {"TimePeriod": "1500", "MMCM_VCO": "666", "mrCasLatency": "10", "mr2CasWriteLatency": "7"}
    # A datum comes at the earliest 13.91 ns after its address, as at 1,600 MT/s.
    assert int(read["mrCasLatency"]) * int(read["TimePeriod"]) >= 13_910
    assert " -period 6.000 " in (design / "board/clock.xdc").read_text()
    journal, error = vivado(design)
    assert error is None
    words = next(args[1] for args in journal.calls("set_property") if args[-1] == "soc").split()
    soc = {name.removeprefix("CONFIG."): int(value) for name, value in zip(words[::2], words[1::2])}
    clock = 1e12 / 6000
    assert abs(clock / soc["DIVISOR"] / 115_200 - 1) < 0.001
    assert clock / (2 * soc["CARD_SLOW"]) <= 400_000 and 15e6 < clock / (2 * soc["CARD_FAST"]) <= 25e6
    assert soc["CARD_FAST"] >= 4
