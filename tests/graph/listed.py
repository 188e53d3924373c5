"""Where networks for tests are put down by their names, and operators between two layers."""

from .made import Maker

__all__ = ["CORPUS", "network", "operator"]

CORPUS = {}


def network(*opsets):
    """Marks a function that makes a network, once for each opset."""

    def mark(make):
        for opset in opsets:
            CORPUS[f"{make.__name__}-{opset}"] = lambda opset=opset: make(opset)
        return make

    return mark


def operator(name, *shape):
    """Marks a function that appends an operator behind a layer and before another, whose gradients need its own."""

    def mark(make):
        def whole(opset):
            g = Maker(opset, *shape)
            if len(shape) == 1:
                x = g.gemm(g.x, shape[0], 8)
            elif len(shape) == 2:
                x = g.linear(g.x, shape[-1], 8)
            else:
                x = g.conv(g.x, shape[0], 8, 3, pads=[1, 1, 1, 1])
            return g.model(make(g, x))

        for opset in (11, 13, 18, 21):
            if opset >= getattr(make, "since", 11):
                CORPUS[f"{name}-{opset}"] = lambda opset=opset: whole(opset)
        return make

    return mark
