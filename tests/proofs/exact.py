"""What claims of sums share: bounds, what came some cycles ago, and the word of a memory that is an exact sum."""

from amaranth.hdl import Mux, Signal, Value, signed

__all__ = ["chain", "kept_sum", "within", "within_bits"]


def within(value, magnitude, scale):
    value = Value.cast(value).as_signed()
    bound = Value.cast(magnitude) << scale
    return (value <= bound) & (-value <= bound)


def within_bits(value, bits):
    """Between minus and plus ``2 ** bits``."""
    value = Value.cast(value).as_signed()
    return (value <= 1 << bits) & (value >= -(1 << bits))


def chain(claim, value, cycles, name):
    """``value``, and what it was 1 to ``cycles`` cycles ago: once, so that a step of induction knows it once."""
    values = [value]
    for n in range(cycles):
        values.append(claim.past(values[-1], f"{name}_{n}"))
    return values


def kept_sum(claim, memory, *, name, put, first, term, bits, most):
    """The word that ``memory`` follows is the exact sum of what was ``put`` there since ``first``: at most ``most``
    terms between minus and plus ``2 ** bits``. Returns how many there are, and will be with this one."""
    m = claim.m
    width = len(memory.word)
    exact, count = Signal(signed(width + 2), name=f"{name}_exact"), Signal(range(2 * most), name=f"{name}_count")
    now, total = Signal(range(2 * most), name=f"{name}_now"), Signal(signed(width + 2), name=f"{name}_total")
    m.d.comb += [now.eq(Mux(first, 1, count + 1)), total.eq(Mux(first, 0, exact) + term)]
    with m.If(put):
        m.d.sync += [exact.eq(total), count.eq(now)]
    claim.check(f"{name}_exact", memory.word.as_signed() == exact)
    claim.lemma(f"{name}_bounded", within(exact, count, bits))
    claim.lemma(f"{name}_counted", count <= most)
    claim.cover(f"{name}_adds_up", (count > 1) & (exact < 0))
    return count, now
