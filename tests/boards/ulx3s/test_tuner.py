"""A ULX3S that fine-tunes at power-up, in simulated RTL, and its memory."""

import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from gradloom import boards
from gradloom.boards.ulx3s.ram import ram_verilog
from gradloom.preset import PRESETS
from gradloom.program.memory import BLOCK
from gradloom.program.power_up import PAUSE_SECONDS
from gradloom.rtl.emit.yosys import run_yosys, yosys_files
from gradloom.rtl.soc import tuner_sources
from gradloom.sim.bench.tuner import SimulatedTuner, build_tuner, expected_lines
from gradloom.sim.run.builds import runner
from gradloom.systems.images.program.digits import digits_data, digits_plan
from gradloom.systems.images.program.onchip import OnChip

HERE = Path(__file__).parent
BLOCKS = Path(runner.__file__).parents[2] / "bench" / "harness" / "ecp5_blocks.sv"
BOARD = boards.find("ulx3s")
CONFIG = PRESETS["digits-ulx3s"].config
#: So many blocks to learn from and to judge by.
SMALL = {"train_blocks": 3, "test_blocks": 2}


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
@pytest.mark.parametrize("broken", [False, True])
def test_the_block_ram_does_what_the_memory_does(tmp_path, broken):
    """Filled with random bytes; with one bit of them changed it is seen."""
    image = np.random.default_rng(1).bytes(BOARD.memory_bytes)
    (tmp_path / "image.mem").write_text(
        "".join(
            f"{int.from_bytes(image[at : at + 16], 'little') ^ (broken and at == 0):032x}\n"
            for at in range(0, len(image), 16)
        )
    )
    models = yosys_files() / "share" / "lattice" / "common_sim.vh"
    register = re.search(r"^module TRELLIS_FF\b.*?^endmodule", models.read_text(), re.MULTILINE | re.DOTALL)[0]
    plain = next(path for path in tuner_sources() if path.name == "onchip_ram.v").read_text()
    built = runner.build(
        {
            "ecp5_blocks.sv": BLOCKS.read_text(),
            "register.v": register,
            "filled.v": ram_verilog(image),
            "plain.v": plain.replace("module gradloom_ram ", "module plain_ram "),
            "ram_bench.v": (HERE / "ram_bench.v").read_text(),
        },
        top="ram_bench",
    )

    with pytest.raises(RuntimeError, match="1 of 1 simulated tests failed") if broken else nullcontext():
        runner.run_cocotb(built, top="ram_bench", module="tests.boards.ulx3s.ram_bench", directory=tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
def test_a_netlists_wide_memory_does_what_the_memory_does(tmp_path):
    """As synthesis makes it of blocks whose two ports are one of 36 bits, in the models that a netlist is run with."""
    text = (HERE / "wide_bench.v").read_text()
    run_yosys(
        [
            f"read_verilog {HERE / 'wide_bench.v'}",
            "synth_ecp5 -no-rw-check -top wide_ram",
            "rename wide_ram wide_netlist",
            "write_verilog -noattr wide_netlist.v",
        ],
        tmp_path,
    )
    made = (tmp_path / "wide_netlist.v").read_text()
    made = made[made.index("module wide_netlist") :]
    assert made.count("DP16KD #(") == 3
    built = runner.build(
        {"ecp5_blocks.sv": BLOCKS.read_text(), "made.v": made[: made.index("endmodule") + 10], "wide_bench.v": text},
        top="wide_bench",
    )
    runner.run_cocotb(built, top="wide_bench", module="tests.boards.ulx3s.ram_bench", directory=tmp_path)


def test_the_image_holds_what_the_firmware_reads():
    plan = digits_plan(CONFIG, epochs=2, **SMALL)
    words = [int.from_bytes(plan.image[at : at + 4], "little") for at in range(0, BLOCK, 4)]
    assert plan.image[:4] == b"GLTN" and words[1] == len(plan.image) and words[2] == len(plan.stages)
    assert words[5:8] == [plan.pause, 0, 0] == [2 * 75_000_000, 0, 0]
    for index, stage in enumerate(plan.stages):
        name, _, program, commands, block, blocks, runs, losses = words[8 + 8 * index : 16 + 8 * index]
        assert name.to_bytes(4, "little").rstrip(b"\0") == stage.name.encode()[:4]
        at, asm = plan.programs[stage.program]
        assert (program, commands) == (at, len(asm)) and plan.image[at : at + len(asm.code)] == asm.code
        assert (block, blocks, runs, losses) == (stage.block, stage.blocks, stage.runs, stage.told)
    assert [
        line.split() == [f"{int.from_bytes(plan.image[16 * n : 16 * n + 16], 'little'):032x}"]
        for n, line in enumerate(plan.text().splitlines())
    ].count(False) == 0


#: Two seconds of the board are so many cycles of the simulation.
PAUSE = PAUSE_SECONDS * CONFIG.clock_mhz * 1000


class Heard(NamedTuple):
    """What a listener hears who is there from power-up on, to the end of the second repeat."""

    program: Path
    folder: Path
    plan: OnChip
    lines: list[str]
    told_at: int  # cycles to the end of the lines
    repeated_at: int  # ... to the first line of the first repeat
    middle: int  # ... to the middle of another of its lines
    repeats: list[list[str]]
    pulses: int  # of the design's clock, to the end


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """The board's top in simulated RTL, from power-up on, with real digits."""
    folder = tmp_path_factory.mktemp("tuner")
    plan = digits_plan(CONFIG, epochs=2, pause=PAUSE, **SMALL)
    program = build_tuner(CONFIG, plan, folder, memory_bytes=BOARD.memory_bytes)
    tuner = SimulatedTuner(program, folder)
    try:
        lines, told_at = list(tuner.told(1 << 22)), tuner.cycles
        while not tuner.hear(1 << 20).startswith("repeat 1 "):
            pass
        repeated_at = tuner.cycles
        first = [tuner.hear(1 << 14)]
        begin = tuner.cycles
        first.append(tuner.hear(1 << 14))
        middle = tuner.cycles + (tuner.cycles - begin) // 2
        repeats = [[*first, *tuner.told(1 << 14)]]
        number, second = tuner.repeated(1 << 20)
        assert number == 2
        return Heard(program, folder, plan, lines, told_at, repeated_at, middle, [*repeats, second], tuner.pulses)
    finally:
        tuner.close()


def test_the_uart_says_what_the_reference_says(heard):
    told = [line for line in heard.lines if not line.startswith("cycles: ")]
    assert told == expected_lines(heard.plan, digits_data(heard.plan.samples, **SMALL))
    assert re.fullmatch(r"cycles: \d+", heard.lines[-2]) and heard.lines[-1] == "done"


def test_the_uart_repeats_all_lines_after_each_pause(heard):
    assert heard.repeats == [heard.lines, heard.lines]
    # The pause, an empty line and the repeat's first.
    assert PAUSE < heard.repeated_at - heard.told_at < 1.08 * PAUSE


def test_a_late_listener_hears_all_lines_though_the_lock_came_late_and_was_lost_once(heard):
    """Nothing of the design moves before the PLL locks and while the lock is lost. Nobody listens for the first two
    seconds, and the listener joins in the middle of a byte."""
    late, lost = 5_000, 3_000
    tuner = SimulatedTuner(heard.program, heard.folder, lock_after=None)
    try:
        tuner.rest(late)
        assert tuner.pulses == 0 and not tuner.running
        tuner.set("locked", 1)
        tuner.rest(17)
        assert tuner.pulses == 0 and not tuner.running
        tuner.rest(23)
        assert 20 <= tuner.pulses <= 22 and tuner.running
        tuner.set("away", 1)
        tuner.rest(heard.told_at // 2)
        tuner.set("locked", 0)
        tuner.rest(4)
        stopped = tuner.pulses
        tuner.rest(lost)
        assert tuner.pulses == stopped
        tuner.set("locked", 1)
        tuner.rest(heard.middle + late + lost - tuner.cycles)
        tuner.join()
        number, lines = tuner.repeated(1 << 20)
        assert number == 2 and lines == heard.lines and tuner.pulses == heard.pulses
        assert tuner.lines[0] not in lines  # the rest of a line, or worse
    finally:
        tuner.close()


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="a build: GRADLOOM_DEEP=1")
def test_random_memories_and_a_lock_that_comes_late_and_is_lost_change_no_line(heard, tmp_path):
    """The bitstream sets registers; memories without content hold anything."""
    program = build_tuner(CONFIG, heard.plan, tmp_path, memory_bytes=BOARD.memory_bytes, silicon=True)
    for seed in (1, 2):
        tuner = SimulatedTuner(program, tmp_path, lock_after=None, seed=seed)
        try:
            tuner.rest(1_000 * seed)
            tuner.set("locked", 1)
            tuner.rest(5_000)
            tuner.set("locked", 0)
            tuner.rest(700)
            tuner.set("locked", 1)
            assert list(tuner.told(1 << 22)) == heard.lines
        finally:
            tuner.close()
