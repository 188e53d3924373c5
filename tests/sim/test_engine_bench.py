"""The bench of engines finds what is wrong with one, and says of a right one what happened."""

from enum import IntEnum

import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In

from gradloom.rtl.engines.ports import TapQueue
from gradloom.rtl.shell.engines import EngineSpec, LoadPort, StorePort
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.units.adapter import pack, unpack

HOLD = 60
WORDS = [3 * n + 1 for n in range(48)]


class Opcode(IntEnum):
    ADD = 0


class Adder(wiring.Component):
    """Adds the word of its memory and the level of a wire to ``beats`` words. ``fault``: what is wrong with it."""

    def __init__(self, spec, fault):
        self.fault = fault
        super().__init__({**spec.members(32), "level": In(8)})

    def elaborate(self, platform):
        m = Module()
        wrong = {name: name == self.fault for name in FAULTS}
        assert self.fault is None or any(wrong.values())
        m.submodules.queue = queue = SyncFIFOBuffered(width=32, depth=8)
        x, term, y, command = self.load_x.beats, self.load_term.beats, self.store_y, self.engine.command
        kept, left, busy, moves, ends = Signal(32), Signal(8), Signal(), Signal(), Signal()
        room = queue.w_rdy | wrong["overruns its queue"]
        m.d.comb += [
            term.ready.eq(1),
            self.load_term.refuse.eq(term.p.arg + term.p.index != 0),
            x.ready.eq(busy & (left != 0) & room),
            moves.eq(x.ready & (x.valid | wrong["takes what is not there"])),
            queue.w_en.eq(moves),
            queue.w_data.eq(x.p.data + kept + self.level + wrong["adds one"]),
            y.request.ready.eq(1),
            y.beats.p.eq(queue.r_data),
            y.beats.valid.eq(queue.r_rdy),
            queue.r_en.eq(y.beats.ready),
            self.health.saturated.eq(2 * moves),
            command.ready.eq(~busy),
            ends.eq(busy & (left == 0) & ~queue.r_rdy & ~wrong["is never done"]),
        ]
        m.d.sync += [self.engine.error.valid.eq(0), self.engine.done.eq(ends), y.refuse.eq(y.request.p.arg != 0)]
        with m.If(term.valid & ~self.load_term.refuse):
            m.d.sync += kept.eq(term.p.data)
        with m.If(ends):
            m.d.sync += busy.eq(wrong["is done again"])
        with m.If(command.valid & command.ready):
            m.d.sync += [busy.eq(command.p.args[:8] != 0), left.eq(command.p.args[:8] + wrong["makes one more"])]
            with m.If(command.p.args[:8] == 0):
                m.d.sync += [self.engine.error.valid.eq(1), self.engine.error.code.eq(Error.BAD_OPERAND)]
        with m.If(moves):
            m.d.sync += left.eq(left - 1)
        return m


#: What the bench says of each.
FAULTS = {
    "overruns its queue": "waiting: STORE",
    "takes what is not there": "waiting: LOAD",
    "makes one more": "0 .* waiting: no port; 1 commands",
    "is never done": "waiting: no port; 1 commands",
    "is done again": "no command is under way",
    "adds one": "y: 48 of 48 words differ, .* word 0: 0x2, expected 0x1",
}
SPEC = EngineSpec(
    name="adder",
    opcodes=Opcode,
    default=StructLayout({"beats": 8}),
    phases=("adding", "more"),
    loads=(LoadPort("x", "words"), LoadPort("term", "a word")),
    stores=(StorePort("y", "sums"),),
    unit=Adder,
)


def add(words, **fields):
    return BenchCommand(Opcode.ADD, {"beats": len(words)}, **fields), BenchLoad("x", words), BenchStore("y", len(words))


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC)


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=str)
def test_a_right_engine_passes(bench, pressure):
    run = bench.check(
        BenchLoad("term", [5]),
        FENCE,
        *add(WORDS),
        *add(WORDS[:3], phase="more"),
        words={"y": [word + 5 for word in (*WORDS, *WORDS[:3])]},
        **pressure,
    )
    assert run.total("saturated") == 2 * 51
    assert [run.total("saturated", n) for n in range(2)] == [2 * 48, 2 * 3]
    assert run.started[1] == run.done[0] and run.phases["more"] == run.done[1] - run.done[0]
    assert run.phases["adding"] == run.done[0] - run.started[0] + 1
    # No beat leaves before it came, and between two pauses one moves a cycle.
    assert all(came < went for came, went in zip(run.loaded["x"], run.stored["y"], strict=True))
    assert pressure or run.loaded["x"][:48] == list(range(run.started[0] + 1, run.started[0] + 49))


def test_every_port_is_held_alone_and_the_outputs_at_once(bench):
    run = bench.check(*add(WORDS), *add(WORDS), words={"y": 2 * WORDS}, hold=HOLD)

    def holds(times):
        return [n for n, (one, other) in enumerate(zip(times, times[1:])) if other - one >= HOLD]

    # While the output is held, x moves until the queue is full.
    (held,), (starved,) = holds(run.stored["y"]), holds(run.loaded["x"])
    assert sum(cycle < run.stored["y"][held + 1] for cycle in run.loaded["x"]) == held + 1 + 8
    assert run.loaded["x"][starved] > run.stored["y"][held] + HOLD


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_engine_is_found(fault):
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        EngineBench(SPEC, fault).check(*add(WORDS), words={"y": WORDS}, stall=0.2, hold=HOLD, patience=200)


def test_words_that_are_left_are_found(bench):
    command, load, _ = add(WORDS[:4])
    with pytest.raises(AssertionError, match="nothing moved"):
        bench.run(command, load, BenchStore("y", 3), patience=200)
    unit = EngineBench(component=TapQueue())
    with pytest.raises(AssertionError, match=r"more words than expected: \['o'\]"):
        unit.check(BenchLoad("i", [1, 2, 3]), BenchStore("o", 2), words={"o": [1, 2]})


def test_an_error_ends_a_part_and_the_engine_begins_anew(bench):
    run = bench.check(
        BenchLoad("term", [7]),
        FENCE,
        *add(WORDS),
        BenchCommand(Opcode.ADD, {"beats": 0}),
        BenchLoad("x", [9, 9]),
        FENCE,
        *add(WORDS[:5]),
        words={"y": [*(word + 7 for word in WORDS), *WORDS[:5]]},
        errors=[Error.BAD_OPERAND],
        stall=0.2,
    )
    assert len(run.started) == 3 and len(run.done) == 2


def test_beats_and_requests_that_are_refused_are_told(bench):
    run = bench.run(BenchLoad("term", [5, 6], arg=0), FENCE, BenchStore("y", 3, arg=1), FENCE, *add(WORDS))
    assert [(port, beat) for _, port, beat in run.refused] == [("term", 1), ("y", None)]
    assert run.words["y"] == WORDS, "the reset forgets the term"
    with pytest.raises(AssertionError, match="refused"):
        bench.check(BenchLoad("term", [5], arg=1))


def test_wires_and_functions_are_played():
    seen = []

    async def level(ctx):
        for value in range(200):
            ctx.set(bench.component.level, value)
            await ctx.tick()

    async def look(ctx):
        seen.append(ctx.get(bench.component.level))

    bench = EngineBench(SPEC, wires=[level])
    for _ in range(2):
        run = bench.run(*add(WORDS[:4]), look, *add(WORDS[:4]))
        assert run.words["y"] == [word + cycle for word, cycle in zip(WORDS[:4] * 2, run.loaded["x"])]
    assert run.stored["y"][3] < seen[0] < run.started[1] and seen[1:] == seen[:1]


def test_runs_are_told_apart_by_their_seed(bench):
    runs = [bench.run(*add(WORDS), stall=0.5, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] and runs[0].stored != runs[2].stored


@pytest.mark.parametrize(
    "steps, options, message",
    [
        ([BenchLoad("y", [1])], {}, "y: no port of this name; there are term, x"),
        ([BenchStore("x", 1)], {}, "x: no port of this name; there are y"),
        ([], {"stall": 1.0}, "stall=1.0"),
        ([], {"hold": -1}, "hold=-1"),
    ],
    ids=str,
)
def test_what_cannot_be_played_is_refused(bench, steps, options, message):
    with pytest.raises(ValueError, match=message):
        bench.run(*steps, **options)


def test_a_command_needs_a_specification():
    with pytest.raises(ValueError, match="Command: the bench has no spec"):
        EngineBench(component=TapQueue()).run(BenchCommand(0))


def test_numbers_below_0_stay_in_their_bits():
    """Of a structure and an array beside each other; both ways."""
    shape = StructLayout({"a": signed(4), "b": unsigned(3), "c": ArrayLayout(signed(5), 2)})
    value = {"a": -3, "b": 5, "c": [-1, 7]}
    assert pack(shape, value) == 0b00111_11111_101_1101
    assert unpack(shape, pack(shape, value)) == value
