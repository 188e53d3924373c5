"""Transitions of engines that have nothing to do.

``python -m gradloom.sim.activity.idle PRESET``: data go through the machine and back, as in the self-test, by the load
and the store of one engine; all other engines are idle.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from gradloom.firmware.device.host import Accelerator
from gradloom.firmware.device.program import end, load, store
from gradloom.preset import Preset, find_preset

from ..run.builds.designs import design
from ..run.device import SimulatedDevice, build_device
from ..run.recording import recorded
from .saif import read_activity
from .summary import SummaryPart, activity_of

__all__ = ["IdleActivity", "IdleEngine", "idle_activity", "main"]


class IdleEngine(TypedDict):
    """Transitions a cycle of an engine, with its ports and without."""

    engine: str
    nets: int
    toggles_a_cycle: float
    inside: float
    inside_a_net: float


class IdleActivity(TypedDict):
    """Transitions of all engines, while data go through the port that is named."""

    preset: str
    cycles: int
    moves: str
    engines: list[IdleEngine]


#: Times that the data go through, and the memory of the simulations of presets, which are built once.
_TIMES, _MEMORY = 40, {"text": 1 << 24}


def idle_activity(preset: Preset, *, tell: Callable[[str], None] | None = None) -> IdleActivity:
    """Transitions a cycle of each engine, of which one moves data.

    ``inside``: without nets of the engine's outermost module, where the wires of the shell's bus end.
    """
    config = preset.config
    found = config.machine.loop(config)
    if found is None:
        raise ValueError(f"preset {preset.name!r}: no engine gives back what it is given")
    engine, loop = found
    memory = _MEMORY.get(preset.workload.label, 1 << 26)
    files = design(config)
    with tempfile.TemporaryDirectory(prefix="gradloom.") as folder:
        with recorded(Path(folder)) as recording:
            program = build_device(files, memory_bytes=memory, **config.bus, tell=tell)
            device = SimulatedDevice(program, memory_bytes=memory)
        with device:
            _copy(Accelerator(device))
        whole = activity_of(read_activity(Path(folder)).find("dut"), files, "gradloom")
    cycles = recording.cycles
    assert cycles
    rows = [_row(whole, each.name, cycles) for each in config.machine.engines.own]
    return {"preset": preset.name, "cycles": cycles, "moves": f"{engine.name}.{loop.load}", "engines": rows}


def _copy(host: Accelerator) -> None:
    loop = host.configuration.table.loop
    assert loop is not None
    length = loop.beats * host.configuration.data_bits // 8
    words = np.random.default_rng(1).integers(0, 0x7FFF, _TIMES * length // (loop.bits // 8))
    host.store(1 << 20, words.astype(f"<u{loop.bits // 8}"))
    for number in range(_TIMES):
        source = (1 << 20) + number * length
        host.run_program(
            [
                load(source, loop.beats, loop.dest, loop.arg, post=1),
                store(1 << 16, loop.beats, loop.source, loop.arg, wait=1),
                end(),
            ]
        )


def _row(whole: SummaryPart, name: str, cycles: int) -> IdleEngine:
    part = whole.named(name)
    inside = replace(part, own_nets=0, own_toggles=0)
    return {
        "engine": name,
        "nets": part.nets,
        "toggles_a_cycle": round(part.toggles / cycles, 2),
        "inside": round(inside.toggles / cycles, 2),
        "inside_a_net": round(inside.toggles / cycles / inside.nets, 6) if inside.nets else 0.0,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a row for each engine of the presets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="+", metavar="PRESET")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = [idle_activity(find_preset(name)) for name in asked.presets]
    if asked.json:
        print(json.dumps(found, indent=2))
        return 0
    for each in found:
        print(f"{each['preset']}: {each['cycles']:,} cycles, data go through {each['moves']}")
        for row in each["engines"]:
            print("  {engine:10} {nets:8,} nets {toggles_a_cycle:9} a cycle, inside {inside:9}".format_map(row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
