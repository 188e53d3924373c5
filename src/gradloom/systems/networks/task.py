"""Fine-tunes of networks from ONNX files, a step a batch."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradloom.compiler.integers.descent import IntegerDescent
from gradloom.compiler.integers.held import Counts
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.graph.descent import FloatDescent
from gradloom.graph.methods import left_out
from gradloom.graph.onnx.load import load_network
from gradloom.graph.training import FloatTraining
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.time.forecast import forecast
from gradloom.sim.time.timing import Timing
from gradloom.systems.forward import Run, result_of
from gradloom.systems.held_out import NamedArrays, Score, confusion
from gradloom.systems.job import Job
from gradloom.systems.results import SecondCodes
from gradloom.systems.stepped import SteppedTask, Values
from gradloom.systems.task import Judged, Outcome

from .adapter import keep_frozen, save
from .data import NetworkSamples, load_samples
from .program.precision import fitted
from .program.prepared import TAPS, TARGETS, Prepared, learning_of, ranks_of
from .program.programs import Programs, runs
from .program.steps import MachineSteps
from .program.trunk import Trunk
from .scores import scored
from .workload import NetworkOptions, NetworkWorkload

if TYPE_CHECKING:
    from gradloom.models.adapters.lora import LearntModule
    from gradloom.sim.run.machine import MachineRunner

__all__ = ["NetworkTask", "answers", "prepare"]

Tensors = dict[str, np.ndarray]
#: Samples that share tiles where they are judged.
_JUDGED = 16
#: Of tensors that a fine-tune in floating point keeps, and of those that are judged.
_KEPT_BYTES = 1 << 29
#: What a loss is, beside the picture's axis.
_UNITS = {"classes": "cross-entropy, nats", "labels": "binary cross-entropy, nats", "values": "mean squared error"}


def answers(run: Run, prepared: Prepared, x: np.ndarray, batch: int) -> np.ndarray:
    """Results ``[n, rows, features]`` of passes by ``run``; ``batch`` samples share tiles."""
    return np.concatenate([run(prepared.inputs(x[at : at + batch])) for at in range(0, len(x), batch)])


def prepare(job: Job) -> "NetworkTask":
    """Prepares a fine-tune of a network; see :class:`~..task.Task`."""
    asked: NetworkOptions = job.options
    workload = job.preset.workload
    assert isinstance(workload, NetworkWorkload)
    network = load_network(str(asked.model))
    learn, held, loss = load_samples(asked, network)
    ranks = ranks_of(network, asked.method, asked.targets, asked.rank, workload.rank)
    lesser = ranks.pop("lesser", {})
    given: dict[str, Any] = {"targets": asked.targets, **ranks}
    if ranks:
        given["targets"] = asked.targets or (TARGETS if asked.method == "lora" else TAPS)
    if asked.method == "lora":
        given["alpha"] = 2.0 * ranks["rank"] if asked.alpha is None else asked.alpha
    learning = learning_of(network, loss, asked.method, lesser=lesser, seed=asked.seed, **given)
    for name in ("smoothing", "class_weights"):
        if loss != "classes" and (value := getattr(asked, name)) not in (0, "none"):
            raise ValueError(f"{name}={value}: must be left out with loss={loss}, it is of classes")
    weights = asked.weights(learn.y, learning.network.result.tensor.features)
    options = replace(
        asked,
        loss=loss,
        lr=workload.lr if asked.lr is None else asked.lr,
        batch=min(workload.batch if asked.batch is None else asked.batch, len(learn)),
        epochs=workload.epochs if asked.epochs is None else asked.epochs,
        limit=len(learn),
        **given,
    )
    prepared, told = Prepared(learning, loss, weights is not None), None
    if asked.engine != "float":
        prepared, told = fitted(prepared, asked.precise, learn.x, job.config, _JUDGED, job.tell)
    return NetworkTask(job, options, prepared, learn, held, weights, told)


class NetworkTask(SteppedTask):
    """A fine-tune of a network, a step a batch."""

    programs: Programs

    def __init__(
        self,
        job: Job,
        options: NetworkOptions,
        prepared: Prepared,
        learn: NetworkSamples,
        held: NetworkSamples,
        weights: list[float] | None,
        precise: SecondCodes | None,
    ) -> None:
        self._precise = precise
        self.prepared, self.learn, self.held, self.weights = prepared, learn, held, weights
        self._kept: dict[int, Tensors] = {}
        self.loss_unit = _UNITS[prepared.loss]
        assert options.batch is not None and options.epochs is not None and options.lr is not None
        self.batch, epoch = options.batch, -(-len(learn) // options.batch)
        super().__init__(job, options, steps=options.epochs * epoch, epoch=epoch)
        if job.host is not None and options.patience:
            raise ValueError(f"patience={options.patience}: must be 0 on a board, which makes all steps by itself")
        if self.exact:
            return
        self.rules = prepared.rules(options.lr, options.decay)
        # The machine's limits are the reference's, too.
        self.programs = prepared.programs(job.config, self.batch, self.rules, batches=epoch, limit=MEMORY_BYTES)
        if self.programs.length > MEMORY_BYTES:
            raise ValueError(
                f"batch={self.batch}: a step needs {self.programs.length:,} bytes of memory, the simulation has "
                f"{MEMORY_BYTES:,}"
            )

    @cached_property
    def _rows(self) -> np.ndarray:
        """Samples of each batch: all of them, and so many that fill the last one."""
        random = np.random.default_rng([self.options.seed, 1])
        order = np.concatenate([random.permutation(len(self.learn)) for _ in range(2)])
        return order[: self.epoch * self.batch].reshape(self.epoch, self.batch)

    @cached_property
    def _batches(self) -> list[int]:
        """Number of each step's batch; they come in random order, each once an epoch."""
        random = np.random.default_rng([self.options.seed, 2])
        return np.concatenate([random.permutation(self.epoch) for _ in range(self.options.epochs)]).tolist()

    @cached_property
    def told(self) -> list[Timing] | None:
        """See :class:`~..task.Task`."""
        if self.exact:
            return None
        found = {id(each): forecast(each.program) for each in (self.programs.trunk, self.programs.step) if each}
        return [found[id(each)] for each in runs(self.programs, self._batches)]

    @cached_property
    def features(self) -> int:
        """Of the result."""
        return self.prepared.learning.network.result.tensor.features

    def _wanted(self, rows: np.ndarray) -> np.ndarray:
        return self.learn.wanted(self.prepared.loss, self.features, rows, self.options.smoothing, self.weights)

    def state_there(self) -> list[tuple[int, int]]:
        """See :class:`~..task.Task`."""
        return self.programs.state

    def _begun(self) -> tuple[IntegerNetwork, IntegerDescent]:
        """The reference of steps, whose weights are masters'."""
        exact = IntegerNetwork(self.prepared.parts.rest, self.prepared.learning.learners)
        rule = IntegerDescent(self.rules)
        for name in exact.learners:
            exact.renewed(name, rule.begun(name, exact.matrix(name)))
        exact.take_counts()
        return exact, rule

    def on(self, machine: "MachineRunner") -> Outcome:
        """See :class:`~..task.Task`."""
        exact, _ = self._begun()
        steps = MachineSteps(self.programs, machine, exact, self.prepared.loss)

        def take(batch: int, _: Values) -> tuple[float, Values, list[Counts]]:
            rows, before = self._rows[batch], len(steps.ran)
            loss = steps(self.prepared.inputs(self.learn.x[rows]), self._wanted(rows), batch)
            for name, matrix in steps.matrices().items():
                exact.renewed(name, matrix)
            some = zip(steps.ran[before:], runs(self.programs, [batch])[before - len(steps.ran) :])
            counts = [
                Counts(of.stored, clipped=each.counters.saturated, zeroed=each.counters.underflowed)
                for each, of in some
            ]
            return loss, self.prepared.back(exact), counts

        return self.with_cycles(self.stepped(take, self.prepared.back(exact), self._batches), steps.ran)

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        exact, rule = self._begun()
        trunk = Trunk(self.prepared, self.programs)

        def take(batch: int, _: Values) -> tuple[float, Values, list[Counts]]:
            rows = self._rows[batch]
            given, counts = trunk(self.prepared.inputs(self.learn.x[rows]), batch)
            found = exact.forward(given)
            loss, last = exact.falling(self.prepared.objective, found[exact.port.tensor.name], self._wanted(rows))
            gradients = exact.backward(found, last)
            for name, matrix in rule({name: exact.matrix(name) for name in exact.learners}, gradients).items():
                exact.renewed(name, matrix)
            counts.append(exact.take_counts())
            counts[-1].clipped += rule.clipped
            return loss, self.prepared.back(exact), counts

        return self.stepped(take, self.prepared.back(exact), self._batches)

    def mathematics(self) -> Outcome:
        """See :class:`~..task.Task`."""
        asked, learning = self.options, self.prepared.learning
        more = {"smoothing": asked.smoothing, "weights": self.weights} if self.prepared.loss == "classes" else {}
        training = FloatTraining(
            learning, self.prepared.loss, FloatDescent(asked.lr, weight_decay=asked.decay), options=more
        )
        made: dict[int, dict[str, np.ndarray]] = {}

        def take(batch: int, _: Values) -> tuple[float, Values, list[Counts]]:
            rows = self._rows[batch]
            crossing = made.get(batch) or training.prepare(self.learn.x[rows])
            if (len(made) + 1) * sum(each.nbytes for each in crossing.values()) < _KEPT_BYTES:
                made[batch] = crossing
            loss = training.step(crossing, self.learn.y[rows])
            return loss, {name: value.copy() for name, value in training.values.items()}, []

        begun = {name: learning.network.values[name] for name in learning.learners}
        return self.stepped(take, begun, self._batches)

    def judged_as(self, values: Values) -> "dict[Any, LearntModule]":
        """See :class:`~..stepped.SteppedTask`."""
        return {name: NamedArrays({"value": value}) for name, value in values.items()}

    def kept_as(self, adapters: "Mapping[Any, LearntModule]") -> dict[str, np.ndarray]:
        """See :class:`~..stepped.SteppedTask`."""
        return {name: each.parts["value"] for name, each in adapters.items()}

    def results(self, learnt: Mapping[Any, "LearntModule"]) -> np.ndarray:
        """Results of the samples to judge by ``[n, rows, features]``, in the engine's arithmetic."""
        learning, values = self.prepared.learning, self.kept_as(learnt)
        network = learning.network
        taught = replace(learning, network=network.with_operations(network.operations, {**network.values, **values}))
        t = taught.network.result.tensor
        if self.exact:
            training = FloatTraining(taught, self.prepared.loss, FloatDescent(0.0))
            found = self._passes(training.prepare, training.logits)
            return found.reshape(-1, t.rows, t.features)
        prepared = replace(self.prepared, learning=taught)
        trunk, rest = prepared.parts.trunk, IntegerNetwork(prepared.parts.rest, taught.learners)
        before = None if trunk is None else IntegerNetwork(trunk)

        def crossing(x: np.ndarray) -> Tensors:
            given = prepared.inputs(x)
            made = {} if before is None else before.results(given)
            return given | {name: held.exact for name, held in made.items()}

        return self._passes(crossing, result_of(rest))

    def _passes(self, before: Callable[[np.ndarray], Tensors], rest: Callable[[Tensors], np.ndarray]) -> np.ndarray:
        """Results of the samples to judge by; what ``before`` makes of them never changes, and is kept."""
        made = []
        for at in range(0, len(self.held), _JUDGED):
            found = self._kept.get(at) or before(self.held.x[at : at + _JUDGED])
            if (at // _JUDGED + 1) * sum(each.nbytes for each in found.values()) < _KEPT_BYTES:
                self._kept[at] = found
            made.append(rest(found))
        return np.concatenate(made)

    def score(self, learnt: Mapping[Any, "LearntModule"]) -> Score:
        """See :func:`.scores.scored`."""
        return scored(self.prepared.loss, self.results(learnt), self.held, self.weights)

    def judge(self, outcome: Outcome) -> Judged:
        """Losses of samples that were not learnt."""
        told = dict(outcome.judged)
        first = self.judged_as({n: self.prepared.learning.network.values[n] for n in outcome.learnt})
        learnt = self.judged_as(outcome.learnt)
        if "held_out_before" not in told:
            judging = self.judging(self.score)
            judging.start(first)
            judging.finish(self.steps, learnt)
            told = judging.figures()
        if self.prepared.loss == "classes":
            told |= confusion(self.results(first)[:, 0], self.results(learnt)[:, 0], self.held.y)
        whens = ("before", "after")
        return Judged(figures=told | {f"loss_{when}": told[f"held_out_{when}"] for when in whens})

    @property
    def _lesser_ranks(self) -> dict[str, int]:
        """Ranks of layers that are too small for that of the others."""
        layers = self.prepared.layers if self.options.method == "lora" else ()
        return {each.layer: each.rank for each in layers if each.rank != self.options.rank}

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        asked, learning = self.options, self.prepared.learning
        return {
            "model": Path(str(asked.model)).name,
            "method": asked.method,
            "rank": asked.rank,
            "lesser_ranks": self._lesser_ranks,
            "targets": asked.targets,
            "left_out": left_out(learning.network, asked.targets),
            "lr": asked.lr,
            "epochs": asked.epochs,
            "steps": len(outcome.losses),
            "batch": self.batch,
            "samples": len(self.learn),
            "judged": len(self.held),
            "loss": self.prepared.loss,
            "class_weights": self.weights,
            **({} if self._precise is None else {"precise": self._precise}),
            "clock_mhz": self.job.config.clock_mhz,
            "adapter_parameters": learning.parameters,
        }

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
        asked = self.options
        told = {"model": Path(str(asked.model)).name, "method": asked.method, "loss": self.prepared.loss}
        told |= {
            "rank": asked.rank,
            "lesser_ranks": self._lesser_ranks,
            "alpha": asked.alpha,
            "targets": asked.targets,
            "layers": {each.layer for each in self.prepared.layers},
        }
        save(folder, learnt, told)
        if not self.exact:
            keep_frozen(folder, self.prepared)

    def title(self, metrics: Mapping[str, Any]) -> str:
        """See :class:`~..task.Task`."""
        return str(metrics["model"])
