"""Plays commands of the vector engine, with tensors on its streams."""
import numpy as np
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.formats.vector import VectorOpcode, VectorOperands
from gradloom.sim.bench.pauses import pauses


class VectorBench:
    """Runs commands one after the other; tensors are ``[tokens, features]``, ``row`` words of a token a tile."""

    #: Engines that were made, by their parameters: what takes longest is to make one.
    _made = {}

    def __init__(self, dut, row):
        key = dut.lanes, dut.tokens, dut.features, dut.head
        if key not in self._made:
            self._made[key] = dut, *_simulator(dut)
        self.dut, self.simulator, self.script = self._made[key]
        self.row = row

    def beats(self, tensor):
        """A tensor's beats in the engine's order."""
        tensor = np.asarray(tensor, np.int64)
        tokens, features = tensor.shape
        if tokens > 1:
            tensor = tensor.reshape(tokens, features // self.row, -1, self.dut.lanes).swapaxes(0, 1)
        words = tensor.reshape(-1, self.dut.lanes)
        return [int.from_bytes((beat & 0xFFFFFFFF).astype("<u4").tobytes(), "little") for beat in words]

    def tensor(self, beats, shape):
        """The other way round."""
        words = np.array([np.frombuffer(beat.to_bytes(4 * self.dut.lanes, "little"), "<i4") for beat in beats])
        tokens, features = shape
        return words.reshape(features // self.row, tokens, self.row).swapaxes(0, 1).reshape(shape)

    def __call__(self, commands, *, stall=0.0, hold=0, seed=0, limit=4000):
        """``commands``: opcode, operands, operand tensors by port, shapes of results by port; with ``report`` among
        them what leaves at q as it is. ``hold``: length of the long holds in each command, as
        :func:`~gradloom.sim.bench.pauses.pauses` has them.

        Returns of each command its results, its saturated count, both magnitudes and the cycles in which results left.
        """
        dut = self.dut
        found = []

        async def process(ctx):
            for opcode, operands, inputs, outputs in commands:
                first = next(iter(inputs.values()))
                tokens, features = np.shape(first)
                layout = {"row": self.row // dut.lanes, "tiles": features // self.row, "tokens": tokens} | operands
                ctx.set(dut.engine.command.payload.opcode, int(opcode))
                ctx.set(dut.engine.command.payload.args, VectorOperands.const(layout).as_value().value)
                ctx.set(dut.engine.command.valid, 1)
                pending = {name: self.beats(tensor) for name, tensor in inputs.items()}
                got, times, saturated = {name: [] for name in "oq"}, {name: [] for name in "oq"}, 0
                taken = {name: [] for name in inputs}
                moves = pauses([name for name in "oq" if name in outputs] or ["o"], inputs, stall=stall, hold=hold,
                               seed=seed + len(found))
                for cycle in range(limit):
                    now = {name: next(each) for name, each in moves.items()}
                    for name in inputs:
                        port = getattr(dut, name)
                        if now[name] and pending[name] and not ctx.get(port.valid):
                            ctx.set(port.payload, pending[name][0])
                            ctx.set(port.valid, 1)
                    for name in "oq":
                        ctx.set(getattr(dut, name).ready, now.get(name, True))
                    moved = [name for name in "abc" if ctx.get(getattr(dut, name).valid)
                             and ctx.get(getattr(dut, name).ready)]
                    for name in "oq":
                        port = getattr(dut, name)
                        if ctx.get(port.valid) and ctx.get(port.ready):
                            got[name].append(ctx.get(port.payload))
                            times[name].append(cycle)
                    accepted = ctx.get(dut.engine.command.ready) and ctx.get(dut.engine.command.valid)
                    saturated += ctx.get(dut.saturated)
                    done, error = ctx.get(dut.engine.done), ctx.get(dut.engine.error.valid)
                    if done or error:
                        break
                    await ctx.tick()
                    if accepted:
                        ctx.set(dut.engine.command.valid, 0)
                    for name in moved:
                        taken[name].append(cycle)
                        pending[name].pop(0)
                        ctx.set(getattr(dut, name).valid, 0)
                else:
                    raise AssertionError(f"{opcode!r} is not done after {limit} cycles")
                found.append({
                    "error": error and ctx.get(dut.engine.error.code), "cycles": cycle, "saturated": saturated,
                    "times": times, "taken": taken,
                    "magnitude": {"o": ctx.get(dut.o_magnitude), "q": ctx.get(dut.q_magnitude)},
                    **({} if error else {name: self.tensor(got[name], shape) if shape else got["q"]
                                         for name, shape in outputs.items()}),
                })
                if error:
                    return
                assert not any(pending.values())
                await ctx.tick()

        if self.script:
            self.simulator.reset()
        self.script[:] = [process]
        self.simulator.run()
        return found


def _simulator(dut):
    """``(simulator, the one process that it runs)``."""
    script = []

    async def play(ctx):
        await script[0](ctx)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(play)
    return simulator, script


@pytest.fixture
def vector_bench():
    return VectorBench


__all__ = ["VectorBench", "VectorOpcode"]
