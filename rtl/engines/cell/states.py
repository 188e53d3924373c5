"""Cell states and hidden states: made, kept, and sent."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data, memory

from ...formats.cell import CODE, Quantizers, TapArgument
from ...hierarchy import place
from ...latencies import MULTIPLY_ADD
from ...stream.delay import delay
from ..ports import give, send
from .gru import GruStages
from .requantize import MultiplyShift
from .taps import Taps

__all__ = ["StateStages"]


class StateStages:
    """Stages from codes of the gates to the states, and their ports.

    They are a part of :class:`~.engine.CellEngine`.
    """

    def _elements(self, m, platform, gates, line, ends, states, job):
        """Codes of the new hidden state, and a port to the cell states."""
        config = self.config
        chunk = data.ArrayLayout(signed(config.state_bits), config.parallel)
        m.submodules.state = state = memory.Memory(
            shape=chunk, depth=config.state_places, init=[], attrs={"ram_style": "distributed"}
        )
        keep, read, seen = state.write_port(), state.read_port(), state.read_port(domain="comb")
        loads, _, loaded_at, loaded = states
        stages = self.stages
        asked = stages.codes - config.table_cycles
        m.d.comb += read.addr.eq(self._place(line[asked][1]))
        told, entry, entry_cell, table_word = self._table_beat
        gru = GruStages(m, lambda stage: self._mixes(line[stage][1], job), ends, stages) if config.gru else None
        kept_gates = self._kept_gates(m, line, [enter for enter, *_ in gates], job)
        hidden, self._tap_tables = [], []
        lo, hi = (ends(Quantizers.STATE, "ends", stages.kept)[end] for end in ("lo", "hi"))
        for element, (enter, forget, cell, output) in enumerate(gates):
            kept_unit, added_unit, hidden_unit = (
                place(
                    m,
                    f"{name}_{element}",
                    MultiplyShift(raw=bool(config.gru and name == "added"), ties=config.ties),
                    platform,
                )
                for name in ("kept", "added", "hidden")
            )
            enter = kept_gates[element]
            nothing = line[asked + 1][1].empty if config.gru == 2 else line[asked + 1][1].zero
            before = self._looked_up(m, Mux(nothing, 0, read.data[element]))
            kept, added = (Signal(signed(10), reset_less=True, name=f"{n}_{element}_code") for n in ("k", "a"))
            new = Signal(signed(config.state_bits), reset_less=True, name=f"new_{element}")
            total = kept + added
            m.d.sync += [
                kept.eq(kept_unit.o),
                added.eq(added_unit.o),
                new.eq(Mux(total < lo, lo, Mux(total > hi, hi, total))),
            ]
            squash = memory.Memory(
                shape=signed(CODE), depth=config.cells << config.state_bits, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[f"squash_{element}"] = squash
            write, squashed = squash.write_port(), squash.read_port()
            m.d.comb += [
                write.en.eq(told & (entry < 1 << config.state_bits)),
                write.addr.eq(Cat(entry[: config.state_bits], entry_cell)),
                write.data.eq(table_word.squash),
                squashed.addr.eq(Cat(new, self._cell(line[stages.state][1]))),
            ]
            if config.tap_channels:
                self._tap_tables.append(squash.read_port())
            factors = before, cell, output
            if gru is not None:
                factors = gru.factors((enter, forget, cell, output), before)
            opened = delay(m, factors[2], stages.squashed - stages.codes)
            squashed_code = self._looked_up(m, squashed.data)
            for unit, which, product, stage in (
                (kept_unit, Quantizers.KEPT, forget * factors[0], stages.codes),
                (added_unit, Quantizers.ADDED, enter * factors[1], stages.codes),
                (hidden_unit, Quantizers.HIDDEN, opened * squashed_code, stages.squashed),
            ):
                multiplier, addend = (ends(which, "multiplier", stage), None)
                if gru is not None and unit is kept_unit:
                    multiplier = gru.multiplier(self._gated[element], multiplier)
                    addend = gru.kept_addend(self._raw[element])
                elif gru is not None and unit is hidden_unit:
                    addend = gru.hidden_addend(added_unit.total)
                if addend is None:
                    addend = ends(which, "addend", stage + MULTIPLY_ADD - 1)
                m.d.comb += [
                    unit.n.eq(product),
                    unit.multiplier.eq(multiplier),
                    unit.addend.eq(addend),
                    unit.ends.eq(ends(which, "ends", stage + MULTIPLY_ADD)),
                ]
            hidden.append(hidden_unit.o)
            # A GRU's state is its hidden state.
            kept_code = new if gru is None else Mux(job.gru, hidden_unit.o, new)
            m.d.comb += keep.data[element].eq(Mux(loads, loaded.word_select(element, 16), kept_code))
        valid, known = self._stepped(line[stages.state])
        at = self._place(known)
        if gru is not None:
            later, known = self._stepped(line[stages.hidden])
            if config.gru == 2:
                later &= ~job.passes | known.mixes
            valid, at = Mux(job.gru, later, valid), Mux(job.gru, self._place(known), at)
        m.d.comb += [keep.en.eq(valid | loads), keep.addr.eq(Mux(loads, loaded_at, at))]
        return hidden, seen

    def _mixes(self, known, job):
        """Whether a row makes the new state of a GRU."""
        return known.mixes if self.config.gru == 2 else job.gru

    def _kept_gates(self, m, line, gates, job):
        """Codes of the first gate, of the second of two passes those of the first."""
        config, stages = self.config, self.stages
        if config.gru < 2:
            return gates
        m.submodules.passed = passed = memory.Memory(
            shape=data.ArrayLayout(signed(CODE), config.parallel),
            depth=config.sequences * config.groups,
            init=[],
            attrs={"ram_style": "distributed"},
        )
        write, read = passed.write_port(), passed.read_port()
        valid, known = self._stepped(line[stages.codes])
        bits = (config.groups - 1).bit_length()
        asked = line[stages.codes - config.table_cycles][1]
        m.d.comb += [
            write.en.eq(valid & ~known.mixes),
            write.addr.eq(Cat(known.group[:bits], known.sequence)),
            *(write.data[n].eq(code) for n, code in enumerate(gates)),
            read.addr.eq(Cat(asked.group[:bits], asked.sequence)),
        ]
        again = job.passes & known.mixes
        # mutant forgotten: return gates
        return [Mux(again, self._looked_up(m, read.data[n]), code).as_signed() for n, code in enumerate(gates)]

    def _leave(self, m, feed, results, hidden, line, states):
        """Sends new hidden states to feed, memory and results.

        Returns a port to the memory.
        """
        config = self.config
        valid, known = self._stepped(line[self.stages.hidden])
        _, loads, loaded_at, loaded = states
        m.submodules.hidden = kept = memory.Memory(
            shape=data.ArrayLayout(signed(8), config.parallel),
            depth=config.state_places,
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
        m.d.sync += port.refuse.eq(
            (argument.sequence >= self.config.sequences) | (argument.cell >= self.config.cells) | self._busy
        )
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
            m.d.comb += [table.addr.eq(Cat(code, taps.cell)), table.en.eq(taps.free), answer.eq(table.data)]
        return taps

    def _send_states(self, m, cells, hiddens, taps):
        """Sends codes of cell states, then of hidden states, to memory."""
        places = self.config.state_places
        bits = (places - 1).bit_length()
        address, words = Signal(range(2 * places)), []
        asked = address[:bits] if taps is None else Mux(taps.active, taps.place, address[:bits])
        m.d.comb += [cells.addr.eq(asked), hiddens.addr.eq(asked)]
        for element in range(self.config.parallel):
            word = Mux(address[bits], hiddens.data[element], cells.data[element])
            words += [word, word[-1].replicate(16 - len(word))]
        read = SimpleNamespace(addr=address, data=Cat(words))
        send(m, self.store_state, read, depth=2 * places)

    def _stepped(self, stage):
        """A stage, valid where it has a step's results."""
        valid, known = stage
        return valid & ~known.classes & ~known.window, known

    def _place(self, known):
        """Place of a group's state in a memory."""
        bits = (self.config.groups - 1).bit_length()
        home = known.home if self.config.gru == 2 else self._cell(known)
        return Cat(known.group[:bits], known.sequence, home)
