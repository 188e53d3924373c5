"""Updates of what learns, and adapters that lie in memory as codes."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradloom.program.descent import AdamW, command
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER

from ...program import packed
from ..base import DROP, SPARE, Fracs, Operation
from ..products import Product
from ..tensors import AdapterTensors, Codes, TensorSlice

__all__ = ["Descent", "Pack", "Unpack", "Update", "Widen", "stored"]


@dataclass(frozen=True)
class Update(Operation):
    """New words of an adapter by SGD with a rate, or AdamW.

    It is update ``number``: that many updates were made, this one included. The rule is given for A and for B; B's
    factor changes its rule. ``summed``: by ``.sa`` and ``.sb``, sums of several texts' gradients.
    """

    lasting = True

    adapter: AdapterTensors
    linear: Codes
    rules: tuple[float | AdamW, float | AdamW]
    number: int
    summed: bool = False

    def gradient(self, which: str) -> str:
        """Name of what ``a`` or ``b`` is updated by."""
        return f"{self.adapter.name}.{'s' if self.summed else 'g'}{which}"

    @property
    def ruled(self) -> list[tuple[str, float | AdamW]]:
        """Which of ``a`` and ``b`` learn, each with its rule."""
        return [(which, rule) for which, rule in zip("ab", self.rules) if which in self.adapter.graded]

    def parts(self, frac: Fracs) -> list[tuple[str, int, UpdateOpcode, dict[str, int]]]:
        """Commands of ``a`` and ``b``.

        Each entry has the name, its features, and opcode and operands of the command.
        """
        made: list[tuple[str, int, UpdateOpcode, dict[str, int]]] = []
        features_of = {"a": self.linear.inputs, "b": self.linear.outputs}
        for which, rule in self.ruled:
            features = features_of[which]
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

    words: TensorSlice
    gradient: TensorSlice
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

    x: TensorSlice
    y: TensorSlice

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

    adapter: AdapterTensors
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
