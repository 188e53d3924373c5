"""The firmware on this machine with a card that has an inbox, and nothing to learn."""

import hashlib
import io
import random
import subprocess

import numpy as np

from gradloom.firmware.chip.card import DELIVERY, KEPT, Section, write_card
from gradloom.firmware.chip.delivered import Area, DeliveryRequest

MEMORY, COUNT, AT = 1 << 20, 160, 4096


def fresh_card(words):
    """A card without a job: the board loads it, and waits."""
    file = io.BytesIO()
    sections = [
        Section(name="words", parts=(np.asarray(words, "<i4").tobytes(),), offset=AT),
        Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=2048),
        Section(name="signed", parts=(), offset=AT, kind=DELIVERY, capacity=4 * len(words)),
    ]
    write_card(file, sections, memory_bytes=MEMORY)
    return file.getvalue()


def base_of(card):
    return hashlib.sha256(card[:512]).digest()


class Receiver:
    """Card, memory and firmware."""

    def __init__(self, program, folder, content):
        self.program, self.card, self.memory = program, folder / "card", folder / "memory"
        self.card.write_bytes(content)
        with self.card.open("rb") as file:
            self.words = Area.of(file).entry.capacity // 4

    def ask(self, package=b"", *, number=1, request=DeliveryRequest.INSTALL):
        """A request, as the verbs put it onto the card."""
        with self.card.open("r+b") as file:
            Area.of(file).ask(file, request, number, package)

    def start(self, *, seed=0, **settings):
        """Power-up until the board waits, or power goes: what it says of packages, and the words in its memory.

        Then whether power was cut, bytes on the line while it wrote, and blocks that the card has stored.
        """
        self.memory.write_bytes(random.Random(seed).randbytes(MEMORY))
        command = [str(self.program), str(self.card), str(self.memory)]
        command += [f"{name}={value}" for name, value in settings.items()]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        *lines, end = done.stdout.splitlines()
        cut, written, stored, violations, *_ = map(int, end.split()[1:])
        assert violations == 0
        said = [line[2:] for line in lines if line.startswith(("u install", "u rollback", "u card: error"))]
        words = np.frombuffer(self.memory.read_bytes()[AT : AT + 4 * self.words], "<i4")
        return said, words, (bool(cut), written, stored)

    def state(self):
        with self.card.open("rb") as file:
            return Area.of(file).state(file)
