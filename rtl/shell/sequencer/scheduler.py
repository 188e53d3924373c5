"""Queues and tokens: chooses commands to start, and posts tokens."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.queue import stepped
from ..engines import STORE
from ..signature import FORWARD_BITS, TOKENS, EngineCommand, EngineSignature

__all__ = ["Scheduler", "Entry"]

#: A command as it is queued. ``engine`` is an engine other than CONTROL.
Entry = data.StructLayout({"engine": 4, "wait": 16, "post": 16, "phase": 3, "index": 24, "command": EngineCommand})

_TICKET = data.StructLayout({"post": 16, "phase": 3, "index": 24})


class Scheduler(wiring.Component):
    """Queues commands for each engine and moves tokens.

    A command is held back until its tokens are there, and posts tokens when it is done.

    A command that waits for nothing is offered to its engine 3 cycles after it was queued; one whose last
    token is posted by another's ``done`` is offered 4 cycles after that ``done``. One command starts in 2
    cycles at most; one ``done`` is processed a cycle, the others wait.

    Parameters
    ----------
    engines : :class:`~.engines.Engines`
        A queue for each but CONTROL.
    depth : :class:`int`
        Commands of an engine that are queued or under way; a power of two.
    forwards : :class:`int`
        1: STORE has the operands of forwards.

    Members
    -------
    i : ``In(stream.Signature(Entry))``
        ``ready`` depends on the engine asked for.
    engine_load, ... : ``Out(EngineSignature())``
    control_wait, control_post : ``In(16)``
        Masks of the CONTROL command that is being executed.
    control_request, control_done : ``In(1)``
        Hold the first until ``control_grant``; pulse the second once.
    control_grant : ``Out(1)``
        The tokens in ``control_wait`` were taken.
    hold : ``In(1)``
        No command is offered from the next cycle on.
    clear : ``In(1)``
        Empties all queues and counters.
    forget : ``In(1)``
        Empties the counters; what is posted in this cycle is forgotten too.
    active : ``Out(1)``
        Some command is queued or under way.
    running : ``Out(1)``
        Some command was offered to its engine and is not done, or tokens are moving.
    finished : ``Out(1)``
        A command was done: one cycle each.
    overflow : ``Out(1)``
        A token counter overflows in this cycle.
    posting : ``Out(n)``
        A bit for each engine: one of its commands posts tokens in this cycle.
    executing : ``Out(n)``
        A bit for each engine: some command was taken by the engine and is not done.
    phases : ``Out(...)``
        Phase of the oldest command of each engine that is not done.
    indices : ``Out(...)``
        Its place in the program.
    waiting : ``Out(n)``
        A bit for each engine: some command is queued or under way.
    """

    def __init__(self, engines, *, depth=16, forwards=0):
        if depth not in (2, 4, 8, 16, 32):
            raise ValueError(f"queue depth is {depth!r}, must be a power of two from 2 to 32")
        self.depth = depth
        self.engines = engines
        self.operand_bits = {e: e.spec.operand_bits for e in engines.queued}
        if forwards:
            self.operand_bits[STORE] = FORWARD_BITS
        n = len(engines)
        super().__init__(
            {
                "i": In(stream.Signature(Entry)),
                **{f"engine_{e.name}": Out(EngineSignature()) for e in engines.queued},
                "control_wait": In(16),
                "control_post": In(16),
                "control_request": In(1),
                "control_done": In(1),
                "control_grant": Out(1),
                "hold": In(1),
                "clear": In(1),
                "forget": In(1),
                "active": Out(1),
                "running": Out(1),
                "finished": Out(1),
                "settled": Out(1),
                "overflow": Out(1),
                "posting": Out(n),
                "executing": Out(n),
                "waiting": Out(n),
                "phases": Out(data.ArrayLayout(3, n)),
                "indices": Out(data.ArrayLayout(24, n)),
            }
        )

    def engine(self, e):
        """Port of engine ``e``."""
        return getattr(self, f"engine_{e.name}")

    def elaborate(self, platform):
        m = Module()
        n = len(self.engines)

        counters = [Signal(8, name=f"token{t}") for t in range(TOKENS)]
        nonzero = Signal(TOKENS)  # of each counter, in a register

        eligible = Signal(n)
        grant = Signal(n)
        wait = [self.control_wait] + [None] * (n - 1)
        pending = [Signal(name="pending_control")] + [None] * (n - 1)
        post = [self.control_post] + [None] * (n - 1)
        chosen = Signal(n)  # whose done is processed
        ready = {}

        # CONTROL has no queue: the sequencer waits for it.
        m.d.comb += self.control_grant.eq(grant[0])
        m.d.sync += eligible[0].eq(
            # mutant control-grant-forgotten: self.control_request & ~(self.control_wait & ~nonzero).any()
            self.control_request & ~(self.control_wait & ~nonzero).any() & ~grant.any()
        )
        with m.If(self.control_done):
            m.d.sync += pending[0].eq(1)
        with m.Elif(chosen[0]):
            m.d.sync += pending[0].eq(0)

        starts = SimpleNamespace(eligible=eligible, grant=grant, chosen=chosen, nonzero=nonzero)
        for e in self.engines.queued:
            queue = self._queue(m, e, starts)
            ready[int(e)], wait[e], post[e], pending[e] = queue.ready, queue.wait, queue.post, queue.pending
        with m.Switch(self.i.payload.engine):
            for e in self.engines.queued:
                with m.Case(int(e)):
                    m.d.comb += self.i.ready.eq(ready[int(e)])
        self._choose(m, starts, wait, post, pending, counters)
        with m.If(self.clear | self.hold):
            m.d.sync += eligible.eq(0)
        with m.If(self.clear):
            m.d.sync += pending[0].eq(0)
        return m

    def _queue(self, m, e, starts):
        """An engine's queue: waiting, offered, running and done commands."""
        bits = ceil_log2(self.depth)
        port = self.engine(e)
        name = e.name
        # Pointers: next to write, next to start, oldest that is not done.
        w, s, d = (Signal(bits + 1, name=f"{name}_{p}") for p in ("write", "start", "done"))
        # How many are inside, and whether any: from pointers both would come late.
        inside, some = Signal(bits + 1, name=f"{name}_inside"), Signal(name=f"{name}_some")
        ready = ~inside[bits]
        push = Signal(name=f"{name}_push")
        m.d.comb += push.eq(self.i.valid & ready & (self.i.payload.engine == int(e)))
        out = self._store(m, e, push, w, s, d)
        with m.If(push):
            m.d.sync += w.eq(w + 1)

        offered = Signal(name=f"{name}_offered")
        taken = Signal(name=f"{name}_taken")
        ticket = data.View(_TICKET, out["ticket"])
        # The earliest start is two cycles after a command has come to the head of its queue, so what it needs then
        # can come from registers.
        command = Signal(8 + self.operand_bits[e], name=f"{name}_command_held")
        wait = Signal(16, name=f"{name}_wait_held")
        m.d.sync += [command.eq(out["command"]), wait.eq(out["wait"])]
        m.d.comb += [
            taken.eq(offered & port.command.ready),
            port.command.valid.eq(offered),
            port.command.payload.as_value().eq(command),
            self.executing[e].eq(s != d),
            self.waiting[e].eq(some),
            self.phases[e].eq(ticket.phase),
            self.indices[e].eq(ticket.index),
        ]
        m.d.sync += starts.eligible[e].eq(
            # mutant waits-for-none: (w != s) & ~offered & (out["wait"] & starts.nonzero).any() & ~starts.grant.any()
            # mutant grant-forgotten: (w != s) & ~offered & ~(out["wait"] & ~starts.nonzero).any()
            # mutant own-grant-only: (w != s) & ~offered & ~(out["wait"] & ~starts.nonzero).any() & ~starts.grant[e]
            (w != s) & ~offered & ~(out["wait"] & ~starts.nonzero).any() & ~starts.grant.any()
        )
        with m.If(starts.grant[e]):
            m.d.sync += offered.eq(1)
        with m.If(taken):
            # mutant offered-twice: m.d.sync += [s.eq(s + 1)]
            m.d.sync += [offered.eq(0), s.eq(s + 1)]
        with m.If(self.clear | self.hold):
            m.d.sync += offered.eq(0)

        count, due = Signal(bits + 1, name=f"{name}_pending"), Signal(name=f"{name}_due")
        leaves = starts.chosen[e]
        m.d.sync += [
            count.eq(stepped(count, port.done, leaves)),
            due.eq(port.done | (due & ~(leaves & (count == 1)))),
            inside.eq(stepped(inside, push, leaves)),
            some.eq(push | (some & ~(leaves & (inside == 1)))),
        ]
        with m.If(leaves):
            m.d.sync += d.eq(d + 1)
        with m.If(self.clear):
            m.d.sync += [each.eq(0) for each in (w, s, d, count, due, inside, some)]
        return SimpleNamespace(ready=ready, wait=wait, post=ticket.post, pending=due)

    def _store(self, m, e, push, w, s, d):
        """Memories of a queue.

        Command and wait mask are read at the next command to start, the rest at the oldest command.
        """
        bits, used = ceil_log2(self.depth), self.operand_bits[e]
        asked = self.i.payload.command
        columns = {
            "command": (8 + used, Cat(asked.opcode, asked.args[:used]), s),
            # mutant wait-of-the-oldest: "wait": (16, self.i.payload.wait, d),
            "wait": (16, self.i.payload.wait, s),
            "ticket": (_TICKET.size, Cat(self.i.payload.post, self.i.payload.phase, self.i.payload.index), d),
        }
        out = {}
        for column, (shape, value, pointer) in columns.items():
            memory = Memory(shape=shape, depth=self.depth, init=[])
            m.submodules[f"{e.name}_{column}"] = memory
            wr = memory.write_port()
            rd = memory.read_port(domain="comb")
            m.d.comb += [
                # mutant written-elsewhere: wr.addr.eq(s[:bits]),
                wr.addr.eq(w[:bits]),
                wr.data.eq(value),
                wr.en.eq(push),
                rd.addr.eq(pointer[:bits]),
            ]
            out[column] = rd.data
        return out

    def _choose(self, m, starts, wait, post, pending, counters):
        """Chooses one start and one end a cycle, the lowest engine first.

        Also moves their tokens.
        """
        eligible, grant, chosen, some = starts.eligible, starts.grant, starts.chosen, pending
        for e in range(len(self.engines)):
            m.d.comb += [
                grant[e].eq(eligible[e] & ~Cat(eligible[:e]).any()),
                chosen[e].eq(some[e] & ~Cat(some[:e]).any()),
            ]
        take = Signal(TOKENS)
        give = Signal(TOKENS)
        m.d.comb += [
            take.eq(_select(grant, wait)),
            give.eq(_select(chosen, post)),
            self.finished.eq(chosen.any()),
            self.posting.eq(chosen),
            self.settled.eq(~Cat(some).any()),
            self.active.eq(self.waiting.any()),
            self.running.eq(
                self.executing.any()
                | eligible.any()
                | Cat(some).any()
                | Cat(self.engine(e).command.valid for e in self.engines.queued).any()
            ),
        ]
        over = []
        for t, c in enumerate(counters):
            over.append(c.all() & give[t] & ~take[t])
            there = starts.nonzero[t]
            m.d.sync += [c.eq(stepped(c, give[t], take[t])), there.eq(give[t] | (there & ~(take[t] & (c == 1))))]
            with m.If(self.clear | self.forget):
                m.d.sync += [c.eq(0), there.eq(0)]
        m.d.comb += self.overflow.eq(Cat(over).any())


def _select(onehot, values):
    """Value whose bit is set in ``onehot``."""
    out = Const(0, 1)
    for bit, value in zip(onehot, values):
        out = out | Mux(bit, value, 0)
    return out
