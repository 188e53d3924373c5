import numpy as np
import pytest
from amaranth.sim import Simulator


def words(bits, width, count, is_signed=True):
    """The ``count`` elements packed in an integer, lowest first."""
    mask, sign = (1 << width) - 1, (1 << (width - 1)) if is_signed else 0
    return [((bits >> (n * width) & mask) ^ sign) - sign for n in range(count)]


def pack(elements, width):
    mask = (1 << width) - 1
    return sum((int(v) & mask) << (n * width) for n, v in enumerate(elements))


class Bench:
    """Plays words into streams and collects what comes out, with random stalls on every side."""

    words, pack = staticmethod(words), staticmethod(pack)

    def __call__(self, dut, inputs, count, *, stall=0.0, seed=0, watch=None, limit=200_000):
        """``inputs`` maps a port's name to payload constants; ``stall`` is the chance of an idle cycle.

        Returns the ``count`` payloads of ``o`` as integers, and the cycle of each transfer by port.
        ``watch`` names a signal that is summed over all cycles.
        """
        rng = np.random.default_rng(seed)
        got, times, total, done = [], {name: [] for name in (*inputs, "o")}, 0, []

        async def process(ctx):
            nonlocal total
            pending = {name: list(values) for name, values in inputs.items()}
            shown = dict.fromkeys(inputs, False)
            ports = {name: getattr(dut, name) for name in inputs}
            rest = 24
            for cycle in range(limit):
                for name, port in ports.items():
                    if not shown[name] and pending[name] and rng.random() >= stall:
                        ctx.set(port.payload, pending[name][0])
                        ctx.set(port.valid, 1)
                        shown[name] = True
                take = rng.random() >= stall
                ctx.set(dut.o.ready, take)
                moved = [name for name, port in ports.items() if shown[name] and ctx.get(port.ready)]
                if take and ctx.get(dut.o.valid):
                    got.append(ctx.get(dut.o.payload.as_value() if hasattr(dut.o.payload, "as_value")
                                       else dut.o.payload))
                    times["o"].append(cycle)
                if watch is not None:
                    total += ctx.get(watch)
                await ctx.tick()
                for name in moved:
                    times[name].append(cycle)
                    pending[name].pop(0)
                    shown[name] = False
                    ctx.set(ports[name].valid, 0)
                # A little longer than needed: nothing may follow the last word.
                if len(got) >= count and not any(pending.values()):
                    rest -= 1
                    if not rest:
                        done.append(True)
                        return

        simulator = Simulator(dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(process)
        simulator.run()
        assert done, f"{len(got)} of {count} words after {limit} cycles"
        assert len(got) == count
        return (got, times) if watch is None else (got, times, total)


@pytest.fixture
def bench():
    return Bench()
