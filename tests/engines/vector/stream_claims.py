"""The vector engine: its results leave by queues, and behind them the beat that tells of targets."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from gradloom.rtl.engines.vector.actions import PLAIN, SUMS, TAG
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.formats.vector import VectorOpcode, VectorOperands
from gradloom.sim.proofs.claim import Claim

__all__ = ["vector_rules"]


def vector_rules(unit=VectorEngine, **sizes):
    """The rules of all its streams, whatever its lanes compute.

    The beat that tells of targets is no part of a queue. So that it does not come before the queue is empty, nor
    change while it waits, nothing may be under way then.
    """
    claim = Claim()
    m = claim.m
    engine = unit(**sizes)
    inside = claim.place(engine, memories=lambda memory: None if any(memory.init) else "any")
    claim.drive(engine)
    claim.streams(engine)

    # A command takes one step after the other.
    steps = [inside[name] for name in ("idle", "measuring", "judging", "begin", "running")]
    idle, measuring, judging, begin, running = steps
    known = Cat(judging, begin, running).any()
    # Of two registers that are called so, the other belongs to how a command is judged.
    plain = inside.find("plain")[0]
    claim.lemma("one_step", sum(steps) <= 1)
    operands, op = data.View(VectorOperands, inside["args"]), inside.wire("op")
    claim.lemma("sums_are_known", ~known | (inside["is_sums"] == Cat(op == each for each in SUMS).any()))
    claim.lemma("weights_are_known", ~known | (plain == Cat(op == each for each in PLAIN).any()))
    claim.lemma("targets_are_known", ~known | (inside["tells"] == ((op == VectorOpcode.SOFTMAX) & operands.targets)))

    # What was counted as under way is in the lanes or in a queue, which has room for it.
    lanes = [data.View(TAG, inside[f"tag_{n}"]) for n in range(1, engine.latency - 1)]
    for name in ("o", "q"):
        pending, queue = inside[f"pending_{name}"], f"results_{name}"
        count = inside[f"{queue}.inner_level"] + inside[f"{queue}.r_rdy"]
        for tag in reversed(lanes):
            count = (count + (tag.valid & tag[name]))[: len(pending)]
        claim.lemma(f"{name}_all_are_somewhere", pending == count)
        claim.lemma(f"{name}_fits", pending <= engine.under_way + 1)
        claim.lemma(f"{name}_has_room", ~inside["room"] | (pending <= engine.under_way))

    # How long ago the last operands were taken, and what of them can be under way.
    quiet, rest, busy = Signal(4, name="quiet", init=15), inside["rest"], inside["walk.busy"]
    m.d.sync += quiet.eq(Mux(inside.wire("go"), 0, Mux(quiet == 15, 15, quiet + 1)))
    for n, tag in enumerate(lanes[:8]):
        claim.lemma(f"stage_{n + 1}_is_over", ~tag.valid | (quiet <= n))
    for name, stage in (("meets", 2), ("hit", 3)):
        claim.lemma(f"{name}_is_over", ~inside[name].any() | (quiet <= stage))
    for n in range(2):
        claim.lemma(f"hits_{n}_are_over", ~inside["hits"][n] | (quiet <= 4 + n))
    claim.lemma("walks_while_it_runs", ~busy | running)
    claim.lemma("rested", inside["rested"] == (rest == 0))
    resting = rest != engine.settling
    claim.lemma("rests_in_the_end", ~resting | ((running & ~busy) | idle))
    claim.lemma("asks_in_the_end", ~inside["asking"] | (running & ~busy & (rest == 0) & inside["is_sums"]))
    claim.lemma("rests_when_all_is_out", ~(running & resting) | ((quiet >= 1) & ((rest >= 8) | (rest + quiet >= 8))))
    for name in ("o", "q"):
        claim.lemma(f"{name}_rests_when_all_is_out", ~(running & resting) | (inside[f"pending_{name}"] == 0))
    return claim
