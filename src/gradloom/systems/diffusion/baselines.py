"""Fine-tunes of a diffusion model in float, as baselines.

Full training, where every weight learns; and LoRA with products on 8-bit codes that have one scale a tensor.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from .mathematics import FloatUNet, normed, patches
from .operations import Convolution, GroupNorm, LayerNorm, Linear, Operation
from .unet import RESULT

__all__ = ["FullUNet", "TensorUNet"]

_MOST = 127


class TensorUNet(FloatUNet):
    """LoRA whose products take codes of 8 bits, a scale a tensor.

    The scale brings the largest magnitude to 127, and values are rounded to the nearest code: the symmetric INT8 of
    CDM-QTA (ISCAS 2025). All other arithmetic is float.
    """

    def operand(self, x: np.ndarray) -> np.ndarray:
        """See :class:`FloatUNet`."""
        scale = np.abs(x).max() / _MOST
        made: np.ndarray = x if scale == 0 else np.rint(x / scale) * scale
        return made


class FullUNet(FloatUNet):
    """Every weight learns. ``operations`` have no adapters.

    ``held`` has the weights: of linear layers and convolutions ``[inputs, outputs]``, a convolution's inputs by tap.
    """

    def __init__(
        self, operations: Sequence[Operation], weights: Mapping[str, np.ndarray], *, dtype: type = np.float32
    ) -> None:
        super().__init__(operations, weights, dtype=dtype)
        self.needed = {each.o.name for each in operations}

    def loss_and_weight_gradients(
        self, inputs: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Loss, and gradients of all weights as ``held`` has them."""
        found = self.forward(inputs, {})
        error = self.error(found[RESULT], noise)
        gradients: dict[str, np.ndarray] = {}

        def learn(each: Operation, x: np.ndarray, dy: np.ndarray) -> None:
            match each:
                case Linear() | Convolution():
                    columns = patches(each, x) if isinstance(each, Convolution) else x
                    gradients[f"{each.layer}.weight"] = columns.T @ dy
                    if each.bias:
                        gradients[f"{each.layer}.bias"] = dy.sum(0)
                case GroupNorm() | LayerNorm():
                    gradients[f"{each.layer}.weight"] = (normed(each, x)[0].reshape(x.shape) * dy).sum(0)
                    gradients[f"{each.layer}.bias"] = dy.sum(0)

        self.visit_gradients(found, self.loss_gradient(error), {}, learn)
        return float(np.mean(np.square(error, dtype=np.float64))), gradients
