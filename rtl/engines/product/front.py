"""Commands of the product engine: judged, scanned, sent to feeds."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE, ZERO
from ...formats.tiles.product import BIAS_LIFT, ProductOpcode, ProductOperands, ScanOperands
from ...shell.signature import EngineSignature
from ..words import accept
from .feeds import TOP, row_job_layout
from .places import ShapeOfImages

__all__ = ["Front", "NEVER"]

_BITS = (EDGE - 1).bit_length()
#: Exponent of a tile of zeros, below all others.
NEVER = -(1 << TOP - 1)


class Front(wiring.Component):
    """Takes commands; finds the unit of an output tile.

    A command is judged :attr:`begin` cycles after it is taken. A scan looks at a pair of tiles a cycle. A product then
    waits until both feeds have room for it.

    Members
    -------
    engine : see ``EngineSignature``; ``done`` is not driven.
    x_slot, w_slot, b_slot : places whose exponents are read. x_exponent, w_exponent, b_exponent : in the next cycle.
    jobs : stream of jobs. scanned : a SCAN is over, in this cycle.
    fresh, o : the result slot is empty from now on.
    """

    begin = 3

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "x_slot": Out(range(config.x_slots)),
                "w_slot": Out(range(config.w_slots)),
                "b_slot": Out(5),
                "x_exponent": In(signed(8)),
                "w_exponent": In(signed(8)),
                "b_exponent": In(signed(8)),
                "jobs": Out(stream.Signature(row_job_layout())),
                "scanned": Out(1),
                "fresh": Out(1),
                "o": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        busy, images = Signal(), ShapeOfImages(m)
        opcode, args, begins = accept(
            m,
            self.engine,
            ProductOpcode,
            ProductOperands,
            busy=busy,
            bad=lambda opcode, args: self._bad(m, args, opcode, images.shape),
            steps=self.begin - 1,
        )
        scan, bias = opcode == ProductOpcode.SCAN, opcode == ProductOpcode.BIAS
        images.keep(data.View(ScanOperands, args.as_value()), begins & scan & args.gather)
        top = Signal(signed(TOP), init=NEVER)
        looks, left, again = Signal(), Signal(_BITS + 1), Signal(3)
        x, w, row = Signal(8), Signal(8), Signal(8)
        m.d.comb += [self.x_slot.eq(row), self.w_slot.eq(w), self.b_slot.eq(args.bias), self.o.eq(args.o)]
        m.d.comb += self.fresh.eq(begins & args.fresh)
        sends = Signal()
        with m.If(begins):
            m.d.sync += [busy.eq(1), x.eq(args.x), row.eq(args.x), w.eq(args.w), left.eq(args.tiles), again.eq(0)]
            with m.If(args.fresh):
                m.d.sync += top.eq(NEVER)
            with m.If(scan | (args.fresh & ~bias)):
                m.d.sync += looks.eq(1)
            with m.Else():
                m.d.sync += sends.eq(1)
        # Pairs of tiles, one a cycle: row tiles of the first tile of K, then of the next.
        of_bias, last = scan & args.last, Signal()
        m.d.comb += last.eq(of_bias | ((left == 0) & (again == Mux(args.gather, args.reach, 0))))
        came, ended = Signal(), Signal(2)
        m.d.sync += [came.eq(looks), ended.eq(ended << 1)]
        with m.If(looks):
            with m.If(last):
                m.d.sync += [looks.eq(0), ended.eq(1)]
            with m.Elif(again == Mux(args.gather, args.reach, 0)):
                m.d.sync += [
                    again.eq(0),
                    left.eq(left - 1),
                    x.eq(x + args.x_step),
                    row.eq(x + args.x_step),
                    w.eq(w + args.w_step),
                ]
            with m.Else():
                m.d.sync += [again.eq(again + 1), row.eq(row + args.x_pitch)]
        own, there, some = Signal(signed(TOP), reset_less=True), Signal(), Signal()
        zero = Mux(of_bias, self.b_exponent == ZERO, (self.x_exponent == ZERO) | (self.w_exponent == ZERO))
        m.d.sync += [
            own.eq(Mux(of_bias, self.b_exponent - BIAS_LIFT, self.x_exponent + self.w_exponent)),
            there.eq(came & ~zero),
        ]
        m.d.comb += some.eq(there & (own > top))
        with m.If(some):
            m.d.sync += top.eq(own)
        # The last pair counts two cycles after it was looked at.
        m.d.comb += self.scanned.eq(ended[1] & scan)
        with m.If(ended[1]):
            m.d.sync += [busy.eq(~scan), sends.eq(~scan)]
        m.d.comb += [
            self.jobs.valid.eq(sends),
            self.jobs.p.args.eq(args),
            self.jobs.p.top.eq(top),
            self.jobs.p.bias.eq(bias),
            self.jobs.p.place.eq(images.placed(args)),
        ]
        with m.If(sends & self.jobs.ready):
            m.d.sync += [sends.eq(0), busy.eq(0)]
        return m

    def _bad(self, m, args, opcode, images):
        """Whether operands reach beyond tiles or slots.

        It is known in the second cycle after the command was taken."""
        config = self.config
        ends = {
            "x": (args.x, args.x_step, args.tiles),
            "reach": (0, args.x_pitch, Mux(args.gather, args.reach, 0)),
            "w": (args.w, args.w_step, args.tiles),
        }
        found = {}
        for name, (base, step, count) in ends.items():
            found[name] = Signal(14, name=f"end_{name}")
            m.d.sync += found[name].eq(base + step * count)
        row, column, empty, turned = (Signal(name=f"bad_{n}") for n in ("row", "column", "k", "gather"))
        scan = opcode == ProductOpcode.SCAN
        shape = data.View(ScanOperands, args.as_value())
        outside = (args.column > images.width) | (args.line > images.height)
        m.d.sync += [
            row.eq(~scan & (args.o_row + args.rows >= EDGE)),
            column.eq(~scan & (args.o_column + args.columns >= EDGE)),
            empty.eq(~scan & (args.tiles == 0) & (args.k_from > args.k_to)),
            turned.eq(args.gather & Mux(scan, shape.every & ~shape.divide, args.x_turn | (args.x_row != 0) | outside)),
        ]
        tiles, of_x, of_w = (Signal(name=f"bad_{n}") for n in ("tiles", "x", "w"))
        m.d.sync += [of_x.eq(found["x"] + found["reach"] >= config.x_slots), of_w.eq(found["w"] >= config.w_slots)]
        m.d.comb += tiles.eq(of_x | of_w | empty | turned)
        bias = (opcode == ProductOpcode.BIAS) | (scan & args.last)
        # mutant unbounded: return row | column
        return row | column | (~bias & tiles)
