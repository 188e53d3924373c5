"""Operations of a transformer's training step.

An operation names its tensors; it knows neither values nor where they lie. Three things are made of the same list:
the mathematics, the integer reference and the program (``mathematics.py``, ``integers.py``, ``program/step.py``). What
an integer of a tensor stands for, ``n * 2**-frac``, is in a mapping from names to fraction bits, and :meth:`shifts` of
an operation turns it into the operands of commands.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gradloom.program import operations
from gradloom.program.descent import AdamW, command
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.linear import ACTIVATION, DOT_GUARD, MASTER, WEIGHT
from gradloom.rtl.formats.vector import FACTOR_FRAC, PROBABILITY_FRAC

from ..program import packed
from . import vector
from .tensors import EDGE, Adapter, Angles, Codes, Factors, Gain, Halves, Slice, Tensor, Words

__all__ = [
    "EDGE",
    "Adapter",
    "Add",
    "Angles",
    "Codes",
    "Descent",
    "Factors",
    "Fracs",
    "Gain",
    "Gradient",
    "Halves",
    "Loss",
    "Narrow",
    "Norm",
    "NormBackward",
    "Operation",
    "Pack",
    "Product",
    "Rope",
    "Scale",
    "ScaleBackward",
    "Slice",
    "Softmax",
    "SoftmaxBackward",
    "Swiglu",
    "SwigluBackward",
    "Tensor",
    "TokenSum",
    "Unpack",
    "Update",
    "Widen",
    "Words",
    "stored",
]

#: Fraction bits by the name of a tensor, of a matrix, of an adapter's ``.a`` and ``.b``.
Fracs = Mapping[str, int]
#: Fraction bits that a word loses on its way to being a weight.
DROP = ACTIVATION.width - WEIGHT.width
#: Fraction bits that an adapter's word in memory has more than the one in the array.
SPARE = MASTER.width - WEIGHT.width
#: Ranks that are complete after one tile of outputs in every machine: an array has at most 8 columns.
_AT_ONCE = EDGE // 8


class Operation(operations.Operation):
    """An operation of a step, on slices of tensors."""

    @property
    def results(self) -> "tuple[Slice, ...]":
        """Slices that it makes, without gradients of adapters and losses."""
        return super().results

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        """The least and the most fraction bits of each result."""
        return {}


@dataclass(frozen=True)
class Product(Operation):
    """A product with an adapter: ``y = 2**lift · (x Wᵀ + (x Aᵀ) Bᵀ)``.

    Backward ``y = 2**lift · (x W + (x B) A)``. h stays in the machine. A ``y`` with fewer tiles than a matrix of codes
    has outputs is the first of them.
    """

    gives = ("y",)

    x: Slice
    weight: Codes | Halves | Words
    y: Slice
    backward: bool = False
    adapter: Adapter | None = None
    lift: int = 0

    @property
    def weight_name(self) -> str:
        """Whose fraction bits count."""
        return self.weight.tiles[0].name if isinstance(self.weight, Words) else self.weight.name

    @property
    def hidden(self) -> str:
        """Name of ``x Aᵀ``, or of ``x B``."""
        return f"{self.adapter.name}.{'dh' if self.backward else 'h'}" if self.adapter else ""

    @property
    def reads(self) -> tuple[str, ...]:
        """See :class:`Operation`."""
        tiles = self.weight.tiles if isinstance(self.weight, Words) else ()
        return self.x.name, *(part.name for part in tiles)

    def wanted(self, live: Collection[str]) -> "Product | None":
        """See :class:`Operation`; where only h is read, with as few tiles of outputs as complete it."""
        if self.y.name in live or self.hidden not in live:
            return super().wanted(live)
        assert self.adapter is not None
        tiles = min(1 if self.adapter.rank <= _AT_ONCE else 2, self.y.count)
        y = Tensor(self.y.name, self.y.rows, tiles * EDGE, self.y.tensor.wide)
        return replace(self, y=y.all())

    def weight_frac(self, frac: Fracs) -> int:
        return frac[self.weight_name] - (DROP if isinstance(self.weight, Words) else 0)

    def _adapter(self, frac: Fracs) -> tuple[int, int]:
        assert self.adapter is not None
        a, b = frac[f"{self.adapter.name}.a"], frac[f"{self.adapter.name}.b"]
        return (b, a) if self.backward else (a, b)

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        x, w = frac[self.x.name], self.weight_frac(frac)
        limits = {self.y.name: (x + w - self.lift - 63, x + w - self.lift)}
        if self.adapter is not None:
            a, b = self._adapter(frac)
            limits[self.hidden] = (max(x + a - 63, x + w - b - DOT_GUARD), x + a)
        return limits

    def shifts(self, frac: Fracs) -> dict[str, int]:
        x, w, y = frac[self.x.name], self.weight_frac(frac), frac[self.y.name]
        hidden = dot = 0
        if self.adapter is not None:
            a, b = self._adapter(frac)
            h = frac[self.hidden]
            hidden, dot = x + a - h, DOT_GUARD + h + b - x - w
        return _shifts(self.y.name, hidden_shift=hidden, dot_shift=dot, shift=x + w - self.lift - y)


@dataclass(frozen=True)
class Gradient(Operation):
    """Gradients of an adapter, ``(dh' x)`` and ``(h' dy)``.

    They are of the products that made ``h`` and ``dh`` last. Where the step makes B, there is no gradient of A.
    """

    lasting = True

    adapter: Adapter
    x: Slice
    dy: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        sums = self._sums(frac)
        return {f"{self.adapter.name}.{which}": (value - 63, value) for which, value in sums.items()}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return _shifts(
            self.adapter.name,
            **{which: value - frac[f"{self.adapter.name}.{which}"] for which, value in self._sums(frac).items()},
        )

    @property
    def sources(self) -> dict[str, tuple[str, Slice]]:
        """Name of h and the tensor beside it, by the gradient's name."""
        made = {"gb": ("h", self.dy)}
        return made if self.adapter.made else made | {"ga": ("dh", self.x)}

    @property
    def reads(self) -> tuple[str, ...]:
        """See :class:`Operation`."""
        name = self.adapter.name
        return tuple(each for h, part in self.sources.values() for each in (part.name, f"{name}.{h}"))

    def _sums(self, frac: Fracs) -> dict[str, int]:
        name = self.adapter.name
        return {which: frac[part.name] + frac[f"{name}.{h}"] - DROP for which, (h, part) in self.sources.items()}


@dataclass(frozen=True)
class Update(Operation):
    """New words of an adapter by SGD with a rate, or AdamW.

    It is update ``number``: that many updates were made, this one included. The rule is given for A and for B; B's
    factor changes its rule. ``summed``: by ``.sa`` and ``.sb``, sums of several texts' gradients.
    """

    lasting = True

    adapter: Adapter
    linear: Codes
    rules: tuple[float | AdamW, float | AdamW]
    number: int
    summed: bool = False

    def gradient(self, which: str) -> str:
        """Name of what ``a`` or ``b`` is updated by."""
        return f"{self.adapter.name}.{'s' if self.summed else 'g'}{which}"

    def parts(self, frac: Fracs) -> list[tuple[str, int, UpdateOpcode, dict[str, int]]]:
        """Commands of ``a`` and ``b``.

        Each entry has the name, its features, and opcode and operands of the command.
        """
        made: list[tuple[str, int, UpdateOpcode, dict[str, int]]] = []
        for which, features, rule in zip("ab", (self.linear.inputs, self.linear.outputs), self.rules):
            words = frac[f"{self.adapter.name}.{which}"] + SPARE
            made.append((which, features, *command(rule, self.number, frac[self.gradient(which)], words)))
        return made


@dataclass(frozen=True)
class Descent(Operation):
    """New words, in place, of an adapter beside no linear, or of a vector.

    The gradient has the words' shape. It is update ``number`` by SGD's rate or AdamW, whose moments are called
    ``moments``. Every operation that reads ``words`` must be one from which the gradient is made, or that of an update
    before it: no other order keeps it before the update.
    """

    takes, gives = ("words", "gradient"), ("words",)
    lasting = True

    words: Slice
    gradient: Slice
    moments: str
    rule: float | AdamW
    number: int

    def command(self, frac: Fracs) -> tuple[UpdateOpcode, dict[str, int]]:
        """Opcode and operands."""
        return command(self.rule, self.number, frac[self.gradient.name], frac[self.words.name])


@dataclass(frozen=True)
class Widen(Operation):
    """``-x`` as words of an adapter, whose upper bits an array takes.

    The update engine makes them: SGD from words of 0, by a rate that is a power of two.
    """

    takes, gives = ("x",), ("y",)
    lasting = True

    x: Slice
    y: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        bits = frac[self.x.name] - DROP
        return {self.y.name: (bits, bits)}

    @property
    def command(self) -> dict[str, int]:
        """Operands of SGD."""
        return {"rate": 1 << MASTER.width - ACTIVATION.width, "shift": 0}


@dataclass(frozen=True)
class Unpack(Operation):
    """Decodes an adapter's words, or AdamW's ``moments``, from codes.

    The codes have 8 (``wide``) or 4 bits, in blocks. Products and updates read the words. Moments go to a place that
    all adapters share.
    """

    lasting = True

    adapter: Adapter
    linear: Codes
    wide: bool
    moments: bool = False

    def tensors(self) -> list[packed.PackedStore]:
        """Those of A and of B."""
        return packed.tensors(
            self.adapter.name,
            self.adapter.rank,
            self.linear.inputs,
            self.linear.outputs,
            wide=self.wide,
            moments=self.moments,
        )


@dataclass(frozen=True)
class Pack(Unpack):
    """Encodes words as blocks of codes, after update ``number``.

    The number seeds the random words of the rounding.
    """

    number: int = 0


@dataclass(frozen=True)
class Norm(Operation):
    """RMSNorm.

    ``weight`` names a vector in which ``sqrt(features)`` is folded.
    """

    takes, gives = ("x",), ("y",)

    x: Slice
    weight: str
    y: Slice
    eps: float

    @property
    def wants(self) -> tuple[str, ...]:
        """See :class:`Operation`; of a norm that learns, the step makes the weight."""
        return *self.reads, self.weight

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(24 + frac[self.weight])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.rms_norm(frac[self.weight], frac[self.y.name])

    def epsilon(self, frac: Fracs) -> dict[str, int]:
        return vector.epsilon(self.eps, self.x.tensor.features, frac[self.x.name])


@dataclass(frozen=True)
class NormBackward(Operation):
    """Gradient of RMSNorm's operand.

    ``u``, where it is made, is ``dy · x / |x|``. Its sum over tokens times ``sqrt(features)`` is the weight's gradient.
    """

    takes, gives = ("x", "dy"), ("dx", "u")

    x: Slice
    dy: Slice
    weight: str
    dx: Slice
    eps: float
    u: Slice | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """See :class:`Operation`; of a norm that learns, the step makes the weight."""
        return *self.reads, self.weight

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        base = self._base(frac)
        limits = {self.dx.name: (base - 63, base + 64)}
        if self.u is not None:
            limits[self.u.name] = _within(24 + frac[self.dy.name])
        return limits

    def shifts(self, frac: Fracs) -> Mapping[str, Mapping[str, int]]:
        return vector.rms_norm_backward(
            frac[self.dy.name],
            frac[self.x.name],
            frac[self.weight],
            frac[self.dx.name],
            None if self.u is None else frac[self.u.name],
        )

    def epsilon(self, frac: Fracs) -> dict[str, int]:
        return vector.epsilon(self.eps, self.x.tensor.features, frac[self.x.name])

    def _base(self, frac: Fracs) -> int:
        result = vector.rms_norm_backward(frac[self.dy.name], frac[self.x.name], frac[self.weight], 0)["result"]
        return result["shift"]


@dataclass(frozen=True)
class Narrow(Operation):
    """Factors of features from words that learn: ``gain · words``."""

    takes, gives = ("words",), ("y",)

    words: Slice
    gain: Gain
    y: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(frac[self.words.name] + self.gain.frac)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale(frac[self.words.name], self.gain.frac, frac[self.y.name])


@dataclass(frozen=True)
class Scale(Operation):
    """``x · factors``, of each token."""

    takes, gives = ("x", "factors"), ("y",)

    x: Slice
    factors: Slice
    y: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(frac[self.x.name] + frac[self.factors.name])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale(frac[self.x.name], frac[self.factors.name], frac[self.y.name])


@dataclass(frozen=True)
class ScaleBackward(Operation):
    """Gradient of the operand of :class:`Scale`.

    The sum over tokens of ``u = x · dy`` is the gradient of the factors.
    """

    takes, gives = ("x", "dy", "factors"), ("dx", "u")

    x: Slice
    dy: Slice
    factors: Slice
    dx: Slice
    u: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        x, dy, factors = (frac[each.name] for each in (self.x, self.dy, self.factors))
        return {self.dx.name: _within(dy + factors), self.u.name: _within(x + dy)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale_backward(*(frac[each.name] for each in (self.x, self.dy, self.factors, self.dx, self.u)))


@dataclass(frozen=True)
class TokenSum(Operation):
    """``gain · Σ x`` over tokens, a row of features."""

    takes, gives = ("x",), ("y",)
    lasting = True

    x: Slice
    gain: Gain
    y: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(frac[self.x.name] + self.gain.frac)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return _shifts(self.y.name, shift=frac[self.x.name] + self.gain.frac - frac[self.y.name])


@dataclass(frozen=True)
class Add(Operation):
    """``a + b``; ``y`` may be ``a``. ``lazy``: nothing waits for it soon."""

    takes, gives = ("a", "b"), ("y",)

    a: Slice
    b: Slice
    y: Slice
    lazy: bool = False

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        a, b = frac[self.a.name], frac[self.b.name]
        return {self.y.name: (max(a, b) - 56, min(a, b) + 7)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.add(frac[self.a.name], frac[self.b.name], frac[self.y.name])


@dataclass(frozen=True)
class Rope(Operation):
    """Rotates each tile by a token's angles, backward with ``turn``.

    The gain of ``angles`` multiplies the result.
    """

    takes, gives = ("x",), ("y",)

    x: Slice
    angles: Angles
    y: Slice
    turn: bool = False

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(frac[self.x.name] + FACTOR_FRAC + 7)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.rope(frac[self.x.name], frac[self.y.name])


@dataclass(frozen=True)
class Swiglu(Operation):
    """``silu(gate) · up``."""

    takes, gives = ("gate", "up"), ("y",)

    gate: Slice
    up: Slice
    y: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: _within(frac[self.gate.name] + 1 + frac[self.up.name])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.swiglu(frac[self.gate.name], frac[self.up.name], frac[self.y.name])


@dataclass(frozen=True)
class SwigluBackward(Operation):
    """Gradients of gate and up."""

    takes, gives = ("gate", "up", "dy"), ("dgate", "dup")

    gate: Slice
    up: Slice
    dy: Slice
    dgate: Slice
    dup: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        gate, up, dy = (frac[each.name] for each in (self.gate, self.up, self.dy))
        return {self.dgate.name: _within(up + dy), self.dup.name: _within(gate + 1 + dy)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        parts = (self.dy, self.gate, self.up, self.dgate, self.dup)
        return vector.swiglu_backward(*(frac[each.name] for each in parts))


@dataclass(frozen=True)
class Softmax(Operation):
    """``2**s`` of each row over the row's sum.

    Token n's row ends after element ``limit + n``.
    """

    takes, gives = ("s",), ("p",)

    s: Slice
    p: Slice
    limit: int = 0

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.p.name: (PROBABILITY_FRAC, PROBABILITY_FRAC)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.softmax(frac[self.s.name])


@dataclass(frozen=True)
class SoftmaxBackward(Operation):
    """``ds = p (dp - Σ p dp)``, natural: without the factor ln 2 of base 2."""

    takes, gives = ("p", "dp"), ("ds",)

    p: Slice
    dp: Slice
    ds: Slice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.ds.name: _within(PROBABILITY_FRAC + frac[self.dp.name])}

    def shifts(self, frac: Fracs) -> Mapping[str, Mapping[str, int]]:
        return vector.softmax_backward(frac[self.dp.name], frac[self.ds.name])


@dataclass(frozen=True)
class Loss(Operation):
    """Softmax of logits in base 2, and cross-entropy.

    ``d`` is ``p`` less 1 at each token's target. ``targets`` names them; ``vocab`` elements of a row count.
    """

    takes, gives = ("logits",), ("d",)
    lasting = True

    logits: Slice
    targets: str
    d: Slice
    loss: str
    vocab: int

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.d.name: (PROBABILITY_FRAC, PROBABILITY_FRAC)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.softmax(frac[self.logits.name])


def stored(step: Sequence[Operation], wide: bool) -> list[Operation]:
    """A step whose adapters and moments lie in memory as codes.

    Words are made of them before the first product that reads them, and codes from each update's words. Moments of all
    adapters use one place alternately, for updates come one after the other.
    """
    linears = {each.adapter.name: each.linear for each in step if isinstance(each, Update)}
    made: list[Operation] = []
    for each in step:
        if isinstance(each, Product) and each.adapter is not None and each.adapter.name in linears:
            made.append(Unpack(each.adapter, linears.pop(each.adapter.name), wide))
        if not isinstance(each, Update):
            made.append(each)
            continue
        moments = isinstance(each.rules[0], AdamW)
        if moments:
            made.append(Unpack(each.adapter, each.linear, wide, moments=True))
        # Moments are read behind words, whose STORE came later: so they are there too.
        made += [each, Pack(each.adapter, each.linear, wide, number=each.number)]
        if moments:
            made.append(Pack(each.adapter, each.linear, wide, moments=True, number=each.number))
    return made


def _within(top: int) -> tuple[int, int]:
    """Fraction bits of a result whose sum has ``top`` of them."""
    return top - 63, top


def _shifts(name: str, **shifts: int) -> dict[str, int]:
    for field, value in shifts.items():
        if not 0 <= value < 64:
            raise ValueError(f"{name}: {field}={value}: the exponents lie too far apart, must be 0 to 63")
    return shifts
