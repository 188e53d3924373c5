"""Writes the program of a network: a forward pass, or a whole step of training."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.dependence import dependent
from gradloom.graph.network import Network
from gradloom.graph.operations import Attention, Convolution, Linear, Reduce
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.memory import rounded
from gradloom.program.operations import needed
from gradloom.program.placed import PlacedProgram, Written
from gradloom.program.tiles.drafts import DraftValue
from gradloom.program.tiles.layout import Tiles
from gradloom.program.tiles.pieces import Pieces, StepPiece, Survey
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import LOGISTIC
from gradloom.rtl.formats.tiles.records import TileArgument
from gradloom.rtl.shell.engines import STORE
from gradloom.rtl.shell.signature import COMMAND_BYTES

from .commands.base import Learner, Rule
from .commands.convolutions import Convolutions
from .commands.elements import cut
from .commands.products import Summand
from .commands.rows import Rows
from .commands.softmaxes import PART
from .commands.tied import Tied
from .commands.updates import Updates, descent
from .integers.objectives import LOSSES, TARGET, WEIGHT
from .sets import Sets

__all__ = ["TileStep", "lower", "pieced"]

#: Operations that read codes of 8 bits alone.
_PRODUCTS = (Attention, Convolution, Linear)
#: Operations that a message names, at most.
_NAMED = 8


@dataclass(frozen=True)
class TileStep:
    """A program and its places.

    ``inputs``: tensors that the host writes, in each width that is read. ``shown``: those that it reads. ``learners``:
    by weight. ``values``: all tensors. ``updates``: commands that differ from step to step, and their rules. ``sets``:
    places of further inputs of the same form.
    """

    program: PlacedProgram
    inputs: dict[str, list[Tiles]]
    shown: dict[str, Tiles]
    learners: dict[str, Learner]
    values: list[DraftValue]
    updates: list[tuple[int, Rule]]
    sets: Sets

    @property
    def stored(self) -> int:
        """Codes that a run stores, as its tensors have them."""
        count = 0
        for each in self.program.instructions:
            if each.engine == STORE and str(each.operands["source"]).partition(".")[0] != "update":
                given = TileArgument.from_bits(each.operands["arg"])
                count += (int(given.rows) + 1) * (int(given.features) + 1)
        return count

    @cached_property
    def _of_sets(self) -> list[int]:
        """Commands with a place in a set."""
        return self.sets.accesses(self.program.instructions)

    def _changed(self, step: int, number: int) -> dict[int, Instruction]:
        """Commands that are others than in the first step on the first set."""
        listed, made = self.program.instructions, dict[int, Instruction]()
        changes = [(at, _descent(rule, step)) for at, rule in self.updates]
        if number:
            changes += [(at, {"offset": self.sets.at(listed[at].operands["offset"], number)}) for at in self._of_sets]
        for at, operands in changes:
            made[at] = replace(listed[at], operands=listed[at].operands | operands)
        return made

    def instructions(self, step: int, number: int = 0) -> list[Instruction]:
        """The commands of step ``step``, from 1 on, on a set of inputs."""
        made = list(self.program.instructions)
        for at, each in self._changed(step, number).items():
            made[at] = each
        return made

    def written(self, step: int, number: int = 0) -> Written:
        """The same as a program, whose data are in memory."""
        program, changed = self.program, self._changed(step, number)
        listed, code = list(program.instructions), bytearray(program.code)
        for at, each in changed.items():
            listed[at] = each
            operands: dict[str, Any] = each.operands
            other = Assembler()
            other.add(each.engine, each.opcode, wait=each.wait, post=each.post, phase=each.phase, **operands)
            code[at * COMMAND_BYTES : (at + 1) * COMMAND_BYTES] = other.code
        return Written(config=program.config, instructions=listed, code=bytes(code), offset=program.offset)


def _descent(rule: Rule, step: int) -> dict[str, int]:
    return descent(rule.rule, step, rule.fraction)


def lower(
    config: Any,
    network: Network,
    *,
    samples: int,
    loss: str | None = None,
    rules: Mapping[str, Rule] | None = None,
    whole: bool = False,
    reader: TileStep | None = None,
    wanted: Collection[str] = (),
) -> TileStep:
    """The program of a step of ``samples`` samples.

    Parameters
    ----------
    config
        Of the machine.
    network : Network
        Whose operations the machine has; adapters have the scale 1.
    samples : int
    loss : str, optional
        One of :data:`.integers.objectives.LOSSES`; without, the program is the forward pass.
    rules : mapping, optional
        Of what learns, by weight.
    whole : bool
        All tensors go to memory, so that they can be read; else those that are only forwarded do not.
    reader : TileStep, optional
        Whose inputs the results are; this program lies behind it.
    wanted : collection of str
        Inputs whose gradients go to memory, as those of a part of a network do.
    """
    first = 0 if reader is None else rounded(reader.program.length)
    return _Writer(Tiler(config, first), network, samples, rules or {}).write(loss, whole, reader, wanted)


def pieced(
    config: Any,
    network: Network,
    *,
    samples: int,
    loss: str | None,
    rules: Mapping[str, Rule],
    tell: Callable[[StepPiece, int], None],
    wanted: Collection[str] = (),
    filled: bool = True,
    memory: int | None = None,
) -> TileStep:
    """A step as pieces that run one after another: see :mod:`gradloom.program.tiles.pieces`.

    Parameters are those of :func:`lower`; ``tell`` gets each piece, and how many there are. The program of the result
    has no commands, but all that is in memory before; of this only the places where it is not ``filled``.

    :class:`ValueError`, before the first piece is written, where it needs more than a window, or than ``memory`` bytes.
    """
    survey = Survey(config)
    _Writer(survey, network, samples, rules).write(loss, False, None, wanted)
    survey.check(memory)
    return _Writer(Pieces(survey, tell, filled=filled), network, samples, rules).write(loss, False, None, wanted)


class _Writer(Convolutions, Rows, Tied, Updates):
    """The forward pass, then the backward pass, then the update."""

    @cached_property
    def ones(self) -> Tiles:
        """A row of ones."""
        return self.codes(np.ones((1, EDGE)), NARROW)

    @cached_property
    def same(self) -> Tiles:
        """A tile that changes nothing."""
        return self.codes(np.eye(EDGE), NARROW)

    @cached_property
    def zeros(self) -> Tiles:
        """A tile of zeros."""
        return self.codes(np.zeros((EDGE, EDGE)), WIDE)

    @cached_property
    def even(self) -> Tiles:
        """A tile whose values are all :data:`PART`."""
        return self.codes(np.full((EDGE, EDGE), PART), WIDE)

    @cached_property
    def blank(self) -> Tiles:
        """The same of 8 bits."""
        return self.codes(np.zeros((EDGE, EDGE)), NARROW)

    def write(self, loss: str | None, whole: bool, reader: TileStep | None, wanted: Collection[str]) -> TileStep:
        """Everything."""
        port, results = self.network.outputs[0], [each.tensor.name for each in self.network.outputs]
        self.operations: Sequence[Operation] = needed(self.network.operations, results)
        self.places = {} if reader is None else {name: reader.inputs[name] for name in results}
        self.network = self.network.with_operations(self.operations)
        self.place()
        given = self._given(port.tensor, loss)
        self._forward()
        result = self.found[port.tensor.name]
        shown, rules = {name: self.found[name] for name in results}, dict[int, Rule]()
        if loss is not None:
            falling, error = self._loss(loss, result)
            # With the target, which the host knows, the error says the result.
            if error:
                shown = error | {name: value for name, value in shown.items() if name != port.tensor.name}
            back = self._backward(port.tensor.name, falling, wanted)
            shown |= {f"{name}.gradient": value for name, value in back.items()}
            self.taken_back()
            rules = self.update()
        places = {} if self.places else {name: self.tiler.read(value, WIDE) for name, value in shown.items()}
        inputs = {name: list(self.found[name].places.values()) for name in given}
        everything = [each.places.values() for each in self.tiler.values] if whole else []
        for some in (places.values(), *self.places.values(), *inputs.values(), *everything):
            for tiles in some:
                self.tiler.show(tiles)
        jobs = self.tiler.write()
        updates = [
            number
            for number, each in enumerate(self.tiler.program.instructions)
            if each.opcode == UpdateOpcode.ADAMW_CODES and each.engine.name == "update"
        ]
        written = [rules[job.stores[-1].offset] for job in jobs if job.engine == "update"]
        return TileStep(
            program=self.tiler.program,
            inputs=inputs,
            shown=places,
            learners=self.learners,
            values=self.tiler.values,
            updates=list(zip(updates, written)),
            sets=reader.sets if reader else Sets.of([each for some in inputs.values() for each in some]),
        )

    def _given(self, result: Tensor, loss: str | None) -> list[str]:
        """What the host writes: it lies in front of all that a step makes."""
        given = {each.tensor.name: each.tensor for each in self.network.inputs}
        wide = {t.name for each in self.operations if not isinstance(each, _PRODUCTS) for t in each.i}
        if loss is not None:
            given[TARGET] = result
        if loss == "weighted":
            given[WEIGHT] = result
        for name, t in given.items():
            self.found[name] = self.tiler.value(name, self.rows(t), t.features)
            if name in (TARGET, WEIGHT):
                self.tiler.read(self.found[name], WIDE)
            elif name not in wide:
                self.tiler.read(self.found[name], NARROW)
        return list(given)

    def _forward(self) -> None:
        """The forward pass; all operations that have no command are refused at once."""
        faults: list[str] = []
        for each in self.operations:
            try:
                self._call(each, "")
            except ValueError as error:
                faults.append(str(error))
                self.made(each)
        if faults:
            more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise ValueError("; ".join(faults[:_NAMED]) + more)

    def _call(self, each: Operation, back: str, *more: Any) -> Any:
        if self.tiler.ends():
            self.curves.clear()
        rule = getattr(self, f"_{type(each).__name__.lower()}{back}", None)
        if rule is None:
            kind = "gradient of it" if back else "command"
            raise ValueError(f"{each.o.name}: {type(each).__name__} has no {kind} in the machine")
        return rule(each, *more)

    def _reduce(self, each: Reduce) -> None:
        """A sum of rows is a product with ones; of a mean, times a constant behind it."""
        if not each.over_rows or each.kind not in ("mean", "sum"):
            raise ValueError(f"{each.o.name}: {each.kind} has no command; there are mean and sum of all rows")
        (x,), (t,) = self.given(each), each.i
        made = total = self.made(each)
        if each.kind == "mean":
            total = self.tiler.value(f"{each.o.name}.sum", made.rows, made.features)
        self.summed_rows(total, x, t.rows)
        if total is not made:
            self.scaled(made, total, 1 / t.rows, **cut(each))

    def _loss(self, loss: str, result: DraftValue) -> tuple[DraftValue, dict[str, DraftValue]]:
        """Gradient of the result, and the error where that is the loss."""
        if loss not in LOSSES:
            raise ValueError(f"loss={loss}: has no gradient in the machine; must be one of {', '.join(LOSSES)}")
        target = self.found[TARGET]
        error = self.tiler.value("error", result.rows, result.features)
        made = self.tiler.value("gradient", result.rows, result.features)
        count = result.rows * result.features
        if loss == "values":
            self.whole(error, ElementOpcode.ADD, {"a": result, "b": target}, subtract=1)
            self.scaled(made, error, 2 / count)
            return made, {"error": error}
        shares = self.tiler.value("shares", result.rows, result.features)
        if loss == "labels":
            self.looked(shares, LOGISTIC.value, {"a": result})
        else:
            self.soft(shares, result)
        if loss == "weighted":
            alike, shares = shares, self.tiler.value("weighed", result.rows, result.features)
            self.whole(shares, ElementOpcode.MULTIPLY, {"a": alike, "b": self.found[WEIGHT]})
        self.whole(error, ElementOpcode.ADD, {"a": shares, "b": target}, subtract=1)
        self.scaled(made, error, 1 / (count if loss == "labels" else result.rows))
        return made, {}

    def _backward(self, name: str, last: DraftValue, inputs: Collection[str]) -> dict[str, DraftValue]:
        """Gradients of inputs that are wanted."""
        moving = dependent(self.operations, list(self.rules), inputs)
        gradients: dict[str, list[DraftValue | Summand]] = {name: [last]}
        first = {t.name: each for each in reversed(self.operations) for t in each.i}
        for each in reversed(self.operations):
            if each.o.name not in gradients:
                continue
            dy = self._whole(each.o, gradients.pop(each.o.name))
            wanted = [t.name in moving for t in each.i]
            if each.positive:
                dy = self.masked(each.o.name, dy, self.found[each.o.name])
            for t, dx in zip(each.i, self._call(each, "_back", dy, wanted)):
                if dx is not None:
                    gradients.setdefault(t.name, []).extend(dx if isinstance(dx, list) else [dx])
            for t in each.i:
                # Its other readers are done: products go near those of the last.
                if first[t.name] is each and t.name in gradients:
                    gradients[t.name] = [self._whole(t, gradients[t.name])]
        found = {each.tensor.name: each.tensor for each in self.network.inputs}
        return {name: self._whole(found[name], gradients[name]) for name in inputs}

    def _whole(self, t: Tensor, parts: Sequence[DraftValue | Summand]) -> DraftValue:
        """A gradient that readers of a tensor have made: their products are one sum, where that is held at once."""
        total, *more = self.joined(t, parts)
        for each in more:
            whole = self.tiler.value(f"{t.name}.gradient", total.rows, total.features)
            self.whole(whole, ElementOpcode.ADD, {"a": total, "b": each})
            total = whole
        return total
