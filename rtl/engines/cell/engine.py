"""The hardware of the cell engine."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring

from ...formats.cell import CODES_A_BEAT, TAP_QUARTERS, CellOpcode, CellOperands, gate_sum
from ...hierarchy import place
from ...stream.delay import delay, registered
from ..ports import give, take
from ..words import accept
from .feed import Feed
from .gates import GateStages
from .group import CellGroup
from .results import Results, Sums
from .stages import CENTRED_STAGE, stages_of
from .states import StateStages

__all__ = ["CellEngine"]

#: Groups whose sums are selected in the first of two stages, and that share the registers of arriving weights.
_NEAR = 8


class CellEngine(GateStages, StateStages, wiring.Component):
    """Steps of quantised recurrent cells, with the layers beside them.

    The state stays in the engine. A convolution in front and a dense layer behind are rows of the same groups, see
    :class:`Feed`; in front of the gates' tables the former's codes leave for the next step's input, and behind the
    offsets the latter's sums for memory.

    ::

        x --> queue --+
                      +--> feed --> group 0 --> group 1 --> ... --> group n
        +--> h -------+               |            |                   |
        |                             +--> sums of a group a cycle <---+
        |                                          |
        |          gates:   offset, clip, multiply-shift, table    (a row a gate)
        |                      f        i   g        o
        |                      |        |   |        |
        |   c ---------------> * --+ +- * --+        |
        |   ^                      v v               |
        |   +---- clip <----------- +                |
        |            |                               |
        |            +--> tanh --------------------> * --> multiply-shift --+--> results --> h
        +------------------------------------------------------------------+

    A chunk of ``parallel`` operands enters the first group and goes on to the next in each cycle, so groups end a step
    one after another: their sums need no registers of their own. Between the last chunk of a step and the first of the
    next step's hidden state are ``results`` cycles, in which the next step's input enters, or other sequences.

    Latencies are those of :class:`~.stages.Stages`. Cycles of a step with the input there and room for results:
    chunks of h and the longer of chunks of x and ``results`` less 1. A command's first chunk may enter ``begin``
    cycles after the command is taken; ``done`` follows the last chunk of h by ``results`` and ``finish``, of the
    dense layer by ``sums`` and ``finish``, and a cycle for each group that is used but the first.

    Members
    -------
    engine, load_*, store_*, health : see ``EngineSpec``. ``BAD_OPERAND``: a size that is 0 or beyond its parameter.
        Weights, settings and states that are loaded while a command runs are refused.
    """

    def __init__(self, spec, config):
        self.config = config
        self.stages = stages_of(config)
        super().__init__(spec.members(config.data_bits))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        self._busy = busy = Signal()
        feed = place(m, "feed", Feed(config), platform)
        results = place(m, "results", Results(parallel=config.parallel), platform)
        width = gate_sum(config.products, config.parallel) + 2
        sums = place(m, "sums", Sums(parallel=config.parallel, width=width), platform)
        self._reading = Signal()
        self._commands(m, feed, busy)
        take(m, self.load_x, feed.x)
        chunks = CODES_A_BEAT // config.parallel
        m.d.sync += results.row_beats.eq((feed.job.hidden + (chunks - 1)) >> (chunks - 1).bit_length())
        m.d.comb += [
            feed.roomy.eq(results.roomy),
            results.reserve.eq(feed.reserve),
            feed.sums_roomy.eq(sums.roomy),
            sums.reserve.eq(feed.reserve_sums),
            sums.groups.eq(feed.job.classes),
        ]
        groups = self._groups(m, platform, feed)
        line = self._line(m, feed)
        words = self._drain(m, groups, line)
        ends = self._quantizers(m, line)
        totals, outputs, gates = self._gates(m, platform, words, line, ends)
        self._sums(m, sums, totals, line[CENTRED_STAGE])
        self._inputs(m, feed, outputs, line[self.stages.codes])
        told, place_, beat = self._arriving(m, self.load_state, 2 * config.state_places)
        states = told & ~place_[-1], told & place_[-1], place_[:-1], beat
        hidden, cells = self._elements(m, platform, gates, line, ends, states, feed.job)
        hiddens = self._leave(m, feed, results, hidden, line, states)
        self._send_states(m, cells, hiddens, self._taps(m, platform, feed, cells, hiddens))
        return m

    def _commands(self, m, feed, busy):
        """Takes a command, and ends it behind its last results."""
        config = self.config
        _, args, begins = accept(
            m,
            self.engine,
            CellOpcode,
            CellOperands,
            busy=busy | self._reading,
            bad=lambda _, args: (
                (args.steps == 0)
                | (args.sequences == 0)
                | (args.sequences > config.sequences)
                | (args.hidden == 0)
                | (args.hidden > config.groups)
                | (args.inputs == 0)
                | (args.inputs > config.chunks)
                | (args.window > config.window_chunks)
                | (args.filters > config.input_words)
                | (args.window.any() & (args.filters == 0))
                | (args.front + args.filters > config.groups)
                | (args.classes > Sums.depth)
                | (args.classes + args.filters > config.groups)
                | (args.channels > config.tap_chunks)
                | (args.channels.any() & ((self._steps(args) < TAP_QUARTERS) | (args.own == 0)))
                | (args.cell >= config.cells)
                | (args.both & (args.cell[0] | args.sequences[0] | (config.cells == 1)))
                | (args.gru & (not config.gru))
                | (args.passes & (~args.gru | args.steps[0] | self._unlike(args)))
            ),
        )
        # The check of the operands is deep: the command begins a cycle behind it.
        m.d.sync += feed.begins.eq(begins)
        m.d.comb += [feed.job[name].eq(args[name]) for name in feed.job.shape().members]
        with m.If(begins | self.engine.done):
            m.d.sync += busy.eq(begins)

    def _steps(self, args):
        """Steps of a sequence."""
        return args.steps >> args.passes if self.config.gru == 2 else args.steps

    def _unlike(self, args):
        """Whether a cell of two passes is none of the design's."""
        config = self.config
        if config.gru < 2:
            return Const(1, 1)
        few = [each for each, beside in ((~args.both, 1), (args.both, 2)) if config.cells <= beside]
        return Cat(args.cell[0], args.both & args.cell[1], *few).any()

    def _arriving(self, m, port, count):
        """Beats of a load port, a cycle later: valid, place, data."""
        beats, place_, there, beat = port.beats, Signal(range(count)), Signal(), Signal(128, reset_less=True)
        m.d.comb += [beats.ready.eq(1), port.refuse.eq((beats.p.index >= count) | self._busy)]
        m.d.sync += [there.eq(beats.valid & ~port.refuse), place_.eq(beats.p.index), beat.eq(beats.p.data)]
        return there, place_, beat

    def _groups(self, m, platform, feed):
        """The groups in a row, and the way of weights to them."""
        config = self.config
        units = [place(m, f"group_{n}", CellGroup(config), platform) for n in range(config.groups)]
        previous = feed.o
        for unit in units:
            m.d.comb += unit.i.eq(previous)
            previous = unit.o
        columns = units[0].columns
        # Words of less than a beat: groups side by side in a beat.
        beside = max(128 // config.word_bits, 1)
        depth = config.cells * config.places
        count = -(-config.groups // beside) * columns * depth
        bits = (depth - 1).bit_length()
        way = self._arriving(m, self.load_weights, count)
        for first in range(0, config.groups, _NEAR):
            # The wires of a beat over all groups would be the longest: each few groups have registers of their own, as
            # operands have, which take a cycle for each group.
            if first:
                way = tuple(delay(m, each, 1, reset_less=n > 0) for n, each in enumerate(way))
            there, place_, beat = way
            address, content = registered(m, place_[:bits]), registered(m, beat)
            for n, unit in enumerate(units[first : first + _NEAR], first):
                enable = Signal(columns, name=f"enable_{n}")
                m.d.sync += [
                    enable[column].eq(there & (place_[bits:] == (n // beside) * columns + column))
                    for column in range(columns)
                ]
                m.d.comb += [
                    unit.write.eq(enable),
                    unit.write_address.eq(address),
                    unit.write_data.eq(content.word_select(n % beside, len(unit.write_data))),
                ]
        return units

    def _line(self, m, feed):
        """What is known of the group in each stage behind the slices."""
        config, job = self.config, feed.job
        pulse = delay(m, feed.ends, CellGroup.latency, reset_less=False)
        came = delay(m, feed.row, CellGroup.latency)
        # A window's sums are those of the groups from ``front`` on.
        window_pulse = delay(m, feed.window_ends, CellGroup.latency, reset_less=False)
        late = Signal(config.groups)
        m.d.sync += late.eq(Cat(window_pulse, late))
        window_due = Array([window_pulse, *late[: config.groups - 1]])[job.front]
        tag = data.StructLayout(
            {
                "group": range(config.groups),
                "settings": range(2 * config.groups),
                **feed.row.shape().members,
                "window": 1,
                "ends": 1,
            }
        )
        valid, now = Signal(), Signal(tag)
        after, odd = Signal(range(config.groups + 1)), Signal()
        m.d.comb += now.ends.eq(now.group + 1 == after)
        with m.If(pulse):
            m.d.sync += [
                valid.eq(1),
                now.group.eq(0),
                now.settings.eq(Mux(came.classes, config.groups + job.filters, 0)),
                now.window.eq(0),
                *(now[name].eq(came[name]) for name in came.shape().members),
                after.eq(Mux(came.classes, job.classes, job.hidden)),
            ]
        with m.Elif(window_due):
            if config.cells > 1:
                # Windows are those of one direction and of the other in turn.
                m.d.sync += [now.cell.eq(job.cell | (job.both & odd)), odd.eq(~odd)]
            m.d.sync += [
                valid.eq(1),
                now.group.eq(job.front),
                now.settings.eq(config.groups),
                now.window.eq(1),
                now.classes.eq(0),
                after.eq(job.front + job.filters),
            ]
        with m.Elif(valid):
            m.d.sync += [valid.eq(~now.ends), now.group.eq(now.group + 1), now.settings.eq(now.settings + 1)]
        if config.cells > 1:
            with m.If(feed.begins):
                m.d.sync += odd.eq(0)
        line = [(valid, now)]
        for _ in range(self.stages.hidden):
            before, known = line[-1]
            line.append((delay(m, before, 1, reset_less=False), delay(m, known, 1)))
        return line

    def _cell(self, known):
        """The cell whose row it is, in a design with several."""
        return known.cell if self.config.cells > 1 else Const(0, 0)

    def _drain(self, m, groups, line):
        """Sums of one group, by lane and slice, in stage 2 of the line."""
        config = self.config
        words = []
        for lane in range(config.parallel):
            words.append([])
            for number in range(groups[0].slices):
                near = []
                for first in range(0, config.groups, _NEAR):
                    some = [unit.sums[lane][number] for unit in groups[first : first + _NEAR]]
                    word = Signal(len(some[0]), reset_less=True, name=f"near_{lane}_{number}_{first}")
                    m.d.sync += word.eq(Array(some)[line[0][1].group[: (len(some) - 1).bit_length()]])
                    near.append(word)
                word = Signal(len(near[0]), reset_less=True, name=f"word_{lane}_{number}")
                m.d.sync += word.eq(Array(near)[line[1][1].group[(_NEAR - 1).bit_length() :]])
                words[-1].append(word)
        return words

    def _sums(self, m, sums, totals, stage):
        """Sends sums of the dense layer, and ends a command that has them."""
        valid, known = stage
        leaves = valid & known.classes
        m.d.comb += [sums.valid.eq(leaves), *(each.eq(total) for each, total in zip(sums.sums, totals))]
        give(m, self.store_logits, sums.o)
        self._ended = delay(m, leaves & known.last & known.ends, self.stages.finish, reset_less=False)
