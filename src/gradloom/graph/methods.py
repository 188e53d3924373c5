"""What learns: passes over a network's list."""

import fnmatch
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .base import Operation, Tensor
from .network import Network
from .operations import Add, Convolution, Linear, Norm, Parameter, Rearrange, Reduce, Weighted
from .rewriting.masks import FAR

__all__ = ["METHODS", "Learning", "bias", "full", "head", "instant", "left_out", "lesser_ranks", "lora", "targets"]

_LAST = re.compile(r"last:(\d+)")
_KINDS: dict[str, type[Linear | Convolution]] = {"linear": Linear, "conv": Convolution}


@dataclass(frozen=True)
class Learning:
    """A network, and the names of its weights that learn."""

    network: Network
    learners: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Numbers that learn."""
        return sum(self.network.values[name].size for name in self.learners)


def _layers(network: Network) -> list[Linear | Convolution]:
    return [each for each in network.operations if isinstance(each, Linear | Convolution)]


def targets(network: Network, asked: str | Sequence[str], field: str = "targets") -> list[Linear | Convolution]:
    """Layers by what a user asks for.

    ``asked``: ``linear``, ``conv``, ``last:N``, or patterns of layers' names, with commas between; or the very names.
    ``field``: the option. :class:`ValueError` lists the layers if nothing is found.
    """
    layers = _layers(network)
    if not isinstance(asked, str):
        missing = next((name for name in asked if name not in {each.layer for each in layers}), None)
        if missing is not None:
            raise ValueError(f"{missing}: the network has no layer of this name")
        return [each for each in layers if each.layer in asked]
    found: list[Linear | Convolution] = []
    for part in filter(None, (each.strip() for each in asked.split(","))):
        last = _LAST.fullmatch(part)
        if last:
            whole = [each for each in layers if not _is_part(each)]
            some = whole[-int(last[1]) :] if int(last[1]) else []
        elif part in _KINDS:
            # An adapter beside a part of the channels has no form that others know.
            whole = [each for each in layers if isinstance(each, _KINDS[part])]
            some = [each for each in whole if not _is_part(each)]
            if whole and not some:
                raise ValueError(
                    f"{field}={part}: channels of all of these layers are in groups, or they are "
                    f"transposed: {', '.join(dict.fromkeys(each.layer for each in whole))}; name others"
                )
        else:
            some = [each for each in layers if fnmatch.fnmatchcase(each.layer, part)]
        if not some:
            raise ValueError(
                f"{field}={part}: no layer of this name; there are {', '.join(dict.fromkeys(e.layer for e in layers))}"
            )
        found += some
    if not found:
        raise ValueError(f"{field}={asked}: names no layer")
    return list(dict.fromkeys(found))


def left_out(network: Network, asked: str | Sequence[str] | None) -> list[str]:
    """Layers of a kind that :func:`targets` is asked for and does not take: channels in groups, or transposed."""
    parts = [each.strip() for each in asked.split(",")] if isinstance(asked, str) else []
    kinds = tuple(_KINDS[part] for part in parts if part in _KINDS)
    found = [each for each in _layers(network) if isinstance(each, kinds) and _is_part(each)]
    taken = {each.layer for each in targets(network, asked)} if found and asked else set()
    return list(dict.fromkeys(each.layer for each in found if each.layer not in taken))


def _is_part(each: Operation) -> bool:
    return isinstance(each, Convolution) and (each.groups > 1 or each.transposed)


def _most(each: Linear | Convolution) -> int:
    """The largest rank of an adapter beside a layer: fewer of its results, or of what one is made of."""
    return min(each.o.features, int(np.prod(replace(each, rank=1).factors[0])))


def lesser_ranks(network: Network, asked: str | Sequence[str], rank: int) -> dict[str, int]:
    """The largest rank of each layer of :func:`targets` that cannot have ``rank``."""
    return {each.layer: most for each in targets(network, asked) if not _is_part(each) and (most := _most(each)) < rank}


def lora(
    network: Network,
    asked: str | Sequence[str] = "linear",
    *,
    rank: int = 4,
    lesser: Mapping[str, int] | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> Learning:
    """LoRA beside layers, A as PEFT draws it and B zero; ``alpha`` is twice the rank unless given.

    ``lesser``: ranks of layers that have another; the factor of their product is that of all.
    """
    random, ranks = np.random.default_rng(seed), lesser or {}
    scale = (2 * rank if alpha is None else alpha) / rank if rank > 0 else 0.0
    chosen = targets(network, asked)
    values = dict(network.values)
    learners: list[str] = []
    for each in chosen:
        if _is_part(each):
            raise ValueError(
                f"targets={each.layer}: its channels are in groups, or it is transposed; LoRA stands beside layers of "
                "all channels: name others"
            )
        most, own = _most(each), ranks.get(each.layer, rank)
        if not 1 <= own <= most:
            raise ValueError(f"rank={own}: must be from 1 to {most} beside {each.layer}")
        for weight in replace(each, rank=own).adapter:
            bound = 1 / math.sqrt(np.prod(weight.shape[1:]))
            made = random.uniform(-bound, bound, weight.shape) if ".lora_A." in weight.name else np.zeros(weight.shape)
            values.setdefault(weight.name, made)
            learners.append(weight.name)
    names = {each.layer for each in chosen}
    operations = [
        replace(each, rank=ranks.get(each.layer, rank), scale=scale)
        if isinstance(each, Linear | Convolution) and each.layer in names
        else each
        for each in network.operations
    ]
    return Learning(network.with_operations(operations, values), tuple(dict.fromkeys(learners)))


def instant(network: Network, asked: str | Sequence[str] = "*", *, rank: int = 4, seed: int = 0) -> Learning:
    """InstantFT: adapters from what layers read straight to the result.

    Each has A over the features of a layer's input, of several rows over their mean, and B to the result's features;
    their sum is added to the result. Nothing else learns, and no gradient passes through the network. Rows of a
    network's input have no tap. ``asked``: layers, as :func:`targets` takes it.
    """
    port, taken = network.outputs[0], {port.tensor.name for port in network.inputs}
    if port.tensor.rows != 1:
        raise ValueError(f"method=instantft: the result has {port.tensor.rows} rows, must have one: a row of logits")
    random, values, learners = np.random.default_rng(seed), dict(network.values), list[str]()
    behind, operations, total = dict[Tensor, list[Operation]](), list[Operation](), port.tensor
    taps = {each.i[0]: each.layer for each in reversed(targets(network, asked))}
    for t, layer in reversed(taps.items()):
        if t.rows > 1 and t.name in taken:
            continue
        if t.rows > 1:
            mean = Tensor(f"{layer}.tap.mean", (1,) * len(t.sides), t.features)
            # Where it is made, so that no tensor is kept for its mean.
            behind[t] = [Reduce((t,), mean, "mean", True)]
            t = mean
        if t.sides != port.tensor.sides:
            row = Tensor(f"{layer}.tap.row", port.tensor.sides, t.features)
            operations.append(Rearrange((t,), row, (t.features,), (0,)))
            t = row
        hidden, added, met = (
            Tensor(f"{layer}.tap.{name}", t.sides, count)
            for name, count in (("hidden", rank), ("added", port.tensor.features), ("sum", port.tensor.features))
        )
        bound = t.features**-0.5
        for name, i, o, value in (
            (f"{layer}.tap.lora_A", t, hidden, random.uniform(-bound, bound, (rank, t.features))),
            (f"{layer}.tap.lora_B", hidden, added, np.zeros((port.tensor.features, rank))),
        ):
            operations.append(Linear((i,), o, name, bias=False))
            values[f"{name}.weight"] = value
            learners.append(f"{name}.weight")
        operations.append(Add((total, added), met))
        total = met
    if not learners:
        raise ValueError(f"targets={asked}: none of these layers reads one row, or what another layer has made")
    whole = [part for each in network.operations for part in (each, *behind.get(each.o, ()))]
    made = network.with_operations([*whole, *operations], values, outputs=[replace(port, tensor=total)])
    return Learning(made, tuple(learners))


def _named(network: Network, layers: Collection[Operation], parts: Collection[str]) -> Learning:
    names = [weight.name for each in layers for weight in each.weights if weight.name.rpartition(".")[2] in parts]
    return Learning(network, tuple(dict.fromkeys(names)))


def head(network: Network) -> Learning:
    """Weight and bias of the last layer."""
    layers = _layers(network)
    if not layers:
        raise ValueError("method=head: the network has no linear layer and no convolution")
    return _named(network, layers[-1:], ("weight", "bias"))


def bias(network: Network, asked: str | Sequence[str] | None = None) -> Learning:
    """All biases, and the gains of norms; ``asked``: those of layers alone, as :func:`targets` takes it."""
    if asked:
        return _with_some(_named(network, targets(network, asked), ("bias",)))
    norms = [each for each in network.operations if isinstance(each, Norm)]
    found = _named(network, [each for each in network.operations if isinstance(each, Weighted)], ("bias",))
    gains = _named(network, norms, ("weight",))
    return _with_some(Learning(network, tuple(dict.fromkeys((*found.learners, *gains.learners)))))


def _with_some(found: Learning) -> Learning:
    if not found.learners:
        raise ValueError("method=bias: these layers have no bias, and there is no norm")
    return found


def full(network: Network, asked: str | Sequence[str] | None = None) -> Learning:
    """All weights but tables that are no weight of the file as it is there, and masks.

    ``asked``: those of layers alone, as :func:`targets` takes it.
    """
    if asked:
        return _named(network, targets(network, asked), ("weight", "bias"))
    names = [
        weight.name
        for each in network.operations
        for weight in each.weights
        if not isinstance(each, Parameter)
        or ((not network.origins or weight.name in network.origins) and network.values[weight.name].min() > FAR)
    ]
    return Learning(network, tuple(dict.fromkeys(names)))


#: Methods without adapters, by name; :func:`lora` and :func:`instant` have some.
METHODS: dict[str, Callable[..., Learning]] = {"head": head, "bias": bias, "full": full}
