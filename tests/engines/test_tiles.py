"""Ports of records of tiles: what is loaded, and what STORE makes of words."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from gradloom.rtl.engines.tile_forward import TileForward
from gradloom.rtl.engines.tile_load import SlotMemory, TileIntake
from gradloom.rtl.engines.tile_port import ResultSignature
from gradloom.rtl.engines.tile_results import TilePeak, TileResults
from gradloom.rtl.engines.tile_store import CodeLane, TileStore
from gradloom.rtl.formats.tiles.codes import NARROW, REST, WIDE, ZERO, coded, stored
from gradloom.rtl.formats.tiles.records import BEAT, TileRecord, tile_argument
from gradloom.rtl.shell.signature import LoadSignature
from gradloom.sim.bench.engine import FENCE, BenchLoad, BenchStore, EngineBench, simulate
from gradloom.sim.bench.mutants import mutant

from .records import beats_of

SLOTS = 2


class Loop(wiring.Component):
    """Words of a stream become results, of which a bench makes records."""

    def __init__(self):
        self.results = TileResults(slots=SLOTS)
        super().__init__({"i": In(stream.Signature(self.results.write.shape())), "store_o": In(ResultSignature())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.results = self.results
        m.d.comb += [
            self.i.ready.eq(1),
            self.results.write.eq(self.i.p),
            self.results.write.valid.eq(self.i.valid & self.i.p.valid),
            self.results.fresh.valid.eq(self.i.valid & ~self.i.p.valid),
            self.results.fresh.slot.eq(self.i.p.slot),
            self.results.asked.eq(self.store_o.asked),
            self.results.slot.eq(self.store_o.slot),
            self.results.read.eq(self.store_o.read),
            self.store_o.refuse.eq(self.store_o.asked >= SLOTS),
            self.store_o.words[0].eq(self.results.words),
            *(getattr(self.store_o, name).eq(getattr(self.results, name)) for name in ("exponent", "peak", "some")),
        ]
        return m


def writes(shape, slot, words, exponents):
    """Payloads that clear a slot and write a tile of words."""
    rows, features = words.shape
    made = [{"valid": 0, "slot": slot}]
    for row in range(rows):
        for first in range(0, features, 8):
            part = words[row, first : first + 8]
            made.append(
                {
                    "valid": 1,
                    "slot": slot,
                    "row": row,
                    "beat": first // 8,
                    "mask": (1 << len(part)) - 1,
                    "exponent": int(exponents[row, 0]),
                    "words": [int(w) for w in part] + [12345] * (8 - len(part)),
                }
            )
    return [shape.const(each) for each in made]


def tile(seed, rows, features, *, bits=47, spread=8, base=0):
    random = np.random.default_rng(seed)
    words = random.integers(-(1 << bits), 1 << bits, (rows, features)) >> random.integers(0, bits, (rows, features))
    return words, base + random.integers(0, spread + 1, (rows, 1))


CASES = {
    "whole": tile(1, 64, 64),
    "part": tile(2, 5, 20),
    "one": tile(3, 1, 3, spread=0),
    "zeros": (np.zeros((3, 8), np.int64), np.zeros((3, 1), np.int64)),
    "negative powers": (-(1 << np.arange(40)).reshape(5, 8), np.full((5, 1), -20)),
    "almost a power": ((1 << np.arange(8, 48)).reshape(5, 8) - 1, np.full((5, 1), 3)),
    "small": tile(4, 4, 16, bits=3, spread=0, base=-40),
    "least": tile(5, 4, 16, base=-180),
    "largest": tile(6, 4, 16, bits=30, base=200),
    "far apart": (np.array([[1 << 46, -(1 << 46)], [3, -3]]), np.array([[300], [-300]])),
}


@pytest.fixture(scope="module")
def bench():
    return EngineBench(component=Loop())


@pytest.mark.parametrize("pressure", [{}, {"stall": {"o": 0.5}}, {"stall": {"o": 0.2}, "hold": 120}], ids=str)
@pytest.mark.parametrize("bits", [NARROW, WIDE, REST])
@pytest.mark.parametrize("case", CASES)
def test_codes_are_those_of_the_rule(bench, case, bits, pressure):
    words, exponents = CASES[case]
    rows, features = words.shape
    expected = stored(words, exponents, bits)
    record, sort = TileRecord(rows, features, abs(bits)), {"wide": bits == WIDE, "rest": bits == REST}
    run = bench.check(
        BenchLoad("i", writes(bench.component.results.write.shape(), 1, words, exponents)),
        FENCE,
        BenchStore("o", record.beats, tile_argument(1, rows, features, **sort), after=TileResults.latency),
        words={"o": beats_of(record.pack(expected.codes, expected.exponent))},
        **pressure,
    )
    assert run.total("saturated") == expected.clipped and run.total("underflowed") == expected.zeroed


def test_cases_reach_every_rule():
    made = {name: [stored(*each, bits) for bits in (NARROW, WIDE)] for name, each in CASES.items()}
    assert made["zeros"][0].exponent == ZERO and made["least"][0].exponent == -127
    assert any(each.clipped for each in made["largest"]) and any(each.clipped for each in made["far apart"])
    assert made["whole"][0].zeroed > made["whole"][1].zeroed > 0
    rests = {name: stored(*each, REST) for name, each in CASES.items()}
    assert all(rests[name].exponent == ZERO for name in ("zeros", "least", "largest", "far apart"))
    assert {-127, 127} <= set(rests["whole"].codes.flat)


@pytest.mark.parametrize("case", CASES)
def test_two_codes_are_one_of_sixteen_bits(case):
    """But where either is limited."""
    words, exponents = CASES[case]
    first, rest, whole = (stored(words, exponents, bits) for bits in (NARROW, REST, WIDE))
    if rest.exponent != ZERO:
        assert rest.exponent == whole.exponent == first.exponent - NARROW
        both = (first.codes << NARROW) + rest.codes
        free = np.maximum(np.abs(first.codes), np.abs(rest.codes)) < 127
        assert np.array_equal(both[free], whole.codes[free]) and np.abs(both - whole.codes).max() <= 129
    values = words * np.exp2(exponents.astype(np.float64))
    found = coded(values, REST)
    assert np.array_equal(found.codes, rest.codes) and found.exponents == rest.exponent


@pytest.mark.parametrize("bits", [NARROW, WIDE])
@pytest.mark.parametrize("features", [64, 48, 16, 20])
def test_a_record_leaves_at_sixteen_codes_a_cycle(bench, features, bits):
    words, exponents = CASES["whole"]
    record = TileRecord(64, features, bits)
    run = bench.run(
        BenchLoad("i", writes(bench.component.results.write.shape(), 0, words, exponents)),
        FENCE,
        BenchStore("o", record.beats, tile_argument(0, 64, features, wide=bits == WIDE)),
    )
    times = run.stored["o"]
    # The header leaves before the first beat, of which the first step may make half.
    assert times[-1] - times[0] == 64 * -(-features // 16)


@pytest.mark.parametrize(
    "beats, argument",
    [
        (65, tile_argument(2, 64, 32)),
        (64, tile_argument(0, 64, 32)),
        (66, tile_argument(0, 64, 32)),
        (65, tile_argument(0, 64, 33)),
    ],
    ids=["slot", "fewer", "more", "features"],
)
def test_requests_of_other_records_are_refused(bench, beats, argument):
    run = bench.run(BenchStore("o", beats, argument))
    assert [port for _, port, _ in run.refused] == ["o"]


@pytest.mark.parametrize(
    "name, unit, case, bits",
    [
        ("unlimited", CodeLane, "almost a power", NARROW),
        ("complement", TilePeak, "negative powers", NARROW),
        ("unrounded", CodeLane, "part", REST),
        ("without-ends", TileStore, "least", REST),
        ("half-beats", TileStore, "part", NARROW),
        ("same-half", TileStore, "whole", NARROW),
    ],
)
def test_a_wrong_rule_is_found(monkeypatch, name, unit, case, bits):
    from gradloom.rtl.engines import tile_results, tile_store

    for module in (tile_results, tile_store):
        if hasattr(module, unit.__name__):
            monkeypatch.setattr(module, unit.__name__, mutant(unit, name))
    words, exponents = CASES[case]
    rows, features = words.shape
    record, expected = TileRecord(rows, features, NARROW), stored(words, exponents, bits)
    monkeypatch.setattr("gradloom.sim.bench.ports.TileStore", tile_store.TileStore)
    unit = Loop()
    with pytest.raises(AssertionError, match="words differ"):
        EngineBench(component=unit).check(
            BenchLoad("i", writes(unit.results.write.shape(), 0, words, exponents)),
            FENCE,
            BenchStore(
                "o", record.beats, tile_argument(0, rows, features, rest=bits == REST), after=TileResults.latency
            ),
            words={"o": beats_of(record.pack(expected.codes, expected.exponent))},
        )


class Taken(wiring.Component):
    """A load port and its intake."""

    def __init__(self, intake=TileIntake, **options):
        self.intake = intake(slots=3, **options)
        super().__init__({"load_x": In(LoadSignature(8 * BEAT))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.intake = self.intake
        m.d.comb += [
            self.intake.beats.valid.eq(self.load_x.beats.valid),
            self.intake.beats.p.eq(self.load_x.beats.p),
            self.load_x.beats.ready.eq(self.intake.beats.ready),
            self.load_x.refuse.eq(self.intake.refuse),
        ]
        return m


@pytest.mark.parametrize("bits", [NARROW, WIDE])
@pytest.mark.parametrize("rows, features", [(64, 64), (3, 20), (1, 1)])
def test_records_go_to_slots(bits, rows, features):
    random, record = np.random.default_rng(rows), TileRecord(rows, features, bits)
    most = (1 << bits - 1) - 1
    tiles = [(random.integers(-most, most + 1, (rows, features)), int(random.integers(-128, 128))) for _ in range(2)]
    content = b"".join(record.pack(*each) for each in tiles)
    unit = Taken(bits=bits)
    bench = EngineBench(component=unit, watch={"write": unit.intake.write, "exponent": unit.intake.exponent})
    run = bench.check(BenchLoad("x", beats_of(content), tile_argument(1, rows, features)), stall=0.3)
    found = np.zeros((3, 64, 4, BEAT * 8 // bits), f"<i{bits // 8}")
    for each in run.seen["write"]:
        if each.valid:
            found[each.slot, each.row, each.beat] = np.frombuffer(each.data.to_bytes(BEAT, "little"), found.dtype)
    told = [(each.slot, each.exponent) for each in run.seen["exponent"] if each.valid]
    assert told == [(1 + n, exponent) for n, (_, exponent) in enumerate(tiles)]
    for n, (codes, _) in enumerate(tiles):
        assert (found[1 + n, :, : record.row_beats].reshape(64, -1)[:rows, :features] == codes).all()


def refused(bits, content, argument, **options):
    run = EngineBench(component=Taken(bits=bits, **options)).run(BenchLoad("x", beats_of(content), argument))
    return [(port, beat) for _, port, beat in run.refused]


def test_codes_that_no_quantizer_makes_are_refused():
    record = TileRecord(2, 64)
    codes = np.zeros((2, 64), np.int64)
    codes[1, 5] = -128
    assert refused(NARROW, record.pack(codes, 0), tile_argument(0, 2, 64)) == [("x", 3)]
    # The byte is no code in a header.
    assert refused(NARROW, record.pack(codes * 0, ZERO), tile_argument(0, 2, 64)) == []
    with pytest.raises(ValueError, match=r"record\[1, 5\] is -128: codes must be at least -127"):
        record.unpack(record.pack(codes, 0))


def test_slots_and_rows_that_are_not_there_are_refused():
    record = TileRecord(1, 8, WIDE)
    content = record.pack(np.ones((1, 8), np.int64), 0)
    assert refused(WIDE, content, tile_argument(3, 1, 8)) == [("x", 0)]
    assert refused(WIDE, content * 2, tile_argument(2, 1, 8)) == [("x", 2)]
    two = TileRecord(2, 8, WIDE).pack(np.ones((2, 8), np.int64), 0)
    assert refused(WIDE, two, tile_argument(0, 2, 8), row=True) == [("x", 0)]


def placed(unit, random, rows, features, wide, slot=1):
    """Beats of a record by slot, row and beat, as a forward's unit places them; None is the header's place."""
    record = TileRecord(rows, features, WIDE if wide else NARROW)
    beats, found = random.integers(0, 1 << 62, record.beats).tolist(), {}

    async def play(ctx):
        shape = {"rows": rows - 1, "features": features - 1, "_pad": 0}
        ctx.set(unit.arg, {"slot": 0, "wide": int(wide), **shape})
        ctx.set(unit.to_arg, {"slot": slot, "wide": 0, **shape})
        assert not ctx.get(unit.refuse)
        assert ctx.get(unit.record).as_bits() == tile_argument(slot, rows, features, wide=wide)
        ctx.set(unit.begin, 1)
        await ctx.tick()
        ctx.set(unit.begin, 0)
        left = list(beats)
        while left or ctx.get(unit.o.valid):
            if ctx.get(unit.o.valid):
                place = None if ctx.get(unit.o.header) else (ctx.get(unit.o.row), ctx.get(unit.o.beat))
                assert place not in found and ctx.get(unit.o.slot) == slot
                found[place] = ctx.get(unit.o.data)
            comes = bool(left) and random.integers(0, 3) > 0
            ctx.set(unit.i, {"valid": int(comes), "data": left.pop(0) if comes else 0})
            await ctx.tick()

    return record, beats, found, play


@pytest.mark.parametrize("change", [None, "all-headers"])
def test_beats_of_a_forward_find_their_places(change):
    """Records of all shapes one after another, with pauses."""
    unit = TileForward() if change is None else mutant(TileForward, change)()
    random, seen = np.random.default_rng(1), []

    async def play(ctx):
        for shape in ((3, 64, True), (1, 1, False), (5, 33, False), (64, 8, True), (2, 17, True), (2, 32, False)):
            record, beats, found, steps = placed(unit, random, *shape)
            try:
                await steps(ctx)
            except AssertionError:
                seen.append(False)
                return
            places = [None, *((row, beat) for row in range(record.rows) for beat in range(record.row_beats))]
            seen.append(found == dict(zip(places, beats)))

    simulate(unit, play)
    assert all(seen) == (change is None)


@pytest.mark.parametrize("change", [None, "any-shape"])
def test_a_record_of_another_shape_is_no_forward(change):
    unit = TileForward() if change is None else mutant(TileForward, change)()
    refused = []

    async def play(ctx):
        for other in ({}, {"rows": 4}, {"features": 6}, {"slot": 9}, {"wide": 0}):
            mine = {"slot": 0, "rows": 3, "features": 5, "wide": 1, "_pad": 0}
            ctx.set(unit.arg, mine)
            ctx.set(unit.to_arg, mine | other)
            await ctx.delay(1e-9)
            refused.append(ctx.get(unit.refuse))

    simulate(unit, play)
    assert refused == ([0, 1, 1, 0, 0] if change is None else [0] * 5)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("change", [None, "unsigned"])
def test_a_slot_has_codes_of_16_bits_or_of_8(lanes, change):
    """A row of 64 of them is read, as many codes as there are lanes a cycle."""
    unit = (SlotMemory if change is None else mutant(SlotMemory, change))(slots=2, lanes=lanes, both=True)
    random, found = np.random.default_rng(lanes), []
    rows = [random.integers(1 - (1 << bits - 1), 1 << bits - 1, 64) for bits in (16, 8)]

    async def play(ctx):
        for slot, (codes, kind) in enumerate(zip(rows, ("<i2", "i1"))):
            for beat, data in enumerate(beats_of(codes.astype(kind).tobytes())):
                ctx.set(unit.write, {"valid": 1, "slot": slot, "row": 7, "beat": beat, "data": data})
                await ctx.tick()
        ctx.set(unit.write, {"valid": 0})
        ctx.set(unit.row, 7)
        for slot in range(2):
            ctx.set(unit.slot, slot)
            ctx.set(unit.short, slot)
            for half in range(0, 8, lanes // 8):
                ctx.set(unit.half, half)
                await ctx.tick()
                found.append(np.frombuffer(ctx.get(unit.o).to_bytes(2 * lanes, "little"), "<i2"))

    simulate(unit, play)
    assert np.array_equal(np.concatenate(found), np.concatenate(rows)) == (change is None)


@pytest.mark.parametrize("change", [None, "other-half"])
def test_a_slot_has_the_beats_that_were_written_last(change):
    """Halves of them are read, while others are written."""
    unit = (SlotMemory if change is None else mutant(SlotMemory, change))(slots=SLOTS)
    random, wanted, found = np.random.default_rng(4), [], []
    kept = {place: 0 for place in np.ndindex(SLOTS, 64, 8)}

    async def play(ctx):
        for _ in range(300):
            slot, row, beat, valid = (int(random.integers(0, n)) for n in (SLOTS, 3, 4, 4))
            halves = [int(random.integers(1, 1 << 62)) for _ in range(2)]
            data = halves[0] | halves[1] << 4 * BEAT
            ctx.set(unit.write, {"valid": bool(valid), "slot": slot, "row": row, "beat": beat, "data": data})
            # Another row: what a cycle's write and read have in common is nobody's.
            place = int(random.integers(0, SLOTS)), (row + 1) % 3, int(random.integers(0, 8))
            for name, value in zip(("slot", "row", "half"), place):
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            wanted.append(kept[place])
            found.append(ctx.get(unit.o))
            kept.update({(slot, row, 2 * beat + n): half for n, half in enumerate(halves) if valid})

    simulate(unit, play)
    assert (found == wanted) == (change is None)
    assert len(set(wanted)) > 50


def test_an_intake_that_accepts_every_code_is_found():
    record, codes = TileRecord(1, 64), np.full((1, 64), -128)
    unit = Taken(mutant(TileIntake, "accepts"), bits=NARROW)
    run = EngineBench(component=unit).run(BenchLoad("x", beats_of(record.pack(codes, 0)), tile_argument(0, 1, 64)))
    assert not run.refused
