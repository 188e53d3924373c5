"""Timing of the shell: sequencer, LOAD, STORE and the bus."""

from collections.abc import Mapping, Sequence

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import LOAD, STORE, Engines

from .bus import Bus, Sink
from .sequencer import SequencedMachine
from .store import Queue, StoreTime

__all__ = ["ShellMachine"]


class ShellMachine(SequencedMachine):
    """Sequencer, LOAD and STORE.

    A machine adds its ``engines``, the ``queues`` that STORE asks and the ``sinks`` that do not take every beat of a
    LOAD as it comes.
    """

    def __init__(
        self,
        commands: Sequence[Instruction],
        table: Engines,
        shell: Mapping[str, int],
        program_offset: int,
        read_latency: int,
        write_latency: int,
        port_reads: int = 0,
    ) -> None:
        for name, value, least in (
            ("read_latency", read_latency, 1),
            ("write_latency", write_latency, 1),
            ("port_reads", port_reads, 0),
        ):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        super().__init__(commands, table, shell, program_offset)
        self.outstanding = shell["outstanding"]
        self.read_latency = read_latency
        self.write_latency = write_latency
        self.port_reads = port_reads
        self.bus = Bus(self)
        self.store = StoreTime(self)
        self.engines |= {LOAD: self.bus, STORE: self.store}
        self.queues: dict[int, Queue] = {}
        self.sinks: dict[int, Sink] = {}

    def fetch(self, beats: int, cycle: int) -> None:
        self.bus.fetch(beats, cycle)
