"""Held-out loss of InstantFT on images beside its cost.

``quality.py`` runs it: the network and the images of the preset instantft-kv260, turned by 90 degrees, 1,024 to learn
from, batches of 20, SGD. The first :data:`CHOOSING` images choose rates, by the mean of the seeds; the others are
learnt from and judge. The seed draws images, their order and adapters.

Losses are in float32, by the mathematics of ``systems/images/mathematics.py``. Cycles are forecasts of the whole
programs, memory is the window of the program's memory map. The machine has an adapter at every layer; fewer layers have
a loss and no cycles.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gradloom.models.datasets import default_split
from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.time.forecast import forecast
from gradloom.systems.held_out import accuracy, cross_entropy
from gradloom.systems.images.mathematics import FloatCache, adapter_logits, cached_value, train_adapters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters

SAMPLES, BATCH, CHOOSING, SEEDS, EPOCHS = 1024, 20, 3072, (0, 1, 2), (2, 5, 10)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
#: Where the search for a rate begins.
BEGIN = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fine-tune; ``layers`` have adapters, counted from 0.

    ``cache``: ``again`` keeps nothing and makes NF4 codes in each epoch, ``float`` is no format of the machine.
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
    *(Case(rank=rank) for rank in (1, 2, 4, 8)),
    *(Case(rank=rank, cache="int8") for rank in (2, 4, 8)),
    Case(cache="again"),
    Case(cache="float"),
    *(Case(layers=layers) for layers in ((1, 2, 3, 4), (2, 3, 4), (4,), (0,))),
)


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
    lowered = lower(network, ImageConfig(), case.rank, wide=case.cache == "int8")
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
    """All images behind the frozen network."""

    def __init__(self) -> None:
        self.network: LayerNetwork = load_pretrained()
        data = default_split(0, degrees=90)
        images = np.concatenate([data.x_train, data.x_test])
        self.labels = np.concatenate([data.y_train, data.y_test])
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

    def run(self, case: Case, part: str, rate: float, seed: int) -> dict[str, list[float]]:
        """Held-out loss and accuracy after each count of epochs."""
        taps, (learnt, held) = self.seen(case), self.images(part, seed)
        start = initial_adapters(self.network.taps, self.network.classes, case.rank, seed)
        adapters = [tuple(each.astype(np.float32) for each in start[layer]) for layer in case.layers]
        cache = FloatCache(taps=[tap[learnt] for tap in taps], logits=self.exact.logits[learnt])
        found = {}
        for epochs in EPOCHS:
            _, after = train_adapters(
                cache, self.labels[learnt], adapters, lr=rate, batch=BATCH, epochs=epochs, seed=seed
            )
            found[str(epochs)] = self.judged(after, [tap[held] for tap in taps], held)
        return found

    def judged(self, adapters: Any, taps: list[np.ndarray], held: np.ndarray) -> list[float]:
        """Mean loss and accuracy."""
        logits = adapter_logits(adapters, taps, self.exact.logits[held])
        loss, _ = cross_entropy(logits, self.labels[held])
        return [float(loss.mean(dtype=np.float64)), accuracy(logits, self.labels[held])]


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


def measure(held: dict[str, Any], keep: Callable[[], None], tell: Callable[[str], None]) -> None:
    """Fills ``held`` with what is not in it yet.

    These are ``costs``, ``before``, ``rates``, ``runs``.
    """
    bench: Bench | None = None
    for case in CASES:
        if case.key not in held.setdefault("costs", {}):
            tell(f"cost of {case.key}")
            held["costs"][case.key] = cost(case)
            keep()
    for case in CASES:
        trained = case.trained
        rates = held.setdefault("rates", {}).setdefault(trained.key, {})
        runs = held.setdefault("runs", {}).setdefault(trained.key, {})
        while (rate := wanted({float(each): losses for each, losses in rates.items()})) is not None:
            tell(f"{trained.key}, rate {rate:g}")
            bench = bench or Bench()
            found = [bench.run(trained, "rates", rate, seed) for seed in SEEDS]
            rates[f"{rate:g}"] = {key: np.mean([each[key] for each in found], axis=0).tolist() for key in found[0]}
            keep()
        tried = {float(each): losses for each, losses in rates.items()}
        for seed in SEEDS:
            for rate in sorted({chosen(tried, epochs) for epochs in EPOCHS}):
                name = f"{rate:g}, seed {seed}"
                if name not in runs:
                    tell(f"{trained.key}, rate {rate:g}, seed {seed}")
                    bench = bench or Bench()
                    runs[name] = bench.run(trained, "judged", rate, seed)
                    keep()
    if "before" not in held:
        bench = bench or Bench()
        held["before"] = [bench.judged([], [], bench.images("judged", seed)[1]) for seed in SEEDS]
        keep()


def rows(held: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a case and count of epochs."""
    made = []
    for case in CASES:
        key, spent = case.trained.key, held["costs"][case.key]
        tried = {float(each): losses for each, losses in held["rates"][key].items()}
        for epochs in EPOCHS:
            rate = chosen(tried, epochs)
            after = [held["runs"][key][f"{rate:g}, seed {seed}"][str(epochs)] for seed in SEEDS]
            made.append(
                asdict(case)
                | {"epochs": epochs, "rate": rate}
                | {"cycles": spent["cycles"] and spent["cycles"][str(epochs)]}
                | {"update_bytes": spent["update_bytes"], "memory": spent["memory"]}
                | {"before": held["before"], "after": after}
            )
    return made
