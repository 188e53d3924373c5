"""The product engine beside its reference: words, cycles, errors."""

import numpy as np
import pytest

from gradloom.rtl.engines.product.commands import ProductOpcode
from gradloom.rtl.engines.product.spec import SPEC
from gradloom.rtl.formats.tile_codes import WIDE, ZERO
from gradloom.rtl.formats.tile_records import BEAT, TileRecord, tile_argument
from gradloom.sim.bench.engine import FENCE, Command, EngineBench, Load, Store, pressures
from gradloom.sim.reference.product import ProductModel

from .conftest import CONFIG

SCAN, PRODUCT, BIAS = ProductOpcode.SCAN, ProductOpcode.PRODUCT, ProductOpcode.BIAS
NARROW = 8


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, CONFIG)


def beats_of(content):
    return [int.from_bytes(content[at : at + BEAT], "little") for at in range(0, len(content), BEAT)]


class Play:
    """Steps for the bench, and the words that the reference says."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.model = ProductModel(CONFIG)
        self.steps, self.words = [], []

    def load(self, port, slot, rows=64, features=64, *, exponent=None, most=None, count=1):
        bits = WIDE if port == "bias" else NARROW
        most = most or (1 << bits - 1) - 1
        content = b""
        for _ in range(count):
            codes = self.random.integers(-most, most + 1, (rows, features))
            own = int(self.random.integers(-9, 4)) if exponent is None else exponent
            content += TileRecord(rows, features, bits).pack(codes, own)
        arg = tile_argument(slot, rows, features)
        self.model.load(port, arg, content)
        self.steps.append(
            Load(port, [int.from_bytes(content[n : n + BEAT], "little") for n in range(0, len(content), BEAT)], arg)
        )
        return self

    def run(self, opcode, **operands):
        full = {"tiles": 0, "k_to": 63, "rows": 63, "columns": 63} | operands
        self.model.run(opcode, full)
        self.steps.append(Command(opcode, full))
        return self

    def fence(self):
        self.steps.append(FENCE)
        return self

    def store(self, slot=0, rows=64, features=64, *, wide=True):
        record = TileRecord(rows, features, WIDE if wide else NARROW)
        arg = tile_argument(slot, rows, features, wide=wide)
        content = self.model.store("o", arg, record.beats)
        self.words += beats_of(content)
        self.steps += [FENCE, Store("o", record.beats, arg), FENCE]
        return self

    def check(self, bench, **options):
        return bench.check(*self.steps, words={"o": self.words}, **options)


def plain(play):
    play.load("x", 0).load("w", 0).fence().run(PRODUCT, fresh=1, start=1, last=1).store().store(wide=False)


def transposed(play):
    play.load("x", 3).load("w", 5).fence()
    for n, (x_turn, w_turn) in enumerate(((0, 1), (1, 0), (1, 1))):
        play.run(PRODUCT, x=3, w=5, x_turn=x_turn, w_turn=w_turn, fresh=1, start=1, last=1, o=n)
    for n in range(3):
        play.store(n)


def several(play):
    """Three tiles of K of exponents far apart, the last of 20 indices; a bias; an adapter's product of 8."""
    play.load("x", 0, exponent=-3).load("x", 1, exponent=2).load("x", 2, rows=64, features=20, exponent=-20)
    play.load("w", 0, count=2).load("w", 2, rows=20, exponent=1).load("x", 7, features=8).load(
        "w", 7, rows=64, features=8
    )
    play.load("bias", 9, rows=1).fence()
    parts = {"x_step": 1, "w_step": 1, "tiles": 2, "k_to": 19}, {"x": 7, "w": 7, "k_to": 7, "w_turn": 1}
    play.run(SCAN, fresh=1, **parts[0]).run(SCAN, **parts[1]).run(SCAN, bias=9, last=1)
    play.run(BIAS, bias=9, start=1).run(PRODUCT, **parts[0]).run(PRODUCT, last=1, **parts[1])
    play.store().store(wide=False)


def heads(play):
    """Scores of two heads and two images of 16 rows; then what they mix, side by side in one tile."""
    play.load("x", 0).load("w", 0).fence()
    for n in range(2):
        for image in range(2):
            play.run(
                PRODUCT, fresh=1, start=1, last=1, o=2 * n + image, x_row=16 * image, rows=15, w_column=16 * image,
                columns=15, k_from=24 * n, k_to=24 * n + 23, w_turn=1,
            )  # fmt: skip
    for n in range(4):
        play.store(n, 16, 16)
    play.load("x", 4, 16, 16, count=4, most=40).fence()
    every = [
        {"x": 4 + 2 * n + image, "rows": 15, "o_row": 16 * image, "w_row": 16 * image, "k_to": 15, "o_column": 24 * n,
         "w_column": 24 * n, "columns": 23, "o": 1}
        for n in range(2) for image in range(2)
    ]  # fmt: skip
    for n, each in enumerate(every):
        play.run(SCAN, fresh=n == 0, **each)
    for each in every:
        play.run(PRODUCT, start=1, last=1, **each)
    play.store(1, 32, 48).store(1, 32, 48, wide=False)


def places(play, *, side=3, back=0, **shape):
    """A 3x3 convolution: nine products by address."""
    play.load("w", 0, count=8).load("x", 0, count=4).fence()
    every = [
        {"gather": 1, "side": side, "dy": sign * (y - 1), "dx": sign * (x - 1), "w": (3 * y + x) % 8, "w_turn": back}
        | shape
        for sign in [-1 if back else 1] for y in range(3) for x in range(3)
    ]  # fmt: skip
    for n, each in enumerate(every):
        play.run(SCAN, fresh=n == 0, **each)
    for n, each in enumerate(every):
        play.run(PRODUCT, start=n == 0, last=n == 8, **each)
    play.store()


CASES = {
    "plain": plain,
    "transposed": transposed,
    "several": several,
    "heads": heads,
    "convolution": lambda play: places(play, x=1),
    "tall convolution": lambda play: places(play, side=4, row_tile=1, x_first=0, reach=3, x_pitch=1),
    "stride 2": lambda play: places(play, side=3, double=1, reach=3, x_pitch=1),
    "stride 2 back": lambda play: places(play, side=4, back=1, half=1, even=1, row_tile=2, reach=0),
    "upsampled": lambda play: places(play, side=4, half=1, row_tile=3, reach=0),
    "small images": lambda play: places(play, side=2, x=2, x_first=0),
    "part of a tile of K": lambda play: places(play, x=0, x_pitch=2, x_step=1, w_step=0, tiles=1, k_to=39),
    "zeros": lambda play: play.load("x", 0, exponent=ZERO, most=0 or None).load("w", 0).fence()
    .run(PRODUCT, fresh=1, start=1, last=1).store(),
    "few rows": lambda play: play.load("x", 0).load("w", 0).load("bias", 1, rows=1).fence()
    .run(SCAN, fresh=1, rows=0).run(SCAN, last=1, bias=1).run(BIAS, start=1, bias=1, rows=0)
    .run(PRODUCT, rows=0, last=1).store(rows=1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_words_are_those_of_the_reference(bench, case):
    play = Play()
    CASES[case](play)
    assert any(play.words)
    play.check(bench)


@pytest.mark.parametrize("pressure", pressures(300)[1:], ids=str)
@pytest.mark.parametrize("case", ["several", "heads", "tall convolution"])
def test_words_are_the_same_under_stalls(bench, case, pressure):
    play = Play(1)
    CASES[case](play)
    play.check(bench, **pressure)
