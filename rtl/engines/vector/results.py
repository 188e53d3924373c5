"""Results of the vector engine: queues, and the bits of the largest.

::

    words --+--> queue o --> o
            +--> queue q --+--> q
    loss of targets -------+
    sizes --> largest since the command began --> bits of it
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.fifo import SyncFIFOBuffered

from ...formats.vector import TERM
from ...formats.weights.linear import MASTER
from ...stream.delay import delay
from .actions import Stage
from .lane import PRODUCT

__all__ = ["either", "queue_results"]


def queue_results(m, engine, line, lanes, begin, beat, report, telling):
    """Places the queues of results, and keeps the bits of the largest.

    Returns whether nothing is in flight.
    """
    pendings, done = [], line[Stage.WORD]
    word = Cat(*lanes.words)
    size = Signal(PRODUCT, reset_less=True)
    late = delay(m, Cat(done.o & done.valid, done.q & done.valid), 1, reset_less=False)
    m.d.sync += size.eq(either(lanes.sizes))
    for n, (name, port, magnitude) in enumerate(
        (("o", engine.o, engine.o_magnitude), ("q", engine.q, engine.q_magnitude))
    ):
        m.submodules[f"results_{name}"] = fifo = SyncFIFOBuffered(width=len(word), depth=engine.depth)
        pending = Signal(range(engine.depth + 1), name=f"pending_{name}")
        m.d.comb += [
            fifo.w_data.eq(word),
            fifo.w_en.eq(done.valid & done[name]),
            port.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(port.ready),
            port.p.eq(Cat(*(_extended(fifo.r_data.word_select(lane, TERM.width)) for lane in range(engine.lanes)))),
        ]
        m.d.sync += pending.eq(pending + (beat.go & line[Stage.TAKE][name]) - (fifo.r_rdy & port.ready))
        if name == "q":
            with m.If(telling):
                m.d.comb += [port.valid.eq(1), port.p.eq(report)]
        pendings.append(pending)
        peak = Signal(PRODUCT, name=f"peak_{name}")
        with m.If(begin):
            m.d.sync += peak.eq(0)
        with m.Elif(late[n]):
            m.d.sync += peak.eq(peak | size)
        m.d.sync += magnitude.eq(_bits(m, peak))
    # Two short of full, since the answer is a register and so is what it looks at.
    m.d.sync += beat.room.eq((pendings[0] < engine.under_way) & (pendings[1] < engine.under_way))
    return (pendings[0] == 0) & (pendings[1] == 0)


def _extended(word):
    """A word of memory, from one of 25 bits."""
    return Cat(word, word[-1].replicate(MASTER.width - len(word)))


def either(values):
    """The bits that any value has."""
    values = list(values)
    while len(values) > 1:
        values = [values[n] | values[n + 1] if n + 1 < len(values) else values[n] for n in range(0, len(values), 2)]
    return values[0]


def _bits(m, value):
    """How many bits ``value`` (below 2**64) takes, three cycles later."""
    found = None
    for power in (32, 16, 8, 4, 2, 1):
        high = value[power:]
        some = high.any()
        chosen = Signal(power, reset_less=True)
        digits = Cat(some) if found is None else Cat(some, found)
        if power in (16, 4):
            kept = Signal(len(digits), reset_less=True)
            m.d.sync += [chosen.eq(Mux(some, high, value[:power])), kept.eq(digits)]
            found = kept
        else:
            m.d.comb += chosen.eq(Mux(some, high, value[:power]))
            found = digits
        value = chosen
    # The place of the highest bit, and one if there is any.
    return found + value[0]
