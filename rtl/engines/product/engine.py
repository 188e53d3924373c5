"""The product engine: products of tiles of 8-bit codes."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import connect

from ...formats.tiles.codes import EDGE, NARROW, WIDE, WORD
from ...formats.tiles.records import BEAT
from ...hierarchy import place
from ...shell.registers.errors import Error
from ...stream.delay import delay
from ..tile_load import records
from ..tile_port import WORDS
from ..tile_results import TilePeak
from .feeds import TOP, KeptFeed, RowFeed, job_layout
from .front import Front
from .sums import ProductSums
from .turning import TurningMemory

__all__ = ["BIASES", "OPEN", "RESULTS", "ProductEngine"]

#: Slots of biases and of results.
BIASES, RESULTS = 32, 4
#: Commands that may be taken and not done.
OPEN = 16


class ProductEngine(wiring.Component):
    """Sums of products of tiles, with a power of two a tile.

    Weight-stationary: kept tiles load into the array under the products of the tile before. Both operands may be
    transposed; rows of the stream may be pixels by address, as those of a convolution.

    ::

        x --> tiles --> row feed ----+
                                     +--> array --> align, add --> results --> codes --> o
        w --> tiles --> kept feed ---+                ^
        bias --> rows --------------------------------+

    Commands overlap: while rows of one stream, the next is judged and its first kept tile loads. They are done in
    order, each when its tiles are no longer read, and its results are there.

    Members
    -------
    engine, load_*, store_*, health : see ``EngineSpec``. ``BAD_OPERAND``: a row, column or slot that is not there; a
        row that is gathered from a tile that is not held.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__(spec.members(config.data_bits, config.forwards))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        front = place(m, "front", Front(config), platform)
        rows, kept = place(m, "rows", RowFeed(config), platform), place(m, "kept", KeptFeed(config), platform)
        sums = place(m, "sums", ProductSums(config), platform)
        connect(m, rows.i, sums.i)
        connect(m, kept.w, sums.w)
        port, room = self.engine, Signal()
        m.d.comb += [
            front.engine.command.valid.eq(port.command.valid & room),
            front.engine.command.p.eq(port.command.p),
            port.command.ready.eq(front.engine.command.ready & room),
        ]
        # A job of a bias is for the rows alone.
        job = front.jobs
        both = rows.jobs.ready & (kept.jobs.ready | job.p.bias)
        m.d.comb += [
            job.ready.eq(both),
            rows.jobs.valid.eq(job.valid & both),
            kept.jobs.valid.eq(job.valid & both & ~job.p.bias),
            rows.jobs.p.eq(job.p),
            *(kept.jobs.p[name].eq(job.p[name]) for name in job_layout().members),
        ]
        self._tiles(m, platform, front, rows, kept)
        self._bias(m, platform, front, rows, sums)
        ended = self._results(m, platform, front, sums)
        self._done(m, front, job, ended, room)
        fault = Signal()
        m.d.comb += fault.eq(sums.o.valid & sums.o.row.bad)
        m.d.comb += [
            port.error.valid.eq(front.engine.error.valid | fault),
            port.error.code.eq(Mux(front.engine.error.valid, front.engine.error.code, Error.BAD_OPERAND)),
        ]
        return m

    def _tiles(self, m, platform, front, rows, kept):
        """Memories of both operands, and their exponents."""
        config = self.config
        for name, feed, banks, slots in (
            ("x", rows, config.array_rows, config.x_slots),
            ("w", kept, config.array_columns, config.w_slots),
        ):
            intake = records(m, self, name, platform, slots=slots, bits=NARROW)
            # As many bytes come in a cycle.
            tiles = place(m, f"tiles_{name}", TurningMemory(banks=max(banks, BEAT), slots=slots), platform)
            m.d.comb += [
                tiles.write.eq(intake.write),
                tiles.read.eq(feed.read),
                tiles.blank.eq(feed.blank),
                feed.o.eq(tiles.o),
            ]
            self._exponents(m, name, intake, slots, (front, rows))

    def _exponents(self, m, name, intake, slots, readers):
        """Exponents of slots, read by the front and by the rows."""
        m.submodules[f"exponents_{name}"] = kept = memory.Memory(shape=signed(8), depth=slots, init=[])
        write = kept.write_port()
        m.d.comb += [
            write.en.eq(intake.exponent.valid),
            write.addr.eq(intake.exponent.slot),
            write.data.eq(intake.exponent.exponent),
        ]
        for reader in readers:
            read = kept.read_port()
            m.d.comb += [
                read.addr.eq(getattr(reader, f"{name}_slot")),
                getattr(reader, f"{name}_exponent").eq(read.data),
            ]

    def _bias(self, m, platform, front, rows, sums):
        """Biases: 16 codes are written in a cycle, those of a pass read."""
        config = self.config
        intake = records(m, self, "bias", platform, slots=BIASES, bits=WIDE, row=True)
        beats = config.array_columns // 16
        log = (beats - 1).bit_length()
        for n in range(beats):
            m.submodules[f"bias_{n}"] = kept = memory.Memory(shape=8 * BEAT, depth=BIASES * config.passes, init=[])
            write, read = kept.write_port(), kept.read_port()
            passes = (config.passes - 1).bit_length()
            m.d.comb += [
                write.en.eq(intake.write.valid & (intake.write.beat[:log] == n)),
                write.addr.eq(Cat(intake.write.beat[log : log + passes], intake.write.slot)),
                write.data.eq(intake.write.data),
                read.addr.eq(Cat(sums.bias_pass[:passes], sums.bias_slot)),
                sums.bias.word_select(n, 8 * BEAT).eq(read.data),
            ]
        self._exponents(m, "b", intake, BIASES, (front, rows))

    def _results(self, m, platform, front, sums):
        """Memory of results before STORE.

        Returns a signal that is high when a job's last results are there."""
        config = self.config
        columns, passes = config.array_columns, (config.passes - 1).bit_length()
        store = self.store_o
        came, row = delay(m, sums.o.valid, 1, reset_less=False), delay(m, sums.o.row, 1, reset_less=False)
        words = Signal(sums.o.sums.shape(), reset_less=True)
        for word, total in zip(words, sums.o.sums):
            # The reset of the register: it takes no LUT of a bit.
            # mutant keeps-negative: m.d.sync += word.eq(total)
            m.d.sync += word.eq(Mux(sums.o.row.positive & total[-1], 0, total))
        # Which columns count is known with the words: the peak has them before a carry.
        early, mask, leaves = sums.o.row, Signal(columns, reset_less=True), Signal()
        offset = early["pass"] << (columns - 1).bit_length()
        m.d.comb += leaves.eq(came & row.last)
        for n in range(columns):
            at = offset + n
            m.d.sync += mask[n].eq((at >= early.o_column) & (at <= early.o_column + early.columns))
        # A memory for every second 16 columns, of which a pass has both or one. One memory is of ultra RAMs: chips
        # have fewer block RAMs than both need.
        for bank, out in enumerate(store.words):
            m.submodules[f"results_{bank}"] = kept = memory.Memory(
                shape=data.ArrayLayout(signed(WORD), WORDS),
                depth=RESULTS * EDGE * (EDGE // WORDS // 2),
                init=[],
                attrs={"ram_style": "ultra" if bank else "block"},
            )
            first = bank * WORDS % columns
            mine = leaves if columns > WORDS else leaves & (row["pass"][0] == bank)
            write, read = kept.write_port(granularity=1), kept.read_port()
            m.d.comb += [
                write.addr.eq(Cat(row["pass"][passes - 1], row.row, row.o)),
                write.data.eq(words.as_value()[first * WORD : (first + WORDS) * WORD]),
                write.en.eq(Mux(mine, mask[first : first + WORDS], 0)),
                read.addr.eq(Cat(store.read.column[1], store.read.row, store.slot[:2])),
                read.en.eq(store.read.en),
                out.eq(read.data),
            ]
        units = [Signal(signed(TOP + 1), name=f"unit_{slot}") for slot in range(RESULTS)]
        for slot, unit in enumerate(units):
            with m.If(leaves & (row.o == slot)):
                m.d.sync += unit.eq(row.unit)
        m.d.sync += store.exponent.eq(Array(units)[store.slot[:2]])
        peak = place(m, "peak", TilePeak(slots=RESULTS, lanes=columns), platform)
        m.d.comb += [
            peak.valid.eq(leaves),
            peak.slot.eq(row.o),
            peak.exponent.eq(row.unit),
            peak.words.eq(words),
            peak.mask.eq(mask),
            peak.fresh.eq(front.fresh),
            peak.fresh_slot.eq(front.o),
            peak.read.eq(store.asked[:2]),
            store.peak.eq(peak.peak),
            store.some.eq(peak.some),
            store.refuse.eq(store.asked >= RESULTS),
        ]
        return delay(m, came & row.ends, TilePeak.latency, reset_less=False)

    def _done(self, m, front, job, ended, room):
        """Commands are done in order.

        Scans are when they are over, others by their last row."""
        m.submodules.order = order = SyncFIFOBuffered(width=1, depth=OPEN)
        pending, left, taken = Signal(range(OPEN + 1)), Signal(range(OPEN + 1), init=OPEN), Signal()
        over = Signal()
        m.d.comb += [room.eq(left != 0), taken.eq(self.engine.command.valid & self.engine.command.ready)]
        m.d.sync += left.eq(left - taken + over)
        m.d.comb += [
            order.w_en.eq(front.scanned | (job.valid & job.ready)),
            order.w_data.eq(front.scanned),
            over.eq(order.r_rdy & (order.r_data | (pending != 0))),
            order.r_en.eq(over),
            self.engine.done.eq(over),
        ]
        m.d.sync += pending.eq(pending + ended - (over & ~order.r_data))
