"""Costs of all candidates, composed of those of small programs.

Of each method, targets, and the lowest and highest rank: a program of one layer, and what a second one adds. Ranks
between lie on a line. What layers without adapters, more logits, other texts of an update and another format of what is
stored add comes from one program each, in the last two cases by the number of parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gradloom.firmware.chip.adapter_store import HEADER_BYTES as STORE_HEADER
from gradloom.firmware.chip.soc import HEADER_BYTES as JOB_HEADER
from gradloom.firmware.chip.steps import STATE_BYTES
from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.models.filled import filled
from gradloom.models.language import LanguageModel
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.text.card.layout import log_bytes, measured_sizes, page_rounding, row_bytes
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.program.residents import FROZEN, by_class, residents

from .candidates import Candidate
from .points import PIECE, SHORT, Point, measured, reduced_tiles

__all__ = ["Cost", "Costs", "beside_frozen"]

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
        Bytes by class; ``texts`` and ``forward_cache`` are those of one text, ``step_table`` that of one step.
    later_programs : int
        Bytes of the programs of steps on texts that were seen before.
    row, later_values : int
        Bytes of a step in the table, and of what it says of those later programs.
    update_bytes : int
        Of the adapter as it is shipped, float32.
    """

    update_cycles: int
    trunk_cycles: int
    memory: dict[str, int]
    update_bytes: int
    later_programs: int = 0
    row: int = 0
    later_values: int = 0

    def cycles(self, steps: int, texts: int) -> int:
        """Of so many updates, in which so many different texts are seen."""
        return steps * self.update_cycles + texts * self.trunk_cycles

    def steps(self, cycles: int, each: int, windows: int) -> int:
        """Updates, each of ``each`` texts, that so many cycles are enough for."""
        # As long as all texts are new, and when all have been seen.
        new = min(cycles // (self.update_cycles + each * self.trunk_cycles), windows // each)
        old = max(cycles - windows * self.trunk_cycles, 0) // self.update_cycles
        return max(new, old if old * each >= windows else 0)

    def classes(self, steps: int, each: int, texts: int) -> dict[str, int]:
        """Bytes of memory by class.

        They are those of so many updates, each of ``each`` texts, and so many different texts.
        """
        found = {name: size * (texts if name in _BY_TEXT else 1) for name, size in self.memory.items()}
        if steps * each > texts:
            found["programs"] += self.later_programs
            if self.row:
                found["step_table"] += self.later_values
        if self.row:
            found["step_table"] += (steps - 1) * self.row
            found["job_log"] = log_bytes(steps)
            beyond = ("page_rounding", "job_header", "job_log")
            found["page_rounding"] = page_rounding({name: n for name, n in found.items() if name not in beyond})
        return found


def beside_frozen(found: Mapping[str, int]) -> int:
    """Bytes of memory beside the frozen model."""
    return sum(found.values()) - sum(found[name] for name in FROZEN)


def _whats(found: Sequence[Candidate]) -> list[tuple[str, tuple[str, ...]]]:
    """Methods with their targets."""
    return list(dict.fromkeys(each.where[:2] for each in found))


class Costs:
    """Costs of candidates of a model on a machine.

    Parameters
    ----------
    model : LanguageModel
    config : LanguageConfig
    found : sequence of Candidate
        Those whose costs are wanted. The first one's ``seq`` is measured with two ranks, others with the largest.
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
        self.model, self.config, self.found = filled(model), replace(config, packing=1), tuple(found)
        self.tiles = -(-model.vocab // EDGE)
        self.start = reduced_tiles(self.tiles)
        #: Layers add the same cycles before any head, but their memory depends on it.
        self.short = min(SHORT, self.tiles)
        self.seq = found[0].seq
        known_ranks = {what: {each.rank for each in found if each.where[:2] == what} for what in _whats(found)}
        self.ranks = {what: max(ranks) for what, ranks in known_ranks.items()}
        self.least = {what: min(ranks) for what, ranks in known_ranks.items()}
        #: What is the same whatever learns is measured with these.
        self.usual = found[0].where[:2]
        wanted = {point for each in found for point in self._points(each)}
        points = [point for point in wanted if point.timed or replace(point, timed=True) not in wanted]
        self.points = measured(model, self.config, points, jobs=jobs, progress=progress, known=known, keep=keep)
        self._sizes: dict[tuple[Candidate, int], dict[str, int]] = {}

    # ---- what is measured

    def _own(self, each: Candidate, **change: Any) -> Point:
        """With the largest rank."""
        return replace(self._largest(each.where[:2]), seq=each.seq, **change)

    def _heads(self) -> list[int]:
        """Tiles of the heads that are measured, at most two."""
        return [self.start, self.start + PIECE] if self.start < self.tiles else [self.start]

    def _held(self, each: Candidate, **change: Any) -> Point:
        """Of its memory alone, with a head that ends like the whole one."""
        return self._own(each, **{"tiles": self.start, "timed": False, **change})

    def _entered(self, each: Candidate, trunk: int) -> Point:
        """With layers that do not learn in front."""
        return self._held(each, learning=min(self.model.layers - each.from_layer, 2), trunk=trunk)

    def _usual(self, seq: int, **change: Any) -> Point:
        return replace(self._largest(self.usual), seq=seq, **change)

    def _largest(self, what: tuple[str, tuple[str, ...]], **change: Any) -> Point:
        """With the seq that is measured with every rank."""
        method, targets = what
        point = Point(method=method, targets=targets, rank=self.ranks[what], seq=self.seq, tiles=self.short)
        return replace(point, **change)

    def _points(self, each: Candidate) -> list[Point]:
        learning, trunk = self.model.layers - each.from_layer, each.from_layer
        what = each.where[:2]
        made = [self._own(each, learning=count) for count in range(1, min(learning, 2) + 1)]
        if each.rank < self.ranks[what]:
            made += [
                self._largest(what, learning=count, rank=rank)
                for count in range(1, min(learning, 2) + 1)
                for rank in (self.least[what], self.ranks[what])
            ]
        if trunk:
            made += [self._usual(each.seq), self._usual(each.seq, trunk=1)]
            made.append(self._entered(each, 1))
        if trunk > 1:
            made.append(self._usual(each.seq, trunk=2))
        made += [self._usual(each.seq), *(self._usual(each.seq, tiles=tiles) for tiles in self._heads())]
        # Of the memory, each candidate's own: what fills it may be logits or a layer.
        made += [self._held(each, tiles=tiles) for tiles in self._heads()]
        made.append(self._held(each, learning=min(learning, 2)))
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
        adapters = sum(each.ranks(self.model).values()) // (each.rank or 1)
        memory["measured"] = sum(-(-size // 64) * 64 for size in measured_sizes(each.shape(self.model)).values())
        memory["step_tensors"] = self._places(each)
        first, later = self._programs(each)
        memory["programs"] = first
        row, values = 0, 0
        if each.shape(self.model).on_card:
            row = row_bytes(bool(each.from_layer), AdamW(lr=1e-3))
            memory["state"] = -(-adapters * STATE_BYTES // 64) * 64
            memory["step_table"] = round(self._text(each, "step_table")) + 4 * bool(each.from_layer)
            memory["page_rounding"] = 0
            values = memory["step_table"] - row - STATE_BYTES * adapters if each.from_layer else 0
            memory["job_log"] = log_bytes(1)
        else:
            memory["adapter_copies"] = 2 * (STORE_HEADER + memory["adapters"])
        memory["job_header"] = JOB_HEADER
        return Cost(
            update_cycles=self._update(each),
            trunk_cycles=round(self._trunk(each, "cycles")),
            memory=memory,
            update_bytes=4 * each.parameters(self.model),
            later_programs=later,
            row=row,
            later_values=values,
        )

    def _figure(self, point: Point, name: str = "cycles") -> int:
        found = self.points.get(point) or self.points[replace(point, timed=True)]
        return found[name]

    def _layers(self, each: Candidate, name: str) -> float:
        """Of the layers that learn and a short head."""
        what, learning = each.where[:2], self.model.layers - each.from_layer
        largest = self._linear(self._own(each), learning, name)
        if each.rank == self.ranks[what]:
            return largest
        low, high = self.least[what], self.ranks[what]
        ends = [self._linear(self._largest(what, rank=rank), learning, name) for rank in (low, high)]
        own = ends[0] + (ends[1] - ends[0]) * (each.rank - low) / (high - low)
        # Other windows are only measured with the largest rank: others by their share in those that are.
        return largest * own / ends[1]

    def _linear(self, one: Point, learning: int, name: str) -> int:
        """Of so many layers, by those of one and two."""
        first = self._figure(one, name)
        return first + (learning - 1) * (self._figure(replace(one, learning=2), name) - first if learning > 1 else 0)

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
        short, *heads = (
            self._figure(self._usual(each.seq, tiles=tiles), name) for tiles in (self.short, *self._heads())
        )
        return heads[0] - short + (heads[-1] - heads[0]) * (self.tiles - self.start) / PIECE

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

    def _places(self, each: Candidate) -> int:
        """Bytes of the places that tensors of a step share.

        They are the same for all ranks, formats and texts of an update.
        """
        name = "step_tensors"
        found = self._linear(self._held(each), self.model.layers - each.from_layer, name)
        if each.from_layer:
            # The layers below leave what the lowest that learns adds to.
            found += self._figure(self._entered(each, 1), name) - self._figure(self._entered(each, 0), name)
        heads = [self._figure(self._held(each, tiles=tiles), name) for tiles in self._heads()]
        return found + (heads[-1] - heads[0]) * (self.tiles - self.start) // PIECE

    def _programs(self, each: Candidate) -> tuple[int, int]:
        """Bytes of the programs of a step on a new text, and on a known one."""
        later = self._text(each, "commands") + self._stored(each, "commands")
        kinds = min(each.accumulate, 2)
        first, again = (
            kinds * -(-COMMAND_BYTES * round(commands) // 64) * 64
            for commands in (later + self._trunk(each, "commands"), later)
        )
        return first, again if each.from_layer else 0

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
            step, operations = usual.shape(small).operations(self.config)
            self._sizes[key] = by_class(residents(operations, step, self.config.data_bits // 8), small)
        return self._sizes[key]
