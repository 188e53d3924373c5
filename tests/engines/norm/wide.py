"""Softmaxes of rows of several tiles, and gradients of such, by commands of the norm engine."""

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.norm import ROW_TILES, least_shift
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.sim.bench.engine import BenchCommand

from .script import CONFIG, Script, factor_operands, sizes

__all__ = ["FORMS", "LOG2_E", "beyond", "gathered", "gradient", "longest", "results", "softmax"]

LOG2_E = float(np.log2(np.e))
_ONE = factor_operands(1.0)

#: ``parts``: tiles of each command that goes on with the rows. ``keys``: of the last tile.
FORMS = {
    "one tile": {"parts": (1,)},
    "two tiles, few keys": {"parts": (2,), "keys": 1},
    "all slots": {"parts": (8,), "keys": 64, "rows": 3, "a_row": 61},
    "three commands": {"parts": (2, 1, 3), "at": (-12, -14, -11, -13, -10, -9)},
    "falling exponents": {"parts": (1, 2, 2), "at": (-9, -12, -12, -15, -40)},
    "rising exponents": {"parts": (1, 1, 1), "at": (-14, -12, -11), "bits": (16, 14, 11), "keys": 40},
    "exponents at their ends": {"parts": (1, 1, 2), "at": (-127, -128, 127, 0)},
    "far apart": {"parts": (1, 1), "at": (-80, -11)},
    "large scores": {"parts": (2, 2), "at": (0, 3, -1, 5)},
    "zeros": {"parts": (2, 1), "at": (-128,)},
    "all rows": {"parts": (2, 1), "rows": 64, "a_row": 0, "keys": 7},
}


def gathered(script, opcode, parts, keys, *, turned=False, slots, **operands):
    """Commands over tiles in slots one behind the other; ``turned``: the last tiles first."""
    groups, count = [], 0
    for tiles in parts:
        groups.append((count, tiles))
        count += tiles
    for n, (first, tiles) in enumerate(reversed(groups) if turned else groups):
        moved = {name: slot + first for name, slot in slots.items()}
        features = keys if first + tiles == count else EDGE
        script.run(opcode, tiles=tiles, features=features, more=int(n > 0), **moved, **operands)
    return script


def _tiles(script, port, parts, keys, rows, at, bits, slot=0, *, positive=False):
    count = sum(parts)
    for n in range(count):
        features = keys if n == count - 1 else EDGE
        codes = script.codes(rows, features, bits=bits[n % len(bits)])
        script.load(port, slot + n, abs(codes) if positive else codes, at[n % len(at)])
    return script


def _results(script, opcode, parts, keys, rows, slots, **operands):
    """A tile's results after the other's, stored with 16 bits and with 8."""
    count = sum(parts)
    for n in range(count):
        features = keys if n == count - 1 else EDGE
        place = {name: slot + n for name, slot in slots.items()}
        script.run(opcode, o=n % 4, rows=rows, features=features, fresh=1, **place, **operands)
        script.store(n % 4, rows, features, wide=n % 2 == 0)
    return script


def softmax(parts=(2, 2), keys=13, rows=5, at=(-11, -13), bits=(16,), a_row=2, factor=32**-0.5):
    """Largest scores in the order of the tiles, powers in another."""
    script = _tiles(Script(sum(parts) + keys), "a", parts, keys, a_row + rows, at, bits).fence()
    place, factor, slots = {"rows": rows, "a_row": a_row}, factor_operands(factor * LOG2_E), {"a": 0}
    gathered(script, Op.LARGEST, parts, keys, slots=slots, **place)
    gathered(script, Op.POWERS, parts, keys, slots=slots, turned=True, **place, **factor)
    return _results(script, Op.SHARES, parts, keys, rows, slots, a_row=a_row, **factor)


def gradient(parts=(2, 2), keys=13, rows=5, at=(-18, -16, -21), back_at=(-20, -25, -19), a_row=2, bits=(16,)):
    script = _tiles(Script(sum(parts) + keys), "a", parts, keys, a_row + rows, at, bits, positive=True)
    _tiles(script, "b", parts, keys, a_row + rows, back_at, bits).fence()
    slots = {"a": 0, "b": 0}
    gathered(script, Op.PULLS, parts, keys, slots=slots, rows=rows, a_row=a_row)
    return _results(script, Op.SOFT_BACK, parts, keys, rows, slots, a_row=a_row, **factor_operands(0.3))


def results(heads=((0, 5, 40, 64), (1, 6, 0, 16)), back_at=(-34, -31), bits=(16,), rows=5, a_row=2):
    """Pulls of results and their gradients, then gradients of two tiles of shares, of 8 bits and of 16.

    ``heads``: slots of each, first column and the one behind the last.
    """
    script, place = Script(rows), {"rows": rows, "a_row": a_row}
    for n, (a, b, *_) in enumerate(heads):
        for port, slot, at in (("a", a, -13 + n), ("b", b, -33 + 2 * n)):
            largest = np.full((a_row + rows, EDGE), 32767)
            script.load(port, slot, script.codes(a_row + rows, EDGE, bits=bits[0]) if bits[0] else largest, at)
    for n, at in enumerate(back_at):
        script.load("a", 3 + n, abs(script.codes(a_row + rows, 21, bits=(7, 15)[n])), (-6, -14)[n], short=n == 0)
        script.load("b", n, script.codes(a_row + rows, 21), at)
    script.fence()
    size = sum(last - first for _, _, first, last in heads)
    for n, (a, b, first, last) in enumerate(heads):
        own = {"features": last, "first": first, "exponent": least_shift(size), "more": int(n > 0)}
        script.run(Op.PULLS, a=a, b=b, tiles=1, **place, **own)
    return _results(script, Op.SOFT_BACK, (1, 1), 21, rows, {"a": 3, "b": 0}, a_row=a_row, **factor_operands(0.3))


def longest(opcode):
    """A row of as many tiles as there may be, all of them of the largest codes: its sum is the largest.

    Of scores all shares are the same. Pulls are as large as the least exponents leave them.
    """
    script, codes = Script(), np.full((1, EDGE), 32767)
    for port in "ab":
        for slot in range(CONFIG.norm_slots):
            script.load(port, slot, codes, -33 if opcode == Op.PULLS else -12)
    script.fence()
    for rule in (Op.LARGEST, opcode) if opcode == Op.POWERS else (opcode,):
        own = _ONE if rule == Op.POWERS else {}
        for n in range(ROW_TILES // CONFIG.norm_slots):
            script.run(rule, a=0, b=0, tiles=CONFIG.norm_slots, rows=1, features=EDGE, more=int(n > 0), **own)
    script.fence()
    then = Op.SHARES if opcode == Op.POWERS else Op.SOFT_BACK
    return script.run(then, a=0, b=0, rows=1, features=EDGE, fresh=1, **_ONE).store(0, 1, EDGE)


def beyond(opcode):
    """Rows that go on with a tile more than they may have."""
    script = longest(opcode)
    # Neither results nor their STORE.
    del script.steps[-4:]
    script.steps.append(BenchCommand(opcode, sizes({"a": 0, "b": 0, "tiles": 1, "rows": 1, "features": 1, "more": 1})))
    return script
