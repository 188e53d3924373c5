"""Plays streams to a component in any simulator."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import wiring

from .adapter import UnitFeed, payload_shape, unpack

__all__ = ["check_simulator", "simulate", "unpacked"]

#: Cycles without a beat on any port after which a unit counts as stuck.
PATIENCE = 20_000


def simulate(
    component: wiring.Component,
    feed: UnitFeed,
    *,
    simulator: str = "amaranth",
    directory: Path | None = None,
    arguments: Sequence[str] = (),
    change: Callable[[str], str] = str,
) -> tuple[dict[str, list[int]], int]:
    """``(payloads by output, cycles)`` of a component with stream ports.

    Simulators of Verilog run in ``directory``, if one is named, are given ``arguments``, and Verilog that ``change``
    has been through.
    """
    check_simulator(simulator)
    if simulator == "amaranth":
        return _amaranth(component, feed)
    if directory is not None:
        return _cocotb(component, feed, simulator, directory, arguments, change)
    with tempfile.TemporaryDirectory() as folder:
        return _cocotb(component, feed, simulator, Path(folder), arguments, change)


def unpacked(component: wiring.Component, beats: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
    """Payloads as :func:`simulate` returns them, by field."""
    return {
        name: [unpack(payload_shape(component, name), each) for each in payloads] for name, payloads in beats.items()
    }


def check_simulator(simulator: str) -> None:
    """Refuses a simulator that is not known, or not here."""
    if simulator not in ("verilator", "icarus", "amaranth"):
        raise ValueError(f"simulator={simulator}: must be verilator, icarus or amaranth")
    needed = {"icarus": ("iverilog",), "verilator": ("g++", "make")}.get(simulator, ())
    for tool in needed:
        if shutil.which(tool) is None:
            raise ValueError(
                f"simulator={simulator}: {tool} is not on PATH; apt install {tool}, or use another simulator"
            )


def _amaranth(component: wiring.Component, feed: UnitFeed) -> tuple[dict[str, list[int]], int]:
    from ..bench.engine import simulate as run

    taken: dict[str, list[int]] = {name: [] for name in feed.outputs}
    cycles = 0

    async def bench(ctx: Any) -> None:
        nonlocal cycles
        sent = dict.fromkeys(feed.inputs, 0)
        for name, value in feed.held.items():
            ctx.set(Value.cast(getattr(component, name)), value)
        await ctx.tick()  # as long as the other simulators' reset lasts
        for name in feed.outputs:
            ctx.set(getattr(component, name).ready, 1)
        waited = 0
        while any(len(taken[name]) < count for name, count in feed.outputs.items()):
            for name, payloads in feed.inputs.items():
                port = getattr(component, name)
                ctx.set(port.valid, sent[name] < len(payloads))
                if sent[name] < len(payloads):
                    ctx.set(Value.cast(port.payload), payloads[sent[name]])
            moved = False
            for name, payloads in feed.inputs.items():
                if sent[name] < len(payloads) and ctx.get(getattr(component, name).ready):
                    sent[name] += 1
                    moved = True
            for name in feed.outputs:
                port = getattr(component, name)
                if ctx.get(port.valid):
                    taken[name].append(int(ctx.get(Value.cast(port.payload).as_unsigned())))
                    moved = True
            await ctx.tick()
            cycles += 1
            waited = 0 if moved else waited + 1
            if waited > PATIENCE:
                raise ValueError(f"the unit is stuck: no beat moved for {PATIENCE} cycles")

    run(component, bench)
    return taken, cycles


def _cocotb(
    component: wiring.Component,
    feed: UnitFeed,
    simulator: str,
    root: Path,
    arguments: Sequence[str],
    change: Callable[[str], str],
) -> tuple[dict[str, list[int]], int]:
    from gradloom.rtl.emit.verilog import convert

    from ..run.builds import runner

    emission = convert(component, name="unit")
    clocked = {port.name for port in emission.ports} & {"clk", "rst"}
    built = runner.build(
        {f"{name}.v": change(text) for name, text in emission.files.items()},
        top="unit",
        simulator=simulator,
        arguments=arguments,
    )
    (root / "feed.json").write_text(
        json.dumps(
            {
                "inputs": {name: [f"{each:x}" for each in payloads] for name, payloads in feed.inputs.items()},
                "outputs": feed.outputs,
                "held": {name: f"{value:x}" for name, value in feed.held.items()},
                "reset": "rst" in clocked,
                "stall": feed.stall,
                "patience": PATIENCE,
            }
        ),
        encoding="utf-8",
    )
    runner.run_cocotb(
        built,
        top="unit",
        module="gradloom.sim.bench.streams",
        directory=root,
        simulator=simulator,
        environment={"GRADLOOM_FEED": str(root)},
    )
    found = json.loads((root / "beats.json").read_text(encoding="utf-8"))
    if found["stuck"]:
        raise ValueError(f"the unit is stuck: no beat moved for {PATIENCE} cycles")
    beats = {name: [int(each, 16) for each in payloads] for name, payloads in found["beats"].items()}
    return beats, found["cycles"]
