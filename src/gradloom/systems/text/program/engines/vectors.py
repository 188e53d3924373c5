"""Work of the vector engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradloom.program.operations import Reading
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.configs.language import LanguageConfig

from ...operations.base import Fracs
from ...operations.elements import Add, Biased, Gated, GatedBackward, Loss, Rope, Softmax, SoftmaxBackward
from ...operations.scaling import Narrow, Norm, NormBackward, Scale, ScaleBackward
from ...operations.tensors import EDGE, Gain, TensorSlice
from ...operations.vector import UNIT
from ..layout import Layout, stride
from . import side
from .side import LEAST, SidePiece

__all__ = ["Vectors"]


@dataclass(frozen=True)
class Vectors(Reading):
    """Makes the pieces of one operation of the vector engine, by :meth:`do`.

    Parameters
    ----------
    frac : mapping
        Fraction bits by name.
    layout : Layout
        It receives the places of tables.
    config : LanguageConfig
    limit : int
        Beats of a piece, about.
    """

    frac: Fracs
    layout: Layout
    config: LanguageConfig
    limit: int

    def _vector(
        self, opcode: VectorOpcode, part: TensorSlice, operands: Mapping[str, int], **options: Any
    ) -> list[SidePiece]:
        return side.vector(
            opcode,
            {"row": self.config.row_beats, "tiles": part.count, "tokens": part.rows, **operands},
            self.config,
            **{"limit": self.limit, **options},
        )

    def _at(self, part: TensorSlice) -> side.SideTensor:
        return side.SideTensor(offset=self.layout.part(part), stride=stride(part))

    def _weights(self, name: str, tiles: int) -> list[SidePiece]:
        return self._loaded(side.SideTensor(offset=self.layout.place(name, 4 * tiles * EDGE)), tiles)

    def _loaded(self, weights: side.SideTensor, tiles: int) -> list[SidePiece]:
        return side.vector(
            VectorOpcode.WEIGHTS,
            {"row": self.config.row_beats, "tiles": tiles},
            self.config,
            limit=self.limit,
            a=weights,
        )

    def _gain(self, gain: Gain, tiles: int) -> list[SidePiece]:
        """The constant as a weight of each feature."""
        return self._loaded(side.SideTensor(offset=self.layout.place(gain.name, 4 * EDGE), repeated=True), tiles)

    def _norm(self, operation: Norm) -> list[SidePiece]:
        x, y = operation.x, operation.y
        # A product waits for the results: those of two pieces may wait for STORE together.
        half = max(self.limit // 2, LEAST)
        return (
            self._weights(operation.weight, x.count)
            + self._vector(VectorOpcode.NORM_SUMS, x, {"left": UNIT, **operation.epsilon(self.frac)}, a=self._at(x))
            + self._vector(VectorOpcode.NORM, x, operation.shifts(self.frac), limit=half, a=self._at(x), o=self._at(y))
        )

    def _normbackward(self, operation: NormBackward) -> list[SidePiece]:
        x, dy = operation.x, operation.dy
        shifts = operation.shifts(self.frac)
        both = {"a": self._at(x), "b": self._at(dy)}
        opcode, more = VectorOpcode.NORM_BACKWARD, {"o": self._at(operation.dx)}
        if operation.u is not None:
            opcode, more["q"] = VectorOpcode.NORM_BACKWARD_GAIN, self._at(operation.u)
        elif operation.residual is not None:
            opcode, more["c"] = VectorOpcode.NORM_BACKWARD_ADD, self._at(operation.residual)
        return (
            self._weights(operation.weight, x.count)
            + self._vector(
                VectorOpcode.NORM_BACKWARD_SUMS, x, {**shifts["sums"], **operation.epsilon(self.frac)}, **both
            )
            + self._vector(opcode, x, shifts["result"], **both, **more)
        )

    def _narrow(self, operation: Narrow) -> list[SidePiece]:
        words, y = operation.words, operation.y
        return self._gain(operation.gain, words.count) + self._vector(
            VectorOpcode.SCALE, words, operation.shifts(self.frac), a=self._at(words), o=self._at(y)
        )

    def _scale(self, operation: Scale) -> list[SidePiece]:
        x, y = operation.x, operation.y
        return self._loaded(self._at(operation.factors), x.count) + self._vector(
            VectorOpcode.SCALE, x, operation.shifts(self.frac), a=self._at(x), o=self._at(y)
        )

    def _scalebackward(self, operation: ScaleBackward) -> list[SidePiece]:
        x = operation.x
        return self._loaded(self._at(operation.factors), x.count) + self._vector(
            VectorOpcode.SCALE_BACKWARD,
            x,
            operation.shifts(self.frac),
            a=self._at(x),
            b=self._at(operation.dy),
            o=self._at(operation.dx),
            q=self._at(operation.u),
        )

    def _add(self, operation: Add) -> list[SidePiece]:
        operands = {**operation.shifts(self.frac), "wide": operation.y.tensor.wide}
        if not operation.lazy:
            return self._added(operation.a, operation.b, operation.y, operands)
        # Other commands of the engine pass lazy work: a command a piece.
        both = 2 * operation.y.rows * self.config.row_beats
        count, pieces = max(self.limit // both, 1), []
        for first in range(0, operation.y.count, count):
            a, b, y = (
                each.tensor.part(each.first + first, min(count, each.count - first))
                for each in (operation.a, operation.b, operation.y)
            )
            pieces += self._added(a, b, y, operands, limit=max(self.limit, both))
        return pieces

    def _added(
        self, a: TensorSlice, b: TensorSlice, y: TensorSlice, operands: Mapping[str, int], **options: int
    ) -> list[SidePiece]:
        return self._vector(VectorOpcode.ADD, y, operands, a=self._at(a), b=self._at(b), o=self._at(y), **options)

    def _biased(self, operation: Biased) -> list[SidePiece]:
        return self._added(operation.x, operation.b, operation.y, {**operation.shifts(self.frac), "wide": 0})

    def _rope(self, operation: Rope) -> list[SidePiece]:
        angles = operation.angles
        size = 4 * angles.rows * EDGE
        table, pieces = self.layout.place(angles.name, angles.tiles * size), []
        # A command for each tile of a head, over all heads: they have the same angles.
        for number in range(angles.tiles):
            x, y = (self._at(part.every(number, angles.tiles)) for part in (operation.x, operation.y))
            pieces += self._vector(
                VectorOpcode.ROPE,
                operation.x,
                {"tiles": operation.x.count // angles.tiles, **operation.shifts(self.frac), "turn": operation.turn},
                a=x,
                b=side.SideTensor(offset=table + number * size + 4 * operation.x.row * EDGE, repeated=True),
                o=y,
            )
        return pieces

    def _activated(self, operation: Gated | GatedBackward) -> dict[str, int]:
        gelu = int(operation.kind == "gelu_tanh")
        if gelu > self.config.gelu:
            raise ValueError("gelu: the machine must have it, for the model's activation is GELU by tanh")
        return {**_gate(operation.shifts(self.frac)), "causal": gelu}

    def _gated(self, operation: Gated) -> list[SidePiece]:
        return self._vector(
            VectorOpcode.SWIGLU,
            operation.y,
            self._activated(operation),
            a=self._at(operation.gate),
            b=self._at(operation.up),
            o=self._at(operation.y),
        )

    def _gatedbackward(self, operation: GatedBackward) -> list[SidePiece]:
        return self._vector(
            VectorOpcode.SWIGLU_BACKWARD,
            operation.dy,
            self._activated(operation),
            a=self._at(operation.gate),
            b=self._at(operation.dy),
            c=self._at(operation.up),
            o=self._at(operation.dgate),
            q=self._at(operation.dup),
        )

    def _softmax(self, operation: Softmax) -> list[SidePiece]:
        operands = {**_gate(operation.shifts(self.frac)), "limit": operation.limit, "causal": 1}
        return self._vector(VectorOpcode.SOFTMAX_SUMS, operation.s, operands, a=self._at(operation.s)) + self._vector(
            VectorOpcode.SOFTMAX, operation.s, operands, a=self._at(operation.s), o=self._at(operation.p)
        )

    def _softmaxbackward(self, operation: SoftmaxBackward) -> list[SidePiece]:
        shifts = operation.shifts(self.frac)
        y, dy = operation.summed
        summed = {"a": self._at(y), "b": self._at(dy)}
        both = {"a": self._at(operation.p), "b": self._at(operation.dp)}
        return self._vector(VectorOpcode.SOFTMAX_BACKWARD_SUMS, y, shifts["sums"], **summed) + self._vector(
            VectorOpcode.SOFTMAX_BACKWARD, operation.p, shifts["result"], **both, o=self._at(operation.ds)
        )

    def _loss(self, operation: Loss) -> list[SidePiece]:
        rows = operation.logits.rows
        targets = self.layout.place(operation.targets, 4 * rows)
        loss = self.layout.place(operation.loss, self.config.data_bits // 8)
        operands = {**_gate(operation.shifts(self.frac)), "limit": operation.vocab - 1}
        return (
            side.vector(
                VectorOpcode.TARGETS,
                {"row": -(-rows // self.config.beat_words), "tiles": 1, "tokens": 1},
                self.config,
                limit=self.limit,
                a=side.SideTensor(offset=targets),
            )
            + self._vector(VectorOpcode.SOFTMAX_SUMS, operation.logits, operands, a=self._at(operation.logits))
            + self._vector(
                VectorOpcode.SOFTMAX,
                operation.logits,
                {**operands, "targets": 1},
                a=self._at(operation.logits),
                o=self._at(operation.d),
                q=side.SideTensor(offset=loss, beats=1),
            )
        )


def _gate(shifts: Mapping[str, int]) -> dict[str, int]:
    """The reference's names as the command's."""
    return {"gate" if name == "gate_shift" else name: value for name, value in shifts.items()}
