"""Costs of all candidates, composed of those of small programs.

Of each method, targets, rank: a program of one layer, and what a second one adds. What layers without adapters, more
logits, other texts of an update and another format of what is stored add comes from one program each, in the last two
cases by the number of parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gradloom.firmware.adapter_store import HEADER_BYTES as STORE_HEADER
from gradloom.firmware.registers import COMMAND_BYTES
from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.models.language import LanguageModel
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.operations import EDGE
from gradloom.rtl.plan.language.packed import STORES
from gradloom.rtl.plan.language.residents import FROZEN, by_class, residents
from gradloom.rtl.plan.language.training import training_operations
from gradloom.rtl.plan.language.transformer import Step

from .candidates import Candidate
from .points import PIECE, Point, measured, reduced_tiles

__all__ = ["Cost", "Costs"]

#: Classes of memory of which each text has its own.
_BY_TEXT = ("texts", "forward_cache")
#: Codes of 4 bits take the machine as long as codes of 8.
_STORED = "int8"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of a candidate.

    Parameters
    ----------
    update_cycles : int
        Of an update from what is kept, all of its texts.
    trunk_cycles : int
        That the first step on a text takes longer: of the layers below, whose result is kept.
    memory : dict
        Bytes by class; ``texts`` and ``forward_cache`` are those of one text.
    update_bytes : int
        Of the adapter as it is shipped, float32.
    """

    update_cycles: int
    trunk_cycles: int
    memory: dict[str, int]
    update_bytes: int

    def cycles(self, steps: int, texts: int) -> int:
        """Of so many updates, in which so many different texts are seen."""
        return steps * self.update_cycles + texts * self.trunk_cycles

    def steps(self, cycles: int, each: int, windows: int) -> int:
        """Updates, each of ``each`` texts, that so many cycles are enough for."""
        # As long as all texts are new, and when all have been seen.
        new = min(cycles // (self.update_cycles + each * self.trunk_cycles), windows // each)
        old = max(cycles - windows * self.trunk_cycles, 0) // self.update_cycles
        return max(new, old if old * each >= windows else 0)

    def bytes(self, texts: int) -> int:
        """Of memory, with so many texts."""
        return sum(size * (texts if name in _BY_TEXT else 1) for name, size in self.memory.items())

    def beside_frozen(self, texts: int) -> int:
        """Of memory beside the frozen model."""
        return self.bytes(texts) - sum(self.memory[name] for name in FROZEN)


class Costs:
    """Costs of candidates of a model on a machine.

    Parameters
    ----------
    model : LanguageModel
    config : LanguageConfig
    found : sequence of Candidate
        Those whose costs are wanted. The first one's ``seq`` is measured with every rank, others with the largest.
    jobs : int
        Processes.
    known : mapping
        Points that were measured before.
    keep : callable, optional
        Gets all points whenever one more is measured.
    """

    def __init__(
        self,
        model: LanguageModel,
        config: LanguageConfig,
        found: Sequence[Candidate],
        *,
        jobs: int = 1,
        progress: Callable[[int, int, str], None] | None = None,
        known: Mapping[Point, Mapping[str, int]] = MappingProxyType({}),
        keep: Callable[[Mapping[Point, Mapping[str, int]]], None] | None = None,
    ) -> None:
        self.model, self.config = model, replace(config, packing=1)
        self.tiles = -(-model.vocab // EDGE)
        self.start = reduced_tiles(self.tiles)
        self.seq = found[0].seq
        self.ranks = dict.fromkeys((each.where[:2] for each in found), 0)
        for each in found:
            self.ranks[each.where[:2]] = max(self.ranks[each.where[:2]], each.rank)
        #: What is the same whatever learns is measured with these.
        self.usual = found[0].where[:2]
        points = [point for each in found for point in self._points(each)]
        self.points = measured(model, self.config, points, jobs=jobs, progress=progress, known=known, keep=keep)
        self._sizes: dict[tuple[Candidate, int], dict[str, int]] = {}

    # ---- what is measured

    def _own(self, each: Candidate, **change: Any) -> Point:
        rank = each.rank if each.seq == self.seq else self.ranks[each.where[:2]]
        return replace(self._largest(each.where[:2]), rank=rank, seq=each.seq, **change)

    def _usual(self, seq: int, **change: Any) -> Point:
        return replace(self._largest(self.usual), seq=seq, **change)

    def _largest(self, what: tuple[str, tuple[str, ...]], **change: Any) -> Point:
        """With the seq that is measured with every rank."""
        method, targets = what
        point = Point(method=method, targets=targets, rank=self.ranks[what], seq=self.seq, tiles=self.start)
        return replace(point, **change)

    def _points(self, each: Candidate) -> list[Point]:
        learning, trunk = self.model.layers - each.from_layer, each.from_layer
        made = [self._own(each)]
        if each.seq != self.seq:
            made += self._points(replace(each, seq=self.seq))
            made.append(self._largest(each.where[:2], learning=min(learning, 2)))
        if learning > 1:
            made.append(self._own(each, learning=2))
        if trunk:
            made += [self._usual(each.seq), self._usual(each.seq, trunk=1)]
        if trunk > 1:
            made.append(self._usual(each.seq, trunk=2))
        if self.start < self.tiles:
            made += [self._usual(each.seq), self._usual(each.seq, tiles=self.start + PIECE)]
            # Of the memory, each candidate's own: what fills it may be logits or a layer.
            made.append(replace(self._own(each, tiles=self.start + PIECE), timed=False))
        if each.store != "words":
            made += [self._largest(each.where[:2]), self._largest(each.where[:2], store=_STORED)]
        if each.accumulate > 1:
            made += [self._usual(self.seq), *self._summing(each.accumulate)]
        return made

    def _summing(self, texts: int) -> tuple[Point, Point]:
        """Programs of a text before the last of an update, and of the last."""
        return self._usual(self.seq, texts=texts, updates=False), self._usual(self.seq, texts=texts)

    # ---- what is composed

    def of(self, each: Candidate) -> Cost:
        """Of one of the candidates."""
        memory = dict(self._residents(each))
        if each.from_layer:
            memory["forward_cache"] = 4 * each.seq * self.model.hidden
        memory["step_tensors"] = self._tensors(each)
        memory["programs"] = self._programs(each)
        kept = -(-memory["adapters"] // 64) * 64
        memory["adapter_copies"] = 2 * (STORE_HEADER + kept)
        return Cost(
            update_cycles=self._update(each),
            trunk_cycles=round(self._trunk(each, "cycles")),
            memory=memory,
            update_bytes=4 * each.parameters(self.model),
        )

    def _figure(self, point: Point, name: str = "cycles") -> int:
        found = self.points.get(point) or self.points[replace(point, timed=True)]
        return found[name]

    def _layers(self, each: Candidate, name: str) -> float:
        """Of the layers that learn and a short head."""
        learning = self.model.layers - each.from_layer
        first = self._figure(self._own(each), name)
        more = self._figure(self._own(each, learning=2), name) - first if learning > 1 else 0
        if each.seq == self.seq:
            return first + (learning - 1) * more
        # Only measured with the largest rank: others by their share in a window that is measured with all.
        return (first + (learning - 1) * more) * self._share(each, name)

    def _share(self, each: Candidate, name: str) -> float:
        ranks = each.rank, self.ranks[each.where[:2]]
        own, largest = (self._layers(replace(each, seq=self.seq, rank=rank), name) for rank in ranks)
        return own / largest

    def _trunk(self, each: Candidate, name: str) -> float:
        """Of the layers that do not."""
        count = each.from_layer
        if not count:
            return 0
        none, one = (self._figure(self._usual(each.seq, trunk=trunk), name) for trunk in (0, 1))
        more = self._figure(self._usual(each.seq, trunk=2), name) - one if count > 1 else 0
        return one - none + (count - 1) * more

    def _head(self, each: Candidate, name: str) -> float:
        """Of the rest of the head."""
        if self.start == self.tiles:
            return 0
        short, longer = (self._figure(self._usual(each.seq, tiles=self.start + more), name) for more in (0, PIECE))
        return (longer - short) * (self.tiles - self.start) / PIECE

    def _text(self, each: Candidate, name: str) -> float:
        return self._layers(each, name) + self._head(each, name)

    def _of_parameters(self, each: Candidate, what: tuple[str, tuple[str, ...]], changed: Point, name: str) -> float:
        """Cost of a change, scaled by parameters from one layer."""
        one = self._figure(changed, name) - self._figure(self._largest(what), name)
        method, targets = what
        last = self.model.layers - 1
        held = replace(each, method=method, targets=targets, rank=self.ranks[what], from_layer=last)
        return one * each.parameters(self.model) / held.parameters(self.model)

    def _stored(self, each: Candidate, name: str) -> float:
        if each.store == "words":
            return 0
        return self._of_parameters(each, each.where[:2], self._largest(each.where[:2], store=_STORED), name)

    def _update(self, each: Candidate) -> int:
        """Cycles of all texts of an update."""
        plain = self._text(each, "cycles") + self._stored(each, "cycles")
        if each.accumulate == 1:
            return round(plain)
        before, last = (
            plain + self._of_parameters(each, self.usual, point, "cycles") for point in self._summing(each.accumulate)
        )
        return round((each.accumulate - 1) * before + last)

    # ---- memory

    def _tensors(self, each: Candidate) -> int:
        """Bytes of the places that tensors of a step share."""
        name = "step_tensors"
        if each.seq != self.seq:
            # Words of tokens; what an adapter's rank adds is a thousandth.
            own = self._places(replace(each, rank=self.ranks[each.where[:2]]))
            return -(-round(own * self._share(each, name)) // 64) * 64
        return self._places(each)

    def _places(self, each: Candidate) -> int:
        learning = self.model.layers - each.from_layer
        first = self._figure(self._own(each), "step_tensors")
        found = first
        if learning > 1:
            found += (learning - 1) * (self._figure(self._own(each, learning=2), "step_tensors") - first)
        if self.start == self.tiles:
            return found
        more = self._figure(replace(self._own(each, tiles=self.start + PIECE), timed=False), "step_tensors") - first
        return found + more * (self.tiles - self.start) // PIECE

    def _programs(self, each: Candidate) -> int:
        """Bytes of the programs of a step, two with a forward cache."""
        later = self._text(each, "commands") + self._stored(each, "commands")
        commands = later * min(each.accumulate, 2)
        if each.from_layer:
            commands += commands + self._trunk(each, "commands")
        return COMMAND_BYTES * round(commands)

    def _residents(self, each: Candidate) -> dict[str, int]:
        """Bytes of what stays by class, composed of models of few layers."""
        learning, trunk = self.model.layers - each.from_layer, each.from_layer
        first, second = min(learning, 2), min(trunk, 1)
        base = self._small(each, second, first)
        found = dict(base)
        for more, (t, n) in ((learning - first, (second, first + 1)), (trunk - second, (second + 1, first))):
            if more:
                longer = self._small(each, t, n)
                found = {name: size + more * (longer[name] - base[name]) for name, size in found.items()}
        return found

    def _small(self, each: Candidate, trunk: int, learning: int) -> dict[str, int]:
        """Of a model of so many layers."""
        small = replace(self.model, layers=trunk + learning)
        usual = replace(each, from_layer=trunk)
        key = usual, learning
        if key not in self._sizes:
            ranks = usual.ranks(small)
            vectors = frozenset(usual.vectors(small))
            step = Step(small, each.seq, ranks, range(small.layers), vectors=vectors, texts=each.accumulate)
            operations = training_operations(
                step, dict.fromkeys(ranks, 2.0), AdamW(lr=1e-3), texts=each.accumulate, wide=STORES[each.store]
            )
            self._sizes[key] = by_class(residents(operations, step, self.config.data_bits // 8), small)
        return self._sizes[key]
