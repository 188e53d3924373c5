# amaranth: UnusedElaboratable=no
"""Transitions in a SAIF file: as many as Verilator covers, at the instances of the board's project, each net once."""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gradloom.preset import PRESETS
from gradloom.rtl.catalog import find_unit
from gradloom.rtl.emit.verilog import convert
from gradloom.sim.activity import counts as toggle_counts
from gradloom.sim.activity.driver import record
from gradloom.sim.activity.runs import ActivityRequest, network_step
from gradloom.sim.activity.saif import read_activity, write_saif
from gradloom.sim.activity.summary import activity_of, most_active, named_parts
from gradloom.sim.run.builds.designs import Design
from gradloom.sim.run.device import SimulatedDevice, build_device
from gradloom.sim.run.recording import recorded
from gradloom.workload import silent

from ..tiles import ROOMY

QUIET = Path(__file__).parents[1] / "soc" / "quiet_accelerator.sv"
CYCLES = 1500
#: Of wider signals Verilator's coverage counts the bits from 32 on several times, which a bit that is covered or not
#: does not show.
NARROW = 64
SEED = int("2545f491" * 8, 16)


def beside(text, units):
    """The stand-in for an accelerator with units that are fed pseudo-random bits."""
    head, tail = text.split("    localparam", 1)
    body = (
        "    logic [255:0] noise;\n"
        "    always_ff @(posedge clk)\n"
        f"        noise <= rst ? 256'h{SEED:x} : {{noise[254:0], noise[255] ^ noise[253] ^ noise[250]}};\n"
    )
    for number, (name, emission) in enumerate(units):
        at, ports = 7 * number, [".clk", ".rst"]
        for port in emission.ports:
            if port.direction == "input" and port.name not in ("clk", "rst"):
                ports.append(f".{port.name}(noise[{at}+:{port.width}])")
                at += port.width
        body += f"    {emission.name} {name}({', '.join(ports)});\n"
    return f"{head}{body}    localparam{tail}"


def shifted(state):
    """The stand-in's noise after a cycle."""
    return (state << 1 | (state >> 255 ^ state >> 253 ^ state >> 250) & 1) & ((1 << 256) - 1)


def covered(device, path):
    device.write_coverage(path)
    with path.open(encoding="latin-1") as lines:
        return Counter({bit: sum(each) for bit, each in toggle_counts.counted(lines).items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Verilog, recording, and coverage of the same cycles: two encoders and a small mesh, with a reset in between."""
    folder = tmp_path_factory.mktemp("activity")
    encoder, mesh = (
        convert(find_unit("nf4-encode").build(), name="encoder"),
        convert(find_unit("mesh").build(rows=2, cols=2), name="mesh"),
    )
    texts = {**encoder.files, **mesh.files}
    (folder / "plain").mkdir()
    files, counting = ([where / f"{name}.v" for name in texts] for where in (folder / "plain", folder))
    for path, other, text in zip(files, counting, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
        other.write_text(toggle_counts.instrument(text), encoding="utf-8")
    units = (("first", encoder), ("second", encoder), ("grid", mesh))
    (folder / "gradloom.sv").write_text("/*verilator coverage_off*/\n" + beside(QUIET.read_text("utf-8"), units))
    bench = folder / "bench.vlt"
    bench.write_text('`verilator_config\ncoverage_off -file "*axi_memory.sv"\ncoverage_off -file "*device.sv"\n')
    with recorded(folder) as recording:
        program = build_device(
            [*counting, folder / "gradloom.sv", bench],
            memory_bytes=1 << 16,
            data_bits=64,
            address_bits=32,
            arguments=toggle_counts.ARGUMENTS,
        )
        device = SimulatedDevice(program, memory_bytes=1 << 16)
    with device:
        before = covered(device, folder / "before")
        device.advance(CYCLES)
        device.set("rst", 1)
        device.advance(20)
        device.set("rst", 0)
        device.advance(CYCLES)
        after = covered(device, folder / "after")
    after.subtract(before)
    found = read_activity(folder).find("dut")
    # The stand-in is written by hand, and its instances are.
    (folder / "outer.v").write_text(
        "module gradloom(clk);\n  input clk;\n  wire clk;\n"
        + "".join(f"  {each.name} {name} (\n  );\n" for name, each in units)
        + "endmodule\n"
    )
    return found, recording.cycles, after, [*files, folder / "outer.v"]


def counts(found, files):
    """Transitions of each bit in all instances of its module."""
    placed = {
        module: {name: kind for kind, name in each}
        for module, each in toggle_counts.parts([path.read_text() for path in files]).items()
    }
    seen = Counter()
    for path, instance in found.walk():
        kind = "gradloom"
        for name in path:
            kind = placed[kind].get(name, "")
        for net in instance.nets:
            seen[kind, net.signal, net.bit or 0] += net.toggles
    return seen


def test_transitions_are_those_that_verilator_covers(run):
    found, cycles, coverage, files = run
    assert cycles == 2 * CYCLES + 20
    seen = counts(found, files)
    known = {
        (module, name, bit)
        for path in files
        for module, each in toggle_counts.signals(path.read_text()).items()
        for name, signal in each.items()
        for bit in range(signal.width)
        if signal.width <= NARROW
    } & set(coverage)
    sampled = random.Random(3).sample(sorted(known), 100)
    assert {bit: seen[bit] for bit in sampled} == {bit: coverage[bit] for bit in sampled}
    assert sum(coverage[bit] > 0 for bit in sampled) > 60 and max(coverage[bit] for bit in sampled) > CYCLES / 4
    assert {bit: seen[bit] for bit in known} == {bit: coverage[bit] for bit in known}


def test_transitions_of_a_wide_signal_are_those_of_its_model(run):
    found, *_ = run
    toggles = Counter()
    # The bench has reset the machine, and a cycle has passed since.
    state = shifted(SEED)
    for reset in (*[False] * CYCLES, *[True] * 20, *[False] * CYCLES):
        before, state = state, SEED if reset else shifted(state)
        toggles.update(bit for bit in range(256) if (before ^ state) >> bit & 1)
    assert {net.bit: net.toggles for net in found.nets if net.signal == "noise"} == toggles


def test_each_net_counts_once_and_like_instances_together(run):
    found, cycles, _, files = run
    whole = activity_of(found, files, "gradloom")
    names = {path for path, _ in found.walk()}
    # The clock is a port of the outermost module, and a net.
    assert whole.own_nets == len(found.nets) and "clk" in {net.signal for net in found.nets}
    assert not any("clear_" in each for path in names for each in path)
    parts = {each["part"]: each for each in most_active(whole, cycles, 100)}
    pe = next(each for name, each in parts.items() if name.endswith("row_*/pe_*") or name.endswith("pe_*"))
    assert sum(each["instances"] for name, each in parts.items() if "pe_" in name.split("/")[-1]) == 4 and pe["nets"]
    # Ports of a PE are nets of its row.
    inner = next(instance for path, instance in found.walk() if path and path[-1] == "pe_0")
    ports = {
        name
        for name, each in toggle_counts.signals(next(p for p in files if p.name == "mesh_pe.v").read_text())[
            "mesh_pe"
        ].items()
        if each.port
    }
    assert sum(net.signal in ports for net in inner.nets) and pe["nets"] < pe["instances"] * len(inner.nets)
    rows = named_parts(whole, [], cycles)
    assert {each["part"] for each in rows} >= {"first", "second", "grid", "between them"}
    assert sum(each["nets"] for each in rows) == whole.nets
    assert sum(each["share"] for each in rows) == pytest.approx(100, abs=0.1)


def test_the_file_has_the_instances_of_the_project_and_picoseconds(run, tmp_path):
    found, cycles, _, files = run
    activity_of(found, files, "gradloom")
    with (tmp_path / "out.saif").open("wb") as file:
        write_saif(file, found, cycles=cycles, clock_mhz=75, design=("name", "0" * 64), path=("bench", "top", "inst"))
    text = (tmp_path / "out.saif").read_text()
    whole = round(cycles * 1e6 / 75)
    assert f"(DURATION {whole})" in text and "(TIMESCALE 1 ps)" in text
    scopes = re.findall(r"^( *)\(INSTANCE (\S+)", text, re.MULTILINE)
    assert scopes[:3] == [("", "bench"), (" ", "top"), ("  ", "inst")]
    assert {"first", "second", "grid"} <= {name for space, name in scopes if space == "   "}
    nets = re.findall(r"\(\S+ \(T0 (\d+)\) \(T1 (\d+)\) \(TX 0\) \(TC (\d+)\) \(IG 0\)\)", text)
    assert len(nets) == sum(len(instance.nets) for _, instance in found.walk())
    assert all(int(low) + int(high) == whole for low, high, _ in nets)
    assert sum(int(each) for _, _, each in nets) == sum(n.toggles for _, i in found.walk() for n in i.nets)
    assert text.count("(") == text.count(")")
    # A bit that changes in every half period is high for half of the time.
    clock = re.search(r"\(clk \(T0 (\d+)\) \(T1 (\d+)\) \(TX 0\) \(TC (\d+)\)", text)
    assert abs(int(clock[1]) - int(clock[2])) <= 1 and int(clock[3]) == 2 * cycles


def test_whoever_hears_is_told_what_takes_long(monkeypatch):
    heard = []

    def files(design, tell):
        tell("generating Verilog")
        raise KeyboardInterrupt

    monkeypatch.setattr(Design, "files", files)
    for progress in (lambda *told: heard.append(told), None):
        with pytest.raises(KeyboardInterrupt):
            record(PRESETS["tile-kv260"], None, progress=progress)
    assert heard == [(0, 0, "generating Verilog")]


def test_two_machines_are_refused():
    with recorded(Path(".")) as recording:
        recording.take()
        with pytest.raises(ValueError, match="two machines"):
            recording.take()


def test_a_networks_step_is_that_of_the_reference(tmp_path):
    """The run that energy is told of, on the least array; it compares itself."""
    design = Design(replace(PRESETS["tile-kv260"], name="small", config=ROOMY))
    told = network_step(ActivityRequest(design=design, samples=1, scratch=tmp_path, tell=silent, rank=3))
    assert told == "LoRA step of a convolution of 16 channels and a linear layer, 4 images of 8 by 8, rank 3"
