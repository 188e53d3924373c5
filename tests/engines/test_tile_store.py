"""Records that STORE is told of ahead, of several engines."""

import numpy as np
import pytest
from amaranth.hdl import Array, Module, Mux, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, connect, flipped

from gradloom.rtl.engines.tile_port import EXPONENT, WORDS
from gradloom.rtl.engines.tile_store import TileStore
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, REST, WIDE, WORD, stored
from gradloom.rtl.formats.tiles.records import BEAT, TileRecord, tile_argument
from gradloom.rtl.shell.signature import StoreSignature
from gradloom.sim.bench.engine import simulate
from gradloom.sim.bench.mutants import mutant

from .records import beats_of

#: Banks of the results of three engines, and slots of each.
BANKS, SLOTS = (2, 1, 2), 2
#: Those of WriteDMA: from a request that is taken to the payload of the next, and from all beats to its request.
SHOWN, ASKS = 2, 4


def tiles(seed):
    """Words and exponents of all slots of an engine."""
    random = np.random.default_rng(seed)
    shape = (SLOTS, EDGE, EDGE)
    words = random.integers(-(1 << WORD - 1), 1 << WORD - 1, shape) >> random.integers(0, WORD, shape)
    return words, random.integers(-8, 9, (SLOTS, EDGE, 1))


class Slots(wiring.Component):
    """A store with the results of engines, which do not change."""

    def __init__(self, unit=TileStore):
        self.store = unit(banks=BANKS)
        self.tiles = [tiles(seed) for seed in range(len(BANKS))]
        super().__init__({"port": In(StoreSignature(8 * BEAT)), "ahead": In(1), "source": In(range(len(BANKS)))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self.store
        connect(m, flipped(self.port), store.port)
        m.d.comb += [store.ahead.eq(self.ahead), store.source.eq(self.source)]
        for n, (port, (words, exponents)) in enumerate(zip(store.results, self.tiles)):
            magnitude = np.abs(words).max(2)
            leading = np.array([[int(each).bit_length() - 1 for each in row] for row in magnitude])
            m.d.sync += [
                port.peak.eq(Array([int(each) for each in (leading + exponents[..., 0]).max(1)])[port.asked[0]]),
                port.some.eq(1),
            ]
            m.submodules[f"exponents_{n}"] = kept = memory.Memory(
                shape=signed(EXPONENT), depth=SLOTS * EDGE, init=[int(each) for each in exponents.flat]
            )
            read = kept.read_port()
            m.d.comb += [read.en.eq(port.read.en), port.exponent.eq(read.data), port.refuse.eq(port.asked >= SLOTS)]
            m.d.comb += read.addr.eq(Mux(port.slot[0], EDGE, 0) + port.read.row)
            parts = words.reshape(SLOTS, EDGE, EDGE // WORDS // BANKS[n], BANKS[n], WORDS)
            for bank in range(BANKS[n]):
                of = parts[:, :, :, bank].reshape(-1, WORDS)
                m.submodules[f"words_{n}_{bank}"] = kept = memory.Memory(
                    shape=data.ArrayLayout(signed(WORD), WORDS),
                    depth=len(of),
                    init=[[int(w) for w in row] for row in of],
                )
                read, column = kept.read_port(), port.read.column[1:] if BANKS[n] > 1 else port.read.column
                place = (Mux(port.slot[0], EDGE, 0) + port.read.row) * parts.shape[2] + column
                m.d.comb += [read.en.eq(port.read.en), read.addr.eq(place), port.words[bank].eq(read.data)]
        return m


def played(unit, records, *, stall=0.0, tell=1.0, seed=0, watch=None):
    """Beats of records that are asked for as STORE does, and the cycles; ``tell``: how many it tells of ahead."""
    random, found, spent = np.random.default_rng(seed), [], []

    async def cycle(ctx, *, ready=False):
        ctx.set(unit.port.beats.ready, ready and random.random() >= stall)
        spent.append(0)
        assert len(spent) < 100 * len(records), "beats do not come"
        _, _, valid, taken, beat = await ctx.tick().sample(
            unit.port.beats.valid, unit.port.beats.ready, unit.port.beats.p
        )
        if valid and taken:
            found.append(beat)
            return True
        return False

    async def show(ctx, number):
        source, slot, rows, features, bits = records[number]
        record = TileRecord(rows, features, abs(bits))
        argument = tile_argument(slot, rows, features, wide=bits == WIDE, rest=bits == REST)
        ctx.set(unit.port.request.p, {"arg": argument, "beats": record.beats})
        ctx.set(unit.source, source)
        ctx.set(unit.ahead, bool(random.random() < tell))
        return record.beats

    async def play(ctx):
        beats = await show(ctx, 0)
        for number in range(len(records)):
            for _ in range(ASKS):
                await cycle(ctx)
            ctx.set(unit.port.request.valid, 1)
            while True:
                ready = ctx.get(unit.port.request.ready)
                await cycle(ctx)
                if ready:
                    break
            ctx.set(unit.port.request.valid, 0)
            ctx.set(unit.ahead, 0)
            left, since = beats, 0
            while left:
                since += 1
                if since == SHOWN and number + 1 < len(records):
                    beats = await show(ctx, number + 1)
                left -= await cycle(ctx, ready=True)

    simulate(unit, play, background=[watch] if watch else [])
    return found, len(spent)


def some_records(count, seed):
    random = np.random.default_rng(seed)
    rows, features = [1, 2, 3, 17], [1, 16, 17, 20, 32, 33, 48, 64]
    return [
        (
            int(random.integers(len(BANKS))),
            int(random.integers(SLOTS)),
            int(random.choice(rows)),
            int(random.choice(features)),
            int(random.choice([NARROW, WIDE, REST])),
        )
        for _ in range(count)
    ]


def expected(unit, records):
    """Beats, and words that were limited or became 0."""
    beats, counted = [], 0
    for source, slot, rows, features, bits in records:
        words, exponents = unit.tiles[source]
        # The exponent is that of the whole slot.
        whole = stored(words[slot], exponents[slot], bits)
        codes = whole.codes[:rows, :features]
        beats += beats_of(TileRecord(rows, features, abs(bits)).pack(codes, whole.exponent))
        assert not whole.clipped
        counted += int(((words[slot, :rows, :features] != 0) & (codes == 0)).sum()) if bits != REST else 0
    return beats, counted


@pytest.fixture(scope="module")
def unit():
    return Slots()


@pytest.mark.parametrize("tell", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_records_come_in_their_order(unit, stall, tell):
    """Whether STORE told of them or not, from all engines, in all widths."""
    records = some_records(40, seed=5)
    beats, _ = played(unit, records, stall=stall, tell=tell, seed=6)
    assert beats == expected(unit, records)[0]


def test_words_are_counted_once(unit):
    found, records = [], some_records(30, seed=7)

    async def watch(ctx):
        async for _, _, zeroed, clipped in ctx.tick().sample(unit.store.underflowed, unit.store.saturated):
            found.append((zeroed, clipped))

    beats, _ = played(unit, records, watch=watch)
    assert (beats, sum(zeroed for zeroed, _ in found)) == expected(unit, records)
    assert not any(clipped for _, clipped in found)


@pytest.mark.parametrize("source, bits, steps", [(0, NARROW, 2), (1, NARROW, 4), (0, WIDE, 4), (1, WIDE, 4)])
def test_what_is_told_ahead_follows_without_a_gap(unit, source, bits, steps):
    """But the cycles that STORE itself takes; 32 codes of 8 bits a cycle of an engine with two banks."""
    records = [(source, n % SLOTS, 16, EDGE, bits) for n in range(12)]
    _, told = played(unit, records)
    _, untold = played(unit, records, tell=0.0)
    made, beats = 1 + 16 * steps, TileRecord(16, EDGE, bits).beats
    # The queue has room for the beats of a short while.
    each = max(made, beats + ASKS + 1)
    assert abs(told - each * len(records)) < 30
    assert untold - told > 8 * len(records)


def test_a_record_that_is_begun_twice_is_found():
    unit, records = Slots(mutant(TileStore, "begun-twice")), some_records(12, seed=8)
    with pytest.raises(AssertionError):
        assert played(unit, records)[0] == expected(unit, records)[0]
