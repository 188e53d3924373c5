"""The list of a UNet's operations."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from gradloom.models.files.unet import RANKS, UNet

from .operations import (
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
    Tensor,
    Upsample,
)

__all__ = ["PROMPT", "RESULT", "TARGETS", "inputs", "inputs_of", "operations", "targets_of"]

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


def inputs(net: UNet, text: int) -> tuple[Tensor, Tensor, Tensor]:
    """Latents, the timestep's sines and cosines, and a prompt.

    ``text``: tokens of the prompt.
    """
    return (
        Tensor("latents", net.size**2, net.inputs, net.size),
        Tensor("timestep", 1, net.channels[0]),
        Tensor(PROMPT, text, net.text),
    )


def inputs_of(listed: Iterable[Operation]) -> list[Tensor]:
    """The tensors that no operation makes, by their first reader."""
    made, found = set(), dict[str, Tensor]()
    for each in listed:
        found |= {t.name: t for t in each.i if t.name not in made and t.name not in found}
        made.add(each.o.name)
    return list(found.values())


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

    def linear(self, x: Tensor, layer: str, features: int, bias: bool = True, pixels: bool = False) -> Tensor:
        rank = self.rank if layer.endswith(tuple(self.targets)) else 0
        o = Tensor(layer, x.rows, features, x.side)
        return self._made(Linear((x,), o, layer, bias=bias, rank=rank, pixels=pixels))

    def conv(self, x: Tensor, layer: str, features: int, stride: int = 1) -> Tensor:
        side = x.side // stride
        return self._made(Convolution((x,), Tensor(layer, side * side, features, side), layer, stride=stride))

    def like(self, x: Tensor, name: str) -> Tensor:
        return Tensor(name, x.rows, x.features, x.side)

    def group(self, x: Tensor, layer: str, eps: float) -> Tensor:
        return self._made(GroupNorm((x,), self.like(x, layer), layer, eps=eps, groups=self.net.groups))

    def row(self, x: Tensor, layer: str) -> Tensor:
        return self._made(LayerNorm((x,), self.like(x, layer), layer))

    def silu(self, x: Tensor) -> Tensor:
        return self._made(Activation((x,), self.like(x, f"{x.name}.silu"), "silu"))

    def add(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self._made(Add((x, y), self.like(x, name)))

    def resnet(self, x: Tensor, time: Tensor, name: str, features: int) -> Tensor:
        """Two convolutions beside a shortcut, the timestep's row between them."""
        h = self.conv(self.silu(self.group(x, f"{name}.norm1", self.net.eps)), f"{name}.conv1", features)
        row = self.linear(time, f"{name}.time_emb_proj", features)
        h = self._made(Shift((h, row), self.like(h, f"{name}.shifted")))
        h = self.conv(self.silu(self.group(h, f"{name}.norm2", self.net.eps)), f"{name}.conv2", features)
        if x.features != features:
            x = self.linear(x, f"{name}.conv_shortcut", features, pixels=True)
        return self.add(x, h, name)

    def attention(self, x: Tensor, source: Tensor, name: str, heads: int) -> Tensor:
        q = self.linear(x, f"{name}.to_q", x.features, bias=False)
        k = self.linear(source, f"{name}.to_k", x.features, bias=False)
        v = self.linear(source, f"{name}.to_v", x.features, bias=False)
        mixed = self._made(Attention((q, k, v), self.like(x, f"{name}.mixed"), heads))
        return self.linear(mixed, f"{name}.to_out.0", x.features)

    def transformer(self, x: Tensor, prompt: Tensor, name: str, heads: int, blocks: int) -> Tensor:
        """Attention to itself and to the prompt, then GEGLU, beside a residual."""
        pixels = not self.net.linear_projection
        h = self.linear(self.group(x, f"{name}.norm", 1e-6), f"{name}.proj_in", x.features, pixels=pixels)
        for number in range(blocks):
            at = f"{name}.transformer_blocks.{number}"
            for n in (1, 2):
                normed = self.row(h, f"{at}.norm{n}")
                h = self.add(
                    self.attention(normed, normed if n == 1 else prompt, f"{at}.attn{n}", heads), h, f"{at}.after{n}"
                )
            gates = self.linear(self.row(h, f"{at}.norm3"), f"{at}.ff.net.0.proj", 8 * x.features)
            glu = self._made(Activation((gates,), Tensor(f"{at}.glu", x.rows, 4 * x.features, x.side), "geglu"))
            h = self.add(self.linear(glu, f"{at}.ff.net.2", x.features), h, f"{at}.after3")
        return self.add(self.linear(h, f"{name}.proj_out", x.features, pixels=pixels), x, name)


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
    latents, steps, prompt = inputs(net, text)
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
            x = b._made(
                Concat((x, skip), Tensor(f"{at}.resnets.{n}.joined", x.rows, x.features + skip.features, x.side))
            )
            x = b.resnet(x, time, f"{at}.resnets.{n}", features)
            if net.rises[number]:
                x = b.transformer(x, prompt, f"{at}.attentions.{n}", net.heads[level], net.blocks[level])
        if number != last:
            big = Tensor(f"{at}.upsampled", 4 * x.rows, x.features, 2 * x.side)
            x = b.conv(b._made(Upsample((x,), big)), f"{at}.upsamplers.0.conv", features)
    b.conv(b.silu(b.group(x, "conv_norm_out", net.eps)), RESULT, net.outputs)
    return b.done
