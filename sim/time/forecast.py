"""Forecasts the cycles of a program, with memory of fixed latency.

Nothing here is fitted. Each formula follows one unit of the RTL; times are cycles since the bell, and a command
starts in the cycle in which its engine takes it.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gradloom.plugins import Named, Table
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.placed import Program
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.parameters import ShellParameters

from .shell.bus import USUAL, MemoryTime
from .shell.shell import TimedMachine
from .timing import Timing

__all__ = ["MODELS", "USUAL", "MemoryTime", "forecast", "without_collections"]

#: Models of engines, by name; each is imported with the first machine that has the engine.
MODELS: Mapping[str, Callable[[TimedMachine], Any]] = {
    name: Named(f"gradloom.sim.time.{name}", f"{name.capitalize()}Time")
    for name in (
        "array",
        "head",
        "encode",
        "linear",
        "gradient",
        "update",
        "vector",
        "cell",
        "product",
        "element",
        "norm",
    )
}
_KNOWN: Table[Callable[[TimedMachine], Any]] = Table("model of the time of engine", "gradloom.times", MODELS)


class _Machine(TimedMachine):
    """A shell with the models of a machine's engines."""

    def __init__(
        self, commands: Sequence[Instruction], config: ShellParameters, offset: int, memory: MemoryTime
    ) -> None:
        table = config.machine.engines
        super().__init__(commands, table, config, offset, memory)
        for engine in table.own:
            model = self.models[engine.name] = self.engines[engine] = _KNOWN.find(engine.name)(self)
            self.queues |= model.queues
            self.sinks |= model.sinks


@contextmanager
def without_collections() -> Iterator[None]:
    """Leaves objects to their reference counts.

    The collector of cycles finds next to nothing in programs and machines, and takes a quarter of a forecast's time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def forecast(
    program: Program | Assembler | Sequence[Instruction],
    *,
    config: ShellParameters | None = None,
    program_offset: int = 0,
    memory: MemoryTime = USUAL,
) -> Timing:
    """Forecasts a program of a machine.

    Parameters
    ----------
    program : Program, Assembler or sequence of Instruction
        A :class:`~gradloom.program.placed.Program` says ``config`` and ``program_offset`` itself.
    config : ShellParameters
        Configuration of the machine; the machine for images as it is by default unless given.
    memory : MemoryTime
        Behind its ports.
    """
    if isinstance(program, Program):
        config, program_offset = program.config, program.offset
    commands = program if isinstance(program, Sequence) else program.instructions
    config = config or ImageConfig()
    machine = _Machine(commands, config, program_offset, memory)
    with without_collections():
        total = machine.run()
    table = config.machine.engines
    return Timing(
        total=total,
        phases=dict(zip(table.phases, machine.phase_cycles)),
        commands=machine.command_times(),
        clock_mhz=config.clock_mhz,
        engines=table,
        instructions=commands,
        read_beats=machine.bus.read_beats,
        write_beats=machine.store.write_beats,
        held=machine.held,
        array_cycles=machine.array_cycles,
    )
