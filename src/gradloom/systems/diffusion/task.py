"""Fine-tunes of the shipped diffusion model of digits by LoRA."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradloom.compiler.integers.descent import IntegerDescent, rules_of
from gradloom.compiler.integers.held import Counts
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep
from gradloom.graph import descent
from gradloom.graph.base import Operation
from gradloom.graph.losses import squares
from gradloom.graph.mathematics import FloatReading
from gradloom.models.adapters.diffusion_lora import load_diffusion_lora, save_diffusion_lora
from gradloom.models.datasets import dataset_of, load_images, mnist_test
from gradloom.models.digits_unet import ANY, check_sizes, latents, shipped_prompts, shipped_unet
from gradloom.models.files.archive import read_labelled
from gradloom.models.files.unet import UNet
from gradloom.program.descent import AdamW
from gradloom.program.memory import AreaKind
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.held_out import Score
from gradloom.systems.job import Job
from gradloom.systems.stepped import SteppedTask
from gradloom.systems.task import Judged, Outcome

from .noise import noisy, spread
from .pictures import Judge, plot_grids
from .plan import memory
from .program.step import Stepper, check_size, losses_of, lowered
from .unet import (
    RESULT,
    TARGETS,
    Values,
    adapted,
    adapters_of,
    layers_of,
    network,
    operations,
    timesteps,
    values_of,
    with_values,
)
from .workload import DiffusionOptions, DiffusionWorkload

if TYPE_CHECKING:
    from gradloom.firmware.jobs.job import Losses
    from gradloom.models.adapters.lora import LearntModule

__all__ = [
    "DiffusionTask",
    "Samples",
    "fresh_adapters",
    "held_out_loss",
    "loss_and_gradients",
    "prepare",
    "samples_of",
    "step_inputs",
    "with_rank",
]

#: Images of a batch that is only judged.
_JUDGED = 64
#: Digits in the pictures of results.
_SHOWN = 50


@dataclass(frozen=True, eq=False)
class Samples:
    """Latents ``[n, 64, 4]``, digits and prompts ``[n, tokens, features]``."""

    latents: np.ndarray
    digits: np.ndarray
    prompts: np.ndarray

    def of(self, rows: np.ndarray) -> "Samples":
        """Some of them."""
        return Samples(self.latents[rows], self.digits[rows], self.prompts[rows])


def fresh_adapters(listed: Sequence[Operation], seed: int) -> dict[str, np.ndarray]:
    """Weights of new adapters as PEFT draws them: A uniform in ±1/√inputs, B zero."""
    random = np.random.default_rng([seed, 0])
    made = {}
    for each in adapted(listed):
        (a, b), bound = each.adapter, each.i[0].features ** -0.5
        made[a.name] = random.uniform(-bound, bound, a.shape).astype(np.float32)
        made[b.name] = np.zeros(b.shape, np.float32)
    return made


def with_rank(net: UNet, rank: int, targets: str) -> list[Operation]:
    """Operations for prompts of the shipped model."""
    return operations(net, text=len(shipped_prompts().places), rank=rank, targets=TARGETS[targets])


def batch_of(net: UNet, samples: Samples, noise: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
    """Inputs of a UNet: noisy latents, timesteps and prompts."""
    return {
        "latents": noisy(samples.latents, noise, steps),
        "timestep": timesteps(net, steps)[:, None],
        "prompt": samples.prompts,
    }


def step_inputs(
    net: UNet, learn: Samples, *, batch: int, steps: int, seed: int
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Inputs and noise of each step.

    Images come in random order, each once an epoch.
    """
    random, order = np.random.default_rng([seed, 1]), np.empty(0, np.int64)
    for number in range(steps):
        while len(order) < batch:
            order = np.concatenate([order, random.permutation(len(learn.latents))])
        chosen, order = learn.of(order[:batch]), order[batch:]
        drawn = np.random.default_rng([seed, 2, number])
        noise, times = drawn.standard_normal(chosen.latents.shape), spread(drawn, batch)
        yield batch_of(net, chosen, noise, times), noise


def loss_and_gradients(
    net: FloatReading, data: Values, noise: np.ndarray, learners: Collection[str]
) -> tuple[float, dict[str, np.ndarray]]:
    """Mean squared error of the predicted noise, and its gradients of weights."""
    found = net.forward(data)
    loss, last = squares(found[RESULT], noise)
    return loss, net.backward(found, {RESULT: last}, learners)


def loss_of(net: FloatReading | IntegerNetwork, data: Values, noise: np.ndarray) -> float:
    """The loss alone, by a network's own arithmetic."""
    if isinstance(net, IntegerNetwork):
        return net.falling("values", net.result(data), noise)[0]
    return squares(net.run(data)[0], noise)[0]


def held_out_loss(
    net: FloatReading | IntegerNetwork,
    shapes: UNet,
    samples: Samples,
    learnt: Values,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> float:
    """Mean loss of images, each with one noise and one timestep of its own.

    They are the same in each call. ``learnt``: weights of the network that are taken first.
    """
    with_values(net, learnt)
    random = np.random.default_rng(1)
    noise = random.standard_normal(samples.latents.shape)
    steps, total = spread(random, len(noise)), 0.0
    for start in range(0, len(noise), _JUDGED):
        rows = np.arange(start, min(start + _JUDGED, len(noise)))
        data = batch_of(shapes, samples.of(rows), noise[rows], steps[rows])
        total += loss_of(net, data, noise[rows]) * len(rows)
        tell(int(rows[-1]) + 1, len(noise))
    return total / len(noise)


#: Inputs and noise of a step.
Batch = tuple[dict[str, np.ndarray], np.ndarray]


class DiffusionTask(SteppedTask):
    """A fine-tune of the shipped diffusion model, a step a batch."""

    loss_unit = "mean squared error"
    step: TileStep

    def __init__(self, job: Job) -> None:
        asked: DiffusionOptions = job.options
        workload = job.preset.workload
        assert isinstance(workload, DiffusionWorkload)
        if asked.generate and asked.generate < 128:
            raise ValueError(f"generate={asked.generate}: must be 0, or at least 128 for a Frechet distance")
        if asked.data is not None and asked.style is not None:
            raise ValueError(f"style={asked.style}: must be left out, the images are in {asked.data}")
        if asked.alpha is not None and asked.adapter is None:
            raise ValueError(f"alpha={asked.alpha:g}: must be left out, it is of an adapter to start from")
        self.shapes, self.weights = shipped_unet()
        self.style = None if asked.data is not None else asked.style or "rot90"
        begun = None
        rank = workload.rank if asked.rank is None else asked.rank
        if asked.adapter is not None:
            begun, found = _adapter_to_start(Path(asked.adapter), self.shapes, asked)
            if asked.rank not in (None, found):
                raise ValueError(f"rank={asked.rank}: {asked.adapter} has adapters of rank {found}")
            rank = found
        self.listed = with_rank(self.shapes, rank, asked.targets)
        self.learn, self.held = samples_of(asked, workload, self.style)
        self.batch = min(workload.batch if asked.batch is None else asked.batch, len(self.learn.latents))
        self.lr = workload.lr if asked.lr is None else asked.lr
        options = replace(asked, rank=rank, lr=self.lr, batch=self.batch, style=self.style)
        super().__init__(job, options, steps=asked.steps, epoch=-(-len(self.learn.latents) // self.batch))
        self.runs = self.steps
        if job.host is not None and asked.patience:
            raise ValueError(f"patience={asked.patience}: must be 0 on a board, which makes all steps by itself")
        self.begun = begun or fresh_adapters(self.listed, asked.seed)
        self.network = network(self.listed, self.weights | self.begun)
        if asked.engine == "rtl":
            self.step = self._lowered()
            self.program = self.step.program

    def _lowered(self) -> TileStep:
        """The program of a step; refuses a batch that has none."""
        try:
            step = lowered(self.job.config, self.network, self.begun, images=self.batch, lr=self.lr)
            check_size(step)
        except ValueError as error:
            raise ValueError(f"batch={self.batch}: {error}; give fewer images") from None
        return step

    def _descent(self) -> tuple[IntegerDescent, dict[str, np.ndarray]]:
        """The rule in integers, and the adapters that it starts from."""
        rule = IntegerDescent(rules_of(AdamW(lr=self.lr), self.begun))
        return rule, {name: rule.begun(name, x) for name, x in self.begun.items()}

    @cached_property
    def real(self) -> FloatReading:
        """The network in floating point."""
        return FloatReading(self.network, dtype=np.float32)

    @cached_property
    def integers(self) -> IntegerNetwork:
        """The network in the machine's integers."""
        return IntegerNetwork(self.network, tuple(self.begun))

    def losses_there(self) -> "Losses":
        """See :class:`~..task.Task`."""
        return losses_of(self.step)

    def state_there(self) -> list[tuple[int, int]]:
        """See :class:`~..task.Task`."""
        return self.step.program.memory.of(AreaKind.LEARNT)

    def on(self, machine: MachineRunner) -> Outcome:
        """See :class:`~..task.Task`."""
        stepper = Stepper(self.step, machine, self.begun)

        def take(batch: Batch, _: Values) -> tuple[float, Values, list[Counts]]:
            loss, after = stepper(*batch)
            health = stepper.ran[-1].counters
            return loss, after, [Counts(self.step.stored, clipped=health.saturated, zeroed=health.underflowed)]

        return self.with_cycles(self.stepped(take, stepper.learnt(), self._batches()), stepper.ran)

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        (rule, learnt), net = self._descent(), self.integers
        with_values(net, learnt)
        net.take_counts()

        def take(batch: Batch, held: Values) -> tuple[float, Values, list[Counts]]:
            data, noise = batch
            found = net.forward(data)
            loss, last = net.falling("values", found[RESULT], noise)
            after = rule(held, net.backward(found, last))
            for name, x in after.items():
                net.renewed(name, x)
            counts = net.take_counts()
            counts.clipped += rule.clipped
            return loss, after, [counts]

        return self.stepped(take, learnt, self._batches())

    def mathematics(self) -> Outcome:
        """See :class:`~..task.Task`."""
        rule, net = descent.FloatDescent(self.lr), self.real

        def take(batch: Batch, held: Values) -> tuple[float, Values, list[Counts]]:
            with_values(net, held)
            loss, gradients = loss_and_gradients(net, *batch, set(held))
            after = dict(held)
            rule(after, gradients)
            return loss, after, []

        return self.stepped(take, self.begun, self._batches())

    def judged_as(self, values: Values) -> "dict[Any, LearntModule]":
        """See :class:`~..stepped.SteppedTask`."""
        return {**adapters_of(values)}

    def _batches(self) -> Iterator[Batch]:
        return step_inputs(self.shapes, self.learn, batch=self.batch, steps=self.steps, seed=self.options.seed)

    def score(self, adapters: Any) -> Score:
        """Of a network in floating point, by images that are not learnt."""
        return {"loss": held_out_loss(self.real, self.shapes, self.held, values_of(adapters), self._said("judging"))}

    def judge(self, outcome: Outcome) -> Judged:
        """Losses on images that were not learnt, and generated digits."""
        first = self.begun if self.exact else self._descent()[1]
        learnt = {"before": first, "after": values_of(outcome.learnt)}
        told = dict(outcome.judged)
        for when, adapters in learnt.items():
            found = told.get(f"held_out_{when}")
            told[f"loss_{when}"] = self.score(adapters_of(adapters))["loss"] if found is None else found
            if not self.exact:
                said = self._said(f"own loss {when}")
                told[f"own_loss_{when}"] = held_out_loss(self.integers, self.shapes, self.held, adapters, said)
        if not self.options.generate:
            return Judged(figures=told)
        judge = Judge(
            self.shapes,
            self.real,
            self.held.latents,
            self.held.digits,
            style=self.style,
            prompt=self.options.prompt,
            tell=self.job.tell,
        )
        made: dict[str, dict[str, float]] = {}
        pictures = {}
        for when, adapters in learnt.items():
            digits = judge.digits(self.options.generate)
            images = judge.made(adapters, digits, when)
            pictures[when] = images[:_SHOWN]
            made[when] = judge.figures(images, digits)
        told |= {name: {when: each[name] for when, each in made.items()} for name in made["before"]}
        return Judged(figures=told | {"accuracy_images": judge.accuracy}, pictures=pictures)

    def _said(self, text: str) -> Callable[[int, int], None]:
        return lambda done, total: self.job.tell(done, total, text)

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        asked = self.options
        return {
            "model": "digits",
            "method": "lora",
            "rank": asked.rank,
            "targets": asked.targets,
            "style": self.style,
            "prompt": asked.prompt,
            "lr": asked.lr,
            "steps": len(outcome.losses),
            "batch": self.batch,
            "samples": len(self.learn.latents),
            "judged": len(self.held.latents),
            "generated": asked.generate,
            "clock_mhz": self.job.config.clock_mhz,
            "adapter_parameters": sum(each.size for each in self.begun.values()),
            "memory_bytes": sum(memory(self.listed, self.batch).values()),
            "memory_bytes_float32": sum(memory(self.listed, self.batch, float32=True).values()),
        }

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
        save_diffusion_lora(folder, learnt)

    def title(self, metrics: Mapping[str, Any]) -> str:
        """See :class:`~..task.Task`."""
        return "digits"

    def save(self, folder: Path, outcome: Outcome, judged: Judged, metrics: Mapping[str, Any]) -> None:
        """The adapter, the losses' plot and both grids."""
        super().save(folder, outcome, judged, metrics)
        if judged.pictures:
            with (folder / "samples.png").open("wb") as file:
                plot_grids(file, judged.pictures)


prepare = DiffusionTask


def _adapter_to_start(folder: Path, net: UNet, asked: DiffusionOptions) -> tuple[dict[str, np.ndarray], int]:
    layers = layers_of(with_rank(net, 1, asked.targets))
    alphas = None if asked.alpha is None else dict.fromkeys(layers, asked.alpha)
    found = load_diffusion_lora(folder, layers, alphas=alphas)
    ranks = sorted({each.rank for each in found.values()})
    if len(ranks) > 1:
        raise ValueError(f"{folder}: has adapters of ranks {', '.join(map(str, ranks))}: must have one rank")
    return values_of(found), ranks[0]


def samples_of(asked: DiffusionOptions, workload: DiffusionWorkload, style: str | None) -> tuple[Samples, Samples]:
    """Images to learn from, and others to judge by, in a style."""
    words = shipped_prompts()
    texts = asked.prompt.split()
    digits = [int(word) for word in texts if word in "0123456789" and len(word) == 1]
    if ANY in texts and digits:
        raise ValueError(f"prompt={asked.prompt!r}: must have a digit or {ANY}, not both")
    for digit in range(10):
        words.filled(asked.prompt, digit)
    if asked.data is None:
        if asked.held_out is not None:
            raise ValueError(f"held_out={asked.held_out}: must be left out without --data, whose digits have a part")
        images, labels = mnist_test()
        order = np.argsort(np.random.PCG64([asked.seed, 0xD16]).random_raw(len(images)), kind="stable")
        wanted = np.isin(labels[order], digits or range(10))
        order = order[wanted]
        split = order[: workload.samples], order[workload.samples : workload.samples + workload.judged]
        parts = [(images[rows], labels[rows]) for rows in split]
    else:
        path = Path(asked.data)
        arrays = asked.divided(read_labelled(path, asked.parts), "image", load_images)
        data = dataset_of(path, arrays, 10)
        parts = []
        for name, x, y in (("x_train", data.x_train, data.y_train), ("x_test", data.x_test, data.y_test)):
            try:
                x = check_sizes(name, x)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
            there = np.isin(y, digits or range(10))
            if not there.any():
                raise ValueError(f"{path}: {name} has no image of {digits[0]}, which the prompt asks for")
            parts.append((x[there][: workload.judged if name == "x_test" else None], y[there]))
        parts = [(x, y[: len(x)]) for x, y in parts]
    made = [
        Samples(latents(x, style), y, np.stack([words.filled(asked.prompt, int(digit)) for digit in y]))
        for x, y in parts
    ]
    return made[0], made[1]
