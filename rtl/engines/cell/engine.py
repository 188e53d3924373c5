"""The hardware of the cell engine."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring

from ...formats.cell import (
    CENTRED,
    CODE,
    CODES_A_BEAT,
    PAIR,
    TAP_QUARTERS,
    CellOpcode,
    CellOperands,
    GateWord,
    Quantizers,
    QuantizerWord,
    TableWord,
    TapArgument,
    gate_sum,
)
from ...formats.gates import GATES
from ...formats.rounding import saturate_hdl
from ...hierarchy import place
from ...stream.delay import delay
from ...systolic.slices import MultiplyAdd
from ..ports import give, send, take
from ..words import accept
from .feed import Feed
from .group import CellGroup
from .requantize import MULTIPLIER, MultiplyShift, ends_layout, ends_of
from .results import Results, Sums
from .stages import CENTRED_STAGE, OFFSET_STAGE, stages_of
from .taps import Taps

__all__ = ["CellEngine"]

#: Groups whose sums are selected in the first of two stages.
_NEAR = 8


class CellEngine(wiring.Component):
    """Steps of a quantised LSTM, with the layers beside it.

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
        ends = self._quantizers(m)
        totals, outputs, gates = self._gates(m, platform, words, line, ends)
        self._sums(m, sums, totals, line[CENTRED_STAGE])
        self._inputs(m, feed, outputs, line[self.stages.codes])
        told, place_, beat = self._arriving(m, self.load_state, 2 * config.sequences * config.groups)
        states = told & ~place_[-1], told & place_[-1], place_[:-1], beat
        hidden, cells = self._elements(m, platform, gates, line, ends, states)
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
                | (args.channels.any() & ((args.steps < TAP_QUARTERS) | (args.own == 0)))
            ),
        )
        # The check of the operands is deep: the command begins a cycle behind it.
        m.d.sync += feed.begins.eq(begins)
        m.d.comb += [feed.job[name].eq(args[name]) for name in feed.job.shape().members]
        with m.If(begins | self.engine.done):
            m.d.sync += busy.eq(begins)

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
        count = -(-config.groups // beside) * columns * config.places
        there, place_, beat = self._arriving(m, self.load_weights, count)
        bits = (config.places - 1).bit_length()
        address, content = (Signal(size, reset_less=True) for size in (bits, 128))
        m.d.sync += [address.eq(place_[:bits]), content.eq(beat)]
        for n, unit in enumerate(units):
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
        after = Signal(range(config.groups + 1))
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
        line = [(valid, now)]
        for _ in range(self.stages.hidden):
            before, known = line[-1]
            line.append((delay(m, before, 1, reset_less=False), delay(m, known, 1)))
        return line

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

    def _quantizers(self, m):
        """Words of the load port ``quantizers``."""
        there, place_, beat = self._arriving(m, self.load_quantizers, len(Quantizers))
        word = data.View(QuantizerWord, beat)
        found = {}
        for which in Quantizers:
            name = which.name.lower()
            kept = data.StructLayout({"ends": ends_layout(), "multiplier": MULTIPLIER, "addend": signed(48)})
            own = Signal(kept, name=f"quantizer_{name}", reset_less=True)
            with m.If(there & (place_ == which)):
                m.d.sync += [
                    own.ends.eq(ends_of(beat)),
                    own.multiplier.eq(word.multiplier[:MULTIPLIER]),
                    own.addend.eq(word.addend.as_signed()),
                ]
            found[which] = own
        return found

    def _gates(self, m, platform, words, line, ends):
        """What becomes of a group's sums.

        Sums at stage ``CENTRED_STAGE``, by row; codes of a convolution, by row, and of the gates, by element and gate,
        at stage ``codes``.
        """
        config = self.config
        width = gate_sum(config.products, config.parallel)
        there, place_, beat = self._arriving(m, self.load_rows, 2 * GATES * config.hidden)
        word = data.View(GateWord, beat)
        told, entry, codes_beat = self._arriving(m, self.load_tables, max(256, 1 << config.state_bits))
        table_word = data.View(TableWord, codes_beat)
        self._table_beat = told, entry, table_word
        now = self._ends_now(m, line, ends)
        elements, totals, outputs = [], [], []
        for element in range(config.parallel):
            codes = []
            for gate in range(GATES):
                number = GATES * element + gate
                mine = there & (place_[: (GATES * config.parallel - 1).bit_length()] == number)
                group = place_[(GATES * config.parallel - 1).bit_length() :]
                settings = []
                for name, shape, stage in (
                    ("offset", signed(width + 1), OFFSET_STAGE),
                    ("multiplier", MULTIPLIER, CENTRED_STAGE),
                    ("addend", MULTIPLIER, CENTRED_STAGE + 2),
                ):
                    kept = memory.Memory(
                        shape=shape, depth=2 * config.groups, init=[], attrs={"ram_style": "distributed"}
                    )
                    m.submodules[f"{name}_{number}"] = kept
                    write, read = kept.write_port(), kept.read_port()
                    m.d.comb += [
                        write.en.eq(mine),
                        write.addr.eq(group),
                        write.data.eq(word[name]),
                        read.addr.eq(line[stage - 1][1].settings),
                    ]
                    settings.append(read.data)
                offset, multiplier, addend = settings
                total = Signal(signed(width + 2), reset_less=True)
                m.d.sync += total.eq(sum(self._chain(words, lane, number) for lane in range(config.parallel)) + offset)
                unit = place(m, f"gate_{number}", MultiplyShift(), platform)
                centred, _ = saturate_hdl(total, signed(CENTRED))
                m.d.comb += [
                    unit.n.eq(centred),
                    unit.multiplier.eq(multiplier),
                    unit.addend.eq(addend),
                    unit.ends.eq(now[gate]),
                ]
                table = memory.Memory(shape=signed(CODE), depth=256, init=[], attrs={"ram_style": "distributed"})
                m.submodules[f"table_{number}"] = table
                write, read = table.write_port(), table.read_port()
                m.d.comb += [
                    write.en.eq(told & (entry < 256)),
                    write.addr.eq(entry),
                    write.data.eq(table_word.gates[gate]),
                    read.addr.eq(unit.o[:8]),
                ]
                codes.append(self._looked_up(m, read.data))
                totals.append(total)
                outputs.append(delay(m, unit.o[:8], config.table_cycles))
            elements.append(codes)
        return totals, outputs, elements

    def _ends_now(self, m, line, ends):
        """Ends of the gates' requantisers, or of a convolution's.

        They change between rows, while the requantisers are empty.
        """
        found = []
        valid, known = line[CENTRED_STAGE + MultiplyAdd.latency - 1]
        for gate in range(GATES):
            now = Signal(ends_layout(), name=f"ends_{gate}", reset_less=True)
            with m.If(valid):
                m.d.sync += now.eq(Mux(known.window, ends[Quantizers.WINDOW].ends, ends[Quantizers(gate)].ends))
            found.append(now)
        return found

    def _sums(self, m, sums, totals, stage):
        """Sends sums of the dense layer, and ends a command that has them."""
        valid, known = stage
        leaves = valid & known.classes
        m.d.comb += [sums.valid.eq(leaves), *(each.eq(total) for each, total in zip(sums.sums, totals))]
        give(m, self.store_logits, sums.o)
        self._ended = delay(m, leaves & known.last & known.ends, self.stages.finish, reset_less=False)

    def _inputs(self, m, feed, outputs, stage):
        """Keeps a convolution's results for the rows of inputs."""
        config, job = self.config, feed.job
        valid, known = stage
        m.submodules.inputs = kept = memory.Memory(
            shape=8 * len(outputs),
            depth=2 * config.sequences * config.input_words,
            init=[],
            attrs={"ram_style": "distributed"},
        )
        write, read = kept.write_port(), kept.read_port(domain="comb")
        there = valid & known.window
        sequence, later = Signal(range(config.sequences)), Signal()
        m.d.comb += [
            write.en.eq(there),
            write.addr.eq(Cat(known.settings[: (config.input_words - 1).bit_length()], sequence, later)),
            write.data.eq(Cat(outputs)),
            feed.u_arrives.eq(there & known.ends),
            read.addr.eq(feed.u_place),
            feed.u.eq(read.data),
        ]
        with m.If(feed.u_arrives):
            last = sequence == job.sequences - 1
            m.d.sync += [sequence.eq(Mux(last, 0, sequence + 1)), later.eq(later ^ last)]
        with m.If(feed.begins):
            m.d.sync += [sequence.eq(0), later.eq(0)]

    def _chain(self, words, lane, number):
        """The sum of a row in a lane."""
        if self.config.products == 1:
            return words[lane][number].as_signed()
        # mutant unborrowed: return words[lane][number // 2].word_select(number % 2, PAIR.apart).as_signed()
        return PAIR.lanes(words[lane][number // 2])[number % 2]

    def _elements(self, m, platform, gates, line, ends, states):
        """Codes of the new hidden state, and a port to the cell states."""
        config = self.config
        places = config.sequences * config.groups
        chunk = data.ArrayLayout(signed(config.state_bits), config.parallel)
        m.submodules.state = state = memory.Memory(
            shape=chunk, depth=places, init=[], attrs={"ram_style": "distributed"}
        )
        keep, read, seen = state.write_port(), state.read_port(), state.read_port(domain="comb")
        loads, _, loaded_at, loaded = states
        stages = self.stages
        asked = stages.codes - config.table_cycles
        m.d.comb += read.addr.eq(self._place(line[asked][1]))
        told, entry, table_word = self._table_beat
        hidden, self._tap_tables = [], []
        for element, (enter, forget, cell, output) in enumerate(gates):
            kept_unit, added_unit, hidden_unit = (
                place(m, f"{name}_{element}", MultiplyShift(), platform) for name in ("kept", "added", "hidden")
            )
            before = self._looked_up(m, Mux(line[asked + 1][1].zero, 0, read.data[element]))
            kept, added = (Signal(signed(10), reset_less=True, name=f"{n}_{element}_code") for n in ("k", "a"))
            new = Signal(signed(config.state_bits), reset_less=True, name=f"new_{element}")
            total = kept + added
            lo, hi = ends[Quantizers.STATE].ends.lo, ends[Quantizers.STATE].ends.hi
            m.d.sync += [
                kept.eq(kept_unit.o),
                added.eq(added_unit.o),
                new.eq(Mux(total < lo, lo, Mux(total > hi, hi, total))),
            ]
            squash = memory.Memory(
                shape=signed(CODE), depth=1 << config.state_bits, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[f"squash_{element}"] = squash
            write, squashed = squash.write_port(), squash.read_port()
            m.d.comb += [
                write.en.eq(told & (entry < 1 << config.state_bits)),
                write.addr.eq(entry),
                write.data.eq(table_word.squash),
                squashed.addr.eq(new),
                keep.data[element].eq(Mux(loads, loaded.word_select(element, 16), new)),
            ]
            if config.tap_channels:
                self._tap_tables.append(squash.read_port())
            opened = delay(m, output, stages.squashed - stages.codes)
            squashed_code = self._looked_up(m, squashed.data)
            for unit, which, product in (
                (kept_unit, Quantizers.KEPT, forget * before),
                (added_unit, Quantizers.ADDED, enter * cell),
                (hidden_unit, Quantizers.HIDDEN, opened * squashed_code),
            ):
                own = ends[which]
                m.d.comb += [
                    unit.n.eq(product),
                    unit.multiplier.eq(own.multiplier),
                    unit.addend.eq(own.addend),
                    unit.ends.eq(own.ends),
                ]
            hidden.append(hidden_unit.o)
        valid, known = self._stepped(line[stages.state])
        m.d.comb += [keep.en.eq(valid | loads), keep.addr.eq(Mux(loads, loaded_at, self._place(known)))]
        return hidden, seen

    def _leave(self, m, feed, results, hidden, line, states):
        """Sends new hidden states to feed, memory and results.

        Returns a port to the memory.
        """
        config = self.config
        valid, known = self._stepped(line[self.stages.hidden])
        places = config.sequences * config.groups
        _, loads, loaded_at, loaded = states
        m.submodules.hidden = kept = memory.Memory(
            shape=data.ArrayLayout(signed(8), config.parallel),
            depth=places,
            init=[],
            attrs={"ram_style": "distributed"},
        )
        write, read, seen = kept.write_port(), kept.read_port(domain="comb"), kept.read_port(domain="comb")
        m.d.comb += [
            read.addr.eq(feed.h_place),
            feed.h.eq(read.data),
            feed.arrives.eq(valid),
            write.en.eq(valid | loads),
            write.addr.eq(Mux(loads, loaded_at, self._place(known))),
            results.valid.eq(valid & known.emit),
            results.chunk.eq(Cat(each[:8] for each in hidden)),
            results.last.eq(known.ends),
        ]
        for n, code in enumerate(hidden):
            m.d.comb += [
                feed.new[n].eq(code[:8].as_signed()),
                write.data[n].eq(Mux(loads, loaded.word_select(n, 16), code)),
            ]
        give(m, self.store_h, results.o)
        ended = delay(m, valid & known.last & known.ends, self.stages.finish, reset_less=False)
        m.d.comb += self.engine.done.eq(ended | self._ended)
        return seen

    def _taps(self, m, platform, feed, cells, hiddens):
        """The sums for adapters, in a design that has them."""
        port = self.store_taps
        m.d.comb += port.request.ready.eq(1)
        if not self.config.tap_channels:
            m.d.comb += port.refuse.eq(1)
            return None
        taps = place(m, "taps", Taps(self.config), platform)
        argument = data.View(TapArgument, port.request.p.arg)
        m.d.sync += port.refuse.eq((argument.sequence >= self.config.sequences) | self._busy)
        m.d.comb += [
            taps.begins.eq(feed.begins),
            taps.job.eq(feed.job),
            taps.given.eq(feed.given),
            taps.x.eq(feed.o.x),
            taps.h.eq(hiddens.data),
            taps.c.eq(cells.data),
            taps.asked.eq(port.request.valid),
            taps.argument.eq(argument),
            taps.beats.eq(port.request.p.beats),
            port.beats.valid.eq(taps.o.valid),
            port.beats.p.eq(taps.o.p),
            taps.o.ready.eq(port.beats.ready),
            self._reading.eq(taps.active),
        ]
        for code, answer, table in zip(taps.state, taps.squashed, self._tap_tables, strict=True):
            m.d.comb += [table.addr.eq(code), table.en.eq(taps.free), answer.eq(table.data)]
        return taps

    def _send_states(self, m, cells, hiddens, taps):
        """Sends codes of cell states, then of hidden states, to memory."""
        places = self.config.sequences * self.config.groups
        bits = (places - 1).bit_length()
        address, words = Signal(range(2 * places)), []
        asked = address[:bits] if taps is None else Mux(taps.active, taps.place, address[:bits])
        m.d.comb += [cells.addr.eq(asked), hiddens.addr.eq(asked)]
        for element in range(self.config.parallel):
            word = Mux(address[bits], hiddens.data[element], cells.data[element])
            words += [word, word[-1].replicate(16 - len(word))]
        read = SimpleNamespace(addr=address, data=Cat(words))
        send(m, self.store_state, read, depth=2 * places)

    def _looked_up(self, m, code):
        """What a memory answers, behind its register where it has one."""
        return delay(m, code, self.config.table_cycles - 1)

    def _stepped(self, stage):
        """A stage, valid where it has a step's results."""
        valid, known = stage
        return valid & ~known.classes & ~known.window, known

    def _place(self, known):
        """Place of a group's state in a memory."""
        bits = (self.config.groups - 1).bit_length()
        return Cat(known.group[:bits], known.sequence)
