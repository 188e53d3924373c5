"""The firmware on this machine, its accelerator by the reference, its card by a model, and power that goes."""

import hashlib
import io
import mmap
import random
import subprocess
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import gradloom.sim
from gradloom.firmware.chip.card import KEPT, read_header, write_card
from gradloom.firmware.chip.kept import newest
from gradloom.firmware.chip.monocypher_source import monocypher
from gradloom.firmware.chip.soc_image import includes, source
from gradloom.rtl.formats.weights.tiles import tile_moments, tile_rows
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, table_of
from gradloom.systems.text.card.trainer import JobTrainer
from gradloom.systems.text.operations.blocks.head import LOSS, TARGETS
from gradloom.systems.text.operations.learnt.rechosen import FRACS
from gradloom.systems.text.program.step import lower

from ..conftest import CONFIG

BENCH = Path(gradloom.sim.__file__).parent / "bench/harness"
SOURCES = (
    "soc_main soc_card soc_deliver soc_device soc_infer soc_job soc_keep soc_line soc_package soc_part soc_result"
    " soc_root soc_sd soc_serve soc_sha soc_text soc_trial gradloom gradloom_steps gradloom_store gradloom_sum"
).split()
#: A board whose memory and registers are the process's, and whose card is a model.
HEADER = """
#include <stdint.h>
extern uintptr_t host_memory;
#define GL_MEMORY host_memory
#define GL_MEMORY_BYTES {memory}u
#define GL_BOARD_CARD 1
#define GL_CARD_BUSY 5000u
uint32_t host_read(void *, uint32_t);
void host_write(void *, uint32_t, uint32_t);
#define GL_BOARD_READ host_read
#define GL_BOARD_WRITE host_write
void host_put(char);
void host_card(uint32_t, uint32_t);
void host_card_send(uint32_t);
uint32_t host_card_got(void);
void host_card_give(uint32_t);
uint32_t host_card_word(void);
void host_card_sum_sent(void);
uint32_t host_card_sum(void);
int host_mains_lost(void);
uint32_t host_temperature(void);
uint32_t host_cycles(void);
#define gl_board_put host_put
#define gl_board_card host_card
#define gl_board_card_send host_card_send
#define gl_board_card_got host_card_got
#define gl_board_card_fetch() host_card_give(0xffffffffu)
#define gl_board_card_give host_card_give
#define gl_board_card_word host_card_word
#define gl_board_card_sum_sent host_card_sum_sent
#define gl_board_card_sum host_card_sum
#define gl_board_card_tries() 20u
#define GL_BOARD_MAINS_LOST host_mains_lost
#define GL_BOARD_TEMPERATURE host_temperature
#define GL_BOARD_CYCLES host_cycles
#define gl_board_start() ((void)0)
"""


def compiled(folder, memory_bytes, root=bytes(32)):
    """The firmware's own sources for this machine; ``root`` is the public key that it trusts."""
    try:
        place = monocypher()
    except ValueError as error:
        pytest.skip(str(error))
    (folder / "board.h").write_text(HEADER.format(memory=memory_bytes))
    strict = ["-Wall", "-Wextra", "-Werror", "-O2", *includes()]
    header = f'-DGL_BOARD_HEADER="{folder / "board.h"}"'
    objects = []
    more = [header, "-Dmain=gl_firmware", f"-DGL_ROOT_KEY={','.join(map(str, root))}", f"-I{place}"]
    for unit in (*(source(f"{name}.c") for name in SOURCES), place / "monocypher.c"):
        objects.append(str(folder / f"{unit.stem}.o"))
        subprocess.run(["gcc", "-std=c99", *strict, *more, "-c", str(unit), "-o", objects[-1]], check=True)
    bench = str(Path(__file__).parents[3] / "firmware" / "chip" / "power_host.cpp")
    target = folder / "power_host"
    options = [
        *strict,
        f"-I{BENCH}",
        f'-DTABLE="{table_of(CONFIG)}"',
        f"-DFORMATS={TABLE_FORMAT | PROGRAM_FORMAT << 8}",
    ]
    subprocess.run(["g++", "-std=c++17", *options, bench, *objects, "-o", str(target)], check=True)
    return target


class Reference:
    """An accelerator that knows its job: what a step reads must be what the job brings, or what its own steps left.

    A step's program is the one that a host would lower, its result the integer reference's. Results are remembered by
    all that a step reads.
    """

    def __init__(self, made, frozen, adapters, layers, rule, texts):
        self.made, self.texts = made, texts
        trainer = JobTrainer(frozen, dict(adapters), layers, rule, frac=made.frac, exponents=deepcopy(made.exponents))
        self.steps = [deepcopy(trainer.__dict__)]
        self.trainer, self.known, self.losses = trainer, {}, []
        self.entry = trainer.training(texts[0]).step.input.name
        self.learning = trainer.cached(texts[0])

    def told(self, number):
        """Losses of the first steps."""
        self._at(number)
        return self.losses[:number]

    def _at(self, number):
        """The fine-tune after so many steps, which are made if they were not yet."""
        while len(self.steps) <= number:
            self._load(len(self.steps) - 1)
            made = self.trainer.step(self.texts[(len(self.steps) - 1) % len(self.texts)])
            self.losses.append(made.loss)
            self.steps.append(deepcopy(self.trainer.__dict__))
        return self._load(number)

    def _load(self, number):
        held = self.steps[number]
        self.trainer.__dict__.update({name: deepcopy(each) for name, each in held.items() if name != "frozen"})
        return self.trainer

    def _inputs(self, memory, program, text):
        made, digest = self.made, hashlib.sha256()
        for name, size in made.layout.sizes.items():
            number, _, rest = name.rpartition(":")
            if number and (int(number) != text or (program == 0 and rest not in (self.entry, TARGETS))):
                continue
            if name == LOSS or (name.startswith("model.") and name.rsplit(".", 1)[1] in ("h", "dh", "ga", "gb")):
                continue
            digest.update(memory.fetch(made.layout[name], size))
        offset, commands = made.job.programs[program].offset, len(made.job.programs[program].code)
        digest.update(memory.fetch(offset, commands))
        return digest.digest()

    def run(self, memory, offset):
        """Makes the step whose program is at ``offset``; returns saturated words."""
        programs = [each.offset for each in self.made.job.programs]
        program = programs.index(offset)
        number = self.number
        text = number % len(self.texts)
        key = self._inputs(memory, program, text)
        if (number, key) not in self.known:
            self.known[number, key] = self._made(memory, number, program, text)
        writes, saturated = self.known[number, key]
        for place, data in writes:
            memory.store(place, data)
        self.number += 1
        return saturated

    def _made(self, memory, number, program, text):
        made, trainer = self.made, self._at(number)
        tokens = self.texts[text]
        if program == 0:
            trainer.cache.pop(tuple(tokens), None)
        training, frac = trainer.prepared(tokens)
        layout = made.layout.copy()
        for name in (self.entry, TARGETS, *(each.name for each in self.learning)):
            layout.offsets[name] = made.layout[f"{text}:{name}"]
        code = made.job.programs[program]
        expected = lower(training.operations, frac, layout, CONFIG, share=True).code
        assert memory.fetch(code.offset, len(code.code)) == expected, number
        for name, data in training.data(frac).items():
            if name in made.layout.sizes and name != LOSS:
                assert memory.fetch(made.layout[name], len(data)) == data, (number, name)
        result = trainer.step(tokens)
        values, writes = result.values, []
        for name, words in values.items():
            if name in made.layout.sizes and words.ndim == 3:
                writes.append((made.layout[name], tile_moments(words[0], words[1], 64)))
            elif name.rsplit(".", 1)[-1] in FRACS and name in made.layout.sizes:
                raw = name.endswith((".h", ".dh"))
                writes.append((made.layout[name], words.astype("<i4").tobytes() if raw else tile_rows(words, 64)))
        counted = len(tokens) - 1
        total = round(result.loss * counted / np.log(2) * 65536)
        writes.append((made.layout[LOSS], np.array([total, counted], "<u8").tobytes()))
        if program == 0:
            for each in self.learning:
                writes.append((made.layout[f"{text}:{each.name}"], tile_rows(values[each.name], 64)))
        return writes, result.saturated


class Memory:
    """The shared memory as a file, from the window's first byte on."""

    def __init__(self, path, size, offset):
        self.path, self.offset = path, offset
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), size)

    def fetch(self, offset, length):
        return self.bytes[self.offset + offset : self.offset + offset + length]

    def store(self, offset, data):
        self.bytes[self.offset + offset : self.offset + offset + len(data)] = data

    def noise(self, seed):
        self.bytes[:] = random.Random(seed).randbytes(len(self.bytes))


class Board:
    """Card, memory and firmware: what stays when power goes is the card alone."""

    def __init__(self, program, folder, made, reference, memory_bytes):
        self.program, self.made, self.reference = program, made, reference
        self.memory = Memory(folder / "memory", memory_bytes, made.job.window_offset)
        self.card = folder / "card"
        file = io.BytesIO()
        write_card(file, made.sections, memory_bytes=memory_bytes)
        self.fresh = file.getvalue()
        self.reset()

    def reset(self):
        """A card that was written just now."""
        self.card.write_bytes(self.fresh)

    def kept(self):
        """The newest copy on the card."""
        sections, identity = read_header(self.fresh[:512])
        (area,) = (each for each in sections if each.kind == KEPT)
        with self.card.open("rb") as file:
            return newest(file, area.start, area.size // 2, identity)

    def power(self, *, seed=0, mains=0, warm=0, **settings):
        """Runs from power-up to the end of the job or of power.

        Returns lines of the UART, and whether power was cut, bytes on the card's line while it wrote, blocks stored,
        runs, bytes on the line. ``mains``, ``warm``: the runs in which mains power is lost, and the chip gets too
        warm.
        """
        self.memory.noise(seed)
        command = [str(self.program), str(self.card), str(self.memory.path)]
        command += [f"{name}={value}" for name, value in settings.items()]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            lines = []
            for line in process.stdout:
                kind, _, rest = line.rstrip("\n").partition(" ")
                if kind == "u":
                    lines.append(rest)
                    if rest.startswith("steps: "):
                        self.reference.number = next(
                            (int(each.split()[-1]) for each in lines if each.startswith("kept: goes on")), 0
                        )
                elif kind == "r":
                    saturated = self.reference.run(self.memory, int(rest.split()[0]))
                    lost = int(self.reference.number == mains) + 2 * int(self.reference.number == warm)
                    process.stdin.write(f"{saturated} 1000 {lost}\n")
                    process.stdin.flush()
                else:
                    cut, written, stored, violations, runs, length = map(int, rest.split())
                    assert violations == 0
                    return lines, (bool(cut), written, stored, runs, length)
        raise AssertionError(f"the firmware has ended by itself after {lines}")
