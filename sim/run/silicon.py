"""Starts simulated RTL as a chip does: registers hold anything before reset.

A bitstream of AMD's chips sets initial values, but a reset may come at any time later and must do without them. The
text that is simulated here has no initial value of a register, and none of a memory that is written. Verilator then
makes each of them random by a seed. A memory that is only read keeps its content, which is part of the bitstream.

The ULX3S has no reset. There registers keep the bitstream's values (``reset=False``), and memories do not.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gradloom.firmware.host import Accelerator, Counters
from gradloom.rtl.machines.presets import KNOWN

from ..testbench.machines import Run, programs
from .designs import design
from .device import SimulatedDevice, build_device

__all__ = ["Finding", "RANDOM", "as_silicon", "check_starts", "silicon_device"]

#: Verilator: undefined values are random, each by the seed of the run.
RANDOM = ("--x-assign", "unique", "--x-initial", "unique")
_MEMORY_BYTES = 1 << 20
_RESET_CYCLES = 16

_CLEARED = re.compile(r"^`ifndef SYNTHESIS\n  initial begin : clear_\w+\n.*?^`endif\n", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(
    r"^( +(?:\(\*.*?\*\) )?(?:output )?reg (?:signed )?(?:\[\d+:\d+\] )?(?:\\\S+ |\w+)) *= *[^;,\n]+;$", re.MULTILINE
)
_INITIAL = re.compile(r"^ *(?:\(\*.*?\*\) )?(?:output )?reg [^;\n]*=[^;\n]*;", re.MULTILINE)


def as_silicon(verilog: str, *, reset: bool = True) -> str:
    """Generated Verilog without values that a chip does not define.

    ``reset``: the chip's registers are defined by a reset; else by the bitstream.
    """
    text = _CLEARED.sub("", verilog)
    if "initial begin : clear_" in text:
        raise ValueError("a memory is cleared in an unknown way")
    if not reset:
        return text
    text = _REGISTER.sub(r"\1;", text)
    left = _INITIAL.search(text)
    if left is not None:
        raise ValueError(f"a register has an initial value in an unknown form: {left[0].strip()}")
    return text


def silicon_device(config: Any, directory: Path, *, tell: Callable[[str], None] | None = None) -> Path:
    """Builds a machine that starts as silicon does, and returns the program.

    Its text goes to ``directory``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for path in design(config):
        files.append(directory / path.name)
        files[-1].write_text(as_silicon(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    return build_device(
        files,
        memory_bytes=_MEMORY_BYTES,
        data_bits=config.data_bits,
        address_bits=config.address_bits,
        arguments=RANDOM,
        tags=False,
        tell=tell,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Programs that ran after starts with random values.

    ``faults``: a line for each word or counter that differs.
    """

    starts: int
    resets: int
    words: int
    faults: tuple[str, ...]


def check_starts(program: Path, runs: Sequence[Run], *, seeds: Iterable[int], resets: int = 2) -> Finding:
    """Runs programs after random starts, and after resets in the middle.

    The words that are left and all counters must be the same each time. For each seed the programs are also broken off
    ``resets`` times by a reset of the whole machine, at cycles that the seed chooses.
    """
    faults: list[str] = []
    told: list[Counters] = []
    starts = broken = words = 0
    for seed in seeds:
        with SimulatedDevice(program, memory_bytes=_MEMORY_BYTES, seed=seed) as device:
            starts += 1
            for attempt in range(resets + 1):
                accelerator = Accelerator(device)
                # Valid bits are a memory: they keep what they had, and a host that starts anew clears them.
                accelerator.clear_cache()
                counters, wrong, count = _ran(accelerator, runs)
                words += count
                where = f"seed {seed}, after {attempt} resets"
                faults += [f"{where}: {line}" for line in wrong]
                faults += [
                    f"{where}: run {n} counted {now}, first {before}"
                    for n, (now, before) in enumerate(zip(counters, told or counters, strict=True))
                    if now != before
                ]
                told = told or counters
                if attempt < resets:
                    _break_off(device, accelerator, runs, counters, seed * 7919 + attempt * 104_729)
                    broken += 1
    return Finding(starts=starts, resets=broken, words=words, faults=tuple(faults))


def _ran(accelerator: Accelerator, runs: Sequence[Run]) -> tuple[list[Counters], list[str], int]:
    """Counters of each run, words that are wrong, and the number of bytes compared."""
    counters, wrong, count = [], [], 0
    for number, run in enumerate(runs):
        # Some results take the place of their inputs.
        for offset, raw, _ in run.expected:
            accelerator.store(offset, bytes(byte ^ 0x5A for byte in raw))
        for offset, raw in run.segments:
            accelerator.store(offset, raw)
        counters.append(accelerator.run(run.program, len(run.instructions)))
        for offset, raw, mask in run.expected:
            got = accelerator.fetch(offset, len(raw))
            count += len(raw)
            bad = [n for n, (g, w, m) in enumerate(zip(got, raw, mask, strict=True)) if (g ^ w) & m]
            if bad:
                wrong.append(f"run {number}: {len(bad)} bytes differ, the first at {offset + bad[0]:#x}")
    return counters, wrong, count


def _break_off(
    device: SimulatedDevice, accelerator: Accelerator, runs: Sequence[Run], counters: Sequence[Counters], chance: int
) -> None:
    """Starts a run and resets the machine before its end."""
    which = chance % len(runs)
    run = runs[which]
    for offset, raw in run.segments:
        accelerator.store(offset, raw)
    accelerator.start(run.program, len(run.instructions))
    device.advance(1 + chance % max(counters[which].cycles - 1, 1))
    device.set("rst", 1)
    device.advance(_RESET_CYCLES)
    device.set("rst", 0)
    device.advance(1)


def main() -> int:
    """Checks presets that have a reset, and prints a line for each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--resets", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("build/silicon"))
    arguments = parser.parse_args()
    # Presets with the same machine run the same Verilog; the ULX3S has no reset.
    machines: dict[str, tuple[str, Any]] = {}
    for name, preset in KNOWN.items():
        if preset.board != "ulx3s" and (not arguments.presets or name in arguments.presets):
            machines.setdefault(repr(preset.config), (name, preset.config))
    failed = 0
    for name, config in machines.values():
        runs = programs(config)
        program = silicon_device(config, arguments.work / name)
        found = check_starts(program, runs, seeds=range(1, arguments.seeds + 1), resets=arguments.resets)
        verdict = "; ".join(found.faults[:3]) or "all equal"
        print(f"{name}: {found.starts} starts, {found.resets} resets, {found.words:,} bytes: {verdict}", flush=True)
        failed += bool(found.faults)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
