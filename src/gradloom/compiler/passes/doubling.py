"""Layers whose products take two codes of 8 bits, of what they read and of weights, too.

The second code is what the first one leaves, so it is about 2^8 times smaller. Two or three products are added in one
sum; that of both second codes would be lost in it. What the network is given has its second code from the host.
"""

from collections.abc import Mapping
from dataclasses import replace

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear, Parameter, Rearrange, Rest, Upsample

__all__ = ["doublable", "doubled"]


def doublable(network: Network) -> list[str]:
    """Layers that may read second codes."""
    layers = [each for each in network.operations if isinstance(each, Linear | Convolution)]
    return [each.layer for each in layers if "~" not in each.layer and _source(network, each) is None]


def _source(network: Network, each: Operation) -> Operation | None:
    """What makes a layer's input, if that has no second code."""
    makers, (x, *_) = {other.o.name: other for other in network.operations}, each.i
    while isinstance(maker := makers.get(x.name), Rearrange) and maker.is_label:
        (x,) = maker.i
    return maker if isinstance(maker, Parameter | Upsample) else None


def _fault(network: Network, layer: str) -> str:
    """Why a layer has no second codes."""
    for each in network.operations:
        if isinstance(each, Linear | Convolution) and each.layer == layer:
            found = _source(network, each)
            if isinstance(found, Parameter):
                return f"reads the table {found.name}, which has one code"
            if found is not None:
                return "reads an upsampled tensor, which has one code"
    return "is no layer of the machine"


def doubled(network: Network, layers: Mapping[str, int]) -> Network:
    """The network with second codes for what ``layers`` read; the number is that of codes of the layer's weight."""
    found = doublable(network)
    wrong = [name for name in layers if name not in found]
    if wrong:
        raise ValueError(f"precise={wrong[0]}: {_fault(network, wrong[0])}; others: {', '.join(found)}")
    given = {port.tensor.name: port for port in network.inputs}
    makers = {each.o.name: each for each in network.operations}
    made, inputs, operations = set[str](), list(network.inputs), list[Operation]()

    def second_of(x: Tensor) -> Tensor:
        second, maker = replace(x, name=f"{x.name}~rest"), makers.get(x.name)
        if second.name in made:
            return second
        made.add(second.name)
        if x.name in given:
            inputs.append(replace(given[x.name], tensor=second))
        elif isinstance(maker, Rearrange) and maker.is_label:
            operations.append(replace(maker, i=(second_of(maker.i[0]),), o=second))
        else:
            operations.append(Rest((x,), second))
        return second

    for each in network.operations:
        if isinstance(each, Linear | Convolution) and each.layer in layers:
            (x,) = each.i
            second = second_of(x)
            each = replace(each, i=(x, second), codes=layers[each.layer])
        operations.append(each)
    return replace(network.with_operations(operations), inputs=tuple(inputs))
