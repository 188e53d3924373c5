"""Programs of the product engine, and the records that its reference says."""

import numpy as np

from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE
from gradloom.rtl.formats.tiles.pixels import taps
from gradloom.rtl.formats.tiles.product import ProductOpcode, ProductOperands, ScanOperands
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore
from gradloom.sim.reference.product import ProductModel

from ..forwarding import CONFIG
from ..records import beats_of

__all__ = ["Play", "Stepped", "convolved"]

SCAN, PRODUCT = ProductOpcode.SCAN, ProductOpcode.PRODUCT


class Play(PlacedProgram):
    """A program on the machine, and the records that the reference says."""

    def __init__(self, seed=0, config=CONFIG):
        super().__init__(config)
        self.random, self.model = np.random.default_rng(seed), ProductModel(config)
        self.expected = []

    def load(self, port, slot, rows=64, features=64, *, exponent=None, most=None, count=1):
        bits = WIDE if port == "bias" else NARROW
        most = most or (1 << bits - 1) - 1
        for each in range(slot, slot + count):
            codes = self.random.integers(-most, most + 1, (rows, features))
            own = int(self.random.integers(-9, 4)) if exponent is None else exponent
            self.put_codes(port, each, codes, own)
        return self

    def put_codes(self, port, slot, codes, exponent):
        """A record of these codes in a slot."""
        rows, features = codes.shape
        content = TileRecord(rows, features, WIDE if port == "bias" else NARROW).pack(codes, exponent)
        arg = tile_argument(slot, rows, features)
        self.model.load(port, arg, content)
        super().load(self.put(np.frombuffer(content, "<i4")), "product", port, arg=arg)
        return self

    def fence(self):
        self.add(CONTROL, ControlOpcode.FENCE)
        return self

    def run(self, opcode, **operands):
        full = {"tiles": 0, "k_to": 63, "rows": 63, "columns": 63} | operands
        wanted = (ScanOperands if opcode == SCAN else ProductOperands).members
        full = {name: int(value) for name, value in full.items() if name in wanted}
        self.model.run(opcode, full)
        self.do("product", opcode, **full)
        return self

    def store(self, slot=0, rows=64, features=64, *, wide=True):
        record = TileRecord(rows, features, WIDE if wide else NARROW)
        arg = tile_argument(slot, rows, features, wide=wide)
        place = self.room(record.size // 4)
        self.expected.append((place, self.model.store("o", arg, record.beats)))
        self.fence()
        super().store(place, "product", "o", arg=arg)
        return self.fence()


class Stepped(Play):
    """The same as steps of a bench."""

    def __init__(self, case, config):
        super().__init__(config=config)
        case(self)
        self.steps, self.words = [], []
        stored = iter(self.expected)
        contents = {offset: content for offset, content in self.arrays}
        for each in self.instructions:
            given = each.operands
            if each.engine == LOAD:
                port = given["dest"].port.name
                self.steps.append(BenchLoad(port, beats_of(contents[given["offset"]]), given["arg"]))
            elif each.engine == STORE:
                self.steps.append(BenchStore("o", given["beats"], given["arg"]))
                self.words += beats_of(next(stored)[1])
            elif each.engine == CONTROL:
                self.steps.append(FENCE)
            else:
                self.steps.append(BenchCommand(each.opcode, given))


def convolved(play, pixels, row, kernel=(3, 3), pads=(1, 1), dilation=(1, 1), back=0, count=4, rows=64, **more):
    """A tile of a convolution from result row ``row`` on: products by address of ``count`` tiles of the source."""
    pitch = more.get("x_pitch", 1)
    places, every = taps(kernel, pads, dilation, back=bool(back)), []
    play.load("w", 0, count=min(len(places), 8)).load("x", 0, count=pitch * count).fence()
    sources = [pixels.rows(*place)[row : row + rows] for place in places]
    low = min(int(each[each >= 0].min()) for each in sources if (each >= 0).any()) // 64
    for n, (place, source) in enumerate(zip(places, sources)):
        source = source[source >= 0] // 64
        if len(source):
            first, last = int(source.min()), int(source.max())
            assert last - low < count
            held = {"x": (first - low) * pitch, "x_pitch": pitch, "reach": last - first, "w": n % 8, "w_turn": back}
            every.append({"gather": 1, "rows": rows - 1} | held | pixels.place(row, *place, first) | more)
    for n, each in enumerate(every):
        play.run(SCAN, fresh=n == 0, **each, **pixels.shape)
    for n, each in enumerate(every):
        play.run(PRODUCT, start=n == 0, last=n == len(every) - 1, **each)
    play.store(rows=rows)
