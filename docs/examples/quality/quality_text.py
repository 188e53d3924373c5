"""Held-out loss of fine-tunes of SmolLM2-135M beside their cost.

``quality.py`` runs it. A fine-tune learns from :data:`WINDOWS` windows of 64 tokens, several times, with AdamW, one
window an update. The seed draws the windows and the adapters. Two texts lie in ``texts``: rates are chosen on
``rates.txt``, results are of ``judged.txt``. Of every ten windows of a text the last two are held out.

Losses are in float32 by PyTorch (``systems/text/reference/torch_llama.py``), linears have the values of their NF4
codes. Cycles are forecasts: of adapters, norms and factors as ``gradloom choose`` composes them, of InstantFT of the
whole programs. Memory is all that the fine-tune holds beside the frozen model.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.choosing.candidates import METHODS, Candidate
from gradloom.choosing.costs import Costs, beside_frozen
from gradloom.models.adapters.language.instant import fresh_instant
from gradloom.models.adapters.language.methods import METHODS as KNOWN
from gradloom.models.adapters.lora import LearntModule
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.models.language import BUILT_IN
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW, scaled
from gradloom.sim.time.forecast import forecast
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.operations.blocks.head import HEAD_MATRIX
from gradloom.systems.text.operations.instant import InstantStep
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.residents import FROZEN, by_class
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.quantized import Quantized

TEXTS = Path(__file__).parent / "texts"
TOKENS, WINDOWS, JUDGED, SEEDS = 64, 24, 24, (0, 1, 2)
MODEL = "smollm2-135m"
#: Half decades; the search begins at a method's own place and goes on while the best is at an end.
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
BEGIN = {"lora": 1e-3, "layernorm": 1e-2, "ia3": 1e-2, "instantft": 1e-2}
#: Seed of the runs that choose a rate.
CHOOSING = 100


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fine-tune; ``epochs``: after which it is judged."""

    method: str
    targets: str = "all"
    first: int = 0
    rank: int = 0

    @property
    def epochs(self) -> tuple[int, ...]:
        """Those that take the machine at most about 1.5 billion cycles.

        InstantFT learns slowly, and has more.
        """
        return (1, 2, 4) if self.method == "instantft" else (1, 2) if self.first else (1,)

    @property
    def key(self) -> str:
        """Name in files."""
        return f"{self.method} {self.targets} from {self.first} rank {self.rank}"

    @property
    def place(self) -> "Case":
        """The case whose rate it has.

        It is that of rank 8, and of last layers the last four.
        """
        return replace(self, rank=self.rank and 8, first=self.first and 26)

    @property
    def candidate(self) -> Candidate:
        """The same for ``gradloom choose``."""
        method = KNOWN[self.method]
        targets = TARGETS[self.targets] if method.ranked else method.usual
        return Candidate(method=self.method, targets=targets, from_layer=self.first, rank=self.rank, seq=TOKENS)


def _lora(*, targets: str = "all", first: int = 0, rank: int = 8) -> Case:
    return Case(method="lora", targets=targets, first=first, rank=rank)


CASES = (
    *(_lora(first=first) for first in (0, 26, 28, 29)),
    _lora(first=26, rank=2),
    _lora(targets="q,v"),
    *(Case(method="layernorm", first=first) for first in (0, 26)),
    Case(method="ia3", first=26),
    *(Case(method="instantft", rank=rank) for rank in (8, 2)),
)


# ---------------------------------------------------------------- cost


def costs(jobs: int = 1) -> dict[str, dict[str, int]]:
    """Of every case: cycles, bytes of the update, and of memory.

    ``step``: cycles of an update; ``first``: what the first one on a text takes besides.
    """
    model, config = BUILT_IN[MODEL], PRESETS["edge-qlora-genesys2"].config
    usual = [each for each in CASES if each.method != "instantft"]
    known = Costs(model, config, [each.candidate for each in usual], jobs=jobs)
    found = {}
    for each in usual:
        cost = known.of(each.candidate)
        found[each.key] = {
            "step": cost.update_cycles,
            "first": cost.trunk_cycles,
            "update_bytes": cost.update_bytes,
            "memory": beside_frozen(cost.classes(WINDOWS, 1, WINDOWS)),
        }
    return found | {each.key: _instant_cost(each.rank) for each in CASES if each.method == "instantft"}


def _instant_cost(rank: int) -> dict[str, int]:
    """Of the programs of InstantFT."""
    model, config = BUILT_IN[MODEL], PRESETS["instantft-llm-genesys2"].config
    instant = InstantStep(model, TOKENS, rank, range(model.layers))
    rule, cycles, held, shared, programs = AdamW(lr=1e-3), [], {}, 0, 0
    for operations in (instant.fill(), instant.operations((rule, scaled(rule, 2.0)), 1)):
        layout = Layout()
        layout.place(HEAD_MATRIX, 2 * model.vocab * model.hidden)
        # The cache outlives a program.
        for tensor in instant.cached:
            layout.tensor(tensor)
        program = lower(operations, exponents(operations), layout, config, share=True)
        cycles.append(forecast(program, config=config).total)
        programs += len(program.code)
        shared = max(shared, layout.shared_bytes)
        held |= {name: size for name, size in layout.sizes.items() if size and name not in layout.shared}
    cache = {tensor.name: held.pop(tensor.name) for tensor in instant.cached}
    classes = by_class(held, model)
    beside = sum(size for name, size in classes.items() if name not in FROZEN)
    return {
        "step": cycles[1],
        "first": cycles[0],
        "update_bytes": 4 * 2 * rank * model.hidden * model.layers,
        "memory": beside + shared + programs + (WINDOWS - 1) * classes["texts"] + WINDOWS * sum(cache.values()),
    }


def cycles(cost: Mapping[str, int], epochs: int) -> int:
    """Of a fine-tune: the first step on each window makes what is kept."""
    return WINDOWS * (epochs * cost["step"] + cost["first"])


# ---------------------------------------------------------------- quality


def parts(tokens: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Windows to learn from, and windows that are held out.

    Both are taken evenly over the text.
    """
    windows = [list(tokens[at : at + TOKENS]) for at in range(0, len(tokens) - TOKENS + 1, TOKENS)]
    learnt = [window for number, window in enumerate(windows) if number % 10 < 8]
    held = [window for number, window in enumerate(windows) if number % 10 >= 8]
    count = min(JUDGED, len(held))
    return learnt, [held[number * len(held) // count] for number in range(count)]


class Bench:
    """The model, and fine-tunes of it in PyTorch."""

    def __init__(self, threads: int) -> None:
        import torch

        from gradloom.systems.text.reference.torch_llama import TorchLlama

        self.torch = torch
        torch.set_num_threads(threads)
        weights = find_weights(MODEL)
        self.checkpoint = Quantized(open_checkpoint(weights))
        self.model = self.checkpoint.model
        self.llama = TorchLlama(self.model, self.checkpoint.tensor)
        encode = open_tokenizer(weights).encode
        self.parts = {
            name: parts(encode((TEXTS / f"{name}.txt").read_text(encoding="utf-8"))) for name in ("rates", "judged")
        }

    def fresh(self, case: Case, seed: int) -> dict[str, LearntModule]:
        """What learns, before."""
        if case.method == "instantft":
            from gradloom.systems.text.reference.torch_llama import instant_name

            blocks = fresh_instant(self.model, rank=case.rank, seed=seed)
            return {instant_name(layer): each for layer, each in blocks.items()}
        return METHODS[case.method].fresh(self.model, self.checkpoint.tensor, case.candidate, seed)

    def kept(self, case: Case, windows: Any) -> Any:
        """What stays in memory of each window, or None."""
        if case.method == "instantft":
            pieces = [self.llama.taps(piece) for piece in windows.split(8)]
            return [self.torch.cat(each) for each in zip(*pieces)]
        return self.torch.cat([self.llama.entering(case.first, p) for p in windows.split(8)]) if case.first else None

    def losses(self, case: Case, learnt: Mapping[str, LearntModule], windows: Any, kept: Any, at: slice) -> Any:
        """Of some windows, by what is kept of all."""
        if case.method == "instantft":
            return self.llama.instant_losses(windows[at], learnt, [each[at] for each in kept])
        return self.llama.losses(windows[at], learnt, None if kept is None else kept[at])

    def run(self, case: Case, part: str, rate: float, seed: int, epochs: Sequence[int]) -> dict[str, float]:
        """Held-out loss after each of these epochs.

        It is not finite where the fine-tune diverged.
        """
        from gradloom.systems.text.reference.torch_llama import parameters

        torch = self.torch
        learnt_from, held = (torch.tensor(each) for each in self.parts[part])
        drawn = np.random.default_rng(seed).permutation(len(learnt_from))[:WINDOWS]
        texts = learnt_from[torch.from_numpy(drawn)]
        kept, kept_held = self.kept(case, texts), self._kept_held(case, part, held)
        learnt, tensors = parameters(self.fresh(case, seed))
        rule = torch.optim.AdamW(tensors, lr=rate, weight_decay=0)
        found = {}
        for epoch in range(1, max(epochs) + 1):
            for at in range(WINDOWS):
                rule.zero_grad()
                self.losses(case, learnt, texts, kept, slice(at, at + 1)).sum().backward()
                rule.step()
            if epoch in epochs:
                found[str(epoch)] = self.judged(case, learnt, held, kept_held)
        return found

    def judged(self, case: Case, learnt: Mapping[str, LearntModule], held: Any, kept: Any) -> float:
        """Mean loss of the windows that are held out."""
        with self.torch.no_grad():
            found = [self.losses(case, learnt, held, kept, slice(at, at + 8)) for at in range(0, len(held), 8)]
        return float(self.torch.cat(found).double().mean())

    @cached_property
    def _held(self) -> dict[tuple[str, bool, int], Any]:
        return {}

    def _kept_held(self, case: Case, part: str, held: Any) -> Any:
        key = part, case.method == "instantft", case.first
        if key not in self._held:
            self._held.clear()
            self._held[key] = self.kept(case, held)
        return self._held[key]

    def before(self, part: str) -> float:
        """Of the frozen model."""
        case = CASES[0]
        return self.judged(case, {}, self.torch.tensor(self.parts[part][1]), None)


def chosen(found: Mapping[float, Mapping[str, float]], epochs: int) -> float:
    """The rate with the least loss after a count of epochs.

    What is not finite loses.
    """
    return min(found, key=lambda rate: (not np.isfinite(found[rate][str(epochs)]), found[rate][str(epochs)]))


def wanted(found: Mapping[float, Mapping[str, float]], case: Case) -> float | None:
    """The next rate to try, or None.

    None: the best of each count of epochs has a worse one on both sides.
    """
    begin = RATES.index(BEGIN[case.method])
    for rate in RATES[begin - 1 : begin + 2]:
        if rate not in found:
            return rate
    for epochs in case.epochs:
        at = RATES.index(chosen(found, epochs))
        for beside in (at - 1, at + 1):
            if 0 <= beside < len(RATES) and RATES[beside] not in found:
                return RATES[beside]
    return None


def measure(
    held: dict[str, Any],
    keep: Callable[[], None],
    tell: Callable[[str], None],
    threads: int,
    only: Sequence[Case] | None = None,
) -> None:
    """Fills ``held`` with what is not in it yet.

    These are ``costs``, ``before``, ``rates``, ``runs``; ``only`` of some cases.
    """
    if {each.key for each in CASES} - set(held.get("costs", {})):
        tell("costs of text")
        held["costs"] = costs()
        keep()
    bench: Bench | None = None

    def run(case: Case, part: str, rate: float, seed: int, epochs: Sequence[int]) -> dict[str, float]:
        nonlocal bench
        bench = bench or Bench(threads)
        tell(f"{case.key}, rate {rate:g}, {part}, seed {seed}")
        return bench.run(case, part, rate, seed, epochs)

    if "before" not in held:
        bench = Bench(threads)
        held["before"] = bench.before("judged")
    for case in CASES if only is None else only:
        rates = held.setdefault("rates", {}).setdefault(case.place.key, {})
        while (rate := wanted({float(each): losses for each, losses in rates.items()}, case.place)) is not None:
            rates[f"{rate:g}"] = run(case.place, "rates", rate, CHOOSING, case.place.epochs)
            keep()
        tried = {float(each): losses for each, losses in rates.items()}
        runs = held.setdefault("runs", {}).setdefault(case.key, {})
        best = {epochs: chosen(tried, epochs) for epochs in case.epochs}
        for seed in SEEDS:
            for rate in sorted(set(best.values())):
                name = f"{rate:g}, seed {seed}"
                if name not in runs:
                    runs[name] = run(case, "judged", rate, seed, [each for each in best if best[each] == rate])
                    keep()


def rows(held: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a case and count of epochs."""
    made = []
    for case in CASES:
        tried = {float(each): losses for each, losses in held["rates"][case.place.key].items()}
        cost = held["costs"][case.key]
        for epochs in case.epochs:
            rate = chosen(tried, epochs)
            after = [held["runs"][case.key][f"{rate:g}, seed {seed}"][str(epochs)] for seed in SEEDS]
            made.append(
                asdict(case)
                | {"epochs": epochs, "rate": rate, "cycles": cycles(cost, epochs)}
                | {"update_bytes": cost["update_bytes"], "memory": cost["memory"]}
                | {"before": held["before"], "after": after}
            )
    return made


if __name__ == "__main__":
    print(json.dumps(costs(), indent=2))
