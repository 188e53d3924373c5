"""The sequencer: its way from an error to idle, and from there to the next program."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from gradloom.rtl.shell.bus.axi import BURST_BEATS
from gradloom.rtl.shell.bus.window import absolute
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.rtl.shell.sequencer.sequencer import Sequencer
from gradloom.rtl.shell.signature import COMMAND_BYTES, Command
from gradloom.sim.proofs.claim import Claim

from .axi import held
from .control import dispatcher_rules, queue_registers

__all__ = ["returns"]

_LOCATED = {LOAD: "load_offset", STORE: "store_offset"}


def returns(unit=Sequencer, *, engines, shell):
    """Whatever goes wrong, and whatever engines do that end only what they began: the program stops, no engine is given
    a command any more, one interrupt is raised, what went wrong stays to be read, and once the bus is idle the
    sequencer is as after power-up, within a number of cycles that the claim's name says. The next program begins."""
    claim = Claim()
    m = claim.m
    depth = shell["depth"]
    sequencer = unit(
        engines, data_bits=shell["data_bits"], slots=shell["slots"], depth=depth, requests=bool(shell.get("requests"))
    )
    inside = claim.place(sequencer, memories=lambda memory: "any")
    claim.drive(sequencer)
    errors = {e: sequencer.engine(e).error for e in sequencer.engines.queued}
    state = {
        name: inside.state(name)
        for name in ("IDLE", "RESET", "SUM", "COMPARE", "BEGIN", "RUN", "BLAME", "DRAIN", "FLUSH", "FINISH")
    }
    idle, run, blame, drain = (state[name] for name in ("IDLE", "RUN", "BLAME", "DRAIN"))
    before = {name: claim.past(each, f"state_{name.lower()}") for name, each in state.items()}
    _still(claim, sequencer)
    left = _engines(claim, inside, sequencer, depth, state)

    # An error stops the program in 2 cycles, if that has not ended by then.
    for e, error in errors.items():
        claim.assume(f"{e.name}_says_what", ~error.valid | (error.code != 0))
    failed = Cat(error.valid for error in errors.values()).any()
    wrong = claim.past(run & (failed | sequencer.reset), "wrong")
    claim.check("stops", ~claim.past(wrong & run, "stops") | blame)
    claim.lemma("states", inside.state() & inside.state(path=("dispatch",)) & inside.state(path=("dispatch", "valid")))
    claim.lemma("run_says_so", inside["run"] == run)
    for told, names in (
        ("fresh", ("IDLE", "RESET", "SUM", "COMPARE", "BEGIN", "DRAIN", "FINISH")),
        ("abort", ("RESET", "SUM", "COMPARE", "BEGIN", "DRAIN")),
        ("stops_bus", ("RESET", "DRAIN", "FLUSH")),
    ):
        value = sequencer.abort if told == "abort" else inside[told]
        claim.lemma(f"{told}_says_so", value == Cat(state[name] for name in names).any())
    claim.lemma("flushing_says_so", ~inside["flushing"] | blame | state["FLUSH"] | state["FINISH"])
    fault = inside["faults.fault"]
    claim.lemma("faults_have_a_code", ~fault | (inside["faults.code"] != 0))
    claim.lemma("blames_a_fault", ~blame | fault)
    claim.lemma("stops_with_a_fault", ~(wrong & run) | fault)

    # No engine is given anything but by a program that runs.
    offered = Cat(sequencer.engine(e).command.valid for e in sequencer.engines.queued).any()
    claim.check("silent", ~offered | run)

    # What a program wanted to fetch is not fetched when it has ended, for whoever comes next.
    claim.check(
        "fetches_for_a_program_that_runs", ~sequencer.o_fetch.valid | ~sequencer._fetch.fresh | sequencer.bus_abort
    )

    # Back to idle; only the bus may take longer.
    most = len(sequencer.engines.queued) * depth + 2
    blamed, drained = Signal(range(2 * most), name="blamed"), Signal(3, name="drained")
    m.d.sync += [blamed.eq(Mux(blame, blamed + 1, 0)), drained.eq(Mux(drain, drained + sequencer.bus_idle, 0))]
    claim.check(f"drains_within_{most}", blamed <= most)
    claim.check("idle_within_4_of_the_bus", drained <= 4)
    claim.lemma("drains_sooner_and_sooner", ~blame | (blamed + left < most))
    claim.lemma("idle_sooner_and_sooner", ~drain | (drained <= inside["wait"]))
    long = claim.past(held(claim, sequencer.abort & sequencer.bus_abort), "long")
    claim.check("aborts_for_4_cycles", ~(idle & (before["DRAIN"] | before["RESET"])) | long)
    # As LOAD and STORE promise, and their claims hold them to it.
    claim.assume(
        "no_burst_begins_while_aborted",
        ~claim.past(sequencer.bus_abort & sequencer.bus_idle, "stopped") | sequencer.bus_idle,
    )
    claim.check(
        "aborts_until_the_bus_is_idle",
        ~claim.past(sequencer.bus_abort & ~sequencer.bus_idle, "aborting") | sequencer.bus_abort,
    )

    # One interrupt, and what the host then reads.
    pulses = Signal(2, name="pulses")
    with m.If(blame | drain):
        m.d.sync += pulses.eq(pulses + sequencer.irq_error)
    with m.Else():
        m.d.sync += pulses.eq(0)
    claim.check("one_interrupt", (pulses <= 1) & (~(idle & before["DRAIN"]) | (pulses == 1)))
    claim.check("no_other_interrupt", ~(blame | drain) | ~(sequencer.irq_done | sequencer.irq_request))
    claim.check("no_interrupt_else", ~sequencer.irq_error | drain)
    claim.lemma("told_once", ~(blame | drain) | (pulses == inside["told"]))
    claim.lemma("not_told", blame | drain | idle | ~inside["told"])
    claim.check("status_says_so", ~claim.past(sequencer.irq_error, "irq") | sequencer.error | sequencer.request_error)
    claim.lemma("nothing_runs", ~(idle | state["RESET"]) | ~(inside["main"] | sequencer.request_running))
    claim.lemma("resets_nothing", ~state["RESET"] | ~sequencer.request_busy)
    claim.lemma("something_runs", idle | state["RESET"] | inside["main"] | sequencer.request_running)
    said = Cat(getattr(sequencer, f"error_{name}") for name in ("code", "command", "request", "address"))
    claim.check(
        "error_is_held",
        claim.first | (said == claim.past(said, "said")) | claim.past(sequencer.cleared | blame, "may_change"),
    )
    claim.check("error_has_a_code", ~drain | (sequencer.error_code != 0))
    _told(claim, inside, sequencer, errors, state)

    # As after power-up, and ready to run.
    fresh = idle & (before["DRAIN"] | before["RESET"])
    empty = ~inside.wire("scheduler.active") & inside.wire("scheduler.settled")
    claim.check("idle_until_a_bell", ~fresh | ~(sequencer.busy | sequencer.request_busy))
    claim.check("queues_empty", ~fresh | empty)
    claim.check("tokens_zero", ~fresh | ~Cat(inside[f"scheduler.token{t}"] for t in range(16)).any())
    claim.check("dispatcher_waits", ~fresh | inside.state("HALT", path=("dispatch",)))
    _dispatcher(claim, inside, state)
    _ranges(claim, inside)
    # The scheduler's claims take these for granted.
    _, _, executes, _ = dispatcher_rules(claim, sequencer._scheduler, claim.check)
    _fetches(claim, inside, sequencer, state, executes)
    _begins(claim, inside, sequencer, state)

    claim.cover("after_an_error", fresh & before["DRAIN"] & (sequencer.error_code == 0x77))
    claim.cover("told_before_idle", drain & inside["told"])
    return claim


class _Within:
    """Registers of a part."""

    def __init__(self, inside, part):
        self._inside, self._part = inside, part

    def __getitem__(self, name):
        return self._inside[f"{self._part}.{name}"]


def _still(claim, sequencer):
    """What the host may not write while it is used."""
    for names, busy in (
        (("base", "size"), sequencer.busy | sequencer.request_busy),
        (("program_offset", "program_commands"), sequencer.busy),
        (("request_offset", "request_commands"), sequencer.request_busy),
    ):
        locked = busy & claim.past(busy, f"{names[0]}_locked")
        for name in names:
            value = getattr(sequencer, name)
            claim.assume(f"{name}_still", ~locked | (value == claim.past(value, name)))


def _engines(claim, inside, sequencer, depth, state):
    """Engines end what they began since they were reset. Returns how many ends are still to be counted, at most."""
    m = claim.m
    mask, left = 2 * depth - 1, inside["scheduler.pending_control"]
    quiet = state["IDLE"] | state["FLUSH"] | state["FINISH"] | state["SUM"] | state["COMPARE"] | state["BEGIN"]
    waits = inside.state("YIELD", "LEAVE", path=("dispatch",)) if sequencer.requests else 0
    for e in sequencer.engines.queued:
        name, port = e.name, sequencer.engine(e)
        write, start, done, pending, offered = (
            inside[f"scheduler.{name}_{each}"] for each in ("write", "start", "done", "pending", "offered")
        )
        begun = Signal(6, name=f"{name}_begun")
        m.d.sync += begun.eq(Mux(sequencer.abort, 0, begun + (port.command.valid & port.command.ready) - port.done))
        claim.assume(f"{name}_ends_what_it_began", ~port.done | (begun != 0))
        queued, running, all_ = (Signal(6, name=f"{name}_{what}") for what in ("queued", "running", "all"))
        m.d.comb += [
            queued.eq((write - start) & mask),
            running.eq((start - done) & mask),
            all_.eq((write - done) & mask),
        ]
        claim.lemma(f"{name}_fits", (all_ <= depth) & (queued + running == all_))
        claim.lemma(f"{name}_begun_or_pending", running == begun + pending)
        queue_registers(claim, _Within(inside, "scheduler"), name, all_)
        claim.lemma(f"{name}_offers_what_is_there", ~offered | (queued != 0))
        claim.lemma(f"{name}_eligible_is_there", ~inside["scheduler.eligible"][e] | ((queued != 0) & ~offered))
        claim.lemma(f"{name}_quiet", ~(quiet | inside["leaving"] | waits) | (all_ == 0))
        claim.lemma(f"{name}_silent", ~offered | state["RUN"])
        left = left + running
    return left


def _told(claim, inside, sequencer, errors, state):
    """The host is told the code of the engine that failed first, the lowest of several, and where LOAD or STORE did."""
    m = claim.m
    first = state["RUN"] & ~inside["faults.fault"]
    mine, code, address = Signal(name="mine"), Signal(8, name="code"), Signal(64, name="address")
    with m.If(~(state["RUN"] | state["BLAME"] | state["DRAIN"])):
        m.d.sync += mine.eq(0)
    for e in reversed(sequencer.engines.queued):
        with m.If(first & errors[e].valid):
            where = absolute(sequencer.base, getattr(sequencer, _LOCATED[e])) if e in _LOCATED else 0
            m.d.sync += [mine.eq(1), code.eq(errors[e].code), address.eq(where)]
    claim.check(
        "told_what_failed_first",
        ~(state["DRAIN"] & mine) | ((sequencer.error_code == code) & (sequencer.error_address == address)),
    )
    faults = {name: inside[f"faults.{name}"] for name in ("fault", "code", "located", "offset")}
    refuse_base = inside.find("$signal")[0]
    claim.lemma("checks_the_base", ~(state["COMPARE"] | state["BEGIN"]) | (refuse_base == (sequencer.base[:12] != 0)))
    noted = mine & (state["RUN"] | state["BLAME"])
    claim.lemma("runs_from_a_page", ~(state["RUN"] | noted) | ~refuse_base & (sequencer.base[:12] == 0))
    claim.lemma(
        "noted",
        ~noted
        | faults["fault"]
        & (faults["code"] == code)
        & (address == Mux(faults["located"], absolute(sequencer.base, faults["offset"]), 0)),
    )
    claim.lemma("noted_in_time", ~mine | noted | state["DRAIN"] | state["FLUSH"] | state["IDLE"])


#: In how many cycles the dispatcher waits again, from its states but the one in which it waits.
_STATES_TO_HALT = {
    3: ("POST", "YIELD"),
    2: ("DECODE", "NEXT", "LEAVE"),
    1: ("COLLECT", "ASK", "ANSWER", "DISPATCH", "EXECUTE", "RANGE", "CLEAR", "STUCK"),
}


def _dispatcher(claim, inside, state):
    """Soon after no program runs, the dispatcher waits for the next."""

    def dispatches(*names):
        known = inside.fragment.find_subfragment("dispatch").find_generated("fsm")._data["encoding"]
        return inside.state(*(name for name in names if name in known), path=("dispatch",))

    off = Signal(2, name="off", init=3)
    claim.m.d.sync += off.eq(Mux(state["RUN"], 0, Mux(off == 3, 3, off + 1)))
    for cycles, names in _STATES_TO_HALT.items():
        claim.lemma(f"halts_in_{cycles}", state["RUN"] | ~dispatches(*names) | (off + cycles <= 3))
    claim.lemma("waits_from_0", inside.state("IDLE", "RESET", "DRAIN") | (inside["wait"] == 0))
    claim.lemma("halts_in_time", ~state["DRAIN"] | (off > inside["wait"]) | (off == 3))
    claim.lemma("halted", state["RUN"] | state["BLAME"] | state["DRAIN"] | state["FLUSH"] | dispatches("HALT"))
    claim.lemma(
        "dispatches_no_more", ~(state["FLUSH"] | inside["leaving"] & state["RUN"]) | dispatches("STUCK", "HALT")
    )
    claim.lemma(
        "leaves_a_program",
        ~inside["leaving"] | state["FLUSH"] | state["RUN"] | state["FINISH"] | state["BLAME"] | state["DRAIN"],
    )


def _ranges(claim, inside):
    """Whoever is stopped holds the range of valid bits that it asked for as long as that is read."""
    read = inside.state("END", "BOUND", "MASK", path=("dispatch", "valid"))
    asked = Cat(inside.wire("dispatch.slot"), inside.wire("dispatch.count"))
    claim.check("ranges_are_held", ~read | (asked == claim.past(asked, "range")))


def _fetches(claim, inside, sequencer, state, executes):
    """What is fetched is a program that lies within the window, also what remains of it behind a YIELD."""
    fetch, dispatch = sequencer._fetch, sequencer._dispatch
    given = [fetch.fresh, fetch.offset, fetch.commands, sequencer.size]
    ready = fetch.fresh & (fetch.offset[:5] == 0)
    for value, name in zip(given, ("fresh", "offset", "commands", "size"), strict=True):
        ready = ready & (value == claim.past(value, f"fetch_{name}"))
    ready = ready & (fetch.offset + fetch.commands * COMMAND_BYTES <= sequencer.size)
    run = inside["run"]
    claim.check("fetches_what_is_within", ~run | claim.past(run, "ran") | claim.past(ready, "ready"))
    claim.check("fetches_while_nothing_moves", ~run | (sequencer.size == claim.past(sequencer.size, "window")))

    # The dispatcher counts what remains, from a cycle before it begins.
    def dispatches(*names):
        known = inside.fragment.find_subfragment("dispatch").find_generated("fsm")._data["encoding"]
        return inside.state(*(name for name in names if name in known), path=("dispatch",))

    halt, stuck = dispatches("HALT"), dispatches("STUCK")
    remaining = inside["dispatch.remaining"]
    # Of signals that are made together the last alone has its name.
    none, is_control, known = inside.find("$signal", "dispatch")[:3]
    one, queued = inside["dispatch.one"], inside["dispatch.queued"]
    index, first, commands = dispatch.index, dispatch.first, dispatch.commands
    shown = state["COMPARE"] | state["BEGIN"] | (state["RUN"] & halt)
    claim.lemma("shown", ~shown | ((index == first) & (remaining == commands)))
    claim.lemma("shown_none", ~(shown & ~state["COMPARE"]) | (none == (remaining == 0)))
    works = state["RUN"] & ~halt & ~stuck
    claim.lemma("remain", ~works | (index + remaining == first + commands))
    claim.lemma("collects", ~(works & dispatches("COLLECT")) | (none == (remaining == 0)))
    claim.lemma("works_on_one", ~works | dispatches("COLLECT") | (remaining != 0))
    claim.lemma("last_is_known", ~works | dispatches("COLLECT", "DECODE") | (one == (remaining == 1)))
    # And does what it decoded.
    decoded, engine = works & ~dispatches("COLLECT", "DECODE"), data.View(Command, inside["dispatch.command"]).engine
    claim.lemma(
        "decoded",
        ~decoded
        | (
            (is_control == (engine == 0))
            & (known == (engine < len(sequencer.engines)))
            & (queued == (known & ~is_control))
        ),
    )
    executing = dispatches("EXECUTE", "RANGE", "CLEAR")
    claim.lemma("grants_what_is_asked", ~run | ~inside["scheduler.eligible"][0] | sequencer._scheduler.control_request)
    claim.lemma("executes", Mux(executing, executes, ~executes | ~run | stuck))
    if sequencer.requests:
        place = inside["place"]
        claim.lemma("place", ~inside["main"] | (place <= sequencer.program_commands))
        program = inside["main"] & ~sequencer.request_running
        claim.lemma("leaves_its_program", ~(dispatches("LEAVE") | inside["leaving"]) | program)
        claim.lemma("runs_one", ~state["RUN"] | inside["main"] | sequencer.request_running)
        claim.lemma(
            "checked", ~(state["COMPARE"] | state["BEGIN"] | state["RUN"]) | inside["main"] | sequencer.request_running
        )


def _begins(claim, inside, sequencer, state):
    """A bell that rings when all is idle starts a program that may start: its first burst is asked for in the 5th cycle
    after."""
    serving = sequencer.request_running
    origin, commands = (
        Mux(serving, getattr(sequencer, f"request_{name}"), getattr(sequencer, f"program_{name}"))
        for name in ("offset", "commands")
    )
    good = (
        (sequencer.base[:12] == 0)
        & (commands != 0)
        & (origin[:5] == 0)
        & (origin + (commands * COMMAND_BYTES) <= sequencer.size)
    )
    rings = state["IDLE"] & sequencer.bell & ~sequencer.reset & ~sequencer.request_busy
    claim.check("a_bell_is_heard", ~rings | sequencer.cleared)
    after = [rings]
    for n in range(5):
        after.append(claim.past(after[-1], f"rang_{n}"))
    for n, name in enumerate(("SUM", "COMPARE", "BEGIN")):
        claim.lemma(f"begins_{n}", ~after[n + 1] | state[name])
    may = claim.past(good, "good")
    claim.lemma("runs", ~after[4] | Mux(may, state["RUN"], state["BLAME"]))
    claim.lemma("knows_where_it_ends", ~state["COMPARE"] | (inside["end"] == origin + (commands * COMMAND_BYTES)))
    fetch = sequencer.o_fetch
    parts = COMMAND_BYTES * 8 // sequencer.data_bits
    for n in (2, 3, 4):
        claim.lemma(
            f"fetch_begins_{n}",
            ~(after[n] & (may if n == 4 else 1))
            | (
                (inside["fetch.left"] == commands * parts)
                & ~fetch.valid
                & (inside["fetch.next_offset"] == origin)
                & (inside["fetch.credit"] == 2 * BURST_BEATS)
            ),
        )
    asks = after[5] & claim.past(may, "was_good")
    claim.check("and_a_program_begins", ~asks | (fetch.valid & (fetch.p.offset == origin)))
    told = Signal(name="told_before")
    claim.m.d.sync += told.eq(told | sequencer.irq_error)
    claim.cover("begins_after_an_error", asks & told)
