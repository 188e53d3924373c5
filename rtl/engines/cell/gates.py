"""Requantisers and tables of the gates, behind the groups' sums."""

from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data, memory

from ...formats.cell import (
    CENTRED,
    CODE,
    NEW,
    PAIR,
    QUANTIZERS_A_CELL,
    GateWord,
    Quantizers,
    QuantizerWord,
    TableWord,
    gate_sum,
)
from ...formats.gates import GATES
from ...formats.rounding import saturate_hdl
from ...hierarchy import place
from ...stream.delay import delay
from ...systolic.slices import MultiplyAdd
from .requantize import MULTIPLIER, MultiplyShift, ends_layout, ends_of
from .stages import CENTRED_STAGE, OFFSET_STAGE

__all__ = ["GateStages"]


class GateStages:
    """Stages of :class:`~.engine.CellEngine` from the groups' sums to codes.

    Codes of gates go on to :class:`~.states.StateStages`, those of a convolution to the memory of inputs.
    """

    def _quantizers(self, m, line):
        """Words of the load port ``quantizers``.

        Returns a function of requantiser, field (``ends``, ``multiplier``, ``addend`` or ``one``) and stage. It holds
        for the cell of the group in that stage, and stays as it is between two rows.
        """
        several = self.config.cells > 1
        count = QUANTIZERS_A_CELL * self.config.cells if several else len(Quantizers)
        there, place_, beat = self._arriving(m, self.load_quantizers, count)
        word = data.View(QuantizerWord, beat)
        bits = (QUANTIZERS_A_CELL - 1).bit_length()
        fields = {"ends": ends_layout(self.config.ties), "multiplier": MULTIPLIER, "addend": signed(48)}
        fields |= {"one": 9} if self.config.gru else {}
        given = {
            "ends": ends_of(beat, self.config.ties),
            "multiplier": word.multiplier[:MULTIPLIER],
            "addend": word.addend.as_signed(),
            "one": word.one,
        }
        found = {}
        for which in Quantizers if not several else ():
            name = which.name.lower()
            own = Signal(data.StructLayout(fields), name=f"quantizer_{name}", reset_less=True)
            with m.If(there & (place_ == which)):
                m.d.sync += [own[field].eq(given[field]) for field in fields]
            found[which] = own

        def setting(which, field, stage):
            if not several:
                return found[which][field]
            if (which, field, stage) in found:
                return found[which, field, stage]
            kept = memory.Memory(
                shape=fields[field], depth=self.config.cells, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[f"{which.name.lower()}_{field}_{stage}"] = kept
            write, read = kept.write_port(), kept.read_port()
            m.d.comb += [
                write.en.eq(there & (place_[:bits] == which)),
                write.addr.eq(place_[bits:]),
                write.data.eq(given[field]),
                read.addr.eq(self._cell(line[stage - 1][1])),
            ]
            found[which, field, stage] = read.data
            return read.data

        return setting

    def _gates(self, m, platform, words, line, ends):
        """What becomes of a group's sums.

        Sums at stage ``CENTRED_STAGE``, by row; codes of a convolution, by row, and of the gates, by element and gate,
        at stage ``codes``.
        """
        config = self.config
        width = gate_sum(config.products, config.parallel)
        there, place_, beat = self._arriving(m, self.load_rows, 2 * GATES * config.hidden * config.cells)
        word = data.View(GateWord, beat)
        entries = max(256, 1 << config.state_bits)
        told, entry, codes_beat = self._arriving(m, self.load_tables, entries * config.cells)
        table_word = data.View(TableWord, codes_beat)
        entry, entry_cell = entry[: entries.bit_length() - 1], entry[entries.bit_length() - 1 :]
        self._table_beat = told, entry, entry_cell, table_word
        self._gated, self._raw = [], []
        now = self._ends_now(m, line, ends)
        looks = line[self.stages.codes - config.table_cycles][1]
        elements, totals, outputs = [], [], []
        for element in range(config.parallel):
            codes = []
            for gate in range(GATES):
                number = GATES * element + gate
                mine = there & (place_[: (GATES * config.parallel - 1).bit_length()] == number)
                group = place_[(GATES * config.parallel - 1).bit_length() :]
                settings = []
                gated = config.gru and gate == NEW
                for name, shape, stage in (
                    ("offset", signed(width + 1), OFFSET_STAGE),
                    ("multiplier", MULTIPLIER, CENTRED_STAGE),
                    ("addend", MULTIPLIER, CENTRED_STAGE + 2),
                    *([("gated", MULTIPLIER, self.stages.codes)] if gated else []),
                ):
                    kept = memory.Memory(
                        shape=shape, depth=2 * config.groups * config.cells, init=[], attrs={"ram_style": "distributed"}
                    )
                    m.submodules[f"{name}_{number}"] = kept
                    write, read = kept.write_port(), kept.read_port()
                    m.d.comb += [
                        write.en.eq(mine),
                        write.addr.eq(group),
                        write.data.eq(word[name]),
                        read.addr.eq(Cat(line[stage - 1][1].settings, self._cell(line[stage - 1][1]))),
                    ]
                    settings.append(read.data)
                offset, multiplier, addend = settings[:3]
                total = Signal(signed(width + 2), reset_less=True)
                m.d.sync += total.eq(sum(self._chain(words, lane, number) for lane in range(config.parallel)) + offset)
                unit = place(m, f"gate_{number}", MultiplyShift(raw=gated, ties=config.ties), platform)
                if gated:
                    self._gated.append(settings[3])
                    self._raw.append(unit.total)
                centred, _ = saturate_hdl(total, signed(CENTRED))
                m.d.comb += [
                    unit.n.eq(centred),
                    unit.multiplier.eq(multiplier),
                    unit.addend.eq(addend),
                    unit.ends.eq(now[gate]),
                ]
                table = memory.Memory(
                    shape=signed(CODE), depth=256 * config.cells, init=[], attrs={"ram_style": "distributed"}
                )
                m.submodules[f"table_{number}"] = table
                write, read = table.write_port(), table.read_port()
                m.d.comb += [
                    write.en.eq(told & (entry < 256)),
                    write.addr.eq(Cat(entry[:8], entry_cell)),
                    write.data.eq(table_word.gates[gate]),
                    read.addr.eq(Cat(unit.o[:8], self._cell(looks))),
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
        stage = CENTRED_STAGE + MultiplyAdd.latency - 1
        valid, known = line[stage]
        window = ends(Quantizers.WINDOW, "ends", stage)
        for gate in range(GATES):
            now = Signal(ends_layout(self.config.ties), name=f"ends_{gate}", reset_less=True)
            own = ends(Quantizers(gate), "ends", stage)
            with m.If(valid):
                m.d.sync += now.eq(Mux(known.window, window, own))
            found.append(now)
        return found

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

    def _looked_up(self, m, code):
        """What a memory answers, behind its register where it has one."""
        return delay(m, code, self.config.table_cycles - 1)
