"""Operations of a fine-tune on images, on the samples of a group.

An operation names a layer by its number, and by the same number the layer's input, its *tap*. It knows neither values
nor where they lie. Three things are made of the same lists: the mathematics (``systems/images/mathematics.py``), the
integer reference (``systems/images/integers.py``) and the program (``systems/images/program/program.py``).
"""

from dataclasses import dataclass

from gradloom.models.network import ConvLayer, LayerNetwork
from gradloom.program.operations import Operation

__all__ = [
    "Convolve",
    "Dense",
    "Descent",
    "Encode",
    "Loss",
    "Operation",
    "Product",
    "Record",
    "descents",
    "frozen",
    "judged",
]


@dataclass(frozen=True)
class Encode(Operation):
    """Codes and scales of a tap.

    The adapters see their decoded values.
    """

    tap: int


@dataclass(frozen=True)
class Convolve(Operation):
    """Convolution, bias, ReLU and max-pool of a tap.

    The result is the next tap.
    """

    layer: int


@dataclass(frozen=True)
class Dense(Operation):
    """``x Wᵀ``, bias and ReLU of a tap.

    The result is the next tap, after the last layer the logits of the base.
    """

    layer: int


@dataclass(frozen=True)
class Record(Operation):
    """Logits of the base.

    They complete a sample's record of codes and scales.
    """


@dataclass(frozen=True)
class Product(Operation):
    """``h = x Aᵀ`` of a tap as it is decoded."""

    tap: int


@dataclass(frozen=True)
class Loss(Operation):
    """Logits, softmax and cross-entropy, and their gradients.

    Logits are ``z = base + Σ h Bᵀ`` over the taps; gradients are ``d`` and ``dh = d B``.
    """


@dataclass(frozen=True)
class Descent(Operation):
    """New words of A of a tap, or of B of all taps: SGD with momentum.

    The gradient of A is ``dhᵀ x``, that of B (``tap`` None) is ``dᵀ h``. Gradients of a step's microbatches add up, and
    the last one changes the words.
    """

    tap: int | None


def frozen(network: LayerNetwork) -> list[Operation]:
    """Forward pass of the frozen network, once a kept sample.

    It makes the records.
    """
    made: list[Operation] = []
    for number, layer in enumerate(network.layers):
        made += [Encode(number), Convolve(number) if isinstance(layer, ConvLayer) else Dense(number)]
    return [*made, Record()]


def judged(taps: int) -> list[Operation]:
    """Forward pass of a microbatch's adapters, and its loss.

    It reads the records of the microbatch.
    """
    return [*map(Product, range(taps)), Loss()]


def descents(taps: int) -> list[Operation]:
    """Updates after a microbatch, behind :func:`judged`.

    All gradients are those of the words before.
    """
    return [Descent(None), *map(Descent, range(taps))]
