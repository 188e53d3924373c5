"""Commands of the norm engine with their tiles: whole norms and softmaxes, and those that one mutant gets wrong."""

import numpy as np

from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.sim.bench.engine import BenchCommand

from .script import EPS_OPERANDS, Script, factor_operands, sizes

__all__ = [
    "FORMS",
    "above",
    "again",
    "apart",
    "begun",
    "few",
    "flat",
    "limited",
    "negative",
    "norms",
    "softmaxes",
    "wrapping",
]

LOG2_E = float(np.log2(np.e))


def norms(
    rows=4,
    features=16,
    group=2,
    tiles=2,
    by_row=0,
    at=(-14, -12),
    back_at=(-20, -22),
    gain_at=(-15, -14),
    bias_at=-14,
    eps=EPS_OPERANDS,
    a_row=2,
    o_row=1,
    x=None,
):
    """Forward and back: every tile of a group is stored, with 16 bits and with 8."""
    script = Script(seed=rows + features + group)
    x = x or [script.codes(a_row + rows, features) for _ in range(tiles)]
    for number, codes in enumerate(x):
        script.load("a", number, codes, at[number % len(at)])
    for number in range(tiles):
        script.load("gain", 3 + number, script.codes(1, features), gain_at[number % len(gain_at)])
    script.load("gain", 31, script.codes(1, features), bias_at).fence()
    place = {"rows": rows, "features": features, "a_row": a_row}
    script.run(Op.SUMS, a=0, tiles=tiles, by_row=by_row, group=group, **eps, **place)

    def results(opcode, number, **operands):
        # Rows above are first: the tile is of both commands.
        operands |= {"gain": 3 + number * by_row, "o": number % 4, **place}
        if o_row:
            script.run(opcode, fresh=1, **operands | {"rows": min(rows, o_row)})
        script.run(opcode, fresh=int(not o_row), o_row=min(rows, o_row), **operands)
        for wide in (True, False):
            script.store(number % 4, min(rows, o_row) + rows, features, wide=wide)

    for number in range(tiles):
        results(Op.NORM, number, a=number, bias=31)
    for number in range(tiles):
        script.load("b", number + 1, script.codes(a_row + rows, features), back_at[number % len(back_at)])
    script.fence().run(Op.BACK_SUMS, a=0, b=1, tiles=tiles, gain=3, **place)
    for number in range(tiles):
        results(Op.BACK, number, a=number, b=number + 1)
    return script


def softmaxes(rows=5, features=11, at=-11, p_at=-18, back_at=-20, factor=32**-0.5, a_row=1, p=None):
    """A softmax and a gradient of one, of a part of a tile's rows."""
    script = Script(seed=rows + features)
    whole = a_row + rows
    script.load("a", 1, script.codes(whole, features), at)
    script.load("a", 2, np.abs(script.codes(whole, features)) if p is None else p, p_at)
    script.load("b", 3, script.codes(whole, features), back_at).fence()
    place = {"rows": rows, "features": features, "a_row": a_row, "fresh": 1}
    script.run(Op.SOFTMAX, a=1, o=2, **place, **factor_operands(factor * LOG2_E))
    script.store(2, rows, features).store(2, rows, features, wide=False)
    script.run(Op.SOFTMAX_BACK, a=2, b=3, o=1, **place, **factor_operands(factor))
    return script.store(1, rows, features).store(1, rows, features, wide=False)


FORMS = {
    "groups of 4": {},
    "single features": {"group": 0, "features": 12, "tiles": 1},
    "groups of a beat": {"group": 3, "features": 24, "rows": 2},
    "groups of two beats, four tiles": {"group": 4, "features": 48, "rows": 1, "tiles": 4},
    "a tile's features are a group": {"group": 6, "features": 64, "tiles": 1, "a_row": 60, "o_row": 0},
    "few features": {"group": 1, "features": 6, "rows": 8},
    "one pixel": {"group": 2, "rows": 1, "tiles": 1, "features": 8},
    "rows": {"by_row": 1, "rows": 5, "tiles": 1},
    "rows of four tiles": {"by_row": 1, "rows": 3, "features": 8, "tiles": 4},
    "rows of four features": {"by_row": 1, "rows": 9, "features": 4, "tiles": 1},
    "rows of whole tiles": {"by_row": 1, "rows": 2, "features": 64, "tiles": 2, "group": 7},
    "all rows": {"group": 0, "rows": 64, "features": 1, "tiles": 1, "a_row": 0, "o_row": 0},
}


def begun(script, **sums):
    """SUMS of tiles of zeros, for what needs its sizes."""
    for port, slot in [(port, slot) for port in "ab" for slot in (6, 7)] + [("gain", 31)]:
        script.load(port, slot, np.zeros((1, 8), int), -20)
    return script.fence().run(Op.SUMS, **{"a": 6, "tiles": 2, "rows": 2, "features": 48, "group": 4} | sums).fence()


def limited():
    """Values, gradients and their parts along x, pulls: each is clipped where its sums are of other tiles."""
    script = Script(7)
    flat = 20000 + np.arange(32).reshape(2, 16) % 3
    script.load("a", 0, flat, -14).load("b", 0, flat, -14)
    script.load("a", 1, script.codes(2, 16), -14).load("b", 1, script.codes(2, 16), -14)
    script.load("gain", 0, np.full((1, 16), 32767), -15).fence()
    place = {"rows": 2, "features": 16}
    script.run(Op.SUMS, a=0, group=2, mantissa=0, **place)
    lost = [script.model.saturated]

    def done(opcode, **operands):
        script.run(opcode, **place, **operands)
        lost.append(script.model.saturated)

    done(Op.NORM, a=1, o=0, fresh=1)
    script.store(0, 2, 16)
    done(Op.BACK_SUMS, a=1, b=1)
    script.fence().load("b", 1, np.full((2, 16), 32767), -14).fence()
    done(Op.BACK, a=1, b=1, o=0, fresh=1)
    script.store(0, 2, 16)
    p = np.full((2, 16), 32767)
    script.load("a", 2, p, -8).load("b", 2, p, 3).fence()
    done(Op.SOFTMAX_BACK, a=2, b=2, o=0, fresh=1, **factor_operands(0.7))
    script.store(0, 2, 16)
    assert all(np.diff(lost) > 0)
    return script


def flat():
    """Values far from 0 and near each other, in fewer features than a beat has."""
    script = Script().load("a", 0, 20000 + np.arange(8).reshape(2, 4) % 3, -14)
    script.load("gain", 0, np.full((1, 4), 99), -14).fence()
    script.run(Op.SUMS, a=0, rows=2, features=4, by_row=1, mantissa=0)
    return script.run(Op.NORM, a=0, o=0, gain=0, bias=0, rows=2, features=4, fresh=1).store(0, 2, 4)


def apart():
    """Groups of values of very different sizes in one tile."""
    x = Script().codes(6, 16) >> (np.arange(16) // 4 * 4)
    return norms(x=[x, x], at=(-12,))


def few(features=8, first=True):
    """Of small gradients few bits are left where the least root, or the tile's peak, is another command's.

    Of one value, ``first``, then of many large ones.
    """
    script = Script(3).load("gain", 0, np.full((1, features), 64), -14)
    x, dy = (script.rng.integers(-32767, 32768, (64, features)) for _ in range(2))
    script.load("a", 0, x, -14).load("b", 1, dy, -14).fence()
    for rows, group in ((1, 0), (64, 1))[not first :]:
        place = {"rows": rows, "features": features}
        script.run(Op.SUMS, a=0, group=group, mantissa=0, **place)
        script.run(Op.BACK_SUMS, a=0, b=1, gain=0, **place)
        script.run(Op.BACK, a=0, b=1, o=0, gain=0, fresh=1, **place).store(0, rows, features)
    return script


def again():
    """A softmax of large probabilities, then a small gradient, in one slot."""
    script = Script().load("a", 0, np.arange(8).reshape(2, 4), -8).load("b", 0, np.ones((2, 4), int), -60).fence()
    place = {"rows": 2, "features": 4, "o": 0, "fresh": 1}
    script.run(Op.SOFTMAX, a=0, **place, **factor_operands(1.0)).store(0, 2, 4)
    return script.run(Op.SOFTMAX_BACK, a=0, b=0, **place, **factor_operands(1.0)).store(0, 2, 4)


def wrapping():
    """Scores whose powers are so small that their whole parts do not fit."""
    script = Script().load("a", 0, np.array([[0, -256, -512, -9], [777, 265, 521, 6]]), 14).fence()
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=4, fresh=1, mantissa=1 << 16, exponent=-16)
    return script.store(0, 2, 4)


def negative():
    """Scores below 0 in fewer lanes than there are."""
    script = Script().load("a", 0, -np.arange(9000, 9006).reshape(2, 3), -8).fence()
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=3, fresh=1, **factor_operands(1.0))
    return script.store(0, 2, 3)


def above():
    """A tile whose exponent is above that of the sums is refused: none is done."""
    script = begun(Script()).load("a", 6, np.zeros((1, 8), int), -3).fence()
    script.steps.append(BenchCommand(Op.NORM, sizes({"a": 6, "rows": 1, "features": 16})))
    return script
