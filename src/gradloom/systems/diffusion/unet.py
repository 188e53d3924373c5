"""A UNet of diffusers as a network of the graph's operations.

Weights have diffusers' names; an adapter's are ``layer.lora_A.weight`` and ``layer.lora_B.weight``. Its 1×1
convolutions are convolutions here, too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.graph.base import Operation, Tensor
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.network import Network, Port
from gradloom.graph.operations import Activation, Add, Attention, Concat, Convolution, Gated, Linear, Norm, Upsample
from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.unet import RANKS, UNet

__all__ = [
    "PROMPT",
    "RESULT",
    "TARGETS",
    "Values",
    "adapted",
    "adapters_of",
    "layers_of",
    "learners_of",
    "network",
    "operations",
    "part_named",
    "targets_of",
    "timesteps",
    "values_of",
    "with_values",
]

#: Weights by name.
Values = Mapping[str, np.ndarray]

_ATTENTION = tuple(f"attn{n}.{end}" for n in (1, 2) for end in ("to_q", "to_k", "to_v", "to_out.0"))
#: Layers that may have an adapter, as ends of diffusers' names.
TARGETS = {
    "cross-attention": ("attn2.to_q", "attn2.to_k", "attn2.to_v", "attn2.to_out.0"),
    "attention": _ATTENTION,
    "all": (*_ATTENTION, "ff.net.0.proj", "ff.net.2"),
}
#: The tokens of the prompt, and the predicted noise.
PROMPT = "prompt"
RESULT = "conv_out"


def targets_of(layers: Iterable[str]) -> str:
    """The name of the fewest targets that have all of these layers.

    ``all`` where none do.
    """
    found = list(layers)
    return next((name for name, ends in TARGETS.items() if all(each.endswith(ends) for each in found)), "all")


def adapted(listed: Iterable[Operation]) -> list[Linear]:
    """The linear layers with an adapter."""
    return [each for each in listed if isinstance(each, Linear) and each.rank]


def learners_of(listed: Iterable[Operation]) -> list[str]:
    """Names of the adapters' weights, A before B."""
    return [weight.name for each in adapted(listed) for weight in each.adapter]


def layers_of(listed: Iterable[Operation]) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of each layer with an adapter."""
    return {each.layer: (each.i[0].features, each.o.features) for each in adapted(listed)}


def values_of(adapters: Mapping[str, Adapter]) -> dict[str, np.ndarray]:
    """The weights of adapters, whose scale is a part of B."""
    made = {}
    for layer, each in adapters.items():
        made[f"{layer}.lora_A.weight"] = each.a
        made[f"{layer}.lora_B.weight"] = each.b * each.b.dtype.type(each.scale)
    return made


def adapters_of(values: Values) -> dict[str, Adapter]:
    """Adapters by layer, of the scale 1."""
    layers = [name.removesuffix(".lora_A.weight") for name in values if name.endswith(".lora_A.weight")]
    return {layer: Adapter(values[f"{layer}.lora_A.weight"], values[f"{layer}.lora_B.weight"], 1.0) for layer in layers}


def with_values(net: FloatReading | IntegerNetwork, values: Values) -> None:
    """Gives a reading of a network these weights, in its own type."""
    net.values |= {name: np.asarray(x, net.values[name].dtype) for name, x in values.items()}


def timesteps(net: UNet, steps: np.ndarray) -> np.ndarray:
    """Sines and cosines of timesteps ``[images]``, ``[images, channels]``.

    They are those of diffusers' ``Timesteps``, cosines first where the configuration says so.
    """
    half = net.channels[0] // 2
    angles = steps[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - net.shift))
    pair = (np.cos(angles), np.sin(angles)) if net.flip else (np.sin(angles), np.cos(angles))
    return np.concatenate(pair, axis=1)


def part_named(listed: Sequence[Operation], name: str) -> list[Operation]:
    """The operations whose results have a name that begins so."""
    found = [each for each in listed if each.o.name.startswith(name)]
    if not found:
        raise ValueError(f"only={name}: must be all, cross-attention, or how names of layers begin, as down_blocks.0")
    return found


def network(listed: Sequence[Operation], values: Values, shown: Iterable[Tensor] = ()) -> Network:
    """The network of a list, with its weights.

    Its inputs are what no operation makes: ``latents``, ``timestep`` and ``prompt`` of all, ``[images, rows,
    features]`` as its result. ``shown``: further results.
    """
    made, inputs = set(), dict[str, Tensor]()
    for each in listed:
        inputs |= {t.name: t for t in each.i if t.name not in made}
        made.add(each.o.name)
    outputs = tuple(map(_port, dict.fromkeys((listed[-1].o, *shown))))
    whole = Network(tuple(listed), values, tuple(map(_port, inputs.values())), outputs)
    return whole.with_operations(listed)


def _port(t: Tensor) -> Port:
    return Port(t.name, (t.rows, t.features), t, t.shape, tuple(range(len(t.shape))))


@dataclass
class _Builder:
    net: UNet
    text: int
    rank: int
    targets: Collection[str]
    done: list[Operation] = field(default_factory=list)

    def _made(self, operation: Operation) -> Tensor:
        self.done.append(operation)
        return operation.o

    def linear(self, x: Tensor, layer: str, features: int, bias: bool = True) -> Tensor:
        rank = self.rank if layer.endswith(tuple(self.targets)) else 0
        return self._made(Linear((x,), Tensor(layer, x.sides, features), layer, bias=bias, rank=rank))

    def conv(self, x: Tensor, layer: str, features: int, *, kernel: int = 3, stride: int = 1) -> Tensor:
        """Of an image; one of 3×3 is padded by 1."""
        o, pad = Tensor(layer, tuple(side // stride for side in x.sides), features), kernel // 2
        made = Convolution(
            (x,),
            o,
            layer,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pads=((pad, pad), (pad, pad)),
            dilation=(1, 1),
        )
        return self._made(made)

    def like(self, x: Tensor, name: str) -> Tensor:
        return Tensor(name, x.sides, x.features)

    def group(self, x: Tensor, layer: str, eps: float) -> Tensor:
        return self._made(Norm((x,), self.like(x, layer), layer, eps=eps, over_rows=True, groups=self.net.groups))

    def row(self, x: Tensor, layer: str) -> Tensor:
        return self._made(Norm((x,), self.like(x, layer), layer, eps=1e-5))

    def silu(self, x: Tensor) -> Tensor:
        return self._made(Activation((x,), self.like(x, f"{x.name}.silu"), "silu"))

    def add(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self._made(Add((x, y), self.like(x, name)))

    def projected(self, x: Tensor, layer: str) -> Tensor:
        if self.net.linear_projection:
            return self.linear(x, layer, x.features)
        return self.conv(x, layer, x.features, kernel=1)

    def resnet(self, x: Tensor, time: Tensor, name: str, features: int) -> Tensor:
        """Two convolutions beside a shortcut, the timestep's row between them."""
        h = self.conv(self.silu(self.group(x, f"{name}.norm1", self.net.eps)), f"{name}.conv1", features)
        row = self.linear(time, f"{name}.time_emb_proj", features)
        h = self.add(h, row, f"{name}.shifted")
        h = self.conv(self.silu(self.group(h, f"{name}.norm2", self.net.eps)), f"{name}.conv2", features)
        if x.features != features:
            x = self.conv(x, f"{name}.conv_shortcut", features, kernel=1)
        return self.add(x, h, name)

    def attention(self, x: Tensor, source: Tensor, name: str, heads: int) -> Tensor:
        q = self.linear(x, f"{name}.to_q", x.features, bias=False)
        k = self.linear(source, f"{name}.to_k", x.features, bias=False)
        v = self.linear(source, f"{name}.to_v", x.features, bias=False)
        scale = float((x.features // heads) ** -0.5)
        mixed = self._made(Attention((q, k, v), self.like(x, f"{name}.mixed"), heads, scale))
        return self.linear(mixed, f"{name}.to_out.0", x.features)

    def transformer(self, x: Tensor, prompt: Tensor, name: str, heads: int, blocks: int) -> Tensor:
        """Attention to itself and to the prompt, then GEGLU, beside a residual."""
        h = self.projected(self.group(x, f"{name}.norm", 1e-6), f"{name}.proj_in")
        for number in range(blocks):
            at = f"{name}.transformer_blocks.{number}"
            for n in (1, 2):
                normed = self.row(h, f"{at}.norm{n}")
                h = self.add(
                    self.attention(normed, normed if n == 1 else prompt, f"{at}.attn{n}", heads), h, f"{at}.after{n}"
                )
            gates = self.linear(self.row(h, f"{at}.norm3"), f"{at}.ff.net.0.proj", 8 * x.features)
            glu = self._made(Gated((gates,), Tensor(f"{at}.glu", x.sides, 4 * x.features), "gelu"))
            h = self.add(self.linear(glu, f"{at}.ff.net.2", x.features), h, f"{at}.after3")
        return self.add(self.projected(h, f"{name}.proj_out"), x, name)


def operations(
    net: UNet, *, text: int = 77, rank: int = 0, targets: Collection[str] = TARGETS["cross-attention"]
) -> list[Operation]:
    """Every operation of a forward pass for one image, in order.

    The last makes :data:`RESULT`. ``text``: tokens of the prompt.
    ``rank``: of the adapters beside layers whose name ends in one of ``targets``.
    """
    if not 1 <= text <= 77:
        raise ValueError(f"seq={text}: tokens of a prompt must be from 1 to 77")
    if rank and rank not in RANKS:
        raise ValueError(f"rank={rank}: must be 1, 2, 4, 8, 16 or 32")
    b = _Builder(net, text, rank, targets)
    latents = Tensor("latents", (net.size, net.size), net.inputs)
    # A row that counts for all pixels.
    steps, prompt = Tensor("timestep", (1, 1), net.channels[0]), Tensor(PROMPT, (text,), net.text)
    width = 4 * net.channels[0]
    time = b.linear(b.silu(b.linear(steps, "time_embedding.linear_1", width)), "time_embedding.linear_2", width)
    time = b.silu(time)
    x = b.conv(latents, "conv_in", net.channels[0])
    skips, last = [x], len(net.channels) - 1
    for level, features in enumerate(net.channels):
        for n in range(net.layers[level]):
            at = f"down_blocks.{level}"
            x = b.resnet(x, time, f"{at}.resnets.{n}", features)
            if net.attends[level]:
                x = b.transformer(x, prompt, f"{at}.attentions.{n}", net.heads[level], net.blocks[level])
            skips.append(x)
        if level != last:
            x = b.conv(x, f"down_blocks.{level}.downsamplers.0.conv", features, stride=2)
            skips.append(x)
    x = b.resnet(x, time, "mid_block.resnets.0", net.channels[-1])
    x = b.transformer(x, prompt, "mid_block.attentions.0", net.heads[-1], net.blocks[-1])
    x = b.resnet(x, time, "mid_block.resnets.1", net.channels[-1])
    for number in range(last + 1):
        level = last - number
        features, at = net.channels[level], f"up_blocks.{number}"
        for n in range(net.layers[level] + 1):
            skip = skips.pop()
            joined = Tensor(f"{at}.resnets.{n}.joined", x.sides, x.features + skip.features)
            x = b._made(Concat((x, skip), joined, axis=2))
            x = b.resnet(x, time, f"{at}.resnets.{n}", features)
            if net.rises[number]:
                x = b.transformer(x, prompt, f"{at}.attentions.{n}", net.heads[level], net.blocks[level])
        if number != last:
            big = Tensor(f"{at}.upsampled", tuple(2 * side for side in x.sides), x.features)
            x = b.conv(b._made(Upsample((x,), big, "nearest", "asymmetric")), f"{at}.upsamplers.0.conv", features)
    b.conv(b.silu(b.group(x, "conv_norm_out", net.eps)), RESULT, net.outputs)
    return b.done
