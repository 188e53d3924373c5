"""Steps of a bench of an engine on records of tiles, and what its model says of them."""

import numpy as np

from gradloom.rtl.formats.tiles.codes import NARROW, WIDE
from gradloom.rtl.formats.tiles.records import BEAT, TileRecord, tile_argument
from gradloom.sim.bench.engine import FENCE, BenchLoad, BenchStore

__all__ = ["RecordScript", "beats_of"]


def beats_of(content):
    """Beats of bytes."""
    return [int.from_bytes(content[at : at + BEAT], "little") for at in range(0, len(content), BEAT)]


class RecordScript:
    """Each step goes to the bench and to the model; an engine's own script has its commands."""

    def __init__(self, model, seed=0):
        self.model = model
        self.rng = np.random.default_rng(seed)
        self.steps, self.expected = [], []

    def codes(self, rows, features, bits=WIDE):
        """Codes of all sizes, the ends and 0 among them."""
        most = (1 << bits - 1) - 1
        codes = self.rng.integers(-most, most + 1, (rows, features)) >> self.rng.integers(0, bits, (rows, features))
        codes.flat[self.rng.integers(0, codes.size, 3)] = most, -most, 0
        return codes

    def load(self, port, slot, codes, exponent, *, short=False):
        rows, features = codes.shape
        content = TileRecord(rows, features, NARROW if short else WIDE).pack(codes, exponent)
        argument = tile_argument(slot, rows, features, short=short)
        self.model.load(port, argument, content)
        self.steps.append(BenchLoad(port, beats_of(content), argument))
        return self

    def fence(self):
        self.steps.append(FENCE)
        return self

    def store(self, slot, rows, features, *, wide=True):
        record = TileRecord(rows, features, WIDE if wide else NARROW)
        argument = tile_argument(slot, rows, features, wide=wide)
        self.expected += beats_of(self.model.store("o", argument, record.beats))
        self.steps += [FENCE, BenchStore("o", record.beats, argument), FENCE]
        return self

    def check(self, bench, **pressure):
        """RTL has the model's words, and its counts."""
        ran = bench.check(*self.steps, words={"o": self.expected}, **pressure)
        assert ran.total("saturated") == self.model.saturated
        assert ran.total("underflowed") == self.model.underflowed
        return ran
