"""The end of a command: its last results, and the values that follow from sums of rows.

::

    taken --> rest until all has left --+--> done
                                        +--> ask sums and maxima, token by token --> roots --> values of rows --> done
                                        +--> the loss of targets, at q --> done
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from ...formats.vector import VectorOpcode
from ...stream.delay import delay
from .actions import NORMS, SUMS, one_of
from .rows.roots import Roots

__all__ = ["finish_command"]


def finish_command(m, engine, op, command, walk, sums, maxima, roots, known, empty, lost, telling):
    """Waits until all results have left, and returns when it is done.

    After sums of rows, computes the values that follow from them. With targets, sends their losses.
    """
    args, running, maxima = command.args, command.running, maxima.unit
    is_sums, both, squares, tells = (Signal(name=name) for name in ("is_sums", "both", "squares", "tells"))
    m.d.sync += [
        is_sums.eq(one_of(op, SUMS)),
        both.eq(op == VectorOpcode.NORM_BACKWARD_SUMS),
        squares.eq(one_of(op, NORMS)),
        tells.eq((op == VectorOpcode.SOFTMAX) & args.targets),
        roots.log.eq(op == VectorOpcode.SOFTMAX_SUMS),
        roots.pulled.eq(op == VectorOpcode.SOFTMAX_BACKWARD_SUMS),
    ]
    settle = engine.settling
    rest = Signal(range(settle + 1), init=settle)
    rested = Signal()  # `rest` is 0
    asking = Signal()
    along, token = Signal(), Signal(range(engine.tokens))
    m.d.comb += [
        sums.address.eq(Cat(along, token)),
        sums.ask.eq(asking),
        maxima.address.eq(token),
        maxima.ask.eq(asking),
        roots.eps.eq(args.eps),
        roots.eps_shift.eq(args.eps_shift),
    ]
    ask = Signal(data.StructLayout({"valid": 1, "along": 1, "token": range(engine.tokens)}))
    m.d.comb += [ask.valid.eq(asking & (along | ~both)), ask.along.eq(along), ask.token.eq(token)]
    answer = delay(m, ask, 1 + Roots.latency, reset_less=False)
    m.d.comb += [
        roots.sum.eq(sums.sum),
        roots.along.eq(delay(m, along, 1) | ~squares),
        roots.reach.eq(maxima.reach),
        known.write.addr.eq(answer.token),
        known.write.data.eq(roots.row),
        known.write.en.eq(answer.valid),
        lost.eq(answer.valid & roots.clipped),
    ]
    asked = Signal()
    with m.If(~running):
        m.d.sync += [rest.eq(settle), rested.eq(0), asked.eq(0)]
    with m.Elif(asking):
        m.d.sync += along.eq(~along & both)
        with m.If(along | ~both):
            m.d.sync += token.eq(token + 1)
            with m.If(token == walk.tokens):
                m.d.sync += [asking.eq(0), asked.eq(1), token.eq(0), rest.eq(settle), rested.eq(0)]
    with m.Elif(walk.busy | ~empty):
        m.d.sync += [rest.eq(settle), rested.eq(0)]
    with m.Elif(~rested):
        # What has left has left its magnitude too, but for some stages; weights are written at once.
        m.d.sync += [rest.eq(Mux(is_sums | (rest < 8), rest - 1, 7)), rested.eq(rest == 1)]
    with m.Elif(is_sums & ~asked):
        m.d.sync += asking.eq(1)
    still = running & rested & (~is_sums | asked) & ~asking
    told = Signal()
    due = Signal()  # as ``tells & ~told``, by when results rest
    # A loss is told of no sums: what is asked of them does not matter.
    m.d.comb += telling.eq(running & rested & due)
    # mutant report-not-taken: takes = telling
    takes = telling & engine.q.ready
    m.d.sync += [told.eq(running & (told | takes)), due.eq(tells & ~told & ~takes)]
    return still & ~due
