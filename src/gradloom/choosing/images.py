"""Chooses rank and forward cache of InstantFT on a user's images.

Costs are forecasts of whole programs. What a rank learns comes from runs in floating point on a part of the user's
images; the rest of them is held out. ``x_test`` is left for the fine-tune that is chosen.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gradloom import __version__
from gradloom.models.datasets import Dataset
from gradloom.models.network import Network
from gradloom.models.pictures import load_dataset
from gradloom.output import claimed
from gradloom.preset import Preset
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import Asked
from gradloom.systems.images.mathematics import FloatCache, adapter_logits, cross_entropy, train_adapters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.program.sizes import SizeError
from gradloom.systems.images.requests import ImageChoice
from gradloom.systems.images.task import check_shape, network_of
from gradloom.systems.images.workload import ImageWorkload
from gradloom.words import some
from gradloom.workload import Progress

from .budgets import Budget, refusal, shortfalls
from .finalists import ranked
from .state import ChoiceState

__all__ = ["choose_images"]

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

    def told(self) -> dict[str, Any]:
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


@dataclass(frozen=True, kw_only=True)
class _Request:
    model: str
    data: Path
    preset: Preset
    workload: ImageWorkload
    network: Network
    dataset: Dataset
    budget: Budget
    seed: int
    #: Cycles of programs by their code: those of several ranks are the same.
    cycles: dict[bytes, int] = field(default_factory=dict)

    def settings(self, epochs: int, cache: str) -> Settings:
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


def choose_images(asked: Asked, options: ImageChoice, tell: Progress) -> dict[str, Any]:
    """Chooses, and writes ``choose.json`` and ``pareto.png`` to ``output``.

    Returns what ``choose.json`` holds. What an interrupted choice left there is gone on from.
    """
    with claimed(str(options.output), verb="choose"):
        return _choose(_request(asked, options), Path(options.output), tell)


def _choose(asked: _Request, output: Path, tell: Progress) -> dict[str, Any]:
    state = ChoiceState(output, _identity(asked))
    offers = _offers(asked, tell)
    within = [each for each in offers if not shortfalls(each, asked.budget)]
    if not within:
        raise ValueError(_nothing(asked, offers))
    result = _result(asked, offers, within, _runs(asked, _finalists(within), state, tell))
    state.complete(result)
    return result


def _request(asked: Asked, options: ImageChoice) -> _Request:
    """Refuses what can be refused at once."""
    budget = Budget.of(options.time, options.memory, options.update)
    workload = asked.preset.workload
    assert isinstance(workload, ImageWorkload)
    network = network_of(None if options.model is None else Path(options.model), workload)
    data = Path(str(options.data))
    dataset = load_dataset(data, network.input_shape, network.classes)
    check_shape("x_train", dataset.x_train, network)
    if len(dataset.x_train) < _LEAST:
        raise ValueError(
            f"data={data}: {some(len(dataset.x_train), 'image')} in x_train, must be at least {_LEAST} to hold "
            f"a part out"
        )
    return _Request(
        model=workload.network if options.model is None else str(options.model),
        data=data,
        preset=asked.preset,
        workload=workload,
        network=network,
        dataset=dataset,
        budget=budget,
        seed=options.seed,
    )


def _identity(asked: _Request) -> dict[str, Any]:
    """What the results of an interrupted choice depend on."""
    file = Path(asked.model)
    return {
        "gradloom": __version__,
        "preset": asked.preset.name,
        "model": sha256(file.read_bytes()).hexdigest() if file.is_file() else asked.model,
        "data": sha256(asked.data.read_bytes()).hexdigest(),
        "budget": asdict(asked.budget),
        "seed": asked.seed,
    }


# ---------------------------------------------------------------- cost


def _offers(asked: _Request, tell: Progress) -> list[ImageOffer]:
    """All that the preset's design holds, with the epochs of the time."""
    made, left = [], []
    if asked.budget.seconds is not None:
        _refuse_short(asked, tell)
    for number, rank in enumerate(_RANKS):
        for cache in _CACHES:
            tell(len(_CACHES) * number + _CACHES.index(cache), len(_RANKS) * len(_CACHES), "costs")
            try:
                made.append(_offer(asked, rank, cache))
            except SizeError as error:
                left.append(str(error))
    if not made:
        raise ValueError(left[0])
    return made


def _refuse_short(asked: _Request, tell: Progress) -> None:
    """Refuses a time in which not even an epoch of the least rank ends.

    A higher rank takes no fewer cycles.
    """
    quickest = []
    for cache in _CACHES:
        tell(_CACHES.index(cache), len(_CACHES), "shortest fine-tune")
        with contextlib.suppress(SizeError):
            quickest.append(_offer(asked, _RANKS[0], cache, epochs=1))
    if quickest and all("time" in shortfalls(each, asked.budget) for each in quickest):
        raise ValueError(_nothing(asked, quickest))


def _offer(asked: _Request, rank: int, cache: str, epochs: int | None = None) -> ImageOffer:
    """A candidate with the forecast of the program that would run.

    ``epochs``: else as many as the time is enough for.
    """
    clock = asked.preset.config.clock_mhz * 1e6
    if epochs is None:
        epochs, found = _longest(asked, rank, cache, clock)
    else:
        found = _planned(asked, rank, cache, epochs)
    cycles, memory, frozen = found
    network = asked.network
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


def _longest(asked: _Request, rank: int, cache: str, clock: float) -> tuple[int, tuple[int, int, int]]:
    """The most epochs within the time, with :func:`_planned` of them.

    There is at least one.
    """
    most = asked.workload.epochs
    if asked.budget.seconds is None:
        return most, _planned(asked, rank, cache, most)
    room = asked.budget.seconds * clock
    one, two = (_planned(asked, rank, cache, count) for count in (1, 2))
    # Epochs take about as long as each other.
    epochs = max(min(most, 1 + int((room - one[0]) / (two[0] - one[0]))), 1)
    found = _planned(asked, rank, cache, epochs)
    while epochs > 1 and found[0] > room:
        epochs -= 1
        found = _planned(asked, rank, cache, epochs)
    while epochs < most and (longer := _planned(asked, rank, cache, epochs + 1))[0] <= room:
        epochs, found = epochs + 1, longer
    return epochs, found


def _planned(asked: _Request, rank: int, cache: str, epochs: int) -> tuple[int, int, int]:
    """Cycles, bytes of the window, bytes of the frozen network in it."""
    network = asked.network
    lowered = lower(network, asked.preset.config, rank, wide=cache == "int8")
    settings = asked.settings(epochs, cache)
    # What the words are changes neither.
    images = np.zeros((settings.samples, *network.input_shape), np.int64)
    a = [np.zeros((rank, size), np.int64) for size in network.taps]
    b = [np.zeros((network.classes, rank), np.int64) for _ in network.taps]
    plan = plan_finetune(lowered, settings, images, asked.dataset.y_train, a, b)
    code = plan.assembler.code
    if code not in asked.cycles:
        asked.cycles[code] = forecast(plan).total
    return asked.cycles[code], plan.length, 32 * len(lowered.weight_words) + 64 * len(lowered.bias_words)


def _nothing(asked: _Request, offers: Sequence[ImageOffer]) -> str:
    """Why no candidate is left, and the nearest one."""
    near = min(offers, key=lambda each: (max(shortfalls(each, asked.budget).values()), each.seconds))
    what = f"{near.learns}, epochs={near.epochs}"
    return refusal(near, what, len(_RANKS) * len(_CACHES), asked.budget, time="us", memory="kB")


def _finalists(within: Sequence[ImageOffer]) -> list[ImageOffer]:
    """The best of each rank, and the largest rank with codes of 8 bits.

    The best has the most epochs, and is the fastest of these.
    """
    order = sorted(within, key=lambda each: (-each.epochs, each.seconds, each.memory))
    found = {each.rank: each for each in reversed(order)}
    chosen = [found[rank] for rank in sorted(found)]
    wide = [each for each in order if each.cache == "int8" and each not in chosen]
    return chosen + sorted(wide, key=lambda each: -each.rank)[:1]


# ---------------------------------------------------------------- quality


def _runs(
    asked: _Request, chosen: Sequence[ImageOffer], state: ChoiceState, tell: Progress
) -> tuple[float, list[tuple[ImageOffer, int, float]]]:
    """Held-out loss before and after each finalist's run, with epochs."""
    labels = asked.dataset.y_train
    drawn = np.random.default_rng(asked.seed).permutation(len(labels))
    held, learnt = np.sort(drawn[: len(drawn) // _HELD]), np.sort(drawn[len(drawn) // _HELD :])
    exact = None
    runs = []
    before = math.inf
    for number, each in enumerate(chosen, start=1):
        tell(number - 1, len(chosen), f"finalist {number} of {len(chosen)}")
        epochs = max(min(each.epochs, _EFFORT // len(learnt)), 1)
        # What is not kept is encoded as NF4 all the same.
        codes = "nf4" if each.cache == "none" else each.cache
        if f"before {codes}" not in state.losses or f"{each.learns}, {epochs}" not in state.losses:
            if exact is None or exact[0] != codes:
                exact = codes, FloatCache.of(asked.network, asked.dataset.x_train, cache=codes, dtype=np.float32)
            state.keep_loss(f"before {codes}", _judged([], exact[1], held, labels))
            state.keep_loss(f"{each.learns}, {epochs}", _learnt(asked, exact[1], each.rank, epochs, learnt, held))
        before = state.losses[f"before {codes}"]
        runs.append((each, epochs, state.losses[f"{each.learns}, {epochs}"]))
    return before, runs


def _learnt(asked: _Request, cache: FloatCache, rank: int, epochs: int, learnt: np.ndarray, held: np.ndarray) -> float:
    """Held-out loss after a run; infinite if it diverges."""
    labels, own = asked.dataset.y_train, asked.workload
    start = initial_adapters(asked.network.taps, asked.network.classes, rank, asked.seed)
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
        seed=asked.seed,
    )
    whole = epochs * -(-len(learnt) // own.batch)
    return _judged(after, cache, held, labels) if len(steps) == whole else math.inf


def _judged(adapters: Any, cache: FloatCache, held: np.ndarray, labels: np.ndarray) -> float:
    """Mean loss of the images that are held out."""
    logits = adapter_logits(adapters, [tap[held] for tap in cache.taps], cache.logits[held])
    loss, _ = cross_entropy(logits, labels[held])
    return float(loss.mean(dtype=np.float64))


def _result(
    asked: _Request,
    offers: Sequence[ImageOffer],
    within: Sequence[ImageOffer],
    found: tuple[float, list[tuple[ImageOffer, int, float]]],
) -> dict[str, Any]:
    before, runs = found
    order = ranked(runs, before, lambda run: run[2], lambda run: (run[0].seconds, run[0].update))
    held = len(asked.dataset.y_train) // _HELD
    rows: list[Mapping[str, Any]] = [
        {**each.told(), "short_epochs": epochs, "held_out": loss if math.isfinite(loss) else None}
        for each, epochs, loss in order
    ]
    return {
        "gradloom": __version__,
        "preset": asked.preset.name,
        "board": asked.preset.board,
        "model": asked.network.name,
        "data": asked.data.name,
        "images": {"learnt": len(asked.dataset.y_train) - held, "judged": held},
        "budget": asdict(asked.budget),
        "candidates": len(offers),
        "within": len(within),
        "held_out_before": before,
        "command": _command(asked, order[0][0]),
        "finalists": rows,
        "offers": [{**each.told(), "within": not shortfalls(each, asked.budget)} for each in offers],
    }


def _command(asked: _Request, each: ImageOffer) -> str:
    """The line that runs it."""
    words = [f"gradloom finetune {asked.model} --board {asked.preset.board}"]
    words += [f"--data {asked.data}", f"--rank {each.rank}"]
    if each.cache != "nf4":
        words.append(f"--cache {each.cache}")
    if each.epochs != asked.workload.epochs:
        words.append(f"--epochs {each.epochs}")
    if asked.seed:
        words.append(f"--seed {asked.seed}")
    return " ".join(words)
