"""The Scale engine in time."""
from gradloom.sim.time.shell.queues import MemoryWords
from gradloom.sim.time.shell.streaming import Streaming

from .commands import ScaleOpcode
from .engine import ScaleEngine


class Scale(Streaming):
    """Time of the engine's commands.

    It takes a beat a cycle while the queue has room, then a beat of factors a cycle.
    """

    def __init__(self, machine):
        super().__init__(machine, "scale", load="x", store="y", limit=ScaleEngine.limit, delay=ScaleEngine.result,
                         begin=ScaleEngine.begin, end=ScaleEngine.end)
        self.queues[self.engine.store("factors")] = MemoryWords(machine)

    def steps(self, what):
        """See ``Streaming``."""
        if what.opcode == ScaleOpcode.UPDATE:
            return what.operands["groups"], False, False
        return what.operands["beats"], True, what.opcode == ScaleOpcode.FORWARD or what.operands.get("dx", 0) == 1
