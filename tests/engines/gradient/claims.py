"""Sums of the language models' machine that it makes itself, beside the array's."""

from amaranth.hdl import Cat, Mux, Shape, Signal
from amaranth.lib import data

from gradloom.rtl.engines.gradient.commands import GradientOperands
from gradloom.rtl.engines.gradient.engine import GradientEngine
from gradloom.rtl.engines.words import PRECISION
from gradloom.rtl.formats.fixed import product_sum_width
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain, kept_sum, within_bits

__all__ = ["gradients"]


def gradients(unit=GradientEngine, *, config):
    """The gradients of an adapter, sums over the tokens of a tile: each is exact, and when it is read, complete.

    That a product of words is within bounds is arithmetic, and all that is assumed. How many there are is what the
    engine itself counts, of commands that it judged: it refuses one with more tokens than the configuration has.
    """
    claim = Claim()
    engine = unit(config)
    bits = max(PRECISION.sum, product_sum_width(ACTIVATION.width, WEIGHT.width, config.tokens))
    inside = claim.place(engine, memories=lambda memory: "one" if Shape.cast(memory.shape).width == bits else "any")
    claim.drive(engine)
    args, running, reading = data.View(GradientOperands, inside["args"]), inside["running"], inside["reading"]
    part, pair, token, settle = (inside[name] for name in ("part", "pair", "token", "settle"))
    go, pairs = Signal(), args.rank[1:]
    claim.m.d.comb += go.eq(running & engine.i.valid & ~reading & (settle == 0))

    claim.lemma(
        "judged",
        ~running | ((args.tokens != 0) & (args.tokens <= config.tokens) & (pairs != 0) & (pairs <= config.rank // 2)),
    )
    claim.lemma("within_a_beat", ~running | (pair < pairs))
    claim.lemma("within_a_tile", ~running | (token < args.tokens))
    claim.lemma("between_tiles", (running & ~reading & (settle == 0)) | (Cat(part, pair, token) == 0))
    claim.lemma("reads_what_ran", running | (~reading & (settle == 0)))
    claim.lemma("settles", (settle <= 8) & (~reading | (settle == 0)))

    # Where the beats and pairs were whose products now come to their sums; a pair counts for all beats of a token.
    ago = chain(claim, Cat(part, pair, token, go), 4, "place")[-1]
    at, token_ago, came = ago[: len(part) + len(pair)], ago[len(part) + len(pair) : -1], ago[-1]
    memories = [each for each in inside.kept if len(each.word) == bits]
    products = inside.find("product")
    for n, (memory, product) in enumerate(zip(memories, products, strict=True)):
        claim.assume(f"product_{n}", within_bits(product, ACTIVATION.width - 1 + WEIGHT.width - 1))
        place = memory.place
        count, _ = kept_sum(
            claim,
            memory,
            name=f"sum_{n}",
            put=came & (at == place),
            first=token_ago == 0,
            term=claim.past(product, f"term_{n}").as_signed(),
            bits=ACTIVATION.width - 1 + WEIGHT.width - 1,
            most=config.tokens,
        )
        place_part, place_pair = place[: len(part)], place[len(part) :]
        passed = Signal(name=f"passed_{n}")
        claim.m.d.comb += passed.eq(
            Mux(place_part == at[: len(part)], place_pair < at[len(part) :], place_part < at[: len(part)])
        )
        used = running & (place_pair < pairs)
        claim.lemma(f"counts_tokens_{n}", ~used | ((token_ago == 0) & ~passed) | (count == token_ago + passed))
        claim.check(f"complete_{n}", ~used | ~(reading | (settle.any() & (settle <= 4))) | (count == args.tokens))
    return claim
