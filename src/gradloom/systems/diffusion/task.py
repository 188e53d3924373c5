"""Fine-tunes of the shipped diffusion model of digits by LoRA."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradloom.models.adapters.diffusion_lora import load_diffusion_lora, save_diffusion_lora
from gradloom.models.adapters.lora import Adapter, finite
from gradloom.models.datasets import load_npz, mnist_test
from gradloom.models.digits_unet import ANY, check_sizes, latents, shipped_prompts, shipped_unet
from gradloom.models.files.unet import UNet
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import Machine, Ran
from gradloom.sim.time.forecast import forecast
from gradloom.systems.driver import Job, Outcome
from gradloom.systems.plots import plot_steps

from .estimate.plan import memory
from .integers import Counts, IntegerDescent, IntegerUNet
from .mathematics import Factors, FloatDescent, FloatUNet, timesteps
from .noise import noisy, spread
from .operations import Operation, adapted
from .pictures import Judge, plot_grids
from .program.writer import DiffusionStep, lower
from .simulated import Stepper, check_size, losses_of, state_of
from .unet import TARGETS, operations
from .workload import DiffusionOptions, DiffusionWorkload

__all__ = [
    "Samples",
    "fresh_adapters",
    "held_out_loss",
    "layers_of",
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


def layers_of(listed: Sequence[Operation]) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of each layer with an adapter."""
    return {each.layer: (each.i[0].features, each.o.features) for each in adapted(listed)}


def fresh_adapters(listed: Sequence[Operation], seed: int) -> dict[str, Adapter]:
    """New adapters as PEFT draws them: A uniform in ±1/√inputs, B zero."""
    random = np.random.default_rng([seed, 0])
    made = {}
    for each in adapted(listed):
        inputs, outputs = each.i[0].features, each.o.features
        a = random.uniform(-(inputs**-0.5), inputs**-0.5, (each.rank, inputs)).astype(np.float32)
        made[each.layer] = Adapter(a, np.zeros((outputs, each.rank), np.float32), 1.0)
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


def held_out_loss(
    net: FloatUNet,
    shapes: UNet,
    samples: Samples,
    adapters: Factors,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> float:
    """Mean loss of images, each with one noise and one timestep of its own.

    They are the same in each call.
    """
    random = np.random.default_rng(1)
    noise = random.standard_normal(samples.latents.shape)
    steps, total = spread(random, len(noise)), 0.0
    for start in range(0, len(noise), _JUDGED):
        rows = np.arange(start, min(start + _JUDGED, len(noise)))
        data = batch_of(shapes, samples.of(rows), noise[rows], steps[rows])
        total += net.loss(data, noise[rows], adapters) * len(rows)
        tell(int(rows[-1]) + 1, len(noise))
    return total / len(noise)


class _Steps(Protocol):
    """Makes a step: loss before it, adapters after it, and counts."""

    def __call__(
        self, data: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors, /
    ) -> tuple[float, dict[str, Adapter], Counts | None]: ...


@dataclass(frozen=True, eq=False)
class _FloatSteps:
    net: FloatUNet
    rule: FloatDescent

    def __call__(
        self, data: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors
    ) -> tuple[float, dict[str, Adapter], None]:
        loss, gradients = self.net.loss_and_gradients(data, noise, adapters)
        return loss, self.rule(adapters, gradients), None


@dataclass(frozen=True, eq=False)
class _IntegerSteps:
    net: IntegerUNet
    rule: IntegerDescent

    def __call__(
        self, data: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors
    ) -> tuple[float, dict[str, Adapter], Counts]:
        loss, gradients = self.net.loss_and_gradients(data, noise, adapters)
        after = self.rule(adapters, gradients)
        self.net.renewed(after)
        counts = self.net.take_counts()
        counts.clipped += self.rule.clipped
        return loss, after, counts


class _DeviceSteps:
    def __init__(self, step: DiffusionStep, machine: Machine, adapters: Factors) -> None:
        self.stepper = Stepper(step, machine, adapters)

    def __call__(
        self, data: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors
    ) -> tuple[float, dict[str, Adapter], Counts]:
        loss, after = self.stepper(data, noise)
        health = self.stepper.ran[-1].counters
        stored = self.stepper.step.stored
        return loss, after, Counts(stored=stored, clipped=health.saturated, zeroed=health.underflowed)


class DiffusionTask:
    """See :class:`~.driver.Task`."""

    counts = None

    def __init__(self, job: Job) -> None:
        asked: DiffusionOptions = job.options
        workload = job.preset.workload
        assert isinstance(workload, DiffusionWorkload)
        self.job, self.workload = job, workload
        if asked.generate and asked.generate < 128:
            raise ValueError(f"generate={asked.generate}: must be 0, or at least 128 for a Frechet distance")
        if asked.data is not None and asked.style is not None:
            raise ValueError(f"style={asked.style}: must be left out, the images are in {asked.data}")
        if asked.alpha is not None and asked.adapter is None:
            raise ValueError(f"alpha={asked.alpha:g}: must be left out, it is of an adapter to start from")
        self.shapes, self.weights = shipped_unet()
        self.style = None if asked.data is not None else asked.style or "rot90"
        self.begun = None
        rank = workload.rank if asked.rank is None else asked.rank
        if asked.adapter is not None:
            self.begun, found = _adapter_to_start(Path(asked.adapter), self.shapes, asked)
            if asked.rank not in (None, found):
                raise ValueError(f"rank={asked.rank}: {asked.adapter} has adapters of rank {found}")
            rank = found
        self.listed = with_rank(self.shapes, rank, asked.targets)
        self.learn, self.held = samples_of(asked, workload, self.style)
        batch = min(workload.batch if asked.batch is None else asked.batch, len(self.learn.latents))
        lr = workload.lr if asked.lr is None else asked.lr
        self.options = replace(asked, rank=rank, lr=lr, batch=batch, style=self.style)
        self.files = {
            name: Path(value) for name, value in (("data", asked.data), ("adapter", asked.adapter)) if value is not None
        }
        self.steps = asked.steps
        self.epoch = -(-len(self.learn.latents) // batch)
        if asked.engine == "rtl":
            self.step = self._lowered()

    def package(self) -> None:
        """None: there is no package."""

    def forecast(self) -> dict[str, int] | None:
        """Cycles of all steps in RTL; see :class:`~.driver.Task`."""
        asked = self.options
        if asked.engine != "rtl":
            return None
        self.expected = forecast(self.step.program)
        told = {"total": self.expected.total} | self.expected.phases
        return {name: self.steps * cycles for name, cycles in told.items()}

    def _lowered(self) -> DiffusionStep:
        """The program of a step; refuses a batch that has none."""
        asked = self.options
        assert asked.lr is not None and asked.batch is not None
        rule, images = IntegerDescent(asked.lr), asked.batch
        rule.begun(self._adapters())
        fractions = rule.fractions
        try:
            step = lower(self.job.config, self.listed, self.weights, images=images, fractions=fractions, rule=rule.rule)
            check_size(step)
        except ValueError as error:
            raise ValueError(f"batch={images}: {error}; give 1, 2, 4, 8 or 16") from None
        return step

    def _adapters(self) -> dict[str, Adapter]:
        return self.begun or fresh_adapters(self.listed, self.options.seed)

    def run(self, engine: str) -> Outcome:
        """The fine-tune, a step a batch."""
        asked = self.options
        assert asked.lr is not None
        self.judge_net = FloatUNet(self.listed, self.weights)
        self.net = self.judge_net if engine == "float" else IntegerUNet(self.listed, self.weights)
        if engine == "float":
            return self._learnt(_FloatSteps(self.judge_net, FloatDescent(asked.lr)), self._adapters())
        assert isinstance(self.net, IntegerUNet)
        rule = IntegerDescent(asked.lr)
        adapters = rule.begun(self._adapters())
        if engine != "rtl":
            return self._learnt(_IntegerSteps(self.net, rule), adapters)
        losses, state = losses_of(self.step), state_of(self.step)
        expected = self.steps * self.expected.total
        with self.job.machine(expected=expected, losses=losses, state=state) as machine:
            steps = _DeviceSteps(self.step, machine, adapters)
            outcome = self._learnt(steps, adapters)
        self.ran: list[Ran] = steps.stepper.ran
        counters = [each.counters for each in self.ran]
        phases = {name: sum(each.phases[name] for each in counters) for name in counters[0].phases}
        cycles = {"total": sum(each.cycles for each in counters)} | phases
        return replace(outcome, figures={**outcome.figures, "cycles": cycles})

    def _learnt(self, take: "_Steps", adapters: Factors) -> Outcome:
        self.first = adapters
        losses: list[float] = []
        counts: list[Counts] = []
        size = self.options.batch
        assert size is not None
        for number, (data, noise) in enumerate(
            step_inputs(self.shapes, self.learn, batch=size, steps=self.steps, seed=self.options.seed)
        ):
            loss, after, counted = take(data, noise, adapters)
            if not np.isfinite(loss) or not finite(after):
                break
            adapters = after
            losses.append(loss)
            if counted is not None:
                counts.append(counted)
            self.job.tell(number + 1, self.steps, f"step {number + 1}: loss {loss:.4f}")
        self.counted = counts
        figures: dict[str, Any] = {"cycles": None}
        if isinstance(take, _FloatSteps):
            return Outcome(losses=losses, learnt=adapters, figures=figures)
        clipped, words = [each.clipped for each in counts], [each.stored for each in counts]
        figures |= {"saturated": sum(clipped), "zeroed": sum(each.zeroed for each in counts), "stored": sum(words)}
        return Outcome(losses=losses, learnt=adapters, clipped=clipped, words=words, figures=figures)

    def compared(self, ran: Outcome) -> Outcome:
        """Compares RTL with the reference; see :class:`~.driver.Task`.

        It compares the loss and every counter of each step, the cycles of every command, and every word of the adapters
        that are learnt.
        """
        found = self.counted
        wanted = self.run("reference")
        check_words(
            {"loss of each step": ran.losses, "codes stored by each step": [each.stored for each in found]},
            {"loss of each step": wanted.losses, "codes stored by each step": [each.stored for each in self.counted]},
        )
        words = sum(
            check_words(
                {f"{part} of {layer}": values for part, values in ran.learnt[layer].parts.items()},
                {f"{part} of {layer}": values for part, values in adapter.parts.items()},
            )
            for layer, adapter in wanted.learnt.items()
        )
        equal = {"losses": len(ran.losses), "adapter_words": words}
        for each, counts in zip(self.ran, self.counted, strict=True):
            for name, count in each.check(
                saturated=counts.clipped, underflowed=counts.zeroed, told=self.expected
            ).items():
                equal[name] = equal.get(name, 0) + count
        return replace(ran, figures={**ran.figures, "equal_to_reference": equal})

    def alone(self, ran: Outcome) -> Outcome:
        """See :class:`~.driver.Task`."""
        return ran

    def judge(self, outcome: Outcome) -> tuple[dict[str, Any], None]:
        """Losses on images that were not learnt, and generated digits."""
        told: dict[str, Any] = {}
        self.grids: dict[str, np.ndarray] = {}
        nets = {"loss": self.judge_net} | ({"own_loss": self.net} if self.net is not self.judge_net else {})
        for name, net in nets.items():
            for when, adapters in (("before", self.first), ("after", outcome.learnt)):
                said = functools.partial(self._said, f"{name} {when}")
                told[f"{name}_{when}"] = held_out_loss(net, self.shapes, self.held, adapters, said)
        if self.options.generate:
            told |= self._generated(outcome)
        return told, None

    def _said(self, text: str, done: int, total: int) -> None:
        self.job.tell(done, total, text)

    def _generated(self, outcome: Outcome) -> dict[str, Any]:
        judge = Judge(
            self.shapes,
            self.judge_net,
            self.held.latents,
            self.held.digits,
            style=self.style,
            prompt=self.options.prompt,
            tell=self.job.tell,
        )
        count = self.options.generate
        made: dict[str, dict[str, float]] = {}
        for when, adapters in (("before", self.first), ("after", outcome.learnt)):
            digits = judge.digits(count)
            images = judge.made(adapters, digits, when)
            self.grids[when] = images[:_SHOWN]
            made[when] = judge.figures(images, digits)
        told: dict[str, Any] = {name: {when: each[name] for when, each in made.items()} for name in made["before"]}
        return told | {"accuracy_images": judge.accuracy}

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~.driver.Task`."""
        asked = self.options
        assert asked.batch is not None and asked.rank is not None
        kept = memory(self.listed, asked.batch)
        return {
            "model": "digits",
            "method": "lora",
            "rank": asked.rank,
            "targets": asked.targets,
            "style": self.style,
            "prompt": asked.prompt,
            "lr": asked.lr,
            "steps": len(outcome.losses),
            "batch": asked.batch,
            "samples": len(self.learn.latents),
            "judged": len(self.held.latents),
            "generated": asked.generate,
            "clock_mhz": self.job.config.clock_mhz,
            "adapter_parameters": sum(p.size for each in outcome.learnt.values() for p in each.parts.values()),
            "memory_bytes": sum(kept.values()),
            "memory_bytes_float32": sum(memory(self.listed, asked.batch, float32=True).values()),
        }

    def finish(self) -> None:
        """Nothing is left behind."""

    def save(self, folder: Path, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
        """The adapter, the losses' plot and both grids."""
        save_diffusion_lora(folder, outcome.learnt)
        plot_steps(folder / "loss.png", metrics, "digits", loss_unit="mean squared error")
        if self.grids:
            with (folder / "samples.png").open("wb") as file:
                plot_grids(file, self.grids)


prepare = DiffusionTask


def _adapter_to_start(folder: Path, net: UNet, asked: DiffusionOptions) -> tuple[dict[str, Adapter], int]:
    layers = layers_of(with_rank(net, 1, asked.targets))
    alphas = None if asked.alpha is None else dict.fromkeys(layers, asked.alpha)
    found = load_diffusion_lora(folder, layers, alphas=alphas)
    ranks = sorted({each.rank for each in found.values()})
    if len(ranks) > 1:
        raise ValueError(f"{folder}: has adapters of ranks {', '.join(map(str, ranks))}: must have one rank")
    # The machine has no factor beside an adapter.
    return {name: Adapter(each.a, each.b * np.float32(each.scale), 1.0) for name, each in found.items()}, ranks[0]


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
        images, labels = mnist_test()
        order = np.argsort(np.random.PCG64([asked.seed, 0xD16]).random_raw(len(images)), kind="stable")
        wanted = np.isin(labels[order], digits or range(10))
        order = order[wanted]
        split = order[: workload.samples], order[workload.samples : workload.samples + workload.judged]
        parts = [(images[rows], labels[rows]) for rows in split]
    else:
        path = Path(asked.data)
        data = load_npz(path)
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
