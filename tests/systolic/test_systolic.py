# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from gradloom.rtl.systolic.pe import ACCUMULATE, HOLD, RESTART, WSUM, Precision
from gradloom.rtl.systolic.systolic import SystolicArray
from gradloom.sim.bench.engine import simulate
from gradloom.sim.reference.units.systolic import output_stationary, weight_stationary


class Schedule:
    """What enters a :class:`SystolicArray`, by cycle, skewed; and what leaves."""

    def __init__(self, dut, cycles):
        self.dut = dut
        self.total = dut.panels * dut.columns
        self.x = np.zeros((cycles, dut.rows, dut.panels), int)
        self.w = np.zeros((cycles, self.total), int)
        self.tags = [[{"load": 0, "swap": 0} | HOLD for _ in range(dut.rows)] for _ in range(cycles)]
        self.drain = np.zeros(cycles, int)

    def weights(self, cycle, word):
        for c in range(self.total):
            self.w[cycle + c % self.dut.columns, c] = word[c]

    def stay(self, cycle, tile):
        """Launches ``tile`` [rows, columns], a row a cycle."""
        for r, word in enumerate(tile):
            self.weights(cycle + r, word)
            self.tags[cycle + 2 * r][r]["load"] = 1

    def beat(self, cycle, operands, tag, ahead=False):
        """An operand a row; with ``ahead``, the weight came a cycle before it."""
        for r, operand in enumerate(operands):
            self.x[cycle + r, r] = operand
            self.tags[cycle + r][r].update(tag)
            if ahead:
                self.tags[cycle + r - 1][r]["load"] = 1

    def run(self):
        dut, out = self.dut, np.zeros((len(self.x), self.total), np.int64)

        async def process(ctx):
            for t in range(len(out)):
                for r in range(dut.rows):
                    for panel in range(dut.panels):
                        ctx.set(dut.x[r][panel], int(self.x[t, r, panel]))
                    ctx.set(dut.tag[r], self.tags[t][r])
                for c in range(self.total):
                    ctx.set(dut.w[c], int(self.w[t, c]))
                ctx.set(dut.drain, int(self.drain[t]))
                out[t] = [ctx.get(dut.p[c]) for c in range(self.total)]
                await ctx.tick()

        simulate(dut, process)
        return out

    def leaves(self, out, cycle):
        """The sums that reach column 0's foot in ``cycle``."""
        return [out[cycle + c % self.dut.columns, c] for c in range(self.total)]


SIZES = [(4, 2, 2), (2, 1, 3), (1, 1, 1)]


def stationary_tiles(rng, schedule, start, tiles, m):
    """Tiles back to back, a tile's weights launched during the one before; expected sums by cycle."""
    dut = schedule.dut
    step = max(m, dut.rows)
    w = rng.integers(-1 << 17, 1 << 17, (tiles, dut.rows, schedule.total))
    x = rng.integers(-1 << 23, 1 << 23, (tiles, m, dut.rows, dut.panels))
    for k in range(tiles):
        swap = start + dut.rows + k * step
        # In the cycle of the swap before at the earliest, the last a cycle before its own.
        schedule.stay(swap - dut.rows, w[k])
        for n in range(m):
            schedule.beat(swap + n, x[k, n], WSUM | ({"swap": 1} if n == 0 else {}))
    expected = np.concatenate(
        [weight_stationary(x[..., p], w[..., p * dut.columns : (p + 1) * dut.columns]) for p in range(dut.panels)],
        axis=2,
    )
    return {start + dut.rows + k * step + n + dut.latency: expected[k, n] for k in range(tiles) for n in range(m)}


@pytest.mark.parametrize(("rows", "panels", "columns"), SIZES)
@pytest.mark.parametrize("extra", [0, 2])
def test_tiles_follow_each_other_without_a_bubble(rows, panels, columns, extra):
    dut = SystolicArray(rows=rows, panels=panels, columns=columns)
    schedule = Schedule(dut, 60)
    expected = stationary_tiles(np.random.default_rng(1), schedule, 3, 4, rows + extra)
    assert sorted(expected)[-1] - sorted(expected)[0] == 4 * (rows + extra) - 1
    out = schedule.run()
    for cycle, sums in expected.items():
        np.testing.assert_array_equal(schedule.leaves(out, cycle), sums)


@pytest.mark.parametrize(("rows", "panels", "columns"), SIZES)
def test_passes_follow_each_other_while_sums_drain(rows, panels, columns):
    dut = SystolicArray(rows=rows, panels=panels, columns=columns)
    schedule = Schedule(dut, 70)
    rng = np.random.default_rng(2)
    start, expected = 4, {}
    for n in (7, 1, rows + 2, 3):
        x = rng.integers(-1 << 23, 1 << 23, (n, rows, panels))
        w = rng.integers(-1 << 17, 1 << 17, (n, schedule.total))
        for k in range(n):
            schedule.weights(start + k - 1, w[k])
            schedule.beat(start + k, x[k], {"swap": 1} | (ACCUMULATE if k else RESTART), ahead=True)
        drain = start + n - 1 + rows
        schedule.drain[drain] = 1
        sums = np.concatenate(
            [output_stationary(x[:, :, p].T, w[:, p * columns : (p + 1) * columns]) for p in range(panels)], axis=1
        )
        for row in range(rows):
            expected[drain + dut.drain_latency + rows - 1 - row] = sums[row]
        start = drain + 1
    out = schedule.run()
    for cycle, sums in expected.items():
        np.testing.assert_array_equal(schedule.leaves(out, cycle), sums)


def test_bad_parameters_are_refused():
    for field in ("rows", "panels", "columns"):
        with pytest.raises(ValueError, match=f"{field}=0"):
            SystolicArray(**({"rows": 1, "columns": 1} | {field: 0}))
    with pytest.raises(ValueError, match="rows=200"):
        SystolicArray(rows=200, columns=1)
    assert SystolicArray(rows=200, columns=1, precision=Precision(x=18)).latency == 202


def test_the_reference_refuses_what_48_bits_do_not_hold():
    x, w = np.full((1, 200), -1 << 23), np.full((200, 1), -1 << 17)
    with pytest.raises(ValueError, match="48 bits"):
        output_stationary(x, w)
    assert output_stationary(x[:, :127], w[:127]) == 127 << 40
