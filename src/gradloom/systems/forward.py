"""Forward passes of a network on a machine: in simulated RTL, or behind a host."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep
from gradloom.rtl.formats.tiles.codes import coded
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.run.machine import MachineHost, MachineRunner
from gradloom.workload import Progress

from .results import Inferred

__all__ = ["ForwardPass", "Run", "result_of"]

#: Results ``[samples, rows, features]`` of inputs ``[samples, *sides, features]``.
Run = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def result_of(exact: IntegerNetwork) -> Run:
    """The reference's passes."""
    t = exact.port.tensor
    return lambda inputs: exact.result(inputs).values.reshape(-1, t.rows, t.features)


class ForwardPass:
    """Results of samples by a machine, which are those of ``exact``.

    :class:`~gradloom.sim.run.counted.MismatchError` where a code, a counter or the cycles of a command differ from
    reference and forecast. Use it in a ``with``.

    Parameters
    ----------
    config
        Of the machine.
    exact : IntegerNetwork
        With the weights of what has learnt.
    lowered : callable
        Gives the program of a number of samples.
    tell : callable
    host : MachineHost, optional
        What runs programs in place of simulated RTL.
    files : sequence of Path
        Verilog that is simulated; none: that of the configuration.
    """

    def __init__(
        self,
        config: Any,
        exact: IntegerNetwork,
        lowered: Callable[[int], TileStep],
        *,
        tell: Progress,
        host: MachineHost | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.exact, self.lowered = exact, lowered
        self.machine = MachineRunner.simulated(config, files, progress=tell) if host is None else MachineRunner(host)
        self._cycles, self._told = 0, 0
        self._steps: dict[int, TileStep] = {}
        self._there: TileStep | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.machine.close()

    @property
    def figures(self) -> Inferred:
        """``cycles`` of all passes, and their ``forecast``, which there is of simulated RTL."""
        return {"cycles": self._cycles, "forecast": self._told or None}

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """See :data:`Run`."""
        samples = len(next(iter(inputs.values())))
        step = self._begun(samples)
        for name, written in step.inputs.items():
            x = np.asarray(inputs[name], np.float64)
            for tiles in written:
                self.machine.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))
        ran = self.machine.run(step.written(1))
        t = self.exact.port.tensor
        tiles = step.shown[t.name]
        found, wanted = tiles.unpack(self.machine.read(tiles.offset, tiles.size)), self.exact.result(inputs).wide
        check_words(
            {f"{part} of {t.name}": getattr(found, part).ravel() for part in ("codes", "exponents")},
            {f"{part} of {t.name}": getattr(wanted, part).ravel() for part in ("codes", "exponents")},
        )
        counts = self.exact.take_counts()
        ran.check(saturated=counts.clipped, underflowed=counts.zeroed)
        self._cycles += ran.counters.cycles
        self._told += 0 if ran.forecast is None else ran.forecast.total
        return found.values.reshape(samples, t.rows, t.features)

    def _begun(self, samples: int) -> TileStep:
        """A program whose data are in memory."""
        if samples not in self._steps:
            self._steps[samples] = self.lowered(samples)
        step = self._steps[samples]
        if step is self._there:
            return step
        if step.program.length > MEMORY_BYTES:
            raise ValueError(
                f"batch={samples}: the forward pass needs {step.program.length:,} bytes of memory, there are "
                f"{MEMORY_BYTES:,}; give fewer samples"
            )
        for offset, content in step.program.contents():
            self.machine.write(offset, content)
        for name, each in step.learners.items():
            self.machine.write(each.codes.offset, each.codes.pack(coded(self.exact.matrix(name), each.codes.bits)))
        self._there = step
        return step
