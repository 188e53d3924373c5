"""A model of the machine's registers, made from the register map: what the drivers are tested against."""

import struct

import pytest

from gradloom.firmware.device.transport import Transport
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import IMAGE_MACHINE, IMAGES
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, machine_table, table_words

PARAMETERS = {"rows": 25, "panels": 4, "rank": 4, "classes": 16}
WINDOW_BASE = 0x7_1234_5000
WINDOW_SIZE = 64 << 10
END, LOAD, STORE = (0, 0), (1, 0), (2, 0)
PROGRAM, REQUEST_BUSY, RUNNING, REQUEST_DONE, REQUEST_ERROR, REFUSED, REQUESTS = 15, 16, 32, 64, 128, 256, 512


class BusError(Exception):
    """SLVERR: on a board this ends the process, or the kernel."""


class Machine(Transport):
    """Registers as the map says, and programs of END, LOAD to B and STORE from B.

    A program stays busy for ``delay`` reads of STATUS. ``stuck`` never ends one; ``faults`` spoil one thing
    each. A request takes as long as a program, beside it.
    """

    def __init__(self, *, delay=3, stuck=False, faults=(), requests=True):
        self.window_base, self.window_size, self.clock_hz = WINDOW_BASE, WINDOW_SIZE, 200e6
        self.memory = bytearray(self.window_size)
        self.values = {r.name: sum(f.reset << f.lsb for f in r.fields) for r in REGISTERS}
        self.values |= {
            "MACHINE": TABLE_FORMAT | PROGRAM_FORMAT << 8 | 3 << 16 | 9 << 24,
            "CONFIG_MEMORY": 128 | 1024 << 16,
        }
        self.values["STATUS"] = REQUESTS * requests
        self.names = {r.address: r for r in REGISTERS}
        self.table = table_words(machine_table(IMAGES, PARAMETERS, IMAGE_MACHINE.loop(ImageConfig(classes=16))))
        self.delay, self.stuck, self.faults = delay, stuck, set(faults)
        self.left = self.request_left = 0
        self.b = bytes(128)
        self.bells = 0
        self.poll_interval = 0.0

    # Bus

    def register(self, offset):
        if offset not in self.names:
            raise BusError(f"no register at 0x{offset:X}")
        return self.names[offset]

    @property
    def busy(self):
        return bool(self.values["STATUS"] & 1)

    @property
    def request_busy(self):
        return bool(self.values["STATUS"] & REQUEST_BUSY)

    def locked(self, register):
        by = {"": False, "program": self.busy, "request": self.request_busy, "machine": self.busy or self.request_busy}
        return by[register.locked]

    def read32(self, offset):
        name = self.register(offset).name
        if "lanes" in self.faults and offset % 16:
            return 0
        if name == "ID" and "id" in self.faults:
            return 0xDEADBEEF
        value = self.values[name]
        if name == "TABLE_WORD":
            return dict(enumerate(self.table)).get(self.values["TABLE_PLACE"], 0)
        if name == "STATUS" and self.busy and not self.stuck:
            self.left -= 1
            if self.left < 0:
                self.finish()
        if name == "STATUS" and self.request_busy and not self.stuck:
            self.request_left -= 1
            if self.request_left < 0:
                self.finish_request()
        return value

    def write32(self, offset, value):
        register = self.register(offset)
        if not register.writable or self.locked(register):
            raise BusError(f"write to {register.name}")
        for field in register.fields:
            bits = value >> field.lsb & (1 << field.width) - 1
            if field.clear_on_one:
                self.values[register.name] &= ~(bits << field.lsb)
            elif field.stored:
                self.values[register.name] = self.values[register.name] & ~field.mask | bits << field.lsb
        if "bit" in self.faults and register.name == "WATCHDOG":
            self.values["WATCHDOG"] |= 0x10
        if register.name == "CONTROL" and value & 1 and not self.busy:
            self.ring()
        if register.name == "CONTROL" and value & 4:
            self.ring_request()
        if register.name == "CONTROL" and value & 2 and (self.busy or self.request_busy):
            self.stuck = False
            self.outcome = self.request_outcome = (Error.ABORTED, 0, 0)
        if register.name in ("CACHE_CLEAR", "BASE_ID"):
            self.values["STATUS"] |= 1
            self.left, self.outcome = self.delay, None

    def read_memory(self, offset, length):
        return bytes(self.memory[offset : offset + length])

    def write_memory(self, offset, data):
        self.memory[offset : offset + len(data)] = data

    # Programs

    @property
    def base(self):
        return self.values["WINDOW_BASE_HI"] << 32 | self.values["WINDOW_BASE_LO"]

    def ring(self):
        self.bells += 1
        self.written = 0
        self.left = self.delay
        self.values["STATUS"] = self.values["STATUS"] & ~PROGRAM | 1
        for name in ("ERROR_CODE", "ERROR_COMMAND", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI"):
            self.values[name] = 0
        self.outcome = self.execute("PROGRAM")

    def ring_request(self):
        if self.request_busy or "stopping" in self.faults:
            self.values["STATUS"] |= REFUSED
            return
        self.values["STATUS"] &= ~(REQUEST_DONE | REQUEST_ERROR | REFUSED)
        self.values["STATUS"] |= REQUEST_BUSY
        self.written, self.request_left = 0, self.delay
        self.request_outcome = self.execute("REQUEST")

    def finish_request(self):
        code, command, address = self.request_outcome
        self.values["STATUS"] &= ~REQUEST_BUSY
        self.values["STATUS"] |= REQUEST_ERROR if code else REQUEST_DONE
        self.values["IRQ_STATUS"] |= 2 if code else 4
        self.values |= {"REQUEST_WAITED": 123, "REQUEST_CYCLES": 456}
        if code:
            self.fail(code, command | 1 << 31, address)
            if self.busy:
                self.values["STATUS"] = self.values["STATUS"] & ~PROGRAM | 4

    def fail(self, code, command, address):
        self.values |= {
            "ERROR_CODE": int(code),
            "ERROR_COMMAND": command,
            "ERROR_ADDRESS_LO": address & 0xFFFFFFFF,
            "ERROR_ADDRESS_HI": address >> 32,
        }

    def execute(self, which):
        for index in range(self.values[f"{which}_COMMANDS"]):
            at = self.values[f"{which}_OFFSET"] + 32 * index
            words = struct.unpack_from("<8I", self.memory, at)
            engine, opcode = words[0] >> 8 & 15, words[0] & 255
            if engine > 5:
                return Error.UNKNOWN_ENGINE, index, 0
            if (engine, opcode) == END:
                return Error.NONE, index, 0
            offset, beats = words[3], words[4] & 0xFFFFFF
            if engine in (1, 2):
                if offset + 16 * beats > self.values["WINDOW_SIZE"] and "window" not in self.faults:
                    code = Error.LOAD_WINDOW if engine == 1 else Error.STORE_WINDOW
                    return code, index, self.base + offset
                if engine == 1:
                    self.b = bytes(self.memory[offset : offset + 16 * beats])
                else:
                    data = self.b if "copy" not in self.faults else bytes([self.b[0] ^ 1]) + self.b[1:]
                    self.memory[offset : offset + 16 * beats] = data
                    self.written += beats
        return Error.PROGRAM_UNENDED, 0, 0

    def finish(self):
        if self.outcome is None:
            self.values["STATUS"] &= ~1
            return
        code, command, address = self.outcome
        self.fail(code, command, address)
        self.values |= {
            "STATUS": self.values["STATUS"] & ~PROGRAM | (4 if code else 2),
            "CYCLES_LO": 0xFFFF_FFFF,
            "CYCLES_HI": 0x1,
            "COMMANDS_DONE": 7,
            "COMMANDS_DROPPED": 2,
            "CACHE_HITS": 11,
            "CACHE_MISSES": 5,
            "READ_BEATS": 96,
            "WRITE_BEATS": self.written,
            "SATURATED": 3,
            "UNDERFLOWED": 9,
            "GRADIENT_NORM_LO": 0xFFFF_FFFF,
            "GRADIENT_NORM_HI": 2,
        } | {f"PHASE_CYCLES{i}": (0x3FFF_FFFF + (i == 7) * 7) * (i < 8) for i in range(16)}
        if "phases" in self.faults:
            self.values["PHASE_CYCLES0"] += 1
        pending = 2 if code else 1
        if "irq" not in self.faults:
            self.values["IRQ_STATUS"] |= pending


@pytest.fixture
def make_machine():
    """Makes models that differ in one thing."""
    return Machine


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def bus_error():
    return BusError
