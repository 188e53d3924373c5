"""Held-out accuracy of InstantFT on images beside its cost, by data set, rank and cache.

``quality.py`` runs it: LeNet-5 as :mod:`bases` trains it on upright images of MNIST and of Fashion-MNIST. Nobody chose
among the networks. Each learns 1,024 test images turned by 90 degrees, in batches of 20, by SGD. The first
:data:`CHOOSING` of them choose rates, by the mean loss of all networks and seeds; the others are learnt from and judge.
The seed draws images, their order and adapters.

Accuracy is of float32, by the mathematics of ``systems/images/mathematics.py``; after the most epochs also of the
bit-exact reference, whose words the machine's equal, at the same rate. Cycles are forecasts of whole programs,
memory is the window of the program's memory map; neither depends on values. The machine has an adapter at every layer;
fewer layers have a loss and no cycles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import bases
import numpy as np

from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.time.forecast import forecast
from gradloom.systems.held_out import accuracy, cross_entropy
from gradloom.systems.images.integers import WordCache, fill_cache, fine_tune, logits
from gradloom.systems.images.mathematics import FloatCache, adapter_logits, cached_value, train_adapters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters

SAMPLES, BATCH, CHOOSING, EPOCHS = 1024, 20, 3072, (2, 5, 10)
#: Of base networks, and of fine-tunes of each.
NETWORKS, SEEDS = (0, 1), (0, 1, 2)
RANKS = (2, 4, 8, 16)
#: Of rank 16, for which the preset has no program.
LARGER = ImageConfig(panels=2, rank=8, adapter_depth=4096)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
#: Where the search for a rate begins.
BEGIN = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fine-tune; ``layers`` have adapters, counted from 0.

    ``cache``: ``again`` keeps nothing, and the machine makes NF4 codes in each epoch: it learns the same as from an NF4
    cache. ``float`` is no format of the machine.
    """

    rank: int = 4
    cache: str = "nf4"
    layers: tuple[int, ...] = (0, 1, 2, 3, 4)

    @property
    def key(self) -> str:
        """Name in files."""
        return f"rank {self.rank}, {self.cache}, layers {','.join(map(str, self.layers))}"

    @property
    def codes(self) -> str:
        """Format in which adapters see their inputs."""
        return {"again": "nf4", "float": "none"}.get(self.cache, self.cache)

    @property
    def trained(self) -> "Case":
        """The case that learns the same."""
        return replace(self, cache="nf4") if self.cache == "again" else self


CASES = (
    *(Case(rank=rank, cache=cache) for cache in ("nf4", "int8", "again", "float") for rank in RANKS),
    *(Case(layers=layers) for layers in ((2, 3, 4), (4,))),
)


def design(case: Case) -> ImageConfig:
    """The machine that runs a case: the preset's where it can."""
    return ImageConfig() if case.rank <= 8 else LARGER


# ---------------------------------------------------------------- cost


def cost(case: Case) -> dict[str, Any]:
    """Cycles by epochs, bytes of the update and of memory.

    There are no cycles where no machine runs it.
    """
    network = load_pretrained()
    values = sum(case.rank * (network.taps[layer] + network.classes) for layer in case.layers)
    found: dict[str, Any] = {"update_bytes": 4 * values, "cycles": None, "memory": None}
    if case.cache == "float" or len(case.layers) < len(network.taps):
        return found
    lowered = lower(network, design(case), case.rank, wide=case.cache == "int8")
    a = [np.zeros((case.rank, n), np.int64) for n in network.taps]
    b = [np.zeros((network.classes, case.rank), np.int64) for _ in network.taps]
    images, labels = np.zeros((SAMPLES, *network.input_shape), np.int64), np.zeros(SAMPLES, np.int64)
    found["cycles"] = {}
    for epochs in EPOCHS:
        settings = Settings(samples=SAMPLES, epochs=epochs, slots=0 if case.cache == "again" else SAMPLES)
        plan = plan_finetune(lowered, settings, images, labels, a, b)
        found["cycles"][str(epochs)], found["memory"] = forecast(plan).total, plan.length
    return found


# ---------------------------------------------------------------- quality


class Bench:
    """All images behind a frozen network."""

    def __init__(self, data: str, network: int, fashion: Path) -> None:
        self.network = bases.base(data, network, fashion)
        images, self.labels = bases.unseen(data, 90, fashion)
        self.exact = FloatCache.of(self.network, images, cache="none", dtype=np.float32)
        self.format, self.taps = "none", self.exact.taps

    def seen(self, case: Case) -> list[np.ndarray]:
        """Inputs of the adapters, after codes and back."""
        if self.format != case.codes:
            self.format = case.codes
            self.taps = [cached_value(tap, case.codes) for tap in self.exact.taps]
        return [self.taps[layer] for layer in case.layers]

    def images(self, part: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of images to learn from and to judge by."""
        first = part == "rates"
        all_of_it = np.arange(CHOOSING) if first else np.arange(CHOOSING, len(self.labels))
        drawn = np.random.default_rng(seed).permutation(all_of_it)
        return drawn[:SAMPLES], np.sort(drawn[SAMPLES:])

    def run(self, case: Case, part: str, rate: float, seed: int, epochs: Sequence[int]) -> list[list[float]]:
        """Held-out loss and accuracy after each count of epochs."""
        taps, (learnt, held) = self.seen(case), self.images(part, seed)
        start = initial_adapters(self.network.taps, self.network.classes, case.rank, seed)
        adapters = [tuple(each.astype(np.float32) for each in start[layer]) for layer in case.layers]
        kept = FloatCache(taps=[tap[learnt] for tap in taps], logits=self.exact.logits[learnt])
        found, last = [], max(epochs)
        ends = {count * -(-SAMPLES // BATCH) for count in epochs if count < last}

        def judge(adapters: Any) -> None:
            found.append(self.judged(adapters, [tap[held] for tap in taps], held))

        def after(step: int, loss: float, adapters: Any) -> bool:
            if step in ends:
                judge(adapters)
            return False

        _, learned = train_adapters(
            kept, self.labels[learnt], adapters, lr=rate, batch=BATCH, epochs=last, seed=seed, after=after
        )
        # One that diverged has learnt the same after all later epochs.
        while len(found) < len(epochs):
            judge(learned)
        return found

    def judged(self, adapters: Any, taps: list[np.ndarray], held: np.ndarray) -> list[float]:
        """Mean loss and accuracy."""
        logits = adapter_logits(adapters, taps, self.exact.logits[held])
        loss, _ = cross_entropy(logits, self.labels[held])
        return [float(loss.mean(dtype=np.float64)), accuracy(logits, self.labels[held])]

    def upright(self, data: str, fashion: Path) -> float:
        """Accuracy of the network on the images before they are turned."""
        images, labels = bases.unseen(data, 0, fashion)
        return accuracy(FloatCache.of(self.network, images, cache="none", dtype=np.float32).logits, labels)


class Words:
    """The same images behind the same frozen network in the machine's integers, as one format keeps them."""

    def __init__(self, bench: Bench, images: np.ndarray, case: Case) -> None:
        self.bench, self.wide = bench, case.codes == "int8"
        lowered = lower(bench.network, design(case), case.rank, wide=self.wide)
        self.kept = fill_cache(lowered, bench.network.pixel_map.words(images, ACTIVATION))

    def of(self, index: np.ndarray) -> WordCache:
        """Of some images."""
        kept = self.kept
        return WordCache(
            codes=[each[index] for each in kept.codes],
            scales=[each[index] for each in kept.scales],
            decoded=[each[index] for each in kept.decoded],
            logits=kept.logits[index],
            saturated=kept.saturated[index],
        )

    def run(self, case: Case, rate: float, seed: int) -> float:
        """Held-out accuracy after the most epochs."""
        network, labels = self.bench.network, self.bench.labels
        learnt, held = self.bench.images("judged", seed)
        lowered = lower(network, design(case), case.rank, wide=self.wide)
        start = initial_adapters(network.taps, network.classes, case.rank, seed)
        a, b = ([PARAMETER.encode(pair[which]) for pair in start] for which in (0, 1))
        settings = Settings(samples=SAMPLES, epochs=max(EPOCHS), batch=BATCH, rate=rate, seed=seed)
        done = fine_tune(lowered, settings, self.of(learnt), labels[learnt], a, b)
        return accuracy(logits(lowered, self.of(held), done.a, done.b), labels[held])


def chosen(found: Mapping[float, Mapping[str, Any]], epochs: int) -> float:
    """The rate with the least loss after a count of epochs.

    What is not finite loses.
    """
    return min(found, key=lambda rate: (not np.isfinite(found[rate][str(epochs)][0]), found[rate][str(epochs)][0]))


def wanted(found: Mapping[float, Mapping[str, Any]]) -> float | None:
    """The next rate to try, or None.

    None: the best of each count of epochs has a worse one on both sides.
    """
    begin = RATES.index(BEGIN)
    for rate in RATES[begin - 1 : begin + 2]:
        if rate not in found:
            return rate
    for epochs in EPOCHS:
        at = RATES.index(chosen(found, epochs))
        for beside in (at - 1, at + 1):
            if 0 <= beside < len(RATES) and RATES[beside] not in found:
                return RATES[beside]
    return None


def measure(held: dict[str, Any], keep: Callable[[], None], tell: Callable[[str], None], fashion: Path) -> None:
    """Fills ``held`` with what is not in it yet.

    These are ``costs`` by case, and by data set ``upright``, ``before``, ``rates``, ``runs``,
    ``integers``.
    """
    for case in CASES:
        if case.key not in held.setdefault("costs", {}):
            tell(f"cost of {case.key}")
            held["costs"][case.key] = cost(case)
            keep()
    for data in bases.DATA:
        _measure_data(data, held.setdefault(data, {}), keep, tell, fashion)


def _measure_data(
    data: str, held: dict[str, Any], keep: Callable[[], None], tell: Callable[[str], None], fashion: Path
) -> None:
    @cache
    def bench(network: int) -> Bench:
        tell(f"{data}, base network {network}")
        return Bench(data, network, fashion)

    def run(case: Case, part: str, rate: float, counts: Sequence[int]) -> dict[str, list[list[float]]]:
        """By count of epochs loss and accuracy, of all networks and seeds."""
        tell(f"{data}, {case.key}, rate {rate:g}, {part}")
        found = [bench(network).run(case, part, rate, seed, counts) for network in NETWORKS for seed in SEEDS]
        return {str(epochs): list(each) for epochs, each in zip(counts, zip(*found))}

    if "before" not in held:
        held["upright"] = [_short(bench(network).upright(data, fashion)) for network in NETWORKS]
        found = [
            bench(network).judged([], [], bench(network).images("judged", seed)[1])
            for network in NETWORKS
            for seed in SEEDS
        ]
        held["before"] = [[_short(each) for each in pair] for pair in found]
        keep()
    # Codes of a format are made once.
    for case in sorted({each.trained for each in CASES}, key=lambda each: (each.codes, each.key)):
        rates = held.setdefault("rates", {}).setdefault(case.key, {})
        runs = held.setdefault("runs", {}).setdefault(case.key, {})
        while (rate := wanted({float(each): losses for each, losses in rates.items()})) is not None:
            rates[f"{rate:g}"] = {
                epochs: [_short(each) for each in np.mean(found, axis=0)]
                for epochs, found in run(case, "rates", rate, EPOCHS).items()
            }
            keep()
        best = {epochs: _best(rates, epochs) for epochs in EPOCHS}
        for rate in sorted(set(best.values()) - {float(each) for each in runs}):
            counts = [epochs for epochs in EPOCHS if best[epochs] == rate]
            runs[f"{rate:g}"] = {
                epochs: [[_short(each) for each in pair] for pair in found]
                for epochs, found in run(case, "judged", rate, counts).items()
            }
            keep()

    machine = sorted({each.trained for each in CASES if each.cache != "float" and len(each.layers) == 5}, key=_place)
    found_in = held.setdefault("integers", {})
    for network in NETWORKS:
        place, words = None, None
        for case in machine:
            found = found_in.setdefault(case.key, [])
            if len(found) > network * len(SEEDS):
                continue
            if place != _place(case)[:2]:
                words, place = None, _place(case)[:2]
                words = Words(bench(network), bases.unseen(data, 90, fashion)[0], case)
            tell(f"{data}, {case.key}, integers, base network {network}")
            rate = _best(held["rates"][case.key], max(EPOCHS))
            found += [_short(words.run(case, rate, seed)) for seed in SEEDS]
            keep()


def _place(case: Case) -> tuple[str, bool, int]:
    """Format, whether on the larger design, and rank."""
    return case.codes, design(case) == LARGER, case.rank


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _best(rates: Mapping[str, Any], epochs: int) -> float:
    return chosen({float(each): losses for each, losses in rates.items()}, epochs)


def rows(held: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a case and count of epochs.

    ``right`` and ``loss`` are those of all networks and seeds, by data set; ``integers`` what is right after the most
    epochs in the machine's integers.
    """
    made = []
    for case in CASES:
        key, spent = case.trained.key, held["costs"][case.key]
        for epochs in EPOCHS:
            row: dict[str, Any] = asdict(case) | {"epochs": epochs}
            row |= {"cycles": spent["cycles"] and spent["cycles"][str(epochs)]}
            row |= {
                "update_bytes": spent["update_bytes"],
                "memory": spent["memory"],
                "loss": {},
                "right": {},
                "integers": {},
            }
            for data in bases.DATA:
                found = held[data]["runs"][key][f"{_best(held[data]['rates'][key], epochs):g}"][str(epochs)]
                row["loss"][data], row["right"][data] = map(list, zip(*found))
                row["integers"][data] = held[data]["integers"].get(key) if spent["cycles"] else None
            made.append(row)
    return made
