"""Runs programs on machines that start with random values."""

import argparse
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gradloom.firmware.device.host import Accelerator, ProgramCounters
from gradloom.preset import KNOWN

from ..run.device import SimulatedDevice
from ..run.silicon import MEMORY_BYTES, silicon_device
from .machines import BenchRun, programs

__all__ = ["Finding", "check_starts"]

_RESET_CYCLES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Programs that ran after starts with random values.

    ``faults``: a line for each word or counter that differs.
    """

    starts: int
    resets: int
    words: int
    faults: tuple[str, ...]


def check_starts(program: Path, runs: Sequence[BenchRun], *, seeds: Iterable[int], resets: int = 2) -> Finding:
    """Runs programs after random starts, and after resets in the middle.

    The words that are left and all counters must be the same each time. For each seed the programs are also broken off
    ``resets`` times by a reset of the whole machine, at cycles that the seed chooses.
    """
    faults: list[str] = []
    told: list[ProgramCounters] = []
    starts = broken = words = 0
    for seed in seeds:
        device = SimulatedDevice(program, memory_bytes=MEMORY_BYTES, seed=seed)
        with device:
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
                    chance = seed * 7919 + attempt * 104_729
                    faults += [f"{where}: {line}" for line in _break_off(device, accelerator, runs, counters, chance)]
                    broken += 1
    return Finding(starts=starts, resets=broken, words=words, faults=tuple(faults))


def _ran(accelerator: Accelerator, runs: Sequence[BenchRun]) -> tuple[list[ProgramCounters], list[str], int]:
    """Returns counters, wrong words, and the number of bytes compared."""
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
    device: SimulatedDevice,
    accelerator: Accelerator,
    runs: Sequence[BenchRun],
    counters: Sequence[ProgramCounters],
    chance: int,
) -> list[str]:
    """Starts a run and resets the machine; a line if it had ended before."""
    which = chance % len(runs)
    run = runs[which]
    # As before the run that was measured: one that begins while the cache is being cleared waits for that.
    accelerator.clear_cache()
    for offset, raw in run.segments:
        accelerator.store(offset, raw)
    accelerator.start(run.program, len(run.instructions))
    after = 1 + chance % max(counters[which].cycles - 1, 1)
    if device.advance(after):
        return [f"run {which} ended within {after} cycles, not {counters[which].cycles}"]
    device.set("rst", 1)
    device.advance(_RESET_CYCLES)
    device.set("rst", 0)
    device.advance(1)
    return []


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
