"""Writes the program of a LoRA step of a UNet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.program.memory import Kind
from gradloom.program.operations import with_gradients
from gradloom.program.placed import PlacedProgram, Written
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.adamw import gradient_argument
from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.norm import EPS, NormOpcode, constant
from gradloom.rtl.formats.tile_codes import EDGE, NARROW, WIDE, coded
from gradloom.rtl.formats.tile_records import BEAT, TileArgument, tile_argument
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
    adapted,
)
from ..pixels import TAPS, pixels_of
from ..unet import RESULT, inputs_of
from .drafts import Block, DraftValue, Hold, Term
from .jobs import LoadJob, StoreJob, TileJob
from .layout import LayoutWords, Tiles
from .tiling import Tiler

__all__ = ["Adapted", "DiffusionStep", "lower", "matrix"]

#: Codes have the upper bits of a gradient's word of 24.
_GRADIENT = 24 - WIDE


@dataclass(frozen=True)
class Adapted:
    """A matrix of an adapter: codes, gradient, masters and moments.

    ``fraction``: fraction bits of masters.
    """

    codes: Tiles
    gradient: Tiles
    words: LayoutWords
    fraction: int


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
            operands = made[number].operands | _descent(self.rule, step, fraction)
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
            operands: dict[str, Any] = each.operands | _descent(self.rule, step, fraction)
            other.add(each.engine, each.opcode, wait=each.wait, post=each.post, phase=each.phase, **operands)
            made[number * COMMAND_BYTES : (number + 1) * COMMAND_BYTES] = other.code
        return bytes(made)


def _descent(rule: AdamW, step: int, fraction: int) -> dict[str, int]:
    given = rule.operands(step, 0, fraction)
    return given | {"gradient": given["gradient"] - _GRADIENT}


def matrix(each: Linear | Convolution, weight: np.ndarray) -> np.ndarray:
    """Weights ``[inputs, outputs]``, of a convolution nine of them."""
    value = np.asarray(weight, np.float64)
    if isinstance(each, Convolution):
        return value.transpose(2, 3, 1, 0).reshape(9, value.shape[1], value.shape[0])
    return value.reshape(value.shape[0], -1).T


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
    return _Writer(Tiler(config), operations, weights, images, fractions, rule).write(whole)


class _Writer:
    """The forward pass, then the backward pass, then the update."""

    def __init__(
        self,
        tiler: Tiler,
        operations: Sequence[Operation],
        weights: Mapping[str, np.ndarray],
        images: int,
        fractions: Mapping[tuple[str, str], int],
        rule: AdamW,
    ) -> None:
        self.tiler, self.operations, self.weights, self.images = tiler, operations, weights, images
        self.fractions, self.rule = fractions, rule
        self.needed = with_gradients(operations)
        self.found: dict[str, DraftValue] = {}
        self.frozen: dict[str, Tiles] = {}
        self.adapted: dict[tuple[str, str], Adapted] = {}
        self.risen = {each.o.name for each in operations if isinstance(each, Upsample)}

    def write(self, whole: bool) -> DiffusionStep:
        """Everything."""
        self._place()
        inputs = self._inputs()
        for each in self.operations:
            self._forward(each)
        error = self._error()
        made = self.tiler.read(error, WIDE)
        self.tiler.show(made)
        self._backward(self._falling(error))
        fractions = self._update()
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

    # -- what is there before ------------------------------------------------------------------------------------

    def _codes(self, values: np.ndarray, bits: int) -> Tiles:
        made = coded(values, bits)
        count, (rows, features) = values.shape[0] if values.ndim > 2 else 1, values.shape[-2:]
        tiles = Tiles(0, count, rows, features, bits)
        return Tiles(self.tiler.put(tiles.pack(made)), count, rows, features, bits)

    def _place(self) -> None:
        """Frozen weights, and places of adapters."""
        for each in self.operations:
            for weight in each.weights:
                value = np.asarray(self.weights[weight.name], np.float64)
                if value.ndim == 1:
                    self.frozen[weight.name] = self._codes(value[None], WIDE)
                elif isinstance(each, Linear | Convolution):
                    Tiles.check(weight.name, *matrix(each, value).shape[-2:])
                    self.frozen[weight.name] = self._codes(matrix(each, value), NARROW)
        for each in adapted(self.operations):
            for part, shape in (("a", (each.rank, each.i[0].features)), ("b", (each.o.features, each.rank))):
                gradient = self.tiler.value(f"{each.layer}.{part}.gradient", *shape)
                tiles = self.tiler.read(gradient, WIDE)
                sizes = LayoutWords(0, 0, tiles)
                masters, moments = (self.tiler.room(n * sizes.size, Kind.LEARNT) for n in (1, 2))
                words = LayoutWords(masters, moments, tiles)
                codes = self.tiler.tiles(1, *shape, NARROW, Kind.LEARNT)
                self.adapted[each.layer, part] = Adapted(codes, tiles, words, self.fractions[each.layer, part])
                self.found[f"{each.layer}.{part}"] = gradient

    def _inputs(self) -> dict[str, Tiles]:
        made = {}
        for each in inputs_of(self.operations):
            value = self.found[each.name] = self.tiler.value(each.name, self.images * each.rows, each.features)
            made[each.name] = self.tiler.read(value, NARROW)
        last = self.operations[-1].o
        noise = self.found["noise"] = self.tiler.value("noise", self.images * last.rows, last.features)
        return made | {"noise": self.tiler.read(noise, WIDE)}

    def _made(self, each: Operation) -> DraftValue:
        value = self.tiler.value(each.o.name, self.images * each.o.rows, each.o.features)
        self.found[each.o.name] = value
        return value

    # -- forward -------------------------------------------------------------------------------------------------

    def _forward(self, each: Operation) -> None:
        given = [self.found[t.name] for t in each.i]
        match each:
            case Linear():
                self._linear(each, given[0])
            case Convolution():
                self._convolution(each, given[0], self._made(each), back=False)
            case GroupNorm() | LayerNorm():
                self._norm(each, self._made(each), {"a": given[0]}, NormOpcode.SUMS, NormOpcode.NORM)
            case Activation(kind="silu"):
                self._elements(self._made(each), ElementOpcode.SILU, {"a": given[0]})
            case Activation():
                made = self._made(each)
                for i, j in _tiles(made):
                    self._gated(made, (i, j), ElementOpcode.GEGLU, {"a": (given[0], j), "b": (given[0], j + made.wide)})
            case Attention():
                self._attention(each, *given)
            case Add():
                self._elements(self._made(each), ElementOpcode.ADD, dict(zip("ab", given)))
            case Shift():
                self._shift(self._made(each), *given)
            case Concat():
                self._join(self._made(each), [(x, 0, x.features) for x in given])
            case Upsample():
                # Addresses of the convolution that reads it.
                self.found[each.o.name] = given[0]
            case _:
                raise TypeError(f"{type(each).__name__} has no jobs")

    def _linear(self, each: Linear, x: DraftValue) -> None:
        pairs = [(x, self.frozen[f"{each.layer}.weight"], False)]
        if each.rank:
            h = self.tiler.value(f"{each.layer}.hidden", x.rows, each.rank)
            self._matrix(h, [(x, self.adapted[each.layer, "a"].codes, True)])
            self.found[f"{each.layer}.hidden"] = h
            pairs.append((h, self.adapted[each.layer, "b"].codes, True))
        self._matrix(self._made(each), pairs, bias=self.frozen.get(f"{each.layer}.bias"))

    def _matrix(
        self,
        made: DraftValue,
        pairs: Sequence[tuple[DraftValue, Tiles, bool]],
        bias: Tiles | None = None,
        *,
        turned: bool = False,
    ) -> None:
        """A product with what is kept, tile by tile.

        A pair has a third element where its second matrix is turned. ``turned``: first matrices are.
        """
        for j in range(made.wide):
            for i in range(made.high):
                terms = [self._term(x, kept, i, j, turn, turned) for x, kept, turn in pairs]
                self.tiler.product(made, (i, j), terms, bias=None if bias is None else Block.of(bias, [(0, j)]))

    def _term(self, x: DraftValue, kept: Tiles, i: int, j: int, turn: bool, turned: bool) -> Term:
        tiles = self.tiler.read(x, NARROW)
        inner, deep = (x.rows, x.high) if turned else (x.features, x.wide)
        return Term(
            Block.of(tiles, [(k, i) if turned else (i, k) for k in range(deep)]),
            Block.of(kept, [(j, k) if turn else (k, j) for k in range(deep)]),
            {"tiles": deep - 1, "k_to": (inner - 1) % EDGE, "w_turn": int(turn), "x_turn": int(turned)},
        )

    def _convolution(self, each: Convolution, x: DraftValue, made: DraftValue, *, back: bool) -> None:
        """Nine products by address, of the gradient if ``back``."""
        tiles, kept = self.tiler.read(x, NARROW), self.frozen[f"{each.layer}.weight"]
        bias = None if back else self.frozen.get(f"{each.layer}.bias")
        pixels = pixels_of(each, self.images, self.risen, back=back)
        sources = [pixels.rows(*place) for place in TAPS[back]]
        deep, inner = x.wide, x.features
        for j in range(made.wide):
            order = [(j, k, p) if back else (k, j, p) for p in range(9) for k in range(deep)]
            w = Block.of(kept, order)
            for i in range(made.high):
                reach = [_reach(rows[EDGE * i :][: made.tile[0]]) for rows in sources]
                first = min(each[0] for each in reach if each)
                last = max(each[1] for each in reach if each)
                stream = Block.of(tiles, [(row, k) for row in range(first, last + 1) for k in range(deep)])
                if last - first > 7:
                    raise ValueError(
                        f"{each.layer}: rows of a tile come from {last - first + 1} tiles, must be 8 at most"
                    )
                terms = [
                    Term(
                        stream,
                        w,
                        {
                            "gather": 1,
                            "tiles": deep - 1,
                            "k_to": (inner - 1) % EDGE,
                            "w_turn": int(back),
                            "x_pitch": deep,
                            "reach": near[1] - near[0],
                        }
                        | pixels.place(EDGE * i, *place, near[0]),
                        scan=pixels.shape,
                        x_skip=(near[0] - first) * deep,
                        w_skip=number * deep,
                    )
                    for number, (place, near) in enumerate(zip(TAPS[back], reach))
                    if near
                ]
                self.tiler.product(made, (i, j), terms, bias=None if bias is None else Block.of(bias, [(0, j)]))

    def _elements(
        self, made: DraftValue, opcode: ElementOpcode, operands: Mapping[str, DraftValue], **more: int
    ) -> None:
        """An operation of tensors of one shape."""
        for i, j in _tiles(made):
            blocks = {port: self._wide(value, i, j) for port, value in operands.items()}
            self.tiler.element(made, (i, j), opcode, blocks, [more])

    def _gated(
        self,
        made: DraftValue,
        at: tuple[int, int],
        opcode: ElementOpcode,
        operands: Mapping[str, tuple[DraftValue, int]],
    ) -> None:
        """A tile of a gated unit, from columns of its operands."""
        i = at[0]
        self.tiler.element(made, at, opcode, {port: self._wide(value, i, j) for port, (value, j) in operands.items()})

    def _wide(self, value: DraftValue, *at: int) -> Block:
        return Block.of(self.tiler.read(value, WIDE), [at])

    def _shift(self, made: DraftValue, x: DraftValue, row: DraftValue) -> None:
        rows = made.rows // self.images
        for i, j in _tiles(made):
            blocks = {"a": self._wide(x, i, j), "b": self._wide(row, 0, j)}
            high = min(rows, EDGE)
            parts = [
                {"one_row": 1, "rows": high - 1, "a_row": start, "o_row": start, "b_row": (EDGE * i + start) // rows}
                for start in range(0, made.tile[0], high)
            ]
            self.tiler.element(made, (i, j), ElementOpcode.ADD, blocks, parts)

    def _join(self, made: DraftValue, parts: Sequence[tuple[DraftValue, int, int]]) -> None:
        """Columns of tensors side by side: first column and count of each."""
        pieces = list(_pieces(made, parts))
        for i in range(made.high):
            for j, own in enumerate(pieces):
                names = "ab" if len(own) == 2 else "b"
                blocks = {name: self._wide(x, i, tile) for name, (x, tile, _, _) in zip(names, own)}
                more = {f"{name}_beat": beat for name, (_, _, beat, _) in zip(names, own)}
                more["split"] = own[0][3] if len(own) == 2 else 0
                self.tiler.element(made, (i, j), ElementOpcode.JOIN, blocks, [more])

    def _norm(
        self, each: GroupNorm | LayerNorm, made: DraftValue, operands: Mapping[str, DraftValue], *opcodes: NormOpcode
    ) -> None:
        """Statistics and results of ``a``; with ``b``, of its gradient."""
        mantissa, exponent = constant(each.eps, EPS)
        gain, bias = (self.frozen[f"{each.layer}.{name}"] for name in ("weight", "bias"))
        back = "b" in operands
        rows, features = made.tile
        whole = {"features": features - 1, "mantissa": mantissa, "exponent": exponent}
        if isinstance(each, LayerNorm):
            whole |= {"by_row": 1, "rows": rows - 1, "tiles": made.wide - 1}
            columns = range(made.wide)
            for i in range(made.high):
                blocks = {
                    port: Block.of(self.tiler.read(v, WIDE), [(i, j) for j in columns]) for port, v in operands.items()
                }
                blocks |= {
                    "gain": Block.of(gain, [(0, j) for j in columns]),
                    "bias": Block.of(bias, [(0, j) for j in columns]),
                }
                self._normed(made, [(i, j) for j in columns], blocks, whole, back, step=1)
            return
        size = made.rows // self.images
        high = min(size, EDGE)
        group = made.features // each.groups
        if group & group - 1 or group > features:
            raise ValueError(f"{each.layer}: groups of {group} features must be a power of two, at most {EDGE}")
        whole |= {"group": group.bit_length() - 1, "rows": high - 1}
        count = -(-size // EDGE)
        for i in range(0, made.high, count):
            for j in range(made.wide):
                at = [(i + n, j) for n in range(count)]
                blocks = {port: Block.of(self.tiler.read(v, WIDE), at) for port, v in operands.items()}
                blocks |= {"gain": Block.of(gain, [(0, j)]), "bias": Block.of(bias, [(0, j)])}
                self._normed(made, at, blocks, whole | {"tiles": count - 1}, back, step=0, high=high)

    def _normed(
        self,
        made: DraftValue,
        at: Sequence[tuple[int, int]],
        blocks: dict[str, Block],
        whole: dict[str, int],
        back: bool,
        *,
        step: int,
        high: int = EDGE,
    ) -> None:
        """Jobs of tiles with common statistics, up to four tiles each.

        ``step``: tiles have gains of their own. ``high``: rows of an image in a tile.
        """
        if back:
            del blocks["bias"]
        for first in range(0, len(at), 4):
            some = at[first : first + 4]

            def commands(held: dict[str, int], slot: int, first: int = first, some: Sequence = some) -> Iterator:
                for start in range(0, made.tile[0], min(high, made.tile[0])):
                    row = {"a_row": start, "o_row": start}
                    yield NormOpcode.SUMS, whole | row | held
                    if back:
                        yield NormOpcode.BACK_SUMS, whole | row | held
                    for n in range(len(some)):
                        moved = {
                            port: held[port] + (first + n) * (step if port in ("gain", "bias") else 1) for port in held
                        }
                        more = {"o": (slot + n) % 4, "fresh": int(start == 0), "tiles": 0}
                        yield NormOpcode.BACK if back else NormOpcode.NORM, whole | row | moved | more

            self.tiler.norm(made, some, blocks, commands)

    # -- attention -----------------------------------------------------------------------------------------------

    def _attention(self, each: Attention, q: DraftValue, k: DraftValue, v: DraftValue) -> None:
        scores = self._matrices(each, "scores", q, k)
        self._scored(each, scores, q, k)
        p = self.found[f"{each.o.name}.probabilities"] = self._matrices(each, "probabilities", q, k)
        factor = float((each.o.features // each.heads) ** -0.5)
        self._soft(p, {"a": scores}, NormOpcode.SOFTMAX, constant(factor * np.log2(np.e)))
        self._mixed(each, self._made(each), p, v, False)

    def _matrices(self, each: Attention, name: str, q: DraftValue, k: DraftValue) -> DraftValue:
        return self.tiler.value(f"{each.o.name}.{name}", q.rows, k.rows // self.images, each.heads)

    def _images(self, i: int, rows: int) -> list[int]:
        """Images of ``rows`` rows that lie in row tile ``i``."""
        return [n for n in range(self.images) if n * rows // EDGE == i]

    def _check_heads(self, each: Attention) -> int:
        deep = each.o.features // each.heads
        if deep > EDGE or EDGE % deep:
            raise ValueError(f"{each.o.name}: {deep} features of a head must divide {EDGE}")
        for t in each.i:
            if t.rows > EDGE or (self.images > 1 and EDGE % t.rows):
                raise ValueError(f"{each.o.name}: {t.rows} rows of an image must divide {EDGE}")
        return deep

    def _scored(self, each: Attention, made: DraftValue, x: DraftValue, y: DraftValue) -> None:
        """Products of rows with rows, of each image and head."""
        deep = self._check_heads(each)
        rows, keys = x.rows // self.images, y.rows // self.images
        one, other = self.tiler.read(x, NARROW), self.tiler.read(y, NARROW)
        for head in range(each.heads):
            tile, begin = divmod(head * deep, EDGE)
            for i in range(made.high):
                terms = [
                    Term(
                        Block.of(one, [(i, tile)]),
                        Block.of(other, [(n * keys // EDGE, tile)]),
                        {
                            "k_from": begin,
                            "k_to": begin + deep - 1,
                            "x_row": n * rows % EDGE,
                            "o_row": n * rows % EDGE,
                            "rows": rows - 1,
                            "columns": keys - 1,
                            "w_column": n * keys % EDGE,
                            "w_turn": 1,
                        },
                    )
                    for n in self._images(i, rows)
                ]
                self.tiler.product(made, (i, 0, head), terms, apart=True)

    def _mixed(self, each: Attention, made: DraftValue, p: DraftValue, y: DraftValue, turned: bool) -> None:
        """Products of matrices of heads with features of heads.

        ``turned``: of their columns, summed over their rows.
        """
        deep = self._check_heads(each)
        queries, keys = p.rows // self.images, p.features
        inner, rows = (queries, keys) if turned else (keys, queries)
        matrices, other = self.tiler.read(p, NARROW), self.tiler.read(y, NARROW)
        for j in range(made.wide):
            for i in range(made.high):
                terms = []
                for n in self._images(i, rows):
                    for head in range(each.heads):
                        tile, begin = divmod(head * deep, EDGE)
                        if tile != j:
                            continue
                        more = {"rows": rows - 1, "columns": deep - 1, "o_row": n * rows % EDGE}
                        more |= {"o_column": begin, "w_column": begin}
                        if turned:
                            # Rows of both are what is summed over.
                            start = n * queries % EDGE
                            more |= {"x_turn": 1, "k_from": start, "k_to": start + queries - 1}
                        else:
                            more |= {"x_row": n * queries % EDGE, "k_to": keys - 1, "w_row": n * keys % EDGE}
                        x = Block.of(matrices, [(n * queries // EDGE, 0, head)])
                        terms.append(Term(x, Block.of(other, [(n * inner // EDGE, j)]), more))
                self.tiler.product(made, (i, j), terms, apart=True)

    def _soft(
        self, made: DraftValue, operands: Mapping[str, DraftValue], opcode: NormOpcode, factor: tuple[int, int]
    ) -> None:
        rows, keys = made.tile
        given = {"rows": rows - 1, "features": keys - 1, "mantissa": factor[0], "exponent": factor[1], "fresh": 1}
        for head in range(made.count):
            for i in range(made.high):
                blocks = {port: self._wide(value, i, 0, head) for port, value in operands.items()}
                self.tiler.norm(made, [(i, 0, head)], blocks, lambda held, slot: [(opcode, given | held | {"o": slot})])

    # -- loss ----------------------------------------------------------------------------------------------------

    def _error(self) -> DraftValue:
        made = self.found[RESULT]
        error = self.tiler.value("error", made.rows, made.features)
        self._elements(error, ElementOpcode.ADD, {"a": made, "b": self.found["noise"]}, subtract=1)
        return error

    def _falling(self, error: DraftValue) -> DraftValue:
        made = self.tiler.value("gradient", error.rows, error.features)
        mantissa, exponent = constant(2 / (error.rows * error.features))
        self._elements(made, ElementOpcode.SCALE, {"a": error}, mantissa=mantissa, exponent=exponent)
        return made

    # -- backward ------------------------------------------------------------------------------------------------

    def _backward(self, last: DraftValue) -> None:
        gradients = {RESULT: last}
        for each in reversed(self.operations):
            if each.o.name not in self.needed:
                continue
            dy = gradients.pop(each.o.name)
            back = self._learnt(each, dy) if isinstance(each, Linear) and each.rank else None
            wanted = [t.name in self.needed for t in each.i]
            if not any(wanted):
                continue
            for t, dx in zip(each.i, self._back(each, dy, wanted, back)):
                if dx is not None and t.name in gradients:
                    whole = self.tiler.value(f"{t.name}.gradient", dx.rows, dx.features)
                    self._elements(whole, ElementOpcode.ADD, {"a": gradients[t.name], "b": dx})
                    dx = whole
                if dx is not None:
                    gradients[t.name] = dx

    def _gradient(self, of: DraftValue, name: str) -> DraftValue:
        return self.tiler.value(f"{name}.part", of.rows, of.features)

    def _learnt(self, each: Linear, dy: DraftValue) -> DraftValue:
        """Gradients of A and B; what comes back through B."""
        x, h = self.found[each.i[0].name], self.found[f"{each.layer}.hidden"]
        back = self.tiler.value(f"{each.layer}.back", dy.rows, each.rank)
        self._matrix(back, [(dy, self.adapted[each.layer, "b"].codes, False)])
        for part, stream, kept in (("a", back, x), ("b", dy, h)):
            tiles = self.tiler.read(kept, NARROW)
            self._matrix(self.found[f"{each.layer}.{part}"], [(stream, tiles, False)], turned=True)
        return back

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
                return list(self._attention_back(each, given, dy, wanted))
            case Concat():
                parts, cut = [], 0
                for t, x, want in zip(each.i, given, wanted):
                    made = self._gradient(x, t.name) if want else None
                    if made is not None:
                        self._join(made, [(dy, cut, x.features)])
                    parts.append(made)
                    cut += x.features
                return parts
        if isinstance(each, Convolution) and each.i[0].name in self.risen:
            made = self.tiler.value(f"{each.i[0].name}.part", self.images * each.i[0].rows, each.i[0].features)
        else:
            made = self._gradient(given[0], each.i[0].name)
        match each:
            case Linear():
                pairs = [(dy, self.frozen[f"{each.layer}.weight"], True)]
                if through is not None:
                    pairs.append((through, self.adapted[each.layer, "a"].codes, False))
                self._matrix(made, pairs)
            case Convolution():
                self._convolution(each, dy, made, back=True)
            case GroupNorm() | LayerNorm():
                self._norm(each, made, {"a": given[0], "b": dy})
            case Activation(kind="silu"):
                self._elements(made, ElementOpcode.SILU_BACK, {"a": dy, "b": given[0]})
            case Activation():
                for i, j in _tiles(dy):
                    x, gate = given[0], j + dy.wide
                    self._gated(made, (i, j), ElementOpcode.GEGLU, {"a": (dy, j), "b": (x, gate)})
                    self._gated(made, (i, gate), ElementOpcode.GEGLU_BACK, {"a": (dy, j), "b": (x, gate), "c": (x, j)})
            case Upsample():
                side = each.i[0].side.bit_length() - 1
                rows = made.tile[0]
                for i, j in _tiles(made):
                    count = -(-4 * rows // EDGE)
                    block = Block.of(self.tiler.read(dy, WIDE), [(count * i + n, j) for n in range(count)])
                    self.tiler.element(made, (i, j), ElementOpcode.SQUARES, {"a": block}, [{"side": side}])
            case _:
                raise TypeError(f"{type(each).__name__} has no gradient")
        return [made]

    def _attention_back(
        self, each: Attention, given: Sequence[DraftValue], dy: DraftValue, wanted: Sequence[bool]
    ) -> Iterator[DraftValue | None]:
        q, k, v = given
        p = self.found[f"{each.o.name}.probabilities"]
        ds = None
        if wanted[0] or wanted[1]:
            dp = self._matrices(each, "dp", q, k)
            self._scored(each, dp, dy, v)
            ds = self._matrices(each, "ds", q, k)
            factor = constant(float((each.o.features // each.heads) ** -0.5))
            self._soft(ds, {"a": p, "b": dp}, NormOpcode.SOFTMAX_BACK, factor)
        for t, x, matrices, other, turned, want in zip(
            each.i, given, (ds, ds, p), (k, q, dy), (False, True, True), wanted
        ):
            made = None
            if want and matrices is not None:
                made = self._gradient(x, t.name)
                self._mixed(each, made, matrices, other, turned)
            yield made

    # -- update --------------------------------------------------------------------------------------------------

    def _update(self) -> dict[int, int]:
        """AdamW on every record, then its codes.

        Returns the fraction bits of each command, by the offset of its words.
        """
        fractions = {}
        # Gradients of the last layers are there first.
        for each in reversed(self.adapted.values()):
            record, words = each.gradient.record, each.words
            # The engine has room for so many rows of words of a command.
            most = max(UPDATE_BEATS * BEAT // (4 * words.lanes), 1)
            for n, at in enumerate((i, j) for i in range(each.gradient.high) for j in range(each.gradient.wide)):
                own, moments = words.words + 4 * n * words.length, words.moments + 8 * n * words.length
                parts = []
                for row in range(0, record.rows, most):
                    count = min(most, record.rows - row)
                    parts.append(own + 4 * words.lanes * row)
                    self._moved(each, each.gradient.at(*at), row, count, parts[-1], moments + 8 * words.lanes * row)
                    fractions[parts[-1]] = each.fraction
                self._anew(each, at, LoadJob("words", own, 4 * words.length, after=tuple(parts)))
        return fractions

    def _moved(self, each: Adapted, first: int, row: int, count: int, words: int, moments: int) -> None:
        """AdamW on rows of the gradient's record at ``first``."""
        record, header = each.gradient.record, int(row == 0)
        size = 4 * each.words.lanes * count
        begin = first + (0 if header else BEAT * (1 + row * record.row_beats))
        codes = BEAT * (count * record.row_beats + header)
        arg = gradient_argument(record.features, header=bool(header))
        given = {"beats": size // BEAT} | _descent(self.rule, 1, each.fraction)

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            # The engine keeps the exponent of a record's first rows.
            job.streams, job.waits, job.chained = True, False, True
            job.loads = [
                LoadJob("directions", begin, codes, arg, after=(first,)),
                LoadJob("words", words, size),
                LoadJob("moments", moments, 2 * size),
            ]
            job.commands = [(UpdateOpcode.ADAMW_CODES, given)]
            job.stores = [StoreJob("moments", moments, 2 * size), StoreJob("words", words, size)]

        self.tiler.add("update", build, results=0)

    def _anew(self, each: Adapted, at: tuple[int, int], load: LoadJob) -> None:
        """A tile of codes from its masters."""
        codes, (rows, features) = each.codes, each.gradient.tile

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            job.streams = True
            job.loads = [load]
            given = {"rows": rows - 1, "features": features - 1, "o": slot, "fresh": 1, "exponent": -each.fraction}
            job.commands = [(ElementOpcode.WORDS, given)]
            arg = tile_argument(slot, rows, features)
            job.stores = [StoreJob("o", codes.at(*at), codes.record.size, arg, slot)]

        self.tiler.add("element", build)


def _tiles(value: DraftValue) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(value.high) for j in range(value.wide))


def _reach(rows: np.ndarray) -> tuple[int, int] | None:
    """First and last row tile of source rows.

    None where all are zeros.
    """
    inside = rows[rows >= 0]
    return (int(inside.min()) // EDGE, int(inside.max()) // EDGE) if len(inside) else None


def _pieces(
    made: DraftValue, parts: Sequence[tuple[DraftValue, int, int]]
) -> Iterator[list[tuple[DraftValue, int, int, int]]]:
    """Of each tile's columns: tensor, tile, first beat, beats."""
    beat = 8
    columns = [(x, c) for x, first, count in parts for c in range(first, first + count, beat)]
    for part in parts:
        if part[1] % beat or (part[2] % beat and len(parts) > 1):
            raise ValueError(f"{made.name}: columns of tensors side by side must be multiples of {beat}")
    for start in range(0, len(columns), EDGE // beat):
        own: list[tuple[DraftValue, int, int, int]] = []
        for x, c in columns[start : start + EDGE // beat]:
            tile, within = divmod(c, EDGE)
            if own and own[-1][0] is x and own[-1][1] == tile:
                own[-1] = (*own[-1][:3], own[-1][3] + 1)
            else:
                own.append((x, tile, within // beat, 1))
        if len(own) > 2:
            raise ValueError(f"{made.name}: a tile has columns of {len(own)} tiles, must be of 2 at most")
        yield own
