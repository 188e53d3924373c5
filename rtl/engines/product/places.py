"""Addresses of pixels: which source row an output row reads.

Output rows are pixels of images that follow each other line by line. Counters step from one to the next, and address
and place with them by adders, so sides and strides are of any size.
"""

from amaranth.hdl import Const, Mux, Signal, signed
from amaranth.lib import data

from ...formats.tiles.codes import EDGE
from ...formats.tiles.product import SIDE, SOURCE
from ...stream.delay import delay, registered

__all__ = ["ADDRESSED", "Places", "ShapeOfImages", "place_layout"]

_BITS = (EDGE - 1).bit_length()
#: Bits of a place: the furthest pixel, four places apart, and what is beside it.
_PLACE = signed(SIDE + 4)
#: A multiple of all strides above the furthest place to the left.
_LIFT = 3 << SIDE
#: Cycles from a row to its address.
ADDRESSED = 5


def shape_layout():
    """The shape of images, as a SCAN says it.

    ``limit``: largest remainder. ``step``: places from a pixel to the next. ``other``: address to the next image, where
    the last line is the first of its line of the source.
    """
    return data.StructLayout(
        {
            "width": SIDE,
            "height": SIDE,
            "end_x": SIDE + 1,
            "end_y": SIDE + 1,
            "limit_x": 2,
            "limit_y": 2,
            "step_x": 3,
            "step_y": 3,
            "every": 1,
            "rest_x": 2,
            "rest_y": 2,
            "same": SOURCE,
            "below": SOURCE,
            "image": SOURCE,
            "other": SOURCE,
        }
    )


def place_layout():
    """Where a command begins.

    ``x``, ``y``: its first place. ``from``, ``left``: remainders at a line's beginning and at the first place.
    ``same``, ``below``, ``image``: steps of the address at a line's end.
    """
    sides = {f"{name}_{side}": 2 for name in ("from", "left") for side in "xy"}
    steps = dict.fromkeys(("same", "below", "image"), SOURCE)
    return data.StructLayout({"images": shape_layout(), "x": _PLACE, "y": _PLACE} | sides | steps)


class ShapeOfImages:
    """Keeps the shape that the last SCAN with ``gather`` said."""

    def __init__(self, m):
        self.m, self.shape = m, Signal(shape_layout())

    def keep(self, given, enable):
        """Takes the shape of a SCAN."""
        kept = self.shape
        with self.m.If(enable):
            self.m.d.sync += [
                getattr(kept, name).eq(getattr(given, name))
                for name in ("width", "height", "end_x", "end_y", "every", "rest_x", "rest_y", "same", "below", "image")
            ]
            for side in "xy":
                stride = given[f"stride_{side}"]
                self.m.d.sync += [
                    kept[f"limit_{side}"].eq(Mux(given.divide, stride, 0)),
                    kept[f"step_{side}"].eq(Mux(given.divide, 0, stride) + 1),
                ]
        self.m.d.sync += kept.other.eq(kept.image - kept.below + kept.same)

    def placed(self, args):
        """Where a PRODUCT begins, three cycles after its operands."""
        m, shape, made = self.m, self.shape, Signal(place_layout())
        m.d.comb += made.images.eq(shape)
        carry = {}
        for side, at, by in (("x", args.column, args.dx), ("y", args.line, args.dy)):
            step, limit = shape[f"step_{side}"], shape[f"limit_{side}"]
            scaled = registered(m, Mux(step[2], at << 2, Mux(step[0], at, 0) + Mux(step[1], at << 1, 0)))
            m.d.comb += made[side].eq(delay(m, registered(m, (scaled + by)[: SIDE + 4]), 1))
            lifted = registered(m, (at + by + _LIFT)[: SIDE + 3])
            begin = registered(m, _remainder(limit, by[:2], (_modulo3(by[:-1]), Mux(by[-1], 2, 0))), 2)
            thirds = (_modulo3(lifted[:_BITS]), _modulo3(lifted[_BITS : 2 * _BITS]), lifted[2 * _BITS :])
            low, thirds = registered(m, lifted[:2]), [registered(m, each) for each in thirds]
            m.d.comb += [
                made[f"left_{side}"].eq(registered(m, _remainder(limit, low, thirds), 2)),
                made[f"from_{side}"].eq(delay(m, begin, 2)),
            ]
            # mutant carried: carry[side] = 0
            carry[side] = registered(m, shape[f"rest_{side}"] + begin > limit)
        image = Mux(carry["y"], shape.other, shape.image)
        for name, value in (("same", shape.same), ("below", shape.below), ("image", image)):
            m.d.comb += made[name].eq(registered(m, (value - carry["x"])[:SOURCE]))
        return made


def _modulo3(value):
    """A remainder of few bits: a LUT."""
    table = sum((at % 3) << 2 * at for at in range(1 << len(value)))
    return Const(table, 2 << len(value)).word_select(value, 2)


def _remainder(limit, low, thirds):
    """Of a value with these lowest bits, and remainders of 3 of its parts, by ``limit`` and one."""
    total = sum(thirds[1:], start=thirds[0])
    return Mux(limit == 2, _modulo3(total), low & limit)


class Places:
    """Address of a row, :data:`ADDRESSED` cycles after it was issued.

    Members
    -------
    line, near : of the source row, in its tile, and the tile. inside : it is in the image. bad : no slot has it.
    """

    def __init__(self, m, stages, go, first):
        """``stages``: the job, in this cycle and so many later; ``first``: the row is the first of its part."""
        go, first, job = delay(m, go, 1, reset_less=False), delay(m, first, 1), stages[1]
        args, place, shape = job.args, job.place, job.place.images
        # The row's pixel, and the way to the next.
        turns, ends, here = {}, {}, {}
        left = {side: Signal(2, reset_less=True, name=f"left_{side}") for side in "xy"}
        count = {side: Signal(SIDE, reset_less=True, name=f"pixel_{side}") for side in "xy"}
        now = {}
        for side, begin, last in (("x", args.column, shape.width), ("y", args.line, shape.height)):
            now[side] = Mux(first, begin, count[side])
            here[side] = Mux(first, place[f"left_{side}"], left[side])
            ends[side], turns[side] = now[side] == last, here[side] == shape[f"limit_{side}"]
        over = {"x": ends["x"], "y": ends["x"] & ends["y"]}
        with m.If(go):
            for side, steps in (("x", Const(1, 1)), ("y", ends["x"])):
                further = Mux(turns[side], 0, here[side] + 1)
                m.d.sync += [
                    count[side].eq(Mux(over[side], 0, now[side] + steps)),
                    left[side].eq(Mux(over[side], place[f"from_{side}"], Mux(steps, further, here[side]))),
                ]
        # mutant unturned: along = shape.step_x
        along = Mux(turns["x"], shape.step_x, 0)
        behind = Mux(ends["y"], place.image, Mux(turns["y"], place.below, place.same))
        by = registered(m, Mux(ends["x"], behind, along), SOURCE)
        whole = registered(m, ~shape.every | ((here["x"] == 0) & (here["y"] == 0)))
        over = {side: registered(m, each) for side, each in over.items()}
        ended = registered(m, ends["x"])
        # Its place and its address.
        go, first, job = delay(m, go, 1, reset_less=False), delay(m, first, 1), stages[2]
        args, place, shape = job.args, job.place, job.place.images
        source = Signal(SOURCE, reset_less=True)
        source_now, at = Mux(first, args.source, source), {}
        for side, offset, steps in (("x", args.dx, Const(1, 1)), ("y", args.dy, ended)):
            kept = Signal(_PLACE, reset_less=True, name=f"place_{side}")
            present = Mux(first, place[side], kept)
            with m.If(go):
                m.d.sync += kept.eq(Mux(over[side], offset, present + Mux(steps, shape[f"step_{side}"], 0)))
            at[side] = registered(m, present, _PLACE)
        with m.If(go):
            m.d.sync += source.eq(source_now + by)
        source, whole, shape = registered(m, source_now, SOURCE), delay(m, whole, 1), stages[3].place.images
        for side in "xy":
            whole = whole & (at[side] >= 0) & (at[side] <= shape[f"end_{side}"])
        inside, source, args = registered(m, whole), delay(m, source, 1), stages[4].args
        # mutant unheld: self.bad = Const(0, 1)
        self.bad = registered(m, inside & args.gather & (source[_BITS:] > args.reach))
        self.inside, source = registered(m, inside), delay(m, source, 1)
        self.line, self.near = source[:_BITS], source[_BITS:]
