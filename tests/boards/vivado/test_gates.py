"""The gates between a finished implementation and its bitstream, with reports as Vivado writes them."""

import re

import pytest

from gradloom import boards

from ..conftest import rules_report, timing_report

BOARD = boards.find("kv260")
STEPS = "STEPS.{}.IS_ENABLED"
REMEDY = (
    "to accept a rule after review, such as one of a vendor's core: set allowed_rules [list {}] in board/settings.tcl"
)


def refused(vivado, design, report, **reports):
    """What the build says of a design whose reports are these; no bitstream may leave."""
    boards.write_project(BOARD, design, report)
    _, error = vivado(design, **reports)
    assert error is not None and not list((design / "board" / "build" / "out").glob("*.bit"))
    return error


def test_runs_are_parallel_and_optimise_physically(journal):
    runs = journal.calls("launch_runs")
    assert [run[0] for run in runs] == ["synth_1", "impl_1"]
    assert all(1 <= int(run[run.index("-jobs") + 1]) <= 8 for run in runs)
    settings = journal.calls("set_property")
    assert ["strategy", "Performance_ExplorePostRoutePhysOpt", "impl_1"] in settings
    enabled = [[STEPS.format(step), "true", "impl_1"] for step in ("PHYS_OPT_DESIGN", "POST_ROUTE_PHYS_OPT_DESIGN")]
    order = [*journal]
    assert all(["set_property", *line] in order for line in enabled)
    # The strategy sets every step; what is set by name comes behind it.
    assert (
        order.index(["set_property", "strategy", "Performance_ExplorePostRoutePhysOpt", "impl_1"])
        < order.index(["set_property", *enabled[0]])
        < order.index(["launch_runs", *runs[1]])
    )


@pytest.mark.parametrize(
    "change, said",
    [
        ({"wns": "-0.310", "failing": (17, 0, 0)}, "timing is not met (WNS is -0.310 ns, 17 endpoints)"),
        ({"whs": "-0.001", "failing": (0, 1, 0)}, "timing is not met (WHS is -0.001 ns, 1 endpoints)"),
        ({"wpws": "-0.264", "failing": (0, 0, 8)}, "timing is not met (WPWS is -0.264 ns, 8 endpoints)"),
        ({"wpws": "NA"}, "timing is not met (WPWS is NA ns, 0 endpoints)"),
        ({"no_clock": 4}, "constraints are missing or wrong (no_clock: 4)"),
        (
            {"unconstrained_internal_endpoints": 31},
            "constraints are missing or wrong (unconstrained_internal_endpoints: 31)",
        ),
        ({"loops": 2}, "constraints are missing or wrong (loops: 2)"),
        ({"latch_loops": 1}, "constraints are missing or wrong (latch_loops: 1)"),
        ({"generated_clocks": 1}, "constraints are missing or wrong (generated_clocks: 1)"),
    ],
)
def test_timing_and_constraints_are_gates(design, report, vivado, change, said):
    error = refused(vivado, design, report, timing_summary=timing_report(**change))
    assert error.splitlines() == [said, "the bitstream is kept back: see build/out"]


@pytest.mark.parametrize(
    "kind, name", [("drc", "design rules (drc.rpt)"), ("methodology", "methodology (methodology.rpt)")]
)
@pytest.mark.parametrize(
    "severity, passes", [("Critical Warning", False), ("Error", False), ("Warning", True), ("Advisory", True)]
)
def test_rules_are_gates_from_critical_warnings_on(design, report, vivado, kind, name, severity, passes):
    text = rules_report(("LUTAR-1", "Warning", "fine", 3), ("TIMING-17", severity, "Non-clocked sequential cell", 5))
    if passes:
        boards.write_project(BOARD, design, report)
        assert vivado(design, **{kind: text})[1] is None
    else:
        error = refused(vivado, design, report, **{kind: text})
        assert error.splitlines()[0] == f"{name}: TIMING-17, 5 times ({severity.lower()}: Non-clocked sequential cell)"
        assert error.splitlines()[1] == REMEDY.format("TIMING-17") and len(error.splitlines()) == 3


def test_every_gate_that_fails_has_a_line(design, report, vivado):
    rule = rules_report(("NSTD-1", "Critical Warning", "Unspecified I/O Standard", 2))
    error = refused(
        vivado,
        design,
        report,
        timing_summary=timing_report(wns="-1.000", failing=(9, 0, 0), no_clock=1),
        drc=rule,
        methodology=rule,
    )
    assert [line.split()[0] for line in error.splitlines()] == [
        "timing",
        "constraints",
        "design",
        "methodology",
        "to",
        "the",
    ]
    assert error.splitlines()[4] == REMEDY.format("NSTD-1")


def test_a_rule_can_be_allowed_by_its_name(design, report, vivado):
    boards.write_project(BOARD, design, report)
    settings = design / "board" / "settings.tcl"
    settings.write_text(settings.read_text().replace("set allowed_rules [list ]", "set allowed_rules [list TIMING-17]"))
    rows = [("TIMING-17", "Critical Warning", "Non-clocked sequential cell", 5)]
    assert vivado(design, methodology=rules_report(*rows))[1] is None
    _, error = vivado(design, methodology=rules_report(*rows, ("TIMING-2", "Critical Warning", "Invalid source", 1)))
    assert error.splitlines()[0] == (
        "methodology (methodology.rpt): TIMING-2, 1 times (critical warning: Invalid source)"
    )
    # What the message says is what the script reads.
    assert error.splitlines()[1] == REMEDY.format("TIMING-17 TIMING-2")
    said = re.search(r"set allowed_rules \[list .*?\]", error)[0]
    settings.write_text(re.sub(r"set allowed_rules \[list .*?\]", said, settings.read_text()))
    both = rules_report(*rows, ("TIMING-2", "Critical Warning", "Invalid source", 1))
    assert vivado(design, methodology=both)[1] is None


@pytest.mark.parametrize(
    "name, said",
    [
        ("timing_summary", "timing: the report holds no Design Timing Summary"),
        ("drc", "design rules (drc.rpt): the report holds no summary"),
        ("methodology", "methodology (methodology.rpt): the report holds no summary"),
    ],
)
def test_a_report_that_cannot_be_read_is_no_pass(design, report, vivado, name, said):
    assert said in refused(vivado, design, report, **{name: "Vivado has another format now"}).splitlines()


def test_a_memory_without_its_content_ends_the_build(design, report, vivado):
    line = "ERROR: [Synth 8-4445] could not open $readmem data file soc_image.mem"
    error = refused(vivado, design, report, log=f"INFO: [Synth 8-6157] synthesizing\n{line}\nINFO: fine")
    assert error == f"synth_1: {line}"
    assert vivado(design, log="INFO: [Synth 8-3876] $readmem data file is read successfully")[1] is None
