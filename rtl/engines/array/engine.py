"""The array engine: systolic array, row feeders, lanes and feet."""

from amaranth.hdl import Module, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.images import PARAMETER
from ...shell.signature import EngineSignature
from ...units.encoder import NF4_THRESHOLDS
from ...units.optimizer import NORM
from .control.dispatch import dispatch
from .control.parts import place_parts
from .drain import drain_sums
from .feet import HiddenWords
from .operands.columns import feed_columns
from .operands.pixels import feed_convolution
from .operands.rows import feed_rows, peek
from .parameters import EDGE
from .writes import writes

__all__ = ["ArrayEngine", "EDGE"]

_PORTS = ("codes", "scales", "lanes", "weights", "biases", "image")


class ArrayEngine(wiring.Component):
    """Runs FORWARD, GRADIENT, CONVOLVE and DENSE on one systolic array.

    A beat that is decided on in cycle s has its operand at row 0 in s + :data:`EDGE` and its weight, where it is
    streamed, at column 0 a cycle earlier; all tokens that tell what its sums are travel as many cycles as it does.

    BAD_OPERAND comes at a command's start for all that its operands say by themselves, and so for every word of a pass
    or a dense layer. How far a convolution's pixels, weights and results reach is the product of several: the first
    that has no place stops it, and a count of windows that is not ``out_height * out_width``. Not judged is ``scale``,
    which goes into the record as it is, and whether ``out_height`` and ``out_width`` with the right product are the
    right ones.

    ::

        commands --> dispatch --+--> ConvolveControl <-- image, feature maps
                                |           +--> TapEncoder --> taps
                                +--> DenseControl
                                +--> PassControl
                                          | windows, beats, reads
                                          v
                         row feeders: codes, scales, dense memory
                                          | x
                                          v             sums
        weights, dh, lanes -- w --> systolic array -----------> adapter lanes, of a gradient
                                          | sums
                                          v
                                        align --+--> Accumulate --> Finish --> feature maps, dense memory
                                                +--> Hidden --> h

    Members
    -------
    engine : see :class:`EngineSignature`.
    codes, scales, lanes, weights, biases, image, books : see :mod:`~.writes`.
    dh : address of dh; ``dh_data`` is due a cycle later.
    h : h of a sample of a tap.
    dump : ``address`` of adapter words that ``words`` shall hold 2 cycles later; only without GRADIENT or FORWARD.
    peek, peek_grant, peek_arrives, peek_data : see :class:`EncodeEngine`.
    taps : stream of the beats of encoded convolution inputs.
    saturated, underflowed, norm : what happened in a cycle.
    """

    def __init__(self, config):
        self.config = config
        ports = writes(config)
        tap, sample = ceil_log2(config.taps), ceil_log2(config.rows)
        super().__init__(
            {
                "engine": In(EngineSignature()),
                **{name: In(ports[name]) for name in (*_PORTS, "books")},
                "dh": Out(data.StructLayout({"tap": tap, "sample": sample})),
                "dh_data": In(data.ArrayLayout(signed(18), config.rank)),
                "h": Out(HiddenWords(config)),
                "dump": In(data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})),
                "words": Out(data.ArrayLayout(PARAMETER.shape, config.columns)),
                "peek": In(data.StructLayout({"valid": 1, "row": sample, "address": ceil_log2(config.dense_depth)})),
                "peek_grant": Out(1),
                "peek_arrives": Out(1),
                "peek_data": Out(config.activation.shape),
                "taps": Out(stream.Signature(unsigned(128))),
                "table": In(NF4_THRESHOLDS),
                "saturated": Out(8),
                "underflowed": Out(8),
                "norm": Out(NORM),
            }
        )

    def elaborate(self, platform):
        m = Module()
        parts = place_parts(m, self.config, platform)
        dispatched = dispatch(m, self.config, self.engine, parts)
        feed_convolution(m, platform, self, parts, dispatched.base)
        peeked = feed_rows(m, platform, self, parts)
        lanes_saturated = feed_columns(m, platform, self, parts, dispatched)
        feet_saturated = drain_sums(m, platform, self, parts, dispatched)
        m.d.sync += self.saturated.eq(feet_saturated + lanes_saturated)
        peek(m, self, peeked)
        return m
