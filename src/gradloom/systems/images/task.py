"""Fine-tunes on images: in simulated RTL, in its reference, or in float."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.adapters.peft import save_adapters
from gradloom.models.datasets import Dataset, default_split, digits_split
from gradloom.models.network import Network
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.preset import PRESETS, Preset
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.time.forecast import forecast
from gradloom.systems.driver import Job, Outcome
from gradloom.systems.instant import InstantOptions

from .integers import WordCache, fill_cache, fine_tune, logits
from .program.digits import workload_on
from .program.lowered import Lowered
from .program.lowering import lower
from .program.program import Ahead, Settings, plan_finetune
from .program.schedule import batches, initial_adapters
from .workload import DIGITS, ImageOptions, ImageWorkload

if TYPE_CHECKING:
    from gradloom.models.sequences import SequenceSet

__all__ = ["check_shape", "held_by", "network_of", "network_of_run", "prepare", "share", "shipped"]

Adapters = Sequence[tuple[np.ndarray, np.ndarray]]
#: Units of one in a sum of losses, Q.16.
_LOSS_SCALE = 1 << 16
#: Of the fine-tunes that this machine runs.
Samples: TypeAlias = "Dataset | SequenceSet"


def _is_digits(workload: ImageWorkload) -> bool:
    return workload.network == DIGITS.network


def held_by(preset: Preset, *, wide: bool = False) -> ImageWorkload:
    """The preset's workload, as its design holds it.

    ``wide``: cached activations are codes of 8 bits.
    """
    assert isinstance(preset.workload, ImageWorkload)
    return workload_on(preset.config, wide=wide) if _is_digits(preset.workload) else preset.workload


def _load(asked: ImageOptions, workload: ImageWorkload) -> tuple[Network, Dataset]:
    network = network_of(asked.model, workload)
    if asked.data is None:
        dataset = shipped(workload, network, asked.seed, asked.angle)
    else:
        from gradloom.models.pictures import load_dataset

        dataset = load_dataset(Path(asked.data), network.input_shape, network.classes)
        if asked.angle:
            dataset = dataset.rotated(asked.angle)
    check_shape("x_train", dataset.x_train, network)
    if asked.limit is not None:
        if asked.limit > len(dataset.x_train):
            raise ValueError(f"limit={asked.limit}: there are {len(dataset.x_train)} training images")
        dataset = dataset.limited(train=asked.limit)
    return network, dataset


def network_of(model: Path | str | None, workload: ImageWorkload) -> Network:
    """A network from a file, or the workload's."""
    return load_pretrained(workload.network) if model is None else load_onnx(Path(model))


def network_of_run(folder: Path, model: Path | str | None) -> Network:
    """The network that a fine-tune in a folder has learnt beside.

    ``model``: a file in place of the one that its ``metrics.json`` names. :class:`ValueError` of a fine-tune on
    sequences, and where the file is not here.
    """
    path = folder / "metrics.json"
    try:
        told = read_json(path)
        if told.get("tap_shifts") is not None:
            raise ValueError(f"{path}: tap_shifts: is of a recurrent network, whose adapter only infer and boards take")
        workload, asked = PRESETS[told["preset"]].workload, told["request"]["model"]
    except (OSError, KeyError, TypeError, AttributeError):
        if model is None:
            raise ValueError(f"model: must be given, {path} does not say which it is") from None
        return load_onnx(Path(model))
    if not isinstance(workload, ImageWorkload):
        raise ValueError(f"{path}: preset={told['preset']}: is not of images")
    if model is None and asked is not None and not Path(asked).is_file():
        raise ValueError(f"model={asked}: that of the run is not here; name it by --model")
    return network_of(asked if model is None else model, workload)


def shipped(workload: ImageWorkload, network: Network, seed: int, angle: float | None) -> Dataset:
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


def check_shape(name: str, images: np.ndarray, network: Network) -> None:
    """Refuses images that the network does not take."""
    if images.shape[1:] != network.input_shape:
        raise ValueError(
            f"{name} has images of {images.shape[1:]}: {network.name} takes {network.input_shape}, channels first"
        )


def share(lowered: Lowered, cache: WordCache, labels: np.ndarray, adapters: Adapters | None) -> float:
    """Share of images that are labelled as given.

    Without adapters, the base network labels them.
    """
    if adapters is None:
        z = cache.logits
    else:
        z = logits(
            lowered, cache, [a[:, tap.order] for tap, (a, _) in zip(lowered.taps, adapters)], [b for _, b in adapters]
        )
    return float((z.argmax(axis=1) == labels).mean())


def prepare(job: Job) -> "ImageTask":
    """Prepares a fine-tune on images; see :class:`~.driver.Task`.

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
        seed=options.seed,
        # Nobody knows in which order somebody's own data lie.
        shuffled=workload.shuffled or asked.data is not None,
        slots=0 if asked.cache == "none" else 1 << 30,
    )
    kind = FloatImageTask if exact else IntegerImageTask
    return kind(job, options, network, dataset, settings)


class ImageTask:
    """A fine-tune on images; see :class:`~.driver.Task`."""

    def __init__(
        self, job: Job, options: InstantOptions, network: Network, dataset: Samples, settings: Settings
    ) -> None:
        self.job, self.options, self.settings = job, options, settings
        self.network, self.dataset = network, dataset
        assert options.rank is not None
        self.rank = options.rank
        self.files = {
            name: Path(path) for name in ("model", "data", "base") if (path := getattr(options, name, None)) is not None
        }
        self.counts = [len(each) for each in batches(range(settings.samples), settings.batch)]
        self.epoch = len(self.counts)
        self.steps = settings.epochs * self.epoch

    def package(self) -> None:
        """Nothing."""

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~.driver.Task`."""
        each, settings = self.options, self.settings
        return {
            "cache_format": each.cache,
            "model": self.network.name,
            "samples": settings.samples,
            "rank": self.rank,
            "lr": settings.rate,
            "momentum": settings.momentum,
            "batch": settings.batch,
            "epochs": settings.epochs,
            "seed": each.seed,
            "clock_mhz": self.job.config.clock_mhz,
            **({"one_logit": True} if self.network.one_logit else {}),
        }

    def compared(self, ran: Outcome) -> Outcome:
        """See :class:`~.driver.Task`."""
        return ran

    def finish(self) -> None:
        """Finishes a fine-tune; see :class:`~.driver.Task`.

        One bell runs the whole program, so that there are no checkpoints.
        """

    def save(self, folder: Path, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
        """See :class:`~.driver.Task`."""
        from gradloom.systems.plots import plot_loss

        # The machine encodes what it does not keep, too.
        codes = "nf4" if self.options.cache == "none" and self.options.engine != "float" else self.options.cache
        save_adapters(folder, self.network, outcome.learnt, codes=codes)
        plot_loss(folder / "loss.png", metrics)


class FloatImageTask(ImageTask):
    """In floating point."""

    def forecast(self) -> None:
        """None: floating point has no machine."""

    def run(self, engine: str) -> Outcome:
        """See :class:`~.driver.Task`."""
        from .mathematics import finetune_float

        self.job.tell(0, 0, "fine-tuning in float")
        settings = self.settings
        assert isinstance(self.dataset, Dataset)
        self.result = finetune_float(
            self.network,
            self.dataset,
            rank=self.rank,
            lr=settings.rate,
            batch=settings.batch,
            epochs=settings.epochs,
            seed=settings.seed,
            shuffled=settings.shuffled,
            cache=self.options.cache,
            momentum=settings.momentum,
        )
        return Outcome(
            losses=self.result.loss,
            learnt=self.result.adapters,
            figures={"cycles": None, "cache": None, "health": None},
        )

    def judge(self, outcome: Outcome) -> tuple[dict[str, Any], None]:
        """See :class:`~.driver.Task`."""
        return {"accuracy_before": self.result.accuracy_before, "accuracy_after": self.result.accuracy_after}, None


class IntegerImageTask(ImageTask):
    """In the machine's integers: by the reference, or in RTL."""

    #: Writes the commands that make the images; None: they are the host's.
    ahead: Ahead | None = None

    def __init__(
        self, job: Job, options: InstantOptions, network: Network, dataset: Samples, settings: Settings
    ) -> None:
        super().__init__(job, options, network, dataset, settings)
        config = job.config
        self.lowered = lower(network, config, self.rank, wide=options.cache == "int8")
        start = initial_adapters(network.taps, network.classes, self.rank, settings.seed)
        self.start = [PARAMETER.encode(m) for m, _ in start], [PARAMETER.encode(m) for _, m in start]
        # Those to judge by are refused before the long part, too.
        self.images, self.judged = self.activations()
        self.plan = plan_finetune(self.lowered, settings, self.images, dataset.y_train, *self.start, ahead=self.ahead)

    def activations(self) -> tuple[np.ndarray, np.ndarray]:
        """Activations, ``[n, c, h, w]``, to learn from and to judge by."""
        assert isinstance(self.dataset, Dataset)
        fmt, pixels = self.job.config.activation, self.network.pixel_map
        return pixels.words(self.dataset.x_train, fmt), pixels.words(self.dataset.x_test, fmt)

    def forecast(self) -> dict[str, int]:
        """See :class:`~.driver.Task`."""
        self.expected = forecast(self.plan)
        return {"total": self.expected.total} | dict(self.expected.phases)

    def run(self, engine: str) -> Outcome:
        """See :class:`~.driver.Task`."""
        if engine == "rtl":
            return self._in_rtl()
        tell = self.job.tell
        tell(0, 0, "reference")
        self.kept = fill_cache(self.lowered, self.images)
        self.reference = fine_tune(
            self.lowered,
            self.settings,
            self.kept,
            self.dataset.y_train,
            *self.start,
            progress=lambda done, total: tell(done, total, "reference steps"),
        )
        return self._outcome(
            self.reference.adapters(), {"cycles": None, "cache": None, "health": asdict(self.reference.health)}
        )

    def _in_rtl(self) -> Outcome:
        from gradloom.firmware.job import Losses
        from gradloom.sim.run.device import MEMORY_BYTES

        from .simulated import run_plan

        if self.plan.length > MEMORY_BYTES:
            raise ValueError(
                f"limit={self.settings.samples}: the fine-tune needs {self.plan.length:,} bytes of memory, the "
                f"simulation has {MEMORY_BYTES:,}"
            )
        losses = Losses("sums", self.plan.losses, sum(step.last for step in self.plan.steps), _LOSS_SCALE)
        with self.job.machine(expected=self.expected.total, losses=losses) as machine:
            result = run_plan(self.plan, machine)
        return Outcome(losses=[], learnt=result, figures=result.metrics)

    def compared(self, ran: Outcome) -> Outcome:
        """The reference's outcome, which is the RTL's word by word."""
        from .simulated import compare, compare_images

        made = self.run("reference")
        equal = compare_images(ran.learnt, self.lowered, self.images)
        equal |= compare(ran.learnt, self.reference, self.kept, self.expected)
        return replace(made, figures={**ran.figures, "equal_to_reference": equal})

    def _outcome(self, words: Adapters, figures: Mapping[str, Any]) -> Outcome:
        self.words = words
        return Outcome(
            losses=self.reference.mean_losses,
            clipped=self.reference.clipped,
            words=self.reference.words,
            learnt=[(PARAMETER.decode(m), PARAMETER.decode(n)) for m, n in words],
            figures=figures,
        )

    def judge(self, outcome: Outcome) -> tuple[dict[str, Any], None]:
        """See :class:`~.driver.Task`."""
        self.job.tell(0, 0, "judging on other images")
        test, labels = fill_cache(self.lowered, self.judged), self.dataset.y_test
        return {
            "accuracy_before": share(self.lowered, test, labels, None),
            "accuracy_after": share(self.lowered, test, labels, self.words),
        }, None
