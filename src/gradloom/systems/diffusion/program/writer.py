"""Writes the program of a LoRA step of a UNet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.program.operations import with_gradients
from gradloom.program.placed import PlacedProgram, Written
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.program.tiles.layout import Tiles
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.functions import GELU, SILU
from gradloom.rtl.formats.norm import NormOpcode, constant
from gradloom.rtl.formats.tile_codes import EDGE, WIDE
from gradloom.rtl.formats.tile_records import TileArgument
from gradloom.rtl.shell.engines import STORE
from gradloom.rtl.shell.signature import COMMAND_BYTES

from ..operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Convolution,
    GroupNorm,
    LayerNorm,
    Linear,
    Operation,
    Shift,
    Upsample,
)
from ..unet import RESULT
from .attentions import Attentions
from .convolutions import Convolutions
from .elements import Elements, tiles_of
from .norms import Norms
from .products import Products
from .tensors import Adapted, Part, Tensors
from .updates import Updates, descent

__all__ = ["DiffusionStep", "lower"]


@dataclass(frozen=True)
class DiffusionStep:
    """A program of one step and its places.

    ``inputs``: of the host, by name: ``noise`` in 16 bits, others in 8. ``error``: predicted noise less noise, 16 bits.
    ``adapted``: by layer and part. ``values``: all tensors. ``updates``: numbers of the commands that differ from step
    to step.
    """

    program: PlacedProgram
    inputs: dict[str, Tiles]
    error: Tiles
    adapted: dict[tuple[str, str], Adapted]
    values: list[DraftValue]
    updates: list[tuple[int, int]]
    rule: AdamW

    @property
    def stored(self) -> int:
        """Codes that a step stores, as its tensors have them."""
        count = 0
        for each in self.program.instructions:
            if each.engine == STORE and each.operands["arg"]:
                given = TileArgument.from_bits(each.operands["arg"])
                count += (int(given.rows) + 1) * (int(given.features) + 1)
        return count

    def instructions(self, step: int) -> list[Instruction]:
        """The commands of step ``step``, from 1 on."""
        made = list(self.program.instructions)
        for number, fraction in self.updates:
            operands = made[number].operands | descent(self.rule, step, fraction)
            made[number] = replace(made[number], operands=operands)
        return made

    def written(self, step: int) -> Written:
        """The same as a program, whose data are in memory."""
        program = self.program
        return Written(
            config=program.config, instructions=self.instructions(step), code=self.code(step), offset=program.offset
        )

    def code(self, step: int) -> bytes:
        """The same as they lie in memory."""
        made = bytearray(self.program.code)
        for number, fraction in self.updates:
            each = self.program.instructions[number]
            other = Assembler()
            operands: dict[str, Any] = each.operands | descent(self.rule, step, fraction)
            other.add(each.engine, each.opcode, wait=each.wait, post=each.post, phase=each.phase, **operands)
            made[number * COMMAND_BYTES : (number + 1) * COMMAND_BYTES] = other.code
        return bytes(made)


def lower(
    config: Any,
    operations: Sequence[Operation],
    weights: Mapping[str, np.ndarray],
    *,
    images: int,
    fractions: Mapping[tuple[str, str], int],
    rule: AdamW,
    whole: bool = False,
) -> DiffusionStep:
    """The program of a step of ``images`` images.

    ``fractions``: fraction bits of masters by layer and part, ``a`` or ``b``. ``whole``: all tensors go to memory, so
    that they can be read; else those that are only forwarded do not.
    """
    return _Writer(Tensors(Tiler(config), operations, weights, images, fractions), rule).write(whole)


class _Writer(Part):
    """The forward pass, then the backward pass, then the update."""

    def __init__(self, tensors: Tensors, rule: AdamW) -> None:
        super().__init__(tensors)
        self.tensors, self.operations, self.rule = tensors, tensors.operations, rule
        self.needed = with_gradients(tensors.operations)
        self.products, self.convolutions = Products(tensors), Convolutions(tensors)
        self.elements, self.norms, self.attentions = Elements(tensors), Norms(tensors), Attentions(tensors)

    def write(self, whole: bool) -> DiffusionStep:
        """Everything."""
        self.tensors.place()
        inputs = self.tensors.inputs()
        for each in self.operations:
            self._forward(each)
        error = self._error()
        made = self.tiler.read(error, WIDE)
        self.tiler.show(made)
        self._backward(self._falling(error))
        fractions = Updates(self.tensors, self.rule).update()
        for tiles in [tiles for value in self.tiler.values for tiles in value.places.values() if whole]:
            self.tiler.show(tiles)
        jobs = self.tiler.write()
        updates = [
            number
            for number, each in enumerate(self.tiler.program.instructions)
            if each.opcode == UpdateOpcode.ADAMW_CODES and each.engine.name == "update"
        ]
        written = [fractions[job.stores[-1].offset] for job in jobs if job.engine == "update"]
        return DiffusionStep(
            program=self.tiler.program,
            inputs=inputs,
            error=made,
            adapted=self.adapted,
            values=self.tiler.values,
            updates=list(zip(updates, written)),
            rule=self.rule,
        )

    def _forward(self, each: Operation) -> None:
        given = [self.found[t.name] for t in each.i]
        match each:
            case Linear():
                self.products.linear(each, given[0])
            case Convolution():
                self.convolutions.convolution(each, given[0], self.made(each), back=False)
            case GroupNorm() | LayerNorm():
                self.norms.norm(each, self.made(each), {"a": given[0]}, NormOpcode.SUMS, NormOpcode.NORM)
            case Activation(kind="silu"):
                self.elements.whole(self.made(each), ElementOpcode.FUNCTION, {"a": given[0]}, **SILU.value.operands())
            case Activation():
                made = self.made(each)
                for i, j in tiles_of(made):
                    self.elements.gated(made, (i, j), GELU.value, {"a": (given[0], j), "b": (given[0], j + made.wide)})
            case Attention():
                self.attentions.attention(each, *given)
            case Add():
                self.elements.whole(self.made(each), ElementOpcode.ADD, dict(zip("ab", given)))
            case Shift():
                self.elements.shift(self.made(each), *given)
            case Concat():
                self.elements.join(self.made(each), [(x, 0, x.features) for x in given])
            case Upsample():
                # Addresses of the convolution that reads it.
                self.found[each.o.name] = given[0]
            case _:
                raise TypeError(f"{type(each).__name__} has no jobs")

    def _error(self) -> DraftValue:
        made = self.found[RESULT]
        error = self.tiler.value("error", made.rows, made.features)
        self.elements.whole(error, ElementOpcode.ADD, {"a": made, "b": self.found["noise"]}, subtract=1)
        return error

    def _falling(self, error: DraftValue) -> DraftValue:
        made = self.tiler.value("gradient", error.rows, error.features)
        mantissa, exponent = constant(2 / (error.rows * error.features))
        self.elements.whole(made, ElementOpcode.SCALE, {"a": error}, mantissa=mantissa, exponent=exponent)
        return made

    def _backward(self, last: DraftValue) -> None:
        gradients = {RESULT: last}
        for each in reversed(self.operations):
            if each.o.name not in self.needed:
                continue
            dy = gradients.pop(each.o.name)
            back = self.products.learnt(each, dy) if isinstance(each, Linear) and each.rank else None
            wanted = [t.name in self.needed for t in each.i]
            if not any(wanted):
                continue
            for t, dx in zip(each.i, self._back(each, dy, wanted, back)):
                if dx is not None and t.name in gradients:
                    whole = self.tiler.value(f"{t.name}.gradient", dx.rows, dx.features)
                    self.elements.whole(whole, ElementOpcode.ADD, {"a": gradients[t.name], "b": dx})
                    dx = whole
                if dx is not None:
                    gradients[t.name] = dx

    def _back(
        self, each: Operation, dy: DraftValue, wanted: Sequence[bool], through: DraftValue | None
    ) -> Sequence[DraftValue | None]:
        """Gradients of an operation's tensors, where they are wanted."""
        given = [self.found[t.name] for t in each.i]
        match each:
            case Add():
                return [dy if want else None for want in wanted]
            case Shift():
                if wanted[1]:
                    raise ValueError(f"{each.o.name}: an adapter in front of the second tensor; the timestep has none")
                return [dy, None]
            case Attention():
                return list(self.attentions.back(each, given, dy, wanted))
            case Concat():
                parts, cut = [], 0
                for t, x, want in zip(each.i, given, wanted):
                    made = self.gradient(x, t.name) if want else None
                    if made is not None:
                        self.elements.join(made, [(dy, cut, x.features)])
                    parts.append(made)
                    cut += x.features
                return parts
        if isinstance(each, Convolution) and each.i[0].name in self.risen:
            made = self.tiler.value(f"{each.i[0].name}.part", self.images * each.i[0].rows, each.i[0].features)
        else:
            made = self.gradient(given[0], each.i[0].name)
        match each:
            case Linear():
                pairs = [(dy, self.frozen[f"{each.layer}.weight"], True)]
                if through is not None:
                    pairs.append((through, self.adapted[each.layer, "a"].codes, False))
                self.products.matrix(made, pairs)
            case Convolution():
                self.convolutions.convolution(each, dy, made, back=True)
            case GroupNorm() | LayerNorm():
                self.norms.norm(each, made, {"a": given[0], "b": dy})
            case Activation(kind="silu"):
                slope = SILU.slope.operands()
                self.elements.whole(made, ElementOpcode.FUNCTION, {"a": dy, "b": given[0]}, gate=1, **slope)
            case Activation():
                for i, j in tiles_of(dy):
                    x, gate = given[0], j + dy.wide
                    self.elements.gated(made, (i, j), GELU.value, {"a": (dy, j), "b": (x, gate)})
                    self.elements.gated(made, (i, gate), GELU.slope, {"a": (dy, j), "b": (x, gate), "c": (x, j)})
            case Upsample():
                side = each.i[0].side.bit_length() - 1
                rows = made.tile[0]
                for i, j in tiles_of(made):
                    count = -(-4 * rows // EDGE)
                    block = Block.of(self.tiler.read(dy, WIDE), [(count * i + n, j) for n in range(count)])
                    self.tiler.element(made, (i, j), ElementOpcode.SQUARES, {"a": block}, [{"side": side}])
            case _:
                raise TypeError(f"{type(each).__name__} has no gradient")
        return [made]
