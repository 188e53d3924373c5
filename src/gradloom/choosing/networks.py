"""Chooses what learns in a network on a user's data.

Costs are forecasts of the programs that would run. What a method learns comes from runs in floating point on a part of
the user's samples; the rest of them is held out. ``x_test`` is left for the fine-tune that is chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.graph.descent import FloatDescent
from gradloom.graph.methods import Learning
from gradloom.graph.onnx.load import load_network
from gradloom.graph.training import FloatTraining
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import Asked
from gradloom.systems.job import digest
from gradloom.systems.networks.data import NetworkSamples, load_samples
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.requests import NetworkChoice
from gradloom.systems.networks.scores import scored
from gradloom.systems.networks.workload import NetworkOptions, NetworkWorkload
from gradloom.systems.results import Alternative, ChosenFacts
from gradloom.workload import Progress

from .chooser import Chooser, Short, ShortRuns
from .finalists import MOST
from .state import ChoiceState

__all__ = ["NetworkChooser", "choose_networks"]

#: Methods, and layers with adapters.
_WHERE: tuple[tuple[str, str | None], ...] = (
    ("head", None),
    ("instantft", "*"),
    ("lora", "last:1"),
    ("lora", "last:2"),
    ("lora", "last:4"),
    ("bias", None),
    ("full", None),
)
_RANKS = (2, 4, 8)
#: Samples of a short run at most, each as often as it is seen.
_EFFORT = 4096
#: Share of the samples that is held out.
_HELD = 0.2


@dataclass(frozen=True, kw_only=True)
class NetworkOffer:
    """A fine-tune with its costs.

    ``memory``: bytes of the programs' window; ``frozen``: those of them that are weights of the network, in 8 bits;
    ``update``: bytes of what learns as it is shipped, in float32.
    """

    method: str
    targets: str | None
    rank: int | None
    epochs: int
    cycles: int
    seconds: float
    memory: int
    frozen: int
    update: int

    @property
    def learns(self) -> str:
        """In words."""
        if self.rank is None:
            return self.method
        where = "" if self.method == "instantft" else f" {self.targets}"
        return f"{self.method}{where}, rank {self.rank}"

    def told(self) -> Alternative:
        """Plain data."""
        return {
            "learns": self.learns,
            "method": self.method,
            "targets": self.targets,
            "rank": self.rank,
            "epochs": self.epochs,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "beside_frozen_bytes": self.memory - self.frozen,
            "update_bytes": self.update,
        }


class NetworkChooser(Chooser[NetworkOffer]):
    """A choice of method, layers, rank and epochs."""

    units = {"time": "us", "memory": "kB"}

    def __init__(self, asked: Asked, options: NetworkChoice) -> None:
        super().__init__(asked, options)
        workload = asked.preset.workload
        assert isinstance(workload, NetworkWorkload)
        self.workload, self.options, self.model = workload, options, str(options.model)
        self.network = load_network(self.model)
        given = {name: getattr(options, name) for name in ("model", "data", "scale", "loss")}
        asked_for = NetworkOptions(**given, held_out=_HELD, seed=options.seed)
        self.learn, self.held, self.loss = load_samples(asked_for, self.network)
        # The fine-tune that is chosen learns from all of them.
        self.count = len(self.learn) + len(self.held)
        self.batch = min(workload.batch, self.count)

    def identity(self) -> dict[str, object]:
        """See :class:`Chooser`."""
        return {"model": digest(Path(self.model)), "scale": self.options.scale, "loss": self.loss}

    def facts(self) -> ChosenFacts:
        """See :class:`Chooser`."""
        samples = {"learnt": len(self.learn), "judged": len(self.held)}
        return {"model": Path(self.model).name, "data": self.data.name, "samples": samples}

    def described(self, offer: NetworkOffer) -> str:
        """See :class:`Chooser`."""
        return f"{offer.learns}, epochs={offer.epochs}"

    def last(self, offer: NetworkOffer) -> float:
        """See :class:`Chooser`."""
        return offer.seconds

    def command(self, offer: NetworkOffer) -> dict[str, object]:
        """See :class:`Chooser`."""
        usual = {"targets": "*", "epochs": self.workload.epochs, "seed": 0}
        asked = {name: getattr(offer, name) for name in ("method", "targets", "rank", "epochs")}
        asked |= {"scale": self.options.scale, "loss": self.options.loss, "seed": self.seed}
        return {name: value for name, value in asked.items() if value is not None and usual.get(name) != value}

    # ---- cost

    def _learning(self, method: str, targets: str | None, rank: int | None) -> Learning:
        more: dict[str, Any] = {} if rank is None else {"targets": targets, "rank": rank}
        return learning_of(self.network, self.loss, method, seed=self.seed, **more)

    def offers(self, state: ChoiceState, tell: Progress) -> list[NetworkOffer]:
        """See :class:`Chooser`: all that the machine has gradients and memory for, with the epochs of the time."""
        wanted = [
            (method, targets, rank)
            for method, targets in _WHERE
            for rank in (_RANKS if targets is not None else (None,))
        ]
        made, left = [], []
        for number, (method, targets, rank) in enumerate(wanted):
            tell(number, len(wanted), f"costs of {method}")
            try:
                made.append(self.priced(method, targets, rank))
            except ValueError as error:
                left.append(f"{method}: {error}")
        if not made:
            raise ValueError("; ".join(dict.fromkeys(left)))
        return made

    def priced(self, method: str, targets: str | None, rank: int | None) -> NetworkOffer:
        """A candidate with the forecast of the programs that would run, and as many epochs as the time is enough for.

        There is at least one epoch.
        """
        prepared = Prepared(self._learning(method, targets, rank), self.loss)
        config, batches = self.preset.config, -(-self.count // self.batch)
        programs = prepared.programs(
            config, self.batch, prepared.rules(self.workload.lr), batches=batches, limit=MEMORY_BYTES
        )
        if programs.length > MEMORY_BYTES:
            raise ValueError(f"a step needs {programs.length:,} bytes of memory, there are {MEMORY_BYTES:,}")
        trunk = 0 if programs.trunk is None else forecast(programs.trunk.program).total
        step, clock = forecast(programs.step.program).total, config.clock_mhz * 1e6
        # Batches that share the last place run their first layers each time.
        shared = batches - programs.sets.count + 1
        again = trunk * (shared if shared > 1 else 0)
        first, each = batches * (trunk + step), batches * step + again
        epochs = self.workload.epochs
        if self.budget.seconds is not None:
            epochs = min(epochs, 1 + max(int((self.budget.seconds * clock - first) // each), 0))
        cycles = first + (epochs - 1) * each
        learning = prepared.learning
        return NetworkOffer(
            method=method,
            targets=targets,
            rank=rank,
            epochs=epochs,
            cycles=cycles,
            seconds=cycles / clock,
            memory=programs.length,
            frozen=min(self.network.parameters, programs.length),
            update=4 * learning.parameters,
        )

    # ---- quality

    def short_runs(self, within: Sequence[NetworkOffer], state: ChoiceState, tell: Progress) -> ShortRuns[NetworkOffer]:
        """See :class:`Chooser`."""
        chosen, runs = _finalists(within), []
        before = math.inf
        for number, each in enumerate(chosen, start=1):
            tell(number - 1, len(chosen), f"finalist {number} of {len(chosen)}")
            epochs = max(min(each.epochs, _EFFORT // len(self.learn)), 1)
            known = f"{each.learns}, {epochs}"
            if not state.losses.keys() >= {"before", known}:
                first, last = self._learnt(each, epochs)
                state.keep_loss("before", first)
                state.keep_loss(known, last)
            before = state.losses["before"]
            runs.append(Short(offer=each, loss=state.losses[known], more={"short_epochs": epochs}))
        return ShortRuns(before=before, runs=runs)

    def _learnt(self, offer: NetworkOffer, epochs: int) -> tuple[float, float]:
        """Held-out loss before a run and after it; infinite if it diverges."""
        learning = self._learning(offer.method, offer.targets, offer.rank)
        training = FloatTraining(learning, self.loss, FloatDescent(self.workload.lr))
        learn, held = (training.prepare(each.x) for each in (self.learn, self.held))
        random = np.random.default_rng([self.seed, 1])
        first = self._judged(training, held)
        try:
            for _ in range(epochs):
                training.epoch(learn, self.learn.y, self.batch, random.permutation(len(self.learn)))
        except ValueError:
            return first, math.inf
        return first, self._judged(training, held)

    def _judged(self, training: FloatTraining, crossing: dict[str, np.ndarray]) -> float:
        t = training.port.tensor
        found = training.logits(crossing).reshape(-1, t.rows, t.features)
        loss = scored(self.loss, found, NetworkSamples(self.held.x, self.held.y))["loss"]
        return loss if math.isfinite(loss) else math.inf


def _finalists(within: Sequence[NetworkOffer]) -> list[NetworkOffer]:
    """Of each method and its layers the largest rank with the most epochs; if too many, what lies evenly by time."""
    best: dict[tuple[str, str | None], NetworkOffer] = {}
    for each in sorted(within, key=lambda each: (-each.epochs, -(each.rank or 0), each.seconds)):
        best.setdefault((each.method, each.targets), each)
    order = sorted(best.values(), key=lambda each: each.seconds)
    count = min(len(order), MOST)
    places = [round(number * (len(order) - 1) / max(count - 1, 1)) for number in range(count)]
    return [order[place] for place in places]


choose_networks = NetworkChooser.choose
