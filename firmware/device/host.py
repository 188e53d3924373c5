"""Drives an accelerator on a board, in simulation, or a model.

Python 3.10 runs it, and numpy is asked for only where arrays come back: the self-test works on a bare board.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from . import registers
from .lanes import lanes_fault
from .machine import PROGRAM_FORMAT, TABLE_FORMAT, MachineDesign, MachineTable, own_design, parse_table
from .transport import Transport

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike


class AcceleratorError(RuntimeError):
    """The accelerator, or the way to it, does not work as asked."""


class ProgramError(AcceleratorError):
    """A program stopped with an error.

    Attributes
    ----------
    code, name : :class:`int`, :class:`str`
        ``ERROR_CODE`` and its name.
    command : :class:`int`
        Position of the command at fault in the program, or in the request.
    request : :class:`bool`
        The command is one of the request.
    address : :class:`int` or ``None``
        Bus address at fault; ``None`` if the error has none.
    offset : :class:`int` or ``None``
        The same, from the window's start.
    """

    def __init__(self, code: int, command: int, address: int, window_base: int, *, request: bool = False):
        self.code, self.request = code, request
        unknown = (f"0x{code:02X}", "A code that this host does not know.")
        self.name, meaning = registers.ERRORS.get(code, unknown)
        self.command = command
        # 0 stands for "no address", except where the meaning of the code promises one.
        self.address = address if address or "ERROR_ADDRESS" in meaning else None
        self.offset = None if self.address is None else self.address - window_base
        where = ""
        if self.address is not None and self.offset is not None:
            sign = "-" if self.offset < 0 else "+"
            where = f", address 0x{self.address:X} (window {sign} 0x{abs(self.offset):X})"
        what = "request" if request else "program"
        super().__init__(f"{what} stopped: {self.name} at command {command}{where}: {meaning}")


class QueueFull(AcceleratorError):
    """A request is pending or runs, and this one was not taken.

    It can be made again when that has ended.
    """


class AcceleratorTimeout(AcceleratorError, TimeoutError):
    """A program did not end in time.

    It still runs: stop it with :meth:`Accelerator.reset`.
    """


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Configuration with which a machine was generated."""

    version: tuple[int, int, int]
    table: MachineTable
    data_bits: int
    slots: int
    requests: bool


@dataclass(frozen=True, kw_only=True)
class Served:
    """Cycles that a request took.

    They are from its bell to its start, and to its end.
    """

    waited: int
    cycles: int


@dataclass(frozen=True, kw_only=True)
class ProgramCounters:
    """Cost of the last program. ``phases`` add up to ``cycles``."""

    cycles: int
    phases: dict[str, int]
    commands_done: int
    commands_dropped: int
    cache_hits: int
    cache_misses: int
    read_beats: int
    write_beats: int
    saturated: int
    underflowed: int
    gradient_norm: int

    def metrics(self) -> dict[str, dict[str, int]]:
        """The counters as ``metrics.json`` groups them.

        The groups are ``cycles``, ``cache``, ``health``.
        """
        return {
            "cycles": {"total": self.cycles} | self.phases,
            "cache": {"hits": self.cache_hits, "misses": self.cache_misses},
            "health": {
                "saturated": self.saturated,
                "underflowed": self.underflowed,
                "gradient_norm": self.gradient_norm,
            },
        }

    def as_dict(self) -> dict[str, object]:
        """Every counter as plain values."""
        return asdict(self)


class Accelerator:
    """An accelerator behind a :class:`~.transport.Transport`.

    Checks at once that it is one, and opens the transport's whole window. A register that is locked while a
    program or a request runs answers a write with a bus error, which stops a Linux kernel: methods that write one
    refuse meanwhile.

    Two threads may use it, one for programs and one for requests, if their transport's accesses are whole.

    Parameters
    ----------
    transport : :class:`~.transport.Transport`
        Way to the registers and the window.
    timeout : :class:`float`
        Seconds that a program, or clearing the cache, may take where no other limit is given.
    design : :class:`~.machine.MachineDesign` or ``None``
        The design that the board must have. It is compared before the window is set or anything is stored.
        Default: the one that this host was generated with, if any.
    """

    def __init__(self, transport: Transport, *, timeout: float = 60.0, design: MachineDesign | None = None):
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, not {timeout}")
        self.transport = transport
        self._design = own_design() if design is None else design
        self.timeout = timeout
        self.configuration = self._probe()
        self.set_window(transport.window_base, transport.window_size)

    # Registers

    def read(self, name: str) -> int:
        """The register, or the field (``"STATUS.busy"``), called ``name``."""
        register, _, field = name.partition(".")
        value = self.transport.read32(_offset(register))
        if field:
            if name not in registers.FIELDS:
                raise ValueError(f"no field {field!r} in register {register}")
            lsb, width = registers.FIELDS[name]
            value = value >> lsb & (1 << width) - 1
        return value

    def write(self, name: str, value: int) -> None:
        """Writes the register called ``name``.

        Refuses a locked register while the program or request that locks it runs.
        """
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{name} must hold 32 bits, not {value:#x}")
        for lock in registers.LOCKED.get(name, ()):
            if self.read(lock):
                what = "program" if lock == "STATUS.busy" else "request"
                raise AcceleratorError(f"{name} is locked while a {what} runs")
        self.transport.write32(_offset(name), value)

    def read64(self, name: str) -> int:
        """The pair of registers ``name_LO`` and ``name_HI``.

        It is meaningful while no program runs.
        """
        return self.read(f"{name}_HI") << 32 | self.read(f"{name}_LO")

    @property
    def busy(self) -> bool:
        """A program runs, or is being stopped, or valid bits are being cleared."""
        return bool(self.read("STATUS.busy"))

    def _probe(self) -> Configuration:
        magic = self.transport.read32(registers.ID)
        if magic != registers.CONSTANTS["ID"]:
            raise AcceleratorError(
                f"no gradloom accelerator: ID is 0x{magic:08X}, not 0x{registers.CONSTANTS['ID']:08X}"
            )
        if fault := lanes_fault(self.transport.read32):
            raise AcceleratorError(fault)
        version = (self.read("VERSION.major"), self.read("VERSION.minor"), self.read("VERSION.patch"))
        lsb, width = registers.FIELDS["VERSION.major"]
        expected = registers.CONSTANTS["VERSION"] >> lsb & (1 << width) - 1
        if version[0] != expected:
            raise AcceleratorError(
                f"register map {'.'.join(map(str, version))} needs another host: this one speaks version {expected}"
            )
        for what, ours in (("table", TABLE_FORMAT), ("program", PROGRAM_FORMAT)):
            theirs = self.read(f"MACHINE.{what}_format")
            if theirs != ours:
                raise AcceleratorError(f"{what} format {theirs} needs another host: this one speaks {ours}")
        memory = {field: self.read(f"CONFIG_MEMORY.{field}") for field in ("data_bits", "slots")}
        if self._design is not None:
            counts = {field: self.read(f"MACHINE.{field}") for field in ("engines", "phases")}
            self._refuse(self._design.differs(**counts, data_bits=memory["data_bits"]))
        text = self._table_text()
        try:
            table = parse_table(text)
        except ValueError as error:
            raise AcceleratorError(str(error)) from None
        if self._design is not None:
            self._refuse(self._design.differs_in_table(text))
        return Configuration(version=version, table=table, **memory, requests=bool(self.read("STATUS.requests")))

    def _refuse(self, difference: str) -> None:
        if difference and self._design is not None:
            raise AcceleratorError(
                f"the board has another design than {self._design.name}: {difference}; run gradloom flash again"
            )

    def _table_text(self) -> str:
        data = b""
        for place in range(1 << registers.FIELDS["TABLE_PLACE.word"][1]):
            self.write("TABLE_PLACE", place)
            data += self.read("TABLE_WORD").to_bytes(4, "little")
            if 0 in data:
                break
        return data.split(b"\0")[0].decode("ascii", "replace")

    # Window

    def set_window(self, base: int, size: int) -> None:
        """Sets the bytes that programs may reach.

        They are ``size`` bytes at bus address ``base``.
        """
        if not 0 <= base < 1 << 64 or base % 4096:
            raise ValueError(f"window base must be a 64-bit multiple of 4096, not {base:#x}")
        if not 0 <= size < 1 << 32:
            raise ValueError(f"window size must be between 0 and {(1 << 32) - 1}, not {size}")
        self.window_base, self.window_size = base, size
        self.write("WINDOW_BASE_LO", base & 0xFFFFFFFF)
        self.write("WINDOW_BASE_HI", base >> 32)
        self.write("WINDOW_SIZE", size)

    def store(self, offset: int, values: bytes | bytearray | memoryview | np.ndarray) -> None:
        """Writes bytes or an array at ``offset`` of the window.

        An array is written as it lies in memory (little-endian).
        """
        if not isinstance(values, bytes | bytearray | memoryview):
            values = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        self._check(offset, len(values))
        self.transport.write_memory(offset, bytes(values))

    def fetch(self, offset: int, length: int) -> bytes:
        """``length`` bytes at ``offset`` of the window."""
        self._check(offset, length)
        return self.transport.read_memory(offset, length)

    def fetch_array(self, offset: int, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array at ``offset`` of the window (little-endian)."""
        import numpy as np

        stored = np.dtype(dtype).newbyteorder("<")
        count = int(np.prod(shape, dtype=np.int64))
        data = np.frombuffer(self.fetch(offset, count * stored.itemsize), stored)
        return data.astype(stored.newbyteorder("=")).reshape(shape)

    def _check(self, offset: int, length: int) -> None:
        size = self.transport.window_size
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"offset {offset} and length {length} must lie in the window of {size} bytes")

    # Programs

    def run(self, offset: int, commands: int, *, timeout: float | None = None) -> ProgramCounters:
        """Runs a program at ``offset`` of the window, to its end.

        It has ``commands`` commands.

        Raises :class:`ProgramError` if it stops with an error, :class:`AcceleratorTimeout` if it takes too
        long.
        """
        self.start(offset, commands)
        return self.wait(timeout=timeout)

    def run_program(
        self, program: Iterable[bytes], *, offset: int = 0, timeout: float | None = None
    ) -> ProgramCounters:
        """Stores encoded commands at ``offset`` and runs them."""
        words = [bytes(command) for command in program]
        for index, word in enumerate(words):
            if len(word) != registers.COMMAND_BYTES:
                raise ValueError(f"command {index} must have {registers.COMMAND_BYTES} bytes, not {len(word)}")
        self.store(offset, b"".join(words))
        return self.run(offset, len(words), timeout=timeout)

    def start(self, offset: int, commands: int) -> None:
        """Rings the bell and returns."""
        self._place(offset, commands)
        if self.busy:
            raise AcceleratorError("a program runs already")
        self._acknowledge("done", "error")
        self.write("IRQ_ENABLE", self._interrupts)
        self.write("PROGRAM_OFFSET", offset)
        self.write("PROGRAM_COMMANDS", commands)
        self.write("CONTROL", 1 << registers.FIELDS["CONTROL.bell"][0])

    @staticmethod
    def _place(offset: int, commands: int) -> None:
        if offset % registers.COMMAND_BYTES or not 0 <= offset < 1 << 32:
            raise ValueError(f"program offset must be a multiple of {registers.COMMAND_BYTES}, not {offset}")
        most = (1 << registers.FIELDS["PROGRAM_COMMANDS.value"][1]) - 1
        if not 1 <= commands <= most:
            raise ValueError(f"commands must be between 1 and {most}, not {commands}")

    @property
    def _interrupts(self) -> int:
        return 0b111 if self.configuration.requests else 0b11

    def wait(self, *, timeout: float | None = None, watch: Callable[[], object] | None = None) -> ProgramCounters:
        """Waits for the end of a started program.

        ``watch`` is called now and then meanwhile.
        """
        self._wait(lambda: self.busy, "program", timeout, watch)
        self._acknowledge("done", "error")
        self.raise_error()
        return self.counters()

    def _wait(
        self, busy: Callable[[], bool], what: str, timeout: float | None, watch: Callable[[], object] | None = None
    ) -> None:
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        # An interrupt says that something happened; only STATUS says what, and that an interrupt was lost.
        while busy():
            left = end - time.monotonic()
            if left <= 0:
                raise AcceleratorTimeout(f"the {what} did not end within {limit:g} s; reset() stops it")
            self.transport.wait_interrupt(min(left, 1.0))
            if watch is not None:
                watch()

    # Requests

    def request(self, offset: int, commands: int) -> None:
        """Queues a program at ``offset`` beside the one that runs.

        It has ``commands`` commands. It starts at the running program's next YIELD, or at once if none runs.

        Raises :class:`QueueFull` while another request is pending or runs.
        """
        self._place(offset, commands)
        if not self.configuration.requests:
            raise AcceleratorError("this machine was generated without requests")
        if self.request_busy:
            raise QueueFull("a request is pending or runs")
        self._acknowledge("request")
        self.write("IRQ_ENABLE", self._interrupts)
        self.write("REQUEST_OFFSET", offset)
        self.write("REQUEST_COMMANDS", commands)
        self.write("CONTROL", 1 << registers.FIELDS["CONTROL.request"][0])
        if self.read("STATUS.refused"):
            raise QueueFull("the machine is being stopped")

    @property
    def request_busy(self) -> bool:
        """A request is pending or runs."""
        return bool(self.read("STATUS.request_busy"))

    def wait_request(self, *, timeout: float | None = None) -> Served:
        """Waits for the end of a request.

        Raises :class:`ProgramError` if an error stopped it, its own or the program's.
        """
        self._wait(lambda: self.request_busy, "request", timeout)
        self._acknowledge("request")
        if self.read("STATUS.request_error"):
            raise self._error()
        return Served(waited=self.read("REQUEST_WAITED"), cycles=self.read("REQUEST_CYCLES"))

    def reset(self, *, timeout: float | None = None) -> None:
        """Stops program and request, and resets the engines.

        They end with the error ABORTED.
        """
        self.write("CONTROL", 1 << registers.FIELDS["CONTROL.reset"][0])
        self._idle(timeout, "the reset")
        self._acknowledge("done", "error", "request")

    def raise_error(self) -> None:
        """Raises :class:`ProgramError` if the last program stopped in error."""
        if self.read("STATUS.error"):
            raise self._error()

    def _error(self) -> ProgramError:
        return ProgramError(
            self.read("ERROR_CODE.code"),
            self.read("ERROR_COMMAND.index"),
            self.read64("ERROR_ADDRESS"),
            self.window_base,
            request=bool(self.read("ERROR_COMMAND.request")),
        )

    def counters(self) -> ProgramCounters:
        """Counters of the last program."""
        if self.busy:
            raise AcceleratorError("counters are whole only when no program runs")
        return ProgramCounters(
            cycles=self.read64("CYCLES"),
            phases={phase: self.read(f"PHASE_CYCLES{i}") for i, phase in enumerate(self.configuration.table.phases)},
            gradient_norm=self.read64("GRADIENT_NORM"),
            **{
                name: self.read(name.upper())
                for name in (
                    "commands_done",
                    "commands_dropped",
                    "cache_hits",
                    "cache_misses",
                    "read_beats",
                    "write_beats",
                    "saturated",
                    "underflowed",
                )
            },
        )

    def seconds(self, cycles: int) -> float | None:
        """``cycles`` in seconds, where the clock is known."""
        return None if self.transport.clock_hz is None else cycles / self.transport.clock_hz

    # Cache and watchdog

    def set_base(self, identity: int, *, timeout: float | None = None) -> None:
        """Names the frozen network whose activations the cache holds.

        Another name than before clears it.
        """
        self.write("BASE_ID", identity & 0xFFFFFFFF)
        self._idle(timeout, "clearing the cache")

    def clear_cache(self, *, timeout: float | None = None) -> None:
        """Forgets every cached sample."""
        self.write("CACHE_CLEAR", 1)
        self._idle(timeout, "clearing the cache")

    def set_watchdog(self, cycles: int) -> None:
        """Sets the cycles without progress after which a program is stopped.

        0 switches the watchdog off.
        """
        self.write("WATCHDOG", cycles)

    def _acknowledge(self, *names: str) -> None:
        mask = sum(1 << registers.FIELDS[f"IRQ_STATUS.{name}"][0] for name in names)
        pending = self.read("IRQ_STATUS") & mask
        if pending:
            self.write("IRQ_STATUS", pending)

    def _idle(self, timeout: float | None, what: str) -> None:
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        while self.busy:
            if time.monotonic() > end:
                raise AcceleratorTimeout(f"{what} did not end within {limit:g} s")


def _offset(name: str) -> int:
    if name not in registers.REGISTERS:
        raise ValueError(f"no register called {name!r}")
    return registers.REGISTERS[name]
