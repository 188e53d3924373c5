"""Words rotated among places, two bits of the distance a cycle."""

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.utils import ceil_log2

from gradloom.rtl.stream.delay import delay

__all__ = ["rotate", "turns"]


def rotate(m, words, amount, *, left):
    """``words`` rotated by ``amount`` places.

    A register stands behind every second bit of ``amount``.
    """
    words = [Value.cast(word) for word in words]
    for low in range(0, len(amount), 2):
        # Gates, not a tree of multiplexers: mapping would share its lower ones, and take two LUTs for one.
        chosen = [amount[low : low + 2] == number for number in range(1 << len(amount[low : low + 2]))]
        one_hot = Signal(len(chosen))
        m.d.comb += one_hot.eq(Cat(chosen))
        turned = []
        for place in range(len(words)):
            value = 0
            for number in range(len(chosen)):
                step = number << low
                word = words[(place - step if left else place + step) % len(words)]
                value = value | Mux(one_hot[number], word, 0)
            turned.append(value)
        words = [delay(m, word, 1) for word in turned]
        amount = delay(m, amount, 1)
    return words


def turns(places):
    """Cycles of a rotation among ``places`` places."""
    return -(-ceil_log2(places) // 2)
