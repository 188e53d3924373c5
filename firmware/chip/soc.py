"""Jobs for the firmware of a system on chip (``soc_main.c``)."""

import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from ..device import registers

__all__ = [
    "DONE",
    "FAILED",
    "HEADER_BYTES",
    "MAX_PROGRAMS",
    "MAX_STEP_PROGRAMS",
    "RAM_BYTES",
    "RECORD_BYTES",
    "STOPPED",
    "TUNER_RAM_BYTES",
    "SocJob",
    "JobKept",
    "Limits",
    "JobProgram",
    "JobResult",
    "ResultKind",
    "Run",
    "parse_error",
    "parse_losses",
    "parse_run",
]

_MAGIC = b"GLRN"
_LAYOUT = 6
#: Programs that a job's header has room for.
MAX_PROGRAMS = 150
#: Those that a job with a table of steps may have.
MAX_STEP_PROGRAMS = 4
_MAX_RESULTS = 16
#: Bytes of the text of what a job needs of the machine, as ``gradloom.h`` has them.
_NEEDS_BYTES = 528
#: What the firmware makes of a job's first four bytes.
DONE, FAILED, STOPPED = b"DONE", b"FAIL", b"STOP"
#: A run's record in a job's log: the loss's sum in two words and its tokens, and saturated words.
RECORD_BYTES = 16
#: Space that a header may take; a window after it can start here.
HEADER_BYTES = 4096
#: The processor's memory: firmware, variables and stack.
RAM_BYTES = 64 << 10
#: That of a tuner, whose block RAM is scarce.
TUNER_RAM_BYTES = 32 << 10


class ResultKind(IntEnum):
    """Form of a result on the UART.

    A word is a number, words are their CRC-32, the loss is in nats a token.
    """

    NUMBER = 0
    SUM = 1
    LOSS = 2


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Words at ``offset`` of the window that are reported after a run.

    They are a number of ``fraction`` bits behind the point, a sum, or the result of the loss's command (four words).
    ``name`` has at most eight ASCII characters.
    """

    name: str
    offset: int
    kind: ResultKind = ResultKind.NUMBER
    words: int = 1
    fraction: int = 0

    def __post_init__(self) -> None:
        if not self.name.isascii() or not self.name.isprintable() or not 1 <= len(self.name) <= 8:
            raise ValueError(f"name must be 1 to 8 printable ASCII characters, not {self.name!r}")
        if self.offset < 0 or self.offset % 4:
            raise ValueError(f"offset of {self.name} must be a multiple of 4, not {self.offset}")
        wanted = {ResultKind.NUMBER: 1, ResultKind.LOSS: 4}.get(self.kind, max(self.words, 1))
        if self.words != wanted:
            raise ValueError(f"words of {self.name} must be {wanted}, not {self.words}")
        if not 0 <= self.fraction <= 31:
            raise ValueError(f"fraction of {self.name} must be 0 to 31, not {self.fraction}")


@dataclass(frozen=True)
class JobProgram:
    """A program for the window, and the number of its runs.

    ``code`` is at ``offset`` of the window and runs ``runs`` times. ``checked``: the firmware looks at its sum first,
    120 cycles a word; a section of a card has been checked already.
    """

    code: bytes
    offset: int = 0
    runs: int = 1
    checked: bool = True

    def __post_init__(self) -> None:
        if not self.code or len(self.code) % registers.COMMAND_BYTES:
            raise ValueError(f"program must be commands of {registers.COMMAND_BYTES} bytes, not {len(self.code)}")
        if self.offset % registers.COMMAND_BYTES:
            raise ValueError(f"offset of a program must be a multiple of {registers.COMMAND_BYTES}, not {self.offset}")


@dataclass(frozen=True, kw_only=True)
class JobKept:
    """Words that are kept, and from which the job goes on.

    They have ``bytes`` bytes, a multiple of 64, at ``offset`` of the window. They are kept after every ``every`` runs,
    and after the last.

    With a ``store`` they are an adapter in memory: that many bytes from the shared memory's first byte on, outside the
    window, with room for two copies: 300 cycles a word. Without, they are on the memory card, with the number of runs
    and a log of ``records`` runs that is at ``log`` of the memory: 330 cycles a word; and also after ``cycles`` cycles.
    """

    offset: int
    bytes: int
    store: int = 0
    every: int = 1
    cycles: int = 0
    log: int = 0
    records: int = 0

    def __post_init__(self) -> None:
        if self.bytes % 64 or self.bytes < 1:
            raise ValueError(f"bytes={self.bytes} of the adapter: must be a multiple of 64")
        if self.store % 64:
            raise ValueError(f"store={self.store} of the adapter: must be a multiple of 64")
        if self.every < (0 if self.cycles and not self.store else 1):
            raise ValueError(f"every={self.every} of the adapter: must be at least 1")

    @property
    def room(self) -> int:
        """Bytes of a copy on the card."""
        return sum(-(-size // 512) * 512 for size in (1, self.bytes, RECORD_BYTES * self.records))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job may use after power-up before it stops; 0: no limit.

    Above ``celsius`` degrees it pauses until the chip is 5 degrees cooler.
    """

    runs: int = 0
    cycles: int = 0
    celsius: float = 0.0

    @property
    def heat(self) -> int:
        """The temperature as the chip's converter has it (UG480)."""
        return round((self.celsius + 273.15) * 4096 / 503.975) if self.celsius else 0


@dataclass(frozen=True, kw_only=True)
class SocJob:
    """Programs in the window.

    They run one after the other, or in the order of a table of steps.

    Parameters
    ----------
    window_offset, window_bytes : int
        The window, from the start of the shared memory.
    programs : tuple of Program
    machine : str
        What the programs need of the machine: the machine table of a design (``report.json`` has it), with
        ``name>=value`` where it may have more. The firmware refuses the job on another.
    watchdog : int
        Cycles without progress after which a run is stopped; 0: none.
    results : tuple of Result
        Told after each run.
    kept : Kept, optional
    limits : Limits
    table : int
        Offset in the window of a table that :mod:`~.steps` makes: it says which program a run is of, and
        patches it; 0: there is none.
    answers : int
        Offset in the window of what prompts by UART need (``soc_infer.h``); 0: the job answers none.
    trial : int
        Offset in the window of what a trial of installed words needs (``soc_trial.h``); 0: there is none.
    """

    window_bytes: int
    programs: tuple[JobProgram, ...]
    machine: str
    window_offset: int = HEADER_BYTES
    watchdog: int = 0
    results: tuple[JobResult, ...] = ()
    kept: JobKept | None = None
    limits: Limits = Limits()
    table: int = 0
    answers: int = 0
    trial: int = 0

    def __post_init__(self) -> None:
        for name in ("table", "answers", "trial"):
            if (at := getattr(self, name)) < 0 or at % 4:
                raise ValueError(f"{name}={at}: must be a multiple of 4")
        if self.table and len(self.programs) > MAX_STEP_PROGRAMS:
            raise ValueError(f"programs: 1 to {MAX_STEP_PROGRAMS} with a table of steps, not {len(self.programs)}")
        if self.window_offset % 4096 or self.window_offset < HEADER_BYTES:
            raise ValueError(f"window_offset must be a multiple of 4096 after the header, not {self.window_offset}")
        if not 1 <= len(self.programs) <= MAX_PROGRAMS:
            raise ValueError(f"programs: 1 to {MAX_PROGRAMS}, not {len(self.programs)}")
        if not self.machine.isascii() or not 1 <= len(self.machine) < _NEEDS_BYTES:
            raise ValueError(f"machine={self.machine!r}: must be a machine table of 1 to {_NEEDS_BYTES - 1} characters")
        if len(self.results) > _MAX_RESULTS:
            raise ValueError(f"results: at most {_MAX_RESULTS}, not {len(self.results)}")
        ends = [
            *(each.offset + len(each.code) for each in self.programs),
            *(each.offset + 4 * each.words for each in self.results),
        ]
        if self.kept is not None:
            ends.append(self.kept.offset + self.kept.bytes)
        if max(ends) > self.window_bytes:
            raise ValueError(f"window_bytes={self.window_bytes}: the job needs {max(ends)}")

    def header(self) -> bytes:
        """The header as it lies at the start of the shared memory.

        Write it after all else, its first word last.
        """
        each = self.kept
        kept = (0,) * 8
        if each is not None:
            kept = (each.offset, each.bytes, each.store, each.every, *_pair(each.cycles), each.log, each.records)
        machine = self.machine.encode("ascii")
        machine += bytes(4 - len(machine) % 4)
        body = struct.pack(
            "<21I",
            self.window_offset,
            self.window_bytes,
            self.watchdog,
            *kept,
            self.limits.runs,
            *_pair(self.limits.cycles),
            self.limits.heat,
            self.table,
            self.answers,
            self.trial,
            len(self.programs),
            len(self.results),
            len(machine),
        )
        for program in self.programs:
            body += struct.pack(
                "<5I",
                program.offset,
                len(program.code) // registers.COMMAND_BYTES,
                zlib.crc32(program.code),
                program.checked,
                program.runs,
            )
        for result in self.results:
            body += struct.pack(
                "<8s4I", result.name.encode("ascii"), result.kind, result.offset, result.words, result.fraction
            )
        body += machine
        return _MAGIC + struct.pack("<3I", _LAYOUT, 16 + len(body), zlib.crc32(body)) + body


def _pair(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


@dataclass(frozen=True, kw_only=True)
class Run:
    """Counters of a run."""

    number: int
    cycles: int
    read_beats: int
    write_beats: int
    saturated: int


_RUN = re.compile(r"run (\d+): (\d+) cycles, (\d+) beats read, (\d+) written, (\d+) saturated")
_LOSS = re.compile(r".{1,8} = (\d+\.\d+) nats a token, \d+ tokens")
_ERROR = re.compile(r"error: (\w+) 0x([0-9a-f]+) at command (\d+), address 0x([0-9a-f]+): .*")


def parse_run(lines: Iterable[str]) -> list[Run]:
    """The runs that lines of the UART report."""
    found = (_RUN.fullmatch(line) for line in lines)
    return [
        Run(**dict(zip(("number", "cycles", "read_beats", "write_beats", "saturated"), map(int, match.groups()))))
        for match in found
        if match
    ]


def parse_losses(lines: Iterable[str]) -> list[float]:
    """The losses, in nats a token, that lines of the UART report."""
    found = (_LOSS.fullmatch(line) for line in lines)
    return [float(match[1]) for match in found if match]


def parse_error(lines: Iterable[str]) -> tuple[int, int, int] | None:
    """The error in lines of the UART: code, command and address, or None."""
    for line in lines:
        match = _ERROR.fullmatch(line)
        if match:
            return int(match[2], 16), int(match[3]), int(match[4], 16)
    return None
