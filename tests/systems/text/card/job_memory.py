"""A job's window on this machine, and the two drivers that prepare its steps: C, as the firmware has it, and Python."""

import ctypes

import numpy as np

from gradloom.firmware.chip.steps import STATE_BYTES, StepError, Steps
from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.rtl.formats.weights.tiles import tile_rows
from gradloom.systems.text.card.job import STATE
from gradloom.systems.text.operations.learnt.rechosen import FRACS

from ....firmware.strict import strict_library


class Window:
    """What the card brings, from the window's first byte on."""

    def __init__(self, made):
        self.made = made
        self.bytes = bytearray(made.job.window_bytes)
        for section in made.sections[:-1]:
            self.store(section.offset - made.job.window_offset, b"".join(section.parts))
        self.programs = [(each.offset, len(each.code) // COMMAND_BYTES) for each in made.job.programs]

    def store(self, offset, data):
        self.bytes[offset : offset + len(data)] = data

    def fetch(self, offset, length):
        return bytes(self.bytes[offset : offset + length])

    def code(self, program):
        offset, commands = self.programs[program]
        return self.fetch(offset, COMMAND_BYTES * commands)

    def put(self, words):
        """Words of adapters as a step leaves them: h and dh in the order of the engine, which no maximum knows."""
        for name, each in words.items():
            hidden = name.endswith((".h", ".dh"))
            self.store(self.made.layout[name], each.astype("<i4").tobytes() if hidden else tile_rows(each, 64))


class CSteps(ctypes.Structure):
    _fields_ = [
        ("window", ctypes.c_void_p),
        ("window_bytes", ctypes.c_uint32),
        ("table", ctypes.c_uint32),
        ("programs", ctypes.c_uint32),
        ("offset", ctypes.c_uint32 * 4),
        ("commands", ctypes.c_uint32 * 4),
        ("first", ctypes.c_uint32),
    ]


class Firmware:
    """``gradloom_steps.c``."""

    def __init__(self, library, window):
        self.library, self.window = library, window
        offsets, commands = zip(*window.programs)
        start = ctypes.addressof(ctypes.c_char.from_buffer(window.bytes))
        self.steps = CSteps(start, len(window.bytes), window.made.job.table, len(offsets), (*offsets,), (*commands,))
        self._done(library.gl_steps_check(ctypes.byref(self.steps)))
        self.count = library.gl_steps_count(ctypes.byref(self.steps))

    @staticmethod
    def _done(why):
        if why:
            raise StepError(why.decode())

    def prepare(self, step):
        program = ctypes.c_uint32()
        self._done(self.library.gl_steps_prepare(ctypes.byref(self.steps), step, ctypes.byref(program)))
        return program.value

    def measure(self, done):
        self._done(self.library.gl_steps_measure(ctypes.byref(self.steps), done))


def host(window):
    return Steps(window, window.made.job.table, window.programs)


def compiled(target):
    """The C driver as a shared library."""
    library = strict_library(target, "gradloom_steps.c", "gradloom_sum.c")
    for name in ("check", "prepare", "measure"):
        getattr(library, f"gl_steps_{name}").restype = ctypes.c_char_p
    library.gl_steps_count.restype = ctypes.c_uint32
    return library


def state_of(window):
    """Fraction bits of adapters as the window has them, by name."""
    made, words = window.made, {}
    for number, name in enumerate(made.exponents.constants):
        found = np.frombuffer(window.fetch(made.layout[STATE] + number * STATE_BYTES, 24), "<i4")
        words |= {f"{name}.{which}": int(value) for which, value in zip(FRACS, found)}
    return words
