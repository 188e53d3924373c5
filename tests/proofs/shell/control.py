"""The shell's control: queues and tokens."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Mux, Signal

from gradloom.rtl.shell.sequencer.scheduler import Scheduler
from gradloom.rtl.shell.signature import TOKENS
from gradloom.sim.proofs.claim import Claim

__all__ = ["dispatcher_rules", "queue_registers", "scheduler_order", "scheduler_tokens", "scheduler_turns"]


def dispatcher_rules(claim, scheduler, say, *, every=3):
    """How the dispatcher uses the scheduler: assumed (``say``) of what surrounds it, and claimed of the sequencer.

    Returns CONTROL's request that came in an earlier cycle, whether one comes, whether CONTROL executes, and how many
    cycles ago the last command came, up to ``every``.
    """
    m = claim.m
    asks, grant, stopped = scheduler.control_request, scheduler.control_grant, scheduler.hold | scheduler.clear
    put = scheduler.i.valid & scheduler.i.ready
    say("an_engine", ~scheduler.i.valid | Cat(scheduler.i.p.engine == int(e) for e in scheduler.engines.queued).any())
    # CONTROL's request stays until it is granted, and its masks as long as they are used.
    asked = claim.past(asks & ~grant & ~stopped, "asked")
    wait, post = (claim.past(getattr(scheduler, f"control_{mask}"), f"control_{mask}") for mask in ("wait", "post"))
    say("control_stays", ~asked | stopped | (asks & (wait == scheduler.control_wait)))
    say("control_posts_what_it_said", ~claim.past(scheduler.control_done, "ended") | (post == scheduler.control_post))
    executes = Signal(name="executes")
    m.d.sync += executes.eq((executes | grant) & ~scheduler.control_done & ~scheduler.clear)
    say("control_ends_what_it_began", ~scheduler.control_done | executes)
    # One command after the other.
    comes = asks & ~asked
    since = Signal(range(every + 1), name="since", init=every)
    m.d.sync += since.eq(Mux(put | comes, 1, Mux(since == every, every, since + 1)))
    say("commands_come_one_by_one", ~(put | comes) | (since == every))
    say("one_at_a_time", ~(scheduler.i.valid & asks))
    say("control_is_alone", ~(executes & (put | asks)))
    say("forgets_when_idle", ~scheduler.forget | ~(scheduler.active | asks))
    # Whoever holds commands back gives none of them any more.
    say("holds_until_it_clears", ~claim.past(scheduler.hold & ~scheduler.clear, "held") | stopped)
    return asked, comes, executes, since


def queue_registers(claim, inside, name, entries):
    """What an engine's queue keeps in registers about its ``entries`` and its ends that are still to be counted."""
    pending, due = inside[f"{name}_pending"], inside[f"{name}_due"]
    claim.lemma(f"{name}_knows_its_entries", inside[f"{name}_inside"] == entries)
    claim.lemma(f"{name}_knows_of_some", inside[f"{name}_some"] == (entries != 0))
    claim.lemma(f"{name}_knows_of_ends", due == (pending != 0))


def scheduler_order(unit=Scheduler, *, engines, engine, depth=16):
    """Every queued command is offered once, in order, as it was queued, and counted as done once; what is offered stays
    offered."""
    claim = Claim()
    m = claim.m
    scheduler = unit(engines, depth=depth)
    # Each engine has three memories, the first of commands.
    kinds = iter(["any"] * 3 * (engine - 1) + ["one"] + ["any"] * 3 * len(engines))
    inside = claim.place(scheduler, memories=lambda memory: next(kinds))
    claim.drive(scheduler)
    entry = scheduler.i.p
    stopped = scheduler.hold | scheduler.clear
    claim.check("one_end_a_cycle", (scheduler.posting & (scheduler.posting - 1)[: len(engines)]) == 0)
    claim.check("finished_is_one", scheduler.finished == scheduler.posting.any())
    for e in (engine,):
        name, port = e.name, scheduler.engine(e)
        write, start, done = (inside[f"{name}_{pointer}"] for pointer in ("write", "start", "done"))
        pending = inside[f"{name}_pending"]
        mask = 2 * depth - 1
        queued, running, all_ = Signal(6, name=f"{name}_q"), Signal(6, name=f"{name}_r"), Signal(6, name=f"{name}_a")
        m.d.comb += [
            queued.eq((write - start) & mask),
            running.eq((start - done) & mask),
            all_.eq((write - done) & mask),
        ]
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
        queue_registers(claim, inside, name, all_)
        claim.lemma(f"{name}_begins_what_was_put", queued + running == all_)
        claim.lemma(f"{name}_begun_or_pending", running == begun + pending)
        claim.lemma(f"{name}_offers_what_is_there", ~port.command.valid | (queued != 0))
        claim.lemma(f"{name}_eligible_is_there", ~inside["eligible"][e] | ((queued != 0) & ~port.command.valid))
        # What is offered is a register behind the head of the queue.
        head, held = inside.kept[3 * (int(e) - 1)].seen[0], inside[f"{name}_command_held"]
        claim.lemma(f"{name}_holds_the_head", ~(port.command.valid | inside["eligible"][e]) | (held == head))
        # The command in one place of the queue, any one, as it was put there.
        place = inside.kept[3 * (e - 1)]
        came, went = (Signal(len(place.place), name=f"{name}_{what}_place") for what in ("came", "went"))
        asked = Signal(len(held), name=f"{name}_asked")
        with m.If(put):
            m.d.sync += came.eq(came + 1)
            with m.If(came == place.place):
                m.d.sync += asked.eq(Cat(entry.command.opcode, entry.command.args)[: len(held)])
        with m.If(taken):
            m.d.sync += went.eq(went + 1)
        with m.If(scheduler.clear):
            m.d.sync += [came.eq(0), went.eq(0)]
        given = Cat(port.command.p.opcode, port.command.p.args)
        claim.check(f"{name}_as_it_was_put", ~port.command.valid | (went != place.place) | (given == asked))
        claim.lemma(f"{name}_kept", place.word == asked)
        claim.lemma(f"{name}_places", (write[: len(came)] == came) & (start[: len(went)] == went))
        claim.check(f"{name}_counts_what_was_begun", ~left | (count != 0))
        claim.check(f"{name}_waiting", scheduler.waiting[e] == (count != 0))
        claim.cover(f"{name}_full", count == depth)
    return claim


def scheduler_turns(unit=Scheduler, *, engines, depth=16, every=3):
    """No engine starves, although the lowest goes first, as commands come in no faster than one in ``every`` cycles,
    which the sequencer cannot: a command that waits for no token is offered, and a done is counted, in bounded time.

    By a potential that falls in every cycle of waiting: what may still go first, at what a turn of it costs.
    """
    claim = Claim()
    m = claim.m
    scheduler = unit(engines, depth=depth)
    inside = claim.place(scheduler, memories=lambda memory: "any")
    claim.drive(scheduler)
    claim.assume("no_stop", ~scheduler.hold & ~scheduler.clear)
    asked, comes, controlled, since = dispatcher_rules(claim, scheduler, claim.assume, every=every)
    asks = scheduler.control_request
    granted = inside.wire("grant")
    claim.lemma("control_eligible_is_asked", ~inside["eligible"][0] | asks)
    claim.lemma("control_is_asked_or_runs", ~(asks & asked & controlled))
    claim.lemma("control_ends_before_it_begins", ~(inside["pending_control"] & (controlled | granted[0])))
    claim.lemma("grants_pause", ~claim.past(granted.any(), "granted") | ~inside["eligible"].any())

    mask, turn = 2 * depth - 1, 2 * every
    lower = comes  # what comes in this cycle to engines that go first
    queued_first, inside_first = asked, asked + controlled + inside["pending_control"]
    for e in engines.queued:
        name, port = e.name, scheduler.engine(e)
        write, start, done = (inside[f"{name}_{pointer}"] for pointer in ("write", "start", "done"))
        begun, offered = Signal(6, name=f"{name}_begun"), inside[f"{name}_offered"]
        m.d.sync += begun.eq(begun + (port.command.valid & port.command.ready) - port.done)
        claim.assume(f"{name}_ends_what_it_began", ~port.done | (begun != 0))
        queued, running, all_ = (Signal(6, name=f"{name}_{what}") for what in ("queued", "running", "all"))
        m.d.comb += [
            queued.eq((write - start) & mask),
            running.eq((start - done) & mask),
            all_.eq((write - done) & mask),
        ]
        claim.lemma(f"{name}_fits", (all_ <= depth) & (queued + running == all_))
        claim.lemma(f"{name}_begun_or_pending", running == begun + inside[f"{name}_pending"])
        claim.lemma(f"{name}_offers_what_is_there", ~offered | (queued != 0))
        claim.lemma(f"{name}_eligible_is_there", ~inside["eligible"][e] | ((queued != 0) & ~offered))
        queue_registers(claim, inside, name, all_)
        # What goes first, counted as it comes and goes; and how the counts of one engine and the next belong together.
        before, ahead = Signal(8, name=f"{name}_before"), Signal(8, name=f"{name}_ahead")
        m.d.sync += [
            before.eq(before + lower - granted[: int(e)].any()),
            ahead.eq(ahead + lower - scheduler.posting[: int(e)].any()),
        ]
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
        claim.lemma(
            f"{name}_is_offered_sooner_and_sooner",
            waits + turn * before + 2 * since + 3 * ~inside["eligible"].any() <= most,
        )
        # Until its done is counted: one in a cycle.
        longest = 3 * (3 + depth * (int(e) - 1)) + every + 1
        late = Signal(12, name=f"{name}_late")
        m.d.sync += late.eq(Mux((inside[f"{name}_pending"] != 0) & ~scheduler.posting[e], late + 1, 0))
        claim.check(f"{name}_is_counted_within_{longest}", late <= longest)
        claim.lemma(f"{name}_is_counted_sooner_and_sooner", late + 3 * ahead + since <= longest)
        lower = lower | (scheduler.i.valid & scheduler.i.ready & (scheduler.i.p.engine == int(e)))
        queued_first, inside_first = before + (queued - offered), ahead + all_
    return claim


def scheduler_tokens(unit=Scheduler, *, engines, depth=16):
    """A token, any one, is taken as often as commands that wait for it start, and given as often as commands that post
    it end: each start takes one that is there, and no more than 255 are held without an overflow being told.

    The masks are those with which commands were queued, followed here in queues of one bit.
    """
    claim = Claim()
    m = claim.m
    scheduler = unit(engines, depth=depth)
    # Of an engine's three memories the first has its commands, which tokens are nothing of.
    inside = claim.place(scheduler, memories=lambda memory: "any" if memory.shape > 96 else "words")
    claim.drive(scheduler)
    dispatcher_rules(claim, scheduler, claim.assume)
    token = claim.fixed(range(TOKENS), "token")
    only = 1 << token

    def of(mask):
        return mask.bit_select(token, 1)

    # From the first cycle in which commands are held back no other starts, until all is cleared.
    held_back = Signal(name="held_back")
    m.d.sync += held_back.eq((held_back | scheduler.hold) & ~scheduler.clear)

    others = Signal(name="others")  # some command posted another token
    m.d.sync += others.eq(
        others | (scheduler.control_post & ~only).any() | (scheduler.i.valid & (scheduler.i.p.post & ~only).any())
    )
    # CONTROL starts where its request is granted, which an engine's command shows a cycle later.
    granted = claim.past(scheduler.control_grant & ~scheduler.clear, "control_granted")
    takes = [granted & claim.past(of(scheduler.control_wait), "control_takes")]
    gives = [scheduler.posting[0] & of(scheduler.control_post)]
    starts = [granted]
    for e in engines.queued:
        name, port, bits = e.name, scheduler.engine(e), (depth - 1).bit_length()
        waits, posts = (Signal(depth, name=f"{name}_{mask}s") for mask in ("wait", "post"))
        write, start, end = (Signal(bits, name=f"{name}_{place}_place") for place in ("write", "start", "end"))
        put = scheduler.i.valid & scheduler.i.ready & (scheduler.i.p.engine == int(e))
        begun = Signal(6, name=f"{name}_begun")
        m.d.sync += begun.eq(begun + (port.command.valid & port.command.ready) - port.done)
        claim.assume(f"{name}_ends_what_it_began", ~port.done | (begun != 0))
        offers = port.command.valid & ~claim.past(port.command.valid, f"{name}_offered")
        with m.If(put):
            m.d.sync += [
                waits.bit_select(write, 1).eq(of(scheduler.i.p.wait)),
                posts.bit_select(write, 1).eq(of(scheduler.i.p.post)),
                write.eq(write + 1),
            ]
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += start.eq(start + 1)
        with m.If(scheduler.posting[e]):
            m.d.sync += end.eq(end + 1)
        with m.If(scheduler.clear):
            m.d.sync += [write.eq(0), start.eq(0), end.eq(0), begun.eq(0)]
        starts.append(offers)
        takes.append(offers & waits.bit_select(start, 1))
        gives.append(scheduler.posting[e] & posts.bit_select(end, 1))

        _registers(
            claim,
            scheduler,
            inside,
            e,
            of,
            others,
            SimpleNamespace(write=write, start=start, end=end, waits=waits, posts=posts, begun=begun, only=only),
        )

    held, taken, given = Signal(10, name="held"), Signal(3, name="taken"), Signal(3, name="given")
    now = Signal(10, name="held_now")
    m.d.comb += [taken.eq(sum(takes)), given.eq(sum(gives)), now.eq(held - taken)]
    m.d.sync += held.eq(now + given)
    with m.If(scheduler.clear | scheduler.forget):
        m.d.sync += held.eq(0)
    told = Signal(name="told")  # too many: whoever is told stops the program
    m.d.sync += told.eq((told | scheduler.overflow) & ~scheduler.clear)

    fine = ~held_back & ~told
    claim.check("one_start_a_cycle", held_back | (sum(starts) <= 1))
    claim.check("no_start_without_its_token", ~fine | (taken <= held))
    claim.check("no_overflow_unnoticed", ~fine | (now <= 255))
    claim.check("no_overflow_but_of_256", ~(scheduler.overflow & fine & ~others) | (now == 255))
    claim.cover("many_held", fine & (now == 3))
    claim.cover("taken_and_given", fine & (taken != 0) & (given != 0))

    counters = [inside[f"token{t}"] for t in range(TOKENS)]
    claim.lemma("counted", ~fine | (now == Array(counters)[token]))
    claim.lemma("known_to_be_held", ~fine | (inside["nonzero"].bit_select(token, 1) == (now != 0)))
    strange = Cat((counter != 0) & (token != t) for t, counter in enumerate(counters)).any()
    strange = strange | (inside["nonzero"] & ~only).any()
    claim.lemma("no_other", others | held_back | ~strange)
    eligible = inside["eligible"]
    going = fine & ~(scheduler.hold | scheduler.clear)
    claim.lemma("control_eligible_is_asked", ~going | ~eligible[0] | scheduler.control_request)
    held_masks = (inside[f"{e.name}_wait_held"] for e in engines.queued)
    waiting = Cat(of(mask) for mask in (scheduler.control_wait, *held_masks))
    claim.lemma("eligible_has_its_token", ~going | ~(eligible & waiting).any() | (now != 0))
    return claim


def _registers(claim, scheduler, inside, e, of, others, shadows):
    """How the registers of an engine's queue belong together with what follows them."""
    m, name, depth = claim.m, e.name, scheduler.depth
    bits = (depth - 1).bit_length()
    for what, place in (("write", shadows.write), ("start", shadows.start), ("done", shadows.end)):
        claim.lemma(f"{name}_{what}_place", inside[f"{name}_{what}"][:bits] == place)
    wait_words, tickets = (inside.kept[3 * (e - 1) + n].words for n in (1, 2))
    for what, words, shadow in (("wait", wait_words, shadows.waits), ("post", tickets, shadows.posts)):
        claim.lemma(f"{name}_{what}s", Cat(of(word[:TOKENS]) for word in words) == shadow)
    claim.lemma(
        f"{name}_posts_no_other", others | ~Cat((word[:TOKENS] & ~shadows.only).any() for word in tickets).any()
    )
    pointers = {what: inside[f"{name}_{what}"] for what in ("write", "start", "done")}
    mask, pending, offered = 2 * depth - 1, inside[f"{name}_pending"], inside[f"{name}_offered"]
    queued, running, all_ = (Signal(6, name=f"{name}_{what}") for what in ("queued", "running", "all"))
    m.d.comb += [
        queued.eq((pointers["write"] - pointers["start"]) & mask),
        running.eq((pointers["start"] - pointers["done"]) & mask),
        all_.eq((pointers["write"] - pointers["done"]) & mask),
    ]
    claim.lemma(f"{name}_fits", (all_ <= depth) & (queued + running == all_))
    claim.lemma(f"{name}_begun_or_pending", running == shadows.begun + pending)
    claim.lemma(f"{name}_offers_what_is_there", ~offered | (queued != 0))
    queue_registers(claim, inside, name, all_)
    eligible = inside["eligible"][e]
    claim.lemma(f"{name}_eligible_is_there", ~eligible | ((queued != 0) & ~offered))
    claim.lemma(
        f"{name}_waits_for_the_head",
        ~eligible | (inside[f"{name}_wait_held"] == Array(wait_words)[pointers["start"][:bits]]),
    )


def _wait(inside, e):
    """The tokens that the next command of an engine waits for: the second of its three memories."""
    return inside.kept[3 * (e - 1) + 1].seen[0]
