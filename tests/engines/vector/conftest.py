"""Plays commands of the vector engine, with tensors on its streams."""

import functools

import numpy as np
import pytest

from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.engines.vector.spec import SPEC
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench


@functools.cache
def _bench(lanes, tokens, features, head, gelu):
    """What takes longest is to make an engine."""
    engine = VectorEngine(lanes=lanes, tokens=tokens, features=features, head=head, gelu=gelu)
    return EngineBench(
        SPEC, component=engine, watch={"saturated": engine.saturated, "o": engine.o_magnitude, "q": engine.q_magnitude}
    )


class VectorBench:
    """Runs commands one after the other; tensors are ``[tokens, features]``, ``row`` words of a token a tile."""

    def __init__(self, dut, row):
        self.lanes, self.row = dut.lanes, row
        self.bench = _bench(dut.lanes, dut.tokens, dut.features, dut.head, dut.gelu)

    def beats(self, tensor):
        """A tensor's beats in the engine's order."""
        tensor = np.asarray(tensor, np.int64)
        tokens, features = tensor.shape
        if tokens > 1:
            tensor = tensor.reshape(tokens, features // self.row, -1, self.lanes).swapaxes(0, 1)
        words = tensor.reshape(-1, self.lanes)
        return [int.from_bytes((beat & 0xFFFFFFFF).astype("<u4").tobytes(), "little") for beat in words]

    def tensor(self, beats, shape):
        """The other way round."""
        words = np.array([np.frombuffer(beat.to_bytes(4 * self.lanes, "little"), "<i4") for beat in beats])
        tokens, features = shape
        return words.reshape(features // self.row, tokens, self.row).swapaxes(0, 1).reshape(shape)

    def __call__(self, commands, *, error=None, **options):
        """``commands``: opcode, operands, operand tensors by port, shapes of results by port; with ``report`` among
        them what leaves at q as it is. ``error``: the code that the last of them ends with. ``options``: of
        :meth:`~gradloom.sim.bench.engine.EngineBench.run`; ports are held in each command.

        Returns of each command its results, its saturated count, both magnitudes and the cycles in which operands were
        taken, results left and it was done, from its start.
        """
        steps, sizes = [], []
        for opcode, operands, inputs, outputs in commands:
            tokens, features = np.shape(next(iter(inputs.values())))
            layout = {"row": self.row // self.lanes, "tiles": features // self.row, "tokens": tokens} | operands
            sizes.append(
                (
                    {name: len(self.beats(tensor)) for name, tensor in inputs.items()},
                    {
                        "q" if name == "report" else name: 1 if shape is None else np.prod(shape) // self.lanes
                        for name, shape in outputs.items()
                    },
                )
            )
            steps += [
                BenchCommand(opcode, layout),
                *(BenchLoad(name, self.beats(tensor)) for name, tensor in inputs.items()),
                *(BenchStore(name, int(count)) for name, count in sizes[-1][1].items()),
                FENCE,
            ]
        run = self.bench.check(*steps, errors=[] if error is None else [error], **options)
        found, at = [], dict.fromkeys("abcoq", 0)
        for number, ((*_, outputs), (given, made), start, done) in enumerate(
            zip(commands, sizes, run.started, run.done)
        ):
            part = {name: slice(at[name], at[name] + count) for name, count in (given | made).items()}
            at |= {name: each.stop for name, each in part.items()}
            found.append(
                {
                    "cycles": done - start,
                    "saturated": run.total("saturated", number),
                    "times": {name: [cycle - start for cycle in run.stored[name][part[name]]] for name in made},
                    "taken": {name: [cycle - start for cycle in run.loaded[name][part[name]]] for name in given},
                    "magnitude": {name: run.seen[name][done] for name in "oq"},
                    **{
                        name: self.tensor(run.words[name][part[name]], shape) if shape else run.words["q"][part["q"]]
                        for name, shape in outputs.items()
                    },
                }
            )
        return found


@pytest.fixture
def vector_bench():
    return VectorBench
