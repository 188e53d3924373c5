"""Fine-tunes on images: in simulated RTL, in its reference, or in float."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.adapters.peft_files import save_adapters
from gradloom.models.datasets import Dataset, dataset_of, default_split, digits_split
from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.preset import PRESETS, Preset
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.systems.held_out import NamedArrays, Score, class_scores, confusion
from gradloom.systems.instant import InstantOptions
from gradloom.systems.job import Job, model_of_run
from gradloom.systems.task import Judged, Outcome, Task

from .integers import compared_words, fill_cache, fine_tune, logits, mean_losses, records
from .program.lowering import lower
from .program.program import Ahead, ImagePlanned, Settings, image_words, plan_finetune
from .program.schedule import batches, initial_adapters
from .program.sizes import samples_of_block
from .workload import DIGITS, ImageOptions, ImageWorkload

if TYPE_CHECKING:
    from gradloom.firmware.jobs.job import Losses
    from gradloom.models.adapters.lora import LearntModule
    from gradloom.models.sequences import SequenceSet
    from gradloom.sim.run.machine import MachineRunner

    from .mathematics import FloatCache

__all__ = [
    "ImageTask",
    "by_tap",
    "check_shape",
    "decoded",
    "held_by",
    "network_of",
    "network_of_run",
    "prepare",
    "prepared_as",
    "shipped",
    "workload_on",
]

Adapters = Sequence[tuple[np.ndarray, np.ndarray]]
#: Units of one in a sum of losses, Q.16.
_LOSS_SCALE = 1 << 16


def _is_digits(workload: ImageWorkload) -> bool:
    return workload.network == DIGITS.network


def workload_on(config: ImageConfig, *, wide: bool = False) -> ImageWorkload:
    """The workload on a design, whose rows say how many samples a block has."""
    # What a sample takes of a block does not depend on the rank.
    held = samples_of_block(lower(load_pretrained(DIGITS.network), config, 1, wide=wide))
    blocks = {name: getattr(DIGITS, name) // DIGITS.batch for name in ("samples", "judged")}
    return replace(DIGITS, batch=held, **{name: count * held for name, count in blocks.items()})


def held_by(preset: Preset, *, wide: bool = False) -> ImageWorkload:
    """The preset's workload, as its design holds it.

    ``wide``: cached activations are codes of 8 bits.
    """
    assert isinstance(preset.workload, ImageWorkload)
    return workload_on(preset.config, wide=wide) if _is_digits(preset.workload) else preset.workload


def _load(asked: ImageOptions, workload: ImageWorkload) -> tuple[LayerNetwork, Dataset]:
    network = network_of(asked.model, workload)
    shape, classes = network.input_shape, network.classes
    if asked.data is None:
        dataset = shipped(workload, network, asked.seed, asked.angle)
        if asked.held_out is not None:
            parts = {"x_train": dataset.x_train, "y_train": dataset.y_train}
            dataset = Dataset(**asked.divided(parts, "image", _without_data), classes=dataset.classes)
    else:
        from gradloom.models.pictures import load_judged, load_parts

        path = Path(asked.data)
        arrays = load_parts(path, shape, classes, asked.parts)
        dataset = dataset_of(
            path, asked.divided(arrays, "image", lambda held: load_judged(held, shape, classes)), classes
        )
        if asked.angle:
            dataset = dataset.rotated(asked.angle)
    check_shape("x_train", dataset.x_train, network)
    if asked.limit is not None:
        if asked.limit > len(dataset.x_train):
            raise ValueError(f"limit={asked.limit}: there are {len(dataset.x_train)} training images")
        dataset = dataset.limited(train=asked.limit)
    return network, dataset


def _without_data(path: Path) -> tuple[np.ndarray, np.ndarray]:
    raise ValueError(f"held_out={path}: must be a share of the shipped samples; or give --data, too")


def network_of(model: Path | str | None, workload: ImageWorkload) -> LayerNetwork:
    """A network from a file, or the workload's."""
    return load_pretrained(workload.network) if model is None else load_onnx(Path(model))


def network_of_run(folder: Path, model: Path | str | None) -> LayerNetwork:
    """The network that a fine-tune in a folder has learnt beside.

    ``model``: see :func:`~gradloom.systems.job.model_of_run`. :class:`ValueError` of a fine-tune on sequences.
    """
    path, found = folder / "metrics.json", model_of_run(folder, model)
    if found is not None and not path.is_file():
        return load_onnx(Path(found))
    told = read_json(path)
    if told.get("tap_shifts") is not None:
        raise ValueError(f"{path}: tap_shifts: is of a recurrent network, whose adapter only infer and boards take")
    preset = PRESETS.get(str(told.get("preset")))
    if preset is None or not isinstance(preset.workload, ImageWorkload):
        raise ValueError(f"{path}: preset={told.get('preset')}: is not of images")
    return network_of(found, preset.workload)


def shipped(workload: ImageWorkload, network: LayerNetwork, seed: int, angle: float | None) -> Dataset:
    """The workload's images; ``angle``: in place of its own.

    Refused where ``network`` has fewer classes.
    """
    degrees = workload.degrees if angle is None else angle
    dataset = (
        digits_split(workload.samples, workload.judged, degrees=degrees)
        if _is_digits(workload)
        else default_split(seed, degrees=degrees)
    )
    if network.classes < dataset.classes:
        raise ValueError(
            f"data: must be given, the shipped images have {dataset.classes} classes and {network.name} has "
            f"{network.classes}"
        )
    return dataset


def check_shape(name: str, images: np.ndarray, network: LayerNetwork) -> None:
    """Refuses images that the network does not take."""
    if images.shape[1:] != network.input_shape:
        raise ValueError(
            f"{name} has images of {images.shape[1:]}: {network.name} takes {network.input_shape}, channels first"
        )


def by_tap(pairs: Adapters) -> dict[int, NamedArrays]:
    """Adapters by the number of their tap."""
    return {number: NamedArrays({"a": np.asarray(a), "b": np.asarray(b)}) for number, (a, b) in enumerate(pairs)}


def prepared_as(kind: "type[ImageTask]", job: Job) -> "ImageTask":
    """A task of images, of the kind that its host asks for.

    ``cache="none"`` keeps no activations: they are computed, encoded and decoded again each time, so that the adapters
    learn the same words. ``int8`` keeps codes of 8 bits, in the same design as ``nf4``.
    """
    asked: ImageOptions = job.options
    workload = job.preset.workload
    assert isinstance(workload, ImageWorkload)
    exact = asked.engine == "float"
    if asked.model is None and asked.data is None:
        workload = held_by(job.preset, wide=asked.cache == "int8" and not exact)
    network, dataset = _load(asked, workload)
    own = workload.settled(asked)
    angle = 0.0 if asked.data else workload.degrees
    options = replace(asked, **own, angle=angle if asked.angle is None else asked.angle, limit=len(dataset.x_train))
    settings = Settings(
        samples=len(dataset.x_train),
        epochs=own["epochs"],
        batch=own["batch"],
        rate=own["lr"],
        momentum=own["momentum"],
        schedule=own["schedule"],
        seed=options.seed,
        weights=options.factors(dataset.y_train, network.classes),
        # Nobody knows in which order somebody's own data lie.
        shuffled=workload.shuffled or asked.data is not None,
        slots=0 if asked.cache == "none" else 1 << 30,
    )
    return kind(job, options, network, dataset, settings)


def prepare(job: Job) -> "ImageTask":
    """Prepares a fine-tune on images; see :class:`~..task.Task`."""
    return prepared_as(ImageTask, job)


def decoded(words: Iterable[tuple[np.ndarray, np.ndarray]]) -> Adapters:
    return [(PARAMETER.decode(a), PARAMETER.decode(b)) for a, b in words]


class ImageTask(Task):
    """A fine-tune from taps to logits, of images or of what else has taps.

    One bell runs the whole program, so that there are no checkpoints.
    """

    plan: ImagePlanned
    #: Writes the commands that make the images; None: they are the host's.
    ahead: Ahead | None = None

    def __init__(
        self,
        job: Job,
        options: InstantOptions,
        network: LayerNetwork,
        dataset: "Dataset | SequenceSet",
        settings: Settings,
    ) -> None:
        counts = [len(each) for each in batches(range(settings.samples), settings.batch)]
        super().__init__(job, options, steps=settings.epochs * len(counts), epoch=len(counts), counts=counts)
        self.settings, self.network, self.dataset = settings, network, dataset
        assert options.rank is not None
        self.rank = options.rank
        self.start = self.initial()
        learnt, judged = (set(labels.tolist()) for labels in (dataset.y_train, dataset.y_test))
        #: Classes that one part of the data lacks.
        self.lacking = {"classes_not_learnt": sorted(judged - learnt), "classes_not_judged": sorted(learnt - judged)}
        for name, classes in self.lacking.items():
            if classes:
                job.tell(0, 0, f"{name.replace('_', ' ')}: {', '.join(map(str, classes))}")
        #: Of the reference and in floating point, while it learns; a machine's program ends before anything is judged.
        self.scores = self.judging(self.score)
        if self.exact:
            return
        self.lowered = lower(network, job.config, self.rank, wide=options.cache == "int8")
        # Those to judge by are refused before the long part, too.
        self.planned()

    def initial(self) -> Adapters:
        """The adapters' first values."""
        return initial_adapters(self.network.taps, self.network.classes, self.rank, self.settings.seed)

    def planned(self) -> None:
        """Plans the machine's program."""
        self.images, self.judged = self.activations()
        self.plan = plan_finetune(
            self.lowered, self.settings, self.images, self.dataset.y_train, *self._words(), ahead=self.ahead
        )
        self.program = self.plan

    def _words(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What A and B start from."""
        return [PARAMETER.encode(m) for m, _ in self.start], [PARAMETER.encode(m) for _, m in self.start]

    def activations(self) -> tuple[np.ndarray, np.ndarray]:
        """Activations, ``[n, c, h, w]``, to learn from and to judge by."""
        assert isinstance(self.dataset, Dataset)
        fmt, pixels = self.job.config.activation, self.network.pixel_map
        return pixels.words(self.dataset.x_train, fmt), pixels.words(self.dataset.x_test, fmt)

    def cached(self, x: np.ndarray) -> "FloatCache":
        """Taps and logits of samples in floating point."""
        from .mathematics import FloatCache

        return FloatCache.of(self.network, x, cache=self.options.cache)

    @cached_property
    def held(self) -> Any:
        """Taps and logits of the samples to judge by."""
        self.job.tell(0, 0, "samples to judge by")
        return self.cached(self.dataset.x_test) if self.exact else fill_cache(self.lowered, self.judged)

    def scored(self, adapters: Mapping[Any, "LearntModule"]) -> np.ndarray:
        """Logits of the samples to judge by, in the engine's arithmetic, as real numbers."""
        pairs = [(each.parts["a"], each.parts["b"]) for each in adapters.values()]
        if self.exact:
            from .mathematics import adapter_logits

            return adapter_logits(pairs, self.held.taps, self.held.logits)
        words = [(PARAMETER.encode(m), PARAMETER.encode(n)) for m, n in pairs]
        first = [a[:, tap.order] for tap, (a, _) in zip(self.lowered.taps, words)]
        found: np.ndarray = ACTIVATION.decode(logits(self.lowered, self.held, first, [b for _, b in words]))
        return found

    def score(self, adapters: Mapping[Any, "LearntModule"]) -> Score:
        """Mean cross-entropy and share of right answers of the samples to judge by."""
        return class_scores(self.scored(adapters), self.dataset.y_test)

    def mathematics(self) -> Outcome:
        """See :class:`~..task.Task`."""
        from .mathematics import train_adapters

        self.job.tell(0, 0, "fine-tuning in float")
        settings = self.settings
        self.scores.start(by_tap(self.start))
        losses, adapters = train_adapters(
            self.cached(self.dataset.x_train),
            self.dataset.y_train,
            self.start,
            lr=settings.rate,
            batch=settings.batch,
            epochs=settings.epochs,
            momentum=settings.momentum,
            schedule=settings.schedule,
            seed=settings.seed,
            shuffled=settings.shuffled,
            weights=settings.weights,
            after=self._after,
        )
        return self._outcome(losses, adapters)

    def _after(self, step: int, loss: float, pairs: Adapters) -> bool:
        """Tells of a step and judges it; whether it is the last."""
        self.job.made(step, self.steps, loss)
        return self.scores.after(step, by_tap(pairs))

    def _outcome(self, losses: list[float], pairs: Adapters, **more: Any) -> Outcome:
        """With the adapters that are kept."""
        kept = self.scores.finish(len(losses), by_tap(pairs))
        return Outcome(
            losses=losses,
            learnt=[(each.parts["a"], each.parts["b"]) for each in kept.values()],
            steps=len(losses) if self.scores.ended else None,
            **more,
        )

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        tell, y = self.job.tell, self.dataset.y_train
        tell(0, 0, "reference")
        self.scores.start(by_tap(self.start))
        kept = fill_cache(self.lowered, self.images)
        made = fine_tune(
            self.lowered,
            self.settings,
            kept,
            y,
            *self._words(),
            progress=lambda done, total: tell(done, total, "reference steps"),
            after=lambda step, loss, words: self._after(step, loss, decoded(words)),
        )
        health = asdict(made.health)
        return self._outcome(
            made.mean_losses,
            decoded(made.adapters()),
            clipped=made.clipped,
            words=made.words,
            figures={"cycles": None, "cache": None, "health": health},
            checked=compared_words(
                self.lowered,
                made.losses,
                made.correct,
                made.adapters(),
                records(self.lowered, kept)[: self.plan.slots],
                None if self.plan.images is None else image_words(self.lowered, self.images),
            ),
            health=[health],
        )

    def losses_there(self) -> "Losses":
        """See :class:`~..task.Task`."""
        from gradloom.firmware.jobs.job import Losses

        return Losses("sums", self.plan.losses, sum(step.last for step in self.plan.steps), _LOSS_SCALE)

    def machine(self) -> "AbstractContextManager[MachineRunner]":
        """See :class:`~..task.Task`; refuses more memory than there is."""
        from gradloom.sim.run.device import MEMORY_BYTES

        if self.plan.length > MEMORY_BYTES:
            raise ValueError(
                f"limit={self.settings.samples}: the fine-tune needs {self.plan.length:,} bytes of memory, the "
                f"simulation has {MEMORY_BYTES:,}"
            )
        return super().machine()

    def on(self, machine: "MachineRunner") -> Outcome:
        """See :class:`~..task.Task`."""
        from .simulated import run_plan

        made = run_plan(self.plan, machine)
        return Outcome(
            losses=mean_losses(made.losses, list(self.counts or ()) * self.settings.epochs),
            learnt=decoded(zip(made.a, made.b)),
            figures=made.metrics,
            checked=made.words,
            ran=[made.ran],
        )

    def judge(self, outcome: Outcome) -> Judged:
        """See :class:`~..task.Task`."""
        first, learnt = by_tap(self.start), by_tap(outcome.learnt)
        if not self.scores.scores:
            self.scores.start(first)
            self.scores.finish(self.steps, learnt)
        answers = confusion(self.scored(first), self.scored(learnt), self.dataset.y_test)
        return Judged(figures=self.scores.figures() | answers)

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        each, settings = self.options, self.settings
        return {
            "cache_format": each.cache,
            "model": self.network.name,
            "samples": settings.samples,
            "rank": self.rank,
            "lr": settings.rate,
            "momentum": settings.momentum,
            "schedule": settings.schedule,
            "batch": settings.batch,
            "epochs": settings.epochs,
            "seed": each.seed,
            "clock_mhz": self.job.config.clock_mhz,
            **({"one_logit": True} if self.network.one_logit else {}),
            **{name: classes for name, classes in self.lacking.items() if classes},
        }

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
        # The machine encodes what it does not keep, too.
        codes = "nf4" if self.options.cache == "none" and not self.exact else self.options.cache
        save_adapters(folder, self.network, learnt, codes=codes)

    def plot(self, path: Path, metrics: Mapping[str, Any]) -> None:
        """See :class:`~..task.Task`."""
        from gradloom.systems.plots import plot_loss

        plot_loss(path, metrics)
