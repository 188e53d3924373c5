"""The shell's control: queues and tokens."""
from amaranth.hdl import Cat, Mux, Signal
from claim import Claim

from gradloom.rtl.control.scheduler import Scheduler
from gradloom.rtl.control.signature import ENGINES, Engine

__all__ = ["scheduler_order", "scheduler_turns"]


def scheduler_order(unit=Scheduler, *, engine, depth=16):
    """Every queued command is offered once, in order, and counted as done once; what is offered stays offered."""
    claim = Claim()
    m = claim.m
    scheduler = unit(depth=depth)
    inside = claim.place(scheduler, memories=lambda memory: "any")
    claim.drive(scheduler)
    entry = scheduler.i.p
    claim.assume("an_engine", Cat(entry.engine == int(e) for e in ENGINES).any())
    stopped = scheduler.hold | scheduler.clear
    claim.check("one_end_a_cycle", (scheduler.posting & (scheduler.posting - 1)[:len(Engine)]) == 0)
    claim.check("finished_is_one", scheduler.finished == scheduler.posting.any())
    for e in (engine,):
        name, port = e.name.lower(), scheduler.engine(e)
        write, start, done = (inside[f"{name}_{pointer}"] for pointer in ("write", "start", "done"))
        pending = inside[f"{name}_pending"]
        mask = 2 * depth - 1
        queued, running, all_ = Signal(6, name=f"{name}_q"), Signal(6, name=f"{name}_r"), Signal(6, name=f"{name}_a")
        m.d.comb += [queued.eq((write - start) & mask), running.eq((start - done) & mask),
                     all_.eq((write - done) & mask)]
        # As seen from outside.
        count, begun = Signal(6, name=f"{name}_inside"), Signal(6, name=f"{name}_begun")
        put = scheduler.i.valid & scheduler.i.ready & (entry.engine == int(e))
        taken = port.command.valid & port.command.ready
        left = scheduler.posting[e]
        m.d.sync += [count.eq(count + put - left), begun.eq(begun + taken - port.done)]
        with m.If(scheduler.clear):
            m.d.sync += [count.eq(0), begun.eq(0)]
        # An engine ends what it began.
        claim.assume(f"{name}_ends_what_it_began", ~port.done | (begun != 0))
        claim.holds(name, port.command, unless=stopped)
        claim.check(f"{name}_fits", count <= depth)
        claim.lemma(f"{name}_none_lost", count == all_)
        claim.lemma(f"{name}_begins_what_was_put", queued + running == all_)
        claim.lemma(f"{name}_begun_or_pending", running == begun + pending)
        claim.lemma(f"{name}_offers_what_is_there", ~port.command.valid | (queued != 0))
        claim.lemma(f"{name}_eligible_is_there", ~inside["eligible"][e] | ((queued != 0) & ~port.command.valid))
        # What is offered is a register behind the head of the queue.
        head, held = inside.kept[3 * (int(e) - 1)].seen[0], inside[f"{name}_command_held"]
        claim.lemma(f"{name}_holds_the_head", ~(port.command.valid | inside["eligible"][e]) | (held == head))
        claim.check(f"{name}_counts_what_was_begun", ~left | (count != 0))
        claim.check(f"{name}_waiting", scheduler.waiting[e] == (count != 0))
        claim.cover(f"{name}_full", count == depth)
    return claim


def scheduler_turns(unit=Scheduler, *, depth=16, every=3):
    """No engine starves, although the lowest goes first, as commands come in no faster than one in ``every`` cycles,
    which the sequencer cannot: a command that waits for no token is offered, and a done is counted, in bounded time.

    By a potential that falls in every cycle of waiting: what may still go first, at what a turn of it costs.
    """
    claim = Claim()
    m = claim.m
    scheduler = unit(depth=depth)
    inside = claim.place(scheduler, memories=lambda memory: "any")
    claim.drive(scheduler)
    claim.assume("an_engine", Cat(scheduler.i.p.engine == int(e) for e in ENGINES).any())
    claim.assume("no_stop", ~scheduler.hold & ~scheduler.clear)
    # A command comes to a queue, or as CONTROL's request, which stays until it is granted.
    asks = scheduler.control_request
    asked = claim.past(asks & ~scheduler.control_grant, "asked")
    claim.assume("control_stays", ~asked | asks)
    come = (scheduler.i.valid & scheduler.i.ready) | (asks & ~asked)
    since = Signal(range(every + 1), name="since", init=every)
    m.d.sync += since.eq(Mux(come, 1, Mux(since == every, every, since + 1)))
    claim.assume("commands_come_one_by_one", ~come | (since == every))
    claim.assume("one_at_a_time", ~(scheduler.i.valid & asks & ~asked))
    controlled = Signal(name="controlled")
    m.d.sync += controlled.eq((controlled | scheduler.control_grant) & ~scheduler.control_done)
    claim.assume("control_ends_what_it_began", ~scheduler.control_done | controlled)
    claim.assume("control_is_alone", ~(controlled & come))
    granted = inside.wire("grant")
    claim.lemma("control_eligible_is_asked", ~inside["eligible"][0] | asks)
    claim.lemma("control_is_asked_or_runs", ~(asks & asked & controlled))
    claim.lemma("control_ends_before_it_begins", ~(inside["pending_control"] & (controlled | granted[0])))
    claim.lemma("grants_pause", ~claim.past(granted.any(), "granted") | ~inside["eligible"].any())

    mask, turn = 2 * depth - 1, 2 * every
    lower = asks & ~asked                 # what comes in this cycle to engines that go first
    queued_first, inside_first = asked, asked + controlled + inside["pending_control"]
    for e in ENGINES:
        name, port = e.name.lower(), scheduler.engine(e)
        write, start, done = (inside[f"{name}_{pointer}"] for pointer in ("write", "start", "done"))
        begun, offered = Signal(6, name=f"{name}_begun"), inside[f"{name}_offered"]
        m.d.sync += begun.eq(begun + (port.command.valid & port.command.ready) - port.done)
        claim.assume(f"{name}_ends_what_it_began", ~port.done | (begun != 0))
        queued, running, all_ = (Signal(6, name=f"{name}_{what}") for what in ("queued", "running", "all"))
        m.d.comb += [queued.eq((write - start) & mask), running.eq((start - done) & mask),
                     all_.eq((write - done) & mask)]
        claim.lemma(f"{name}_fits", (all_ <= depth) & (queued + running == all_))
        claim.lemma(f"{name}_begun_or_pending", running == begun + inside[f"{name}_pending"])
        claim.lemma(f"{name}_offers_what_is_there", ~offered | (queued != 0))
        claim.lemma(f"{name}_eligible_is_there", ~inside["eligible"][e] | ((queued != 0) & ~offered))
        # What goes first, counted as it comes and goes; and how the counts of one engine and the next belong together.
        before, ahead = Signal(8, name=f"{name}_before"), Signal(8, name=f"{name}_ahead")
        m.d.sync += [before.eq(before + lower - granted[:int(e)].any()),
                     ahead.eq(ahead + lower - scheduler.posting[:int(e)].any())]
        claim.lemma(f"{name}_before", before == queued_first)
        claim.lemma(f"{name}_ahead", ahead == inside_first)
        claim.lemma(f"{name}_before_fits", before <= 1 + depth * (int(e) - 1))
        claim.lemma(f"{name}_ahead_fits", ahead <= 3 + depth * (int(e) - 1))
        # Until it is offered: grants are every other cycle, commands come every third.
        most = turn * (1 + depth * (int(e) - 1)) + 2 * every + 3 + 2
        hungry = (queued != 0) & ~offered & (_wait(inside, e) == 0)
        waits = Signal(12, name=f"{name}_waits")
        m.d.sync += waits.eq(Mux(hungry & ~granted[e], waits + 1, 0))
        claim.check(f"{name}_is_offered_within_{most}", waits <= most)
        claim.lemma(f"{name}_is_offered_sooner_and_sooner",
                    waits + turn * before + 2 * since + 3 * ~inside["eligible"].any() <= most)
        # Until its done is counted: one in a cycle.
        longest = 3 * (3 + depth * (int(e) - 1)) + every + 1
        late = Signal(12, name=f"{name}_late")
        m.d.sync += late.eq(Mux((inside[f"{name}_pending"] != 0) & ~scheduler.posting[e], late + 1, 0))
        claim.check(f"{name}_is_counted_within_{longest}", late <= longest)
        claim.lemma(f"{name}_is_counted_sooner_and_sooner", late + 3 * ahead + since <= longest)
        lower = lower | (scheduler.i.valid & scheduler.i.ready & (scheduler.i.p.engine == int(e)))
        queued_first, inside_first = before + (queued - offered), ahead + all_
    return claim


def _wait(inside, e):
    """The tokens that the next command of an engine waits for: the second of its three memories."""
    return inside.kept[3 * ENGINES.index(e) + 1].seen[0]
