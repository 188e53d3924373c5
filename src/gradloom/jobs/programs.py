"""Programs of a fine-tune as a job, and results of one as a host's."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradloom.firmware.device.host import ProgramCounters
from gradloom.firmware.device.machine import parse_table
from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.firmware.jobs.job import AnswerPlan, JobError, JobPlan, JobStage, Losses

__all__ = ["JobRecorder", "JobResults"]

#: Cycles without progress after which a board stops a program; no command takes so long.
WATCHDOG = 100_000_000


def _bytes(content: Any) -> bytes:
    """As :meth:`~gradloom.firmware.device.host.Accelerator.store` writes it."""
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    array = np.asarray(content)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


class JobRecorder:
    """A :class:`~.job.BoardHost` that writes down what it is asked.

    Nothing has run yet, so that memory reads as zeros and counters are zero: what a fine-tune makes of them is of no
    use. Its programs must not depend on them.

    Of a program that lies where one lay before, the commands that differ are written.

    Parameters
    ----------
    data : file
        Gets all bytes that go to memory, each content once.
    table : str
        The machine's.
    """

    #: Whether what is read is a board's.
    answers = False

    def __init__(self, data: BinaryIO, table: str) -> None:
        self._data, self._phases = data, parse_table(table).phases
        self._sum = hashlib.sha256()
        self._places: dict[bytes, int] = {}
        #: The last store, which may be the program of a bell that follows; and contents that are in memory for certain.
        self._pending: tuple[int, bytes] | None = None
        self._known: dict[int, bytes] = {}
        self._writes: list[tuple[int, int, int]] = []
        self._program: tuple[int, int] | None = None
        self._reads: list[tuple[int, int]] = []
        self._stages: list[JobStage] = []
        self._size = self._window = 0
        self._losses: Losses | None = None
        self._state: Sequence[tuple[int, int]] | None = None

    def describe(self, *, losses: Losses | None, state: Sequence[tuple[int, int]] | None) -> None:
        """See :meth:`~.job.Job.machine`."""
        self._losses, self._state = losses, state

    def store(self, offset: int, content: Any) -> None:
        """Writes bytes or an array down."""
        self._settle()
        if self._program is not None or self._reads:
            self._end_stage()
        self._pending = int(offset), _bytes(content)

    def fetch(self, offset: int, length: int) -> bytes:
        """Writes a read down; zeros."""
        self._settle()
        self._reads.append((int(offset), int(length)))
        self.reserve(int(offset) + int(length))
        return bytes(length)

    def run(self, offset: int, commands: int, *, timeout: float | None = None) -> ProgramCounters:
        """Writes a run down; counters of zero."""
        if self._program is not None or self._reads:
            self._end_stage()
        self._settle(program=int(offset))
        self._program = int(offset), int(commands)
        self.reserve(int(offset) + int(commands) * COMMAND_BYTES)
        # Of memory, only the program itself is as it was: machines do not write that.
        code = self._known.get(int(offset), b"")
        self._known = {int(offset): code} if len(code) == commands * COMMAND_BYTES else {}
        return _zeros(self._phases)

    def finished(self) -> None:
        """See :class:`~.job.BoardHost`."""
        self._settle()
        self._end_stage()

    def _settle(self, program: int | None = None) -> None:
        """Writes the last store down.

        Of a program it is what differs from the one there.
        """
        if self._pending is None:
            return
        (offset, content), self._pending = self._pending, None
        before = self._known.get(offset, b"")
        if offset == program and len(before) == len(content) and len(content) % COMMAND_BYTES == 0:
            for first, last in _changed(before, content):
                self._write(offset + first, content[first:last])
        else:
            self._write(offset, content)
        end = offset + len(content)
        self._known = {at: each for at, each in self._known.items() if at + len(each) <= offset or at >= end}
        self._known[offset] = content
        self.reserve(end)

    def _write(self, offset: int, content: bytes) -> None:
        self._writes.append((offset, self.held(content), len(content)))

    def held(self, content: bytes) -> int:
        """The place of bytes in the data, which get them where they lack them."""
        key = hashlib.sha256(content).digest()
        if key not in self._places:
            self._places[key] = self._size
            self._data.write(content)
            self._sum.update(content)
            self._size += len(content)
        return self._places[key]

    def reserve(self, end: int) -> None:
        """The window has so many bytes at least."""
        self._window = max(self._window, end)

    def _end_stage(self) -> None:
        self._stages.append(JobStage(tuple(self._writes), self._program, tuple(self._reads)))
        self._writes, self._program, self._reads = [], None, []

    def plan(self, design: dict[str, Any], about: dict[str, Any], answers: AnswerPlan | None = None) -> JobPlan:
        """The job, after :meth:`finished`."""
        if answers is None and not any(stage.program for stage in self._stages):
            raise JobError("the fine-tune has no program for a board")
        return JobPlan(
            design=design,
            window=-(-self._window // 4096) * 4096,
            stages=tuple(self._stages),
            state=None if self._state is None else tuple((int(at), int(length)) for at, length in self._state),
            losses=self._losses,
            watchdog=WATCHDOG,
            data_bytes=self._size,
            data_sha256=self._sum.hexdigest(),
            about=about,
            answers=answers,
        )


def _changed(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """First and last byte of each run of commands that differ."""
    rows = [np.frombuffer(each, np.uint8).reshape(-1, COMMAND_BYTES) for each in (before, after)]
    differ = np.concatenate([[0], (rows[0] != rows[1]).any(axis=1).astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(differ)) * COMMAND_BYTES
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2])]


def _zeros(phases: Sequence[str]) -> ProgramCounters:
    names = [name for name in ProgramCounters.__annotations__ if name != "phases"]
    return ProgramCounters(phases=dict.fromkeys(phases, 0), **dict.fromkeys(names, 0))


class JobResults(JobRecorder):
    """A host that answers as the board did that has run a job.

    It is asked what the recorder was asked, else raises :class:`~gradloom.firmware.jobs.job.JobError`.

    Parameters
    ----------
    folder : Path
        The job, with its results.
    plan : JobPlan
    """

    answers = True

    def __init__(self, folder: Path, plan: JobPlan, data: BinaryIO) -> None:
        super().__init__(data, str(plan.design["table"]))
        told = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        content = (folder / "result.bin").read_bytes()
        if len(content) != plan.result_bytes or hashlib.sha256(content).hexdigest() != told["result_sha256"]:
            raise JobError(f"{folder}: result.bin is not that of result.json: bring the job back again")
        if told["data_sha256"] != plan.data_sha256 or len(told["counters"]) != len(plan.stages):
            raise JobError(f"{folder}: result.json is of another job")
        self._wanted, self._content, self._at = plan, content, 0
        self._counters = [each for each in told["counters"] if each]

    def fetch(self, offset: int, length: int) -> bytes:
        """What the board had there at this moment."""
        super().fetch(offset, length)
        found = self._content[self._at : self._at + length]
        if len(found) != length:
            raise self._other()
        self._at += length
        return found

    def run(self, offset: int, commands: int, *, timeout: float | None = None) -> ProgramCounters:
        """Counters that the board had."""
        super().run(offset, commands)
        if not self._counters:
            raise self._other()
        return ProgramCounters(**self._counters.pop(0))

    def finished(self) -> None:
        """Refuses a job that was written for another request.

        Its data, programs or places differ then.
        """
        super().finished()
        made = self.plan(self._wanted.design, self._wanted.about)
        if made != self._wanted:
            raise self._other()

    @staticmethod
    def _other() -> JobError:
        return JobError("job: is of another request, model or data than this one: write it again")
