"""Jobs for the firmware of a system on chip (``soc_main.c``): their header, and what the UART says of them."""
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from . import registers

__all__ = ["DONE", "FAILED", "HEADER_BYTES", "RAM_BYTES", "TUNER_RAM_BYTES", "Job", "Result", "Run", "parse_error",
           "parse_run"]

_MAGIC = b"GLRN"
_LAYOUT = 1
_MAX_RESULTS = 16
#: What the firmware makes of a job's first four bytes.
DONE, FAILED = b"DONE", b"FAIL"
#: Space that a header may take; a window after it can start here.
HEADER_BYTES = 4096
#: The processor's memory: firmware, variables and stack.
RAM_BYTES = 32 << 10
#: That of a tuner, whose block RAM is scarce.
TUNER_RAM_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True)
class Result:
    """Words at ``offset`` of the window that are told after a run: one as a number of ``fraction`` bits behind the
    point, more by their CRC-32. ``name`` has at most eight ASCII characters."""

    name: str
    offset: int
    words: int = 1
    fraction: int = 0

    def __post_init__(self) -> None:
        if not self.name.isascii() or not self.name.isprintable() or not 1 <= len(self.name) <= 8:
            raise ValueError(f"name must be 1 to 8 printable ASCII characters, not {self.name!r}")
        if self.offset < 0 or self.offset % 4:
            raise ValueError(f"offset of {self.name} must be a multiple of 4, not {self.offset}")
        if self.words < 1:
            raise ValueError(f"words of {self.name} must be positive, not {self.words}")
        if not 0 <= self.fraction <= 31:
            raise ValueError(f"fraction of {self.name} must be 0 to 31, not {self.fraction}")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A program in the window, to be run ``runs`` times.

    Parameters
    ----------
    window_offset, window_bytes : int
        The window, from the start of the shared memory.
    program_offset, program : int, bytes
        Where the program lies in the window, and what it is.
    watchdog : int
        Cycles without progress after which a run is stopped; 0: none.
    """

    window_bytes: int
    program: bytes
    program_offset: int = 0
    window_offset: int = HEADER_BYTES
    runs: int = 1
    watchdog: int = 0
    results: tuple[Result, ...] = ()

    def __post_init__(self) -> None:
        if self.window_offset % 4096 or self.window_offset < HEADER_BYTES:
            raise ValueError(f"window_offset must be a multiple of 4096 after the header, not {self.window_offset}")
        if not self.program or len(self.program) % registers.COMMAND_BYTES:
            raise ValueError(f"program must be commands of {registers.COMMAND_BYTES} bytes, not {len(self.program)}")
        if self.program_offset % registers.COMMAND_BYTES:
            raise ValueError(f"program_offset must be a multiple of {registers.COMMAND_BYTES}, not "
                             f"{self.program_offset}")
        if len(self.results) > _MAX_RESULTS:
            raise ValueError(f"results: at most {_MAX_RESULTS}, not {len(self.results)}")
        ends = [self.program_offset + len(self.program), *(r.offset + 4 * r.words for r in self.results)]
        if max(ends) > self.window_bytes:
            raise ValueError(f"window_bytes={self.window_bytes}: the job needs {max(ends)}")

    def header(self) -> bytes:
        """The header as it lies at the start of the shared memory. Write it after all else, its first word last."""
        fields = [self.window_offset, self.window_bytes, self.program_offset,
                  len(self.program) // registers.COMMAND_BYTES, zlib.crc32(self.program), self.runs, self.watchdog,
                  len(self.results)]
        body = struct.pack(f"<{len(fields)}I", *fields)
        for result in self.results:
            body += struct.pack("<8s3I", result.name.encode("ascii"), result.offset, result.words, result.fraction)
        return _MAGIC + struct.pack("<3I", _LAYOUT, 16 + len(body), zlib.crc32(body)) + body


@dataclass(frozen=True, kw_only=True)
class Run:
    """Counters of a run."""

    number: int
    cycles: int
    read_beats: int
    write_beats: int
    saturated: int


_RUN = re.compile(r"run (\d+): (\d+) cycles, (\d+) beats read, (\d+) written, (\d+) saturated")
_ERROR = re.compile(r"error: (\w+) 0x([0-9a-f]+) at command (\d+), address 0x([0-9a-f]+): .*")


def parse_run(lines: Iterable[str]) -> list[Run]:
    """The runs that lines of the UART tell of."""
    found = (_RUN.fullmatch(line) for line in lines)
    return [Run(**dict(zip(("number", "cycles", "read_beats", "write_beats", "saturated"), map(int, match.groups()))))
            for match in found if match]


def parse_error(lines: Iterable[str]) -> tuple[int, int, int] | None:
    """Code, command and address of the error that lines of the UART tell of, or None."""
    for line in lines:
        match = _ERROR.fullmatch(line)
        if match:
            return int(match[2], 16), int(match[3]), int(match[4], 16)
    return None
