"""Fine-tunes of networks from ONNX files, a step a batch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradloom.compiler.integers.descent import IntegerDescent
from gradloom.compiler.integers.held import Counts
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep
from gradloom.graph.descent import AdamW
from gradloom.graph.losses import LOSSES
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.reader import load_network
from gradloom.graph.training import Training
from gradloom.program.memory import Kind
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.systems.forward import Run, result_of
from gradloom.systems.held_out import Parts, Score, confusion
from gradloom.systems.job import Job
from gradloom.systems.stepped import SteppedTask, Values
from gradloom.systems.task import Judged, Outcome

from .adapter import save
from .data import Samples, load_samples
from .program.prepared import TARGETS, Prepared, learning_of
from .program.steps import Steps
from .workload import NetworkOptions, NetworkWorkload

if TYPE_CHECKING:
    from gradloom.models.adapters.lora import Learnt
    from gradloom.sim.run.machine import Machine

__all__ = ["NetworkTask", "answers", "prepare"]

#: Samples that share tiles where they are judged.
_JUDGED = 16
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
    rank = workload.rank if asked.rank is None else asked.rank
    alpha = 2.0 * rank if asked.alpha is None else asked.alpha
    given: dict[str, Any] = (
        {"targets": asked.targets or TARGETS, "rank": rank, "alpha": alpha} if asked.method == "lora" else {}
    )
    learning = learning_of(network, loss, asked.method, seed=asked.seed, **given)
    if asked.smoothing and loss != "classes":
        raise ValueError(f"smoothing={asked.smoothing:g}: must be left out with loss={loss}, it is of classes")
    options = replace(
        asked,
        loss=loss,
        lr=workload.lr if asked.lr is None else asked.lr,
        batch=min(workload.batch if asked.batch is None else asked.batch, len(learn)),
        epochs=workload.epochs if asked.epochs is None else asked.epochs,
        limit=len(learn),
        **given,
    )
    return NetworkTask(job, options, Prepared(learning, loss), learn, held)


class NetworkTask(SteppedTask):
    """A fine-tune of a network, a step a batch."""

    step: TileStep

    def __init__(self, job: Job, options: NetworkOptions, prepared: Prepared, learn: Samples, held: Samples) -> None:
        self.prepared, self.learn, self.held = prepared, learn, held
        self.loss_unit = _UNITS[prepared.loss]
        assert options.batch is not None and options.epochs is not None and options.lr is not None
        self.batch, epoch = options.batch, -(-len(learn) // options.batch)
        super().__init__(job, options, steps=options.epochs * epoch, epoch=epoch)
        if job.host is not None and options.patience:
            raise ValueError(f"patience={options.patience}: must be 0 on a board, which makes all steps by itself")
        self.runs = self.steps
        if self.exact:
            return
        self.rules = prepared.rules(options.lr, options.decay)
        # The machine's limits are the reference's, too.
        self.step = prepared.step(job.config, self.batch, self.rules)
        if self.step.program.length > MEMORY_BYTES:
            raise ValueError(
                f"batch={self.batch}: a step needs {self.step.program.length:,} bytes of memory, the simulation has "
                f"{MEMORY_BYTES:,}"
            )
        self.program = self.step.program

    def _batches(self) -> Iterator[np.ndarray]:
        """Samples of each step, in random order, each once an epoch."""
        random, order = np.random.default_rng([self.options.seed, 1]), np.empty(0, np.int64)
        for _ in range(self.steps):
            while len(order) < self.batch:
                order = np.concatenate([order, random.permutation(len(self.learn))])
            chosen, order = order[: self.batch], order[self.batch :]
            yield chosen

    @cached_property
    def features(self) -> int:
        """Of the result."""
        return self.prepared.learning.network.outputs[0].tensor.features

    def _wanted(self, rows: np.ndarray) -> np.ndarray:
        return self.learn.wanted(self.prepared.loss, self.features, rows, self.options.smoothing)

    def state_there(self) -> list[tuple[int, int]]:
        """See :class:`~..task.Task`."""
        return self.step.program.memory.of(Kind.LEARNT)

    def _begun(self) -> tuple[IntegerNetwork, IntegerDescent]:
        """The reference whose weights are masters'."""
        exact, rule = self.prepared.integers(), IntegerDescent(self.rules)
        for name in exact.learners:
            exact.renewed(name, rule.begun(name, exact.matrix(name)))
        exact.take_counts()
        return exact, rule

    def on(self, machine: "Machine") -> Outcome:
        """See :class:`~..task.Task`."""
        exact, _ = self._begun()
        steps = Steps(self.step, machine, exact, self.prepared.loss)

        def take(rows: np.ndarray, _: Values) -> tuple[float, Values, Counts]:
            loss = steps(self.prepared.inputs(self.learn.x[rows]), self._wanted(rows))
            for name, matrix in steps.matrices().items():
                exact.renewed(name, matrix)
            health = steps.ran[-1].counters
            counts = Counts(self.step.stored, clipped=health.saturated, zeroed=health.underflowed)
            return loss, self.prepared.back(exact), counts

        return self.with_cycles(self.stepped(take, self.prepared.back(exact), self._batches()), steps.ran)

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        exact, rule = self._begun()

        def take(rows: np.ndarray, _: Values) -> tuple[float, Values, Counts]:
            found = exact.forward(self.prepared.inputs(self.learn.x[rows]))
            loss, last = exact.falling(self.prepared.loss, found[exact.port.tensor.name], self._wanted(rows))
            gradients = exact.backward(found, last)
            for name, matrix in rule({name: exact.matrix(name) for name in exact.learners}, gradients).items():
                exact.renewed(name, matrix)
            counts = exact.take_counts()
            counts.clipped += rule.clipped
            return loss, self.prepared.back(exact), counts

        return self.stepped(take, self.prepared.back(exact), self._batches())

    def mathematics(self) -> Outcome:
        """See :class:`~..task.Task`."""
        asked, learning = self.options, self.prepared.learning
        more = {"smoothing": asked.smoothing} if asked.smoothing else {}
        training = Training(learning, self.prepared.loss, AdamW(asked.lr, weight_decay=asked.decay), options=more)

        def take(rows: np.ndarray, _: Values) -> tuple[float, Values, None]:
            loss = training.step(training.prepare(self.learn.x[rows]), self.learn.y[rows])
            return loss, {name: value.copy() for name, value in training.values.items()}, None

        begun = {name: learning.network.values[name] for name in learning.learners}
        return self.stepped(take, begun, self._batches())

    def judged_as(self, values: Values) -> "dict[Any, Learnt]":
        """See :class:`~..stepped.SteppedTask`."""
        return {name: Parts({"value": value}) for name, value in values.items()}

    def kept_as(self, adapters: "Mapping[Any, Learnt]") -> dict[str, np.ndarray]:
        """See :class:`~..stepped.SteppedTask`."""
        return {name: each.parts["value"] for name, each in adapters.items()}

    def results(self, learnt: Mapping[Any, "Learnt"]) -> np.ndarray:
        """Results of the samples to judge by ``[n, rows, features]``, in the engine's arithmetic."""
        values = {name: each.parts["value"] for name, each in learnt.items()}
        network = self.prepared.learning.network
        taught = network.with_operations(network.operations, {**network.values, **values})
        if self.exact:
            t = taught.outputs[0].tensor
            found = FloatReading(taught, dtype=np.float32).forward(self.held.x)[t.name]
            return found.reshape(-1, t.rows, t.features)
        prepared = Prepared(replace(self.prepared.learning, network=taught), self.prepared.loss)
        return answers(result_of(prepared.integers()), prepared, self.held.x, _JUDGED)

    def score(self, learnt: Mapping[Any, "Learnt"]) -> Score:
        """Mean loss of the samples to judge by, and share of right answers."""
        found = self.results(learnt)
        loss, _ = LOSSES[self.prepared.loss](found[:, 0] if self.prepared.loss == "classes" else found, self.held.y)
        if self.prepared.loss != "classes":
            return {"loss": loss}
        return {"loss": loss, "accuracy": float((found[:, 0].argmax(1) == self.held.y).mean())}

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

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        asked, learning = self.options, self.prepared.learning
        return {
            "model": Path(str(asked.model)).name,
            "method": asked.method,
            "rank": asked.rank,
            "targets": asked.targets,
            "lr": asked.lr,
            "epochs": asked.epochs,
            "steps": len(outcome.losses),
            "batch": self.batch,
            "samples": len(self.learn),
            "judged": len(self.held),
            "loss": self.prepared.loss,
            "clock_mhz": self.job.config.clock_mhz,
            "adapter_parameters": learning.parameters,
        }

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
        asked = self.options
        told = {"model": Path(str(asked.model)).name, "method": asked.method, "loss": self.prepared.loss}
        told |= {"rank": asked.rank, "alpha": asked.alpha, "layers": {each.layer for each in self.prepared.layers}}
        save(folder, learnt, told)

    def title(self, metrics: Mapping[str, Any]) -> str:
        """See :class:`~..task.Task`."""
        return str(metrics["model"])
