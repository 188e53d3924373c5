"""Chooses rank and forward cache of InstantFT on a user's images.

Costs are forecasts of whole programs. What a rank learns comes from runs in floating point on a part of the user's
images; the rest of them is held out. ``x_test`` is left for the fine-tune that is chosen.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.pictures import load_dataset
from gradloom.output import some
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import Asked
from gradloom.systems.held_out import cross_entropy
from gradloom.systems.images.mathematics import FloatCache, adapter_logits, train_adapters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.program.sizes import SizeError
from gradloom.systems.images.requests import ImageChoice
from gradloom.systems.images.task import check_shape, network_of
from gradloom.systems.images.workload import ImageWorkload
from gradloom.systems.job import digest
from gradloom.systems.results import Alternative, ChosenFacts
from gradloom.workload import Progress

from .budgets import shortfalls
from .chooser import Chooser, Short, ShortRuns
from .state import ChoiceState

__all__ = ["ImageChooser", "choose_images"]

_RANKS = (1, 2, 4, 8)
#: Formats of the forward cache, the one that is kept in the least memory first.
_CACHES = ("nf4", "int8", "none")
#: Images of a short run at most, each as often as it is seen.
_EFFORT = 20_000
#: One image of so many is held out.
_HELD = 5
#: The fewest images with a part to hold out.
_LEAST = 10


@dataclass(frozen=True, kw_only=True)
class ImageOffer:
    """A fine-tune with its costs.

    ``memory``: bytes of the program's window; ``frozen``: those of them that are weights and biases; ``update``: bytes
    of the adapter as it is shipped, in float32.
    """

    rank: int
    cache: str
    epochs: int
    cycles: int
    seconds: float
    memory: int
    frozen: int
    update: int

    @property
    def learns(self) -> str:
        """In words."""
        return f"rank {self.rank}, {'no' if self.cache == 'none' else self.cache.upper()} cache"

    def told(self) -> Alternative:
        """Plain data."""
        return {
            "learns": self.learns,
            "rank": self.rank,
            "cache": self.cache,
            "epochs": self.epochs,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "beside_frozen_bytes": self.memory - self.frozen,
            "update_bytes": self.update,
        }


class ImageChooser(Chooser[ImageOffer]):
    """A choice of rank, forward cache and epochs."""

    units = {"time": "us", "memory": "kB"}
    candidates = len(_RANKS) * len(_CACHES)

    def __init__(self, asked: Asked, options: ImageChoice) -> None:
        super().__init__(asked, options)
        workload = asked.preset.workload
        assert isinstance(workload, ImageWorkload)
        self.workload = workload
        self.network = network_of(None if options.model is None else Path(options.model), workload)
        self.dataset = load_dataset(self.data, self.network.input_shape, self.network.classes)
        check_shape("x_train", self.dataset.x_train, self.network)
        if len(self.dataset.x_train) < _LEAST:
            raise ValueError(
                f"data={self.data}: {some(len(self.dataset.x_train), 'image')} in x_train, must be at least {_LEAST} "
                f"to hold a part out"
            )
        self.model = workload.network if options.model is None else str(options.model)
        #: Cycles of programs by their code: those of several ranks are the same.
        self.cycles: dict[bytes, int] = {}

    def identity(self) -> dict[str, object]:
        """See :class:`Chooser`."""
        file = Path(self.model)
        return {"model": digest(file) if file.is_file() else self.model}

    def facts(self) -> ChosenFacts:
        """See :class:`Chooser`."""
        held = len(self.dataset.y_train) // _HELD
        images = {"learnt": len(self.dataset.y_train) - held, "judged": held}
        return {"model": self.network.name, "data": self.data.name, "images": images}

    def described(self, offer: ImageOffer) -> str:
        """See :class:`Chooser`."""
        return f"{offer.learns}, epochs={offer.epochs}"

    def last(self, offer: ImageOffer) -> float:
        """See :class:`Chooser`."""
        return offer.seconds

    def command(self, offer: ImageOffer) -> dict[str, object]:
        """See :class:`Chooser`."""
        usual = {"cache": "nf4", "epochs": self.workload.epochs, "seed": 0}
        asked = {"rank": offer.rank, "cache": offer.cache, "epochs": offer.epochs, "seed": self.seed}
        return {name: value for name, value in asked.items() if usual.get(name) != value}

    # ---- cost

    def offers(self, state: ChoiceState, tell: Progress) -> list[ImageOffer]:
        """See :class:`Chooser`: all that the preset's design holds, with the epochs of the time."""
        made, left = [], []
        if self.budget.seconds is not None:
            self._refuse_short(tell)
        for number, rank in enumerate(_RANKS):
            for cache in _CACHES:
                tell(len(_CACHES) * number + _CACHES.index(cache), len(_RANKS) * len(_CACHES), "costs")
                try:
                    made.append(self.priced(rank, cache))
                except SizeError as error:
                    left.append(str(error))
        if not made:
            raise ValueError(left[0])
        return made

    def _refuse_short(self, tell: Progress) -> None:
        """Refuses a time in which not even an epoch of the least rank ends.

        A higher rank takes no fewer cycles.
        """
        quickest = []
        for cache in _CACHES:
            tell(_CACHES.index(cache), len(_CACHES), "shortest fine-tune")
            with contextlib.suppress(SizeError):
                quickest.append(self.priced(_RANKS[0], cache, epochs=1))
        if quickest and all("time" in shortfalls(each, self.budget) for each in quickest):
            raise ValueError(self.nothing(quickest))

    def priced(self, rank: int, cache: str, epochs: int | None = None) -> ImageOffer:
        """A candidate with the forecast of the program that would run.

        ``epochs``: else as many as the time is enough for.
        """
        clock = self.preset.config.clock_mhz * 1e6
        if epochs is None:
            epochs, found = self._longest(rank, cache, clock)
        else:
            found = self._planned(rank, cache, epochs)
        cycles, memory, frozen = found
        network = self.network
        return ImageOffer(
            rank=rank,
            cache=cache,
            epochs=epochs,
            cycles=cycles,
            seconds=cycles / clock,
            memory=memory,
            frozen=frozen,
            update=4 * rank * sum(size + network.classes for size in network.taps),
        )

    def _longest(self, rank: int, cache: str, clock: float) -> tuple[int, tuple[int, int, int]]:
        """The most epochs within the time, with :func:`_planned` of them.

        There is at least one.
        """
        most = self.workload.epochs
        if self.budget.seconds is None:
            return most, self._planned(rank, cache, most)
        room = self.budget.seconds * clock
        one, two = (self._planned(rank, cache, count) for count in (1, 2))
        # Epochs take about as long as each other.
        epochs = max(min(most, 1 + int((room - one[0]) / (two[0] - one[0]))), 1)
        found = self._planned(rank, cache, epochs)
        while epochs > 1 and found[0] > room:
            epochs -= 1
            found = self._planned(rank, cache, epochs)
        while epochs < most and (longer := self._planned(rank, cache, epochs + 1))[0] <= room:
            epochs, found = epochs + 1, longer
        return epochs, found

    def _planned(self, rank: int, cache: str, epochs: int) -> tuple[int, int, int]:
        """Cycles, bytes of the window, bytes of the frozen network in it."""
        network = self.network
        lowered = lower(network, self.preset.config, rank, wide=cache == "int8")
        settings = self._settings(epochs, cache)
        # What the words are changes neither.
        images = np.zeros((settings.samples, *network.input_shape), np.int64)
        a = [np.zeros((rank, size), np.int64) for size in network.taps]
        b = [np.zeros((network.classes, rank), np.int64) for _ in network.taps]
        plan = plan_finetune(lowered, settings, images, self.dataset.y_train, a, b)
        code = plan.assembler.code
        if code not in self.cycles:
            self.cycles[code] = forecast(plan).total
        return self.cycles[code], plan.length, 32 * len(lowered.weight_words) + 64 * len(lowered.bias_words)

    # ---- quality

    def short_runs(self, within: Sequence[ImageOffer], state: ChoiceState, tell: Progress) -> ShortRuns[ImageOffer]:
        """See :class:`Chooser`."""
        labels, chosen = self.dataset.y_train, _finalists(within)
        drawn = np.random.default_rng(self.seed).permutation(len(labels))
        held, learnt = np.sort(drawn[: len(drawn) // _HELD]), np.sort(drawn[len(drawn) // _HELD :])
        exact = None
        runs = []
        before = math.inf
        for number, each in enumerate(chosen, start=1):
            tell(number - 1, len(chosen), f"finalist {number} of {len(chosen)}")
            epochs = max(min(each.epochs, _EFFORT // len(learnt)), 1)
            # What is not kept is encoded as NF4 all the same.
            codes = "nf4" if each.cache == "none" else each.cache
            known = f"before {codes}", f"{each.learns}, {epochs}"
            if not state.losses.keys() >= set(known):
                if exact is None or exact[0] != codes:
                    exact = codes, FloatCache.of(self.network, self.dataset.x_train, cache=codes, dtype=np.float32)
                state.keep_loss(known[0], _judged([], exact[1], held, labels))
                state.keep_loss(known[1], self._learnt(exact[1], each.rank, epochs, learnt, held))
            before = state.losses[known[0]]
            runs.append(Short(offer=each, loss=state.losses[known[1]], more={"short_epochs": epochs}))
        return ShortRuns(before=before, runs=runs)

    def _learnt(self, cache: FloatCache, rank: int, epochs: int, learnt: np.ndarray, held: np.ndarray) -> float:
        """Held-out loss after a run; infinite if it diverges."""
        labels, own = self.dataset.y_train, self.workload
        start = initial_adapters(self.network.taps, self.network.classes, rank, self.seed)
        adapters = [(a.astype(np.float32), b.astype(np.float32)) for a, b in start]
        part = FloatCache(taps=[tap[learnt] for tap in cache.taps], logits=cache.logits[learnt])
        steps, after = train_adapters(
            part,
            labels[learnt],
            adapters,
            lr=own.lr,
            batch=own.batch,
            epochs=epochs,
            momentum=own.momentum,
            seed=self.seed,
        )
        whole = epochs * -(-len(learnt) // own.batch)
        return _judged(after, cache, held, labels) if len(steps) == whole else math.inf

    def _settings(self, epochs: int, cache: str) -> Settings:
        """Those of the fine-tune that is chosen."""
        own = self.workload
        return Settings(
            samples=len(self.dataset.x_train),
            epochs=epochs,
            batch=own.batch,
            rate=own.lr,
            momentum=own.momentum,
            seed=self.seed,
            slots=0 if cache == "none" else 1 << 30,
        )


def _finalists(within: Sequence[ImageOffer]) -> list[ImageOffer]:
    """The best of each rank, and the largest rank with codes of 8 bits.

    The best has the most epochs, and is the fastest of these.
    """
    order = sorted(within, key=lambda each: (-each.epochs, each.seconds, each.memory))
    found = {each.rank: each for each in reversed(order)}
    chosen = [found[rank] for rank in sorted(found)]
    wide = [each for each in order if each.cache == "int8" and each not in chosen]
    return chosen + sorted(wide, key=lambda each: -each.rank)[:1]


def _judged(adapters: Any, cache: FloatCache, held: np.ndarray, labels: np.ndarray) -> float:
    """Mean loss of the images that are held out."""
    logits = adapter_logits(adapters, [tap[held] for tap in cache.taps], cache.logits[held])
    loss, _ = cross_entropy(logits, labels[held])
    return float(loss.mean(dtype=np.float64))


choose_images = ImageChooser.choose
