"""Graphs of 2 to 12 operations at random: equal to onnxruntime, their gradients to slopes."""

import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import network_of

from .made import Maker, agreement

DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
FUNCTIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "LeakyRelu", "Softplus")
SIDES = st.sampled_from((3, 4, 5, 7, 8))


def _window(draw, sides):
    kernel = [draw(st.integers(1, min(3, side))) for side in sides]
    given = {"strides": [draw(st.integers(1, 2)) for _ in sides]}
    # A pool's pads are smaller than its window.
    given["pads"] = [draw(st.integers(0, k - 1)) for k in kernel] + [draw(st.integers(0, k - 1)) for k in kernel]
    return kernel, given


def _after(sides, kernel, given):
    n = len(sides)
    return tuple(
        (side + given["pads"][at] + given["pads"][at + n] - kernel[at]) // given["strides"][at] + 1
        for at, side in enumerate(sides)
    )


class Image:
    """A value ``[samples, channels, *sides]`` that grows a network."""

    def __init__(self, g, x, channels, sides):
        self.g, self.x, self.c, self.sides = g, x, channels, sides

    def conv(self, draw):
        kernel, given = _window(draw, self.sides)
        divisors = [n for n in (1, 2, self.c) if self.c % n == 0]
        group = draw(st.sampled_from(divisors))
        o = group * draw(st.integers(1, 3))
        self.x = self.g.conv(self.x, self.c, o, kernel, sides=len(self.sides), group=group, **given)
        self.c, self.sides = o, _after(self.sides, kernel, given)

    def pool(self, draw):
        kernel, given = _window(draw, self.sides)
        kind = draw(st.sampled_from(("MaxPool", "AveragePool")))
        self.x = self.g(kind, self.x, kernel_shape=kernel, **given)
        self.sides = _after(self.sides, kernel, given)

    def function(self, draw):
        self.x = self.g(draw(st.sampled_from(FUNCTIONS)), self.x)

    def norm(self, draw):
        if draw(st.booleans()):
            self.x = self.g.batch_norm(self.x, self.c)
        else:
            self.x = self.g("InstanceNormalization", self.x, self.g.near(self.c), self.g.w(self.c), epsilon=0.1)

    def residual(self, draw):
        other = self.g.conv(self.x, self.c, self.c, 1, sides=len(self.sides))
        self.x = self.g(draw(st.sampled_from(("Add", "Mul", "Sub"))), other, self.x)

    def gate(self, draw):
        pooled = self.g(draw(st.sampled_from(("GlobalAveragePool", "GlobalMaxPool"))), self.x)
        self.x = self.g("Mul", self.x, self.g("Sigmoid", self.g.conv(pooled, self.c, self.c, 1, sides=len(self.sides))))

    def concat(self, draw):
        axis = draw(st.integers(1, 1 + len(self.sides)))
        self.x = self.g("Concat", self.x, self.g("Tanh", self.x), axis=axis)
        shape = [self.c, *self.sides]
        shape[axis - 1] *= 2
        self.c, self.sides = shape[0], tuple(shape[1:])

    def cut(self, draw):
        axis = draw(st.integers(1, 1 + len(self.sides)))
        shape = [self.c, *self.sides]
        first = draw(st.integers(0, shape[axis - 1] - 1))
        step = draw(st.integers(1, 2))
        self.x = self.g("Slice", self.x, *(self.g.integers(n) for n in (first, 99, axis, step)))
        shape[axis - 1] = len(range(first, shape[axis - 1], step))
        self.c, self.sides = shape[0], tuple(shape[1:])

    def turn(self, draw):
        """Other axes, as a file's Transpose may leave them for good."""
        order = draw(st.permutations(range(1, 2 + len(self.sides))))
        self.x = self.g("Transpose", self.x, perm=[0, *order])
        shape = [self.c, *self.sides]
        self.c, *sides = (shape[n - 1] for n in order)
        self.sides = tuple(sides)

    def fold(self, draw):
        """Sides into channels, or one axis of two."""
        if len(self.sides) == 2 and draw(st.booleans()):
            self.x = self.g.shape(self.x, -1, self.c, self.sides[0] * self.sides[1])
            self.sides = (self.sides[0] * self.sides[1],)
        elif len(self.sides) == 2:
            self.x = self.g.shape(self.x, -1, self.c * self.sides[0], self.sides[1])
            self.c, self.sides = self.c * self.sides[0], self.sides[1:]
        elif self.c % 2 == 0:
            self.x = self.g.shape(self.x, -1, self.c // 2, 2, *self.sides)
            self.c, self.sides = self.c // 2, (2, *self.sides)

    def attend(self, draw):
        if len(self.sides) == 1 and self.sides[0] % 2 == 0 and self.sides[0] <= 32:
            self.x = self.g.attention(self.x, self.c, self.sides[0], 2)
            self.x = self.g.layer_norm(self.x, self.sides[0])

    def table(self, draw):
        shape = [draw(st.sampled_from((1, n))) for n in (self.c, *self.sides)]
        self.x = self.g(draw(st.sampled_from(("Add", "Mul"))), self.x, self.g.near(*shape))

    steps = ("conv", "pool", "function", "norm", "residual", "gate", "concat", "cut", "turn", "fold", "attend", "table")


@st.composite
def models(draw):
    sides = tuple(draw(SIDES) for _ in range(draw(st.integers(1, 2))))
    c = draw(st.integers(1, 4))
    batch = draw(st.sampled_from(("batch", 1)))
    g = Maker(draw(st.sampled_from((11, 13, 17, 20))), c, *sides, batch=batch, seed=draw(st.integers(0, 99)))
    image = Image(g, g.x, c, sides)
    image.conv(draw)
    for _ in range(draw(st.integers(1, 11))):
        before = len(g.nodes), len(g.weights), image.x, image.c, image.sides
        getattr(image, draw(st.sampled_from(Image.steps)))(draw)
        if not 1 <= image.c * np.prod(image.sides) <= 600:
            del g.nodes[before[0] :], g.weights[before[1] :]
            image.x, image.c, image.sides = before[2:]
    return g.model(image.x)


@settings(
    max_examples=2000 if DEEP else 200, deadline=None, derandomize=not DEEP, suppress_health_check=list(HealthCheck)
)
@given(models())
def test_any_graph_computes_what_onnxruntime_does_and_has_its_gradients(model):
    network = network_of(model)
    reading = FloatReading(network)
    difference, feeds = agreement(model, network, reading)
    # onnxruntime computes in float32: over some forty nodes in a row its rounding has reached 2.01e-5.
    assert difference <= 1e-4
    if not reading.values:
        return
    random = np.random.default_rng(7)
    port = network.outputs[0]
    found = reading.forward(feeds)
    last = random.standard_normal(found[port.tensor.name].shape)
    gradients = reading.backward(found, {port.tensor.name: last}, set(reading.values))
    start = dict(reading.values)
    directions = {}
    for name, value in start.items():
        # A norm's gains are repeated where axes were folded: each number of the file moves as one. Apart, they would
        # part equal values of a window, whose maximum has a gradient of one of them.
        _, place = np.unique(value, return_inverse=True)
        directions[name] = random.standard_normal(place.max() + 1)[place].reshape(value.shape)
    slope = sum(float((gradients[name] * directions[name]).sum()) for name in gradients)

    def difference_of(step):
        sides = []
        for sign in (1, -1):
            reading.values = {name: value + sign * step * directions[name] for name, value in start.items()}
            sides.append(float((reading.forward(feeds)[port.tensor.name] * last).sum()))
        return (sides[0] - sides[1]) / (2 * step)

    # A step over a corner of ReLU or of a maximum differs; a smaller one does not reach it.
    size = max(1.0, abs(slope), np.abs(last).sum())
    assert min(abs(difference_of(step) - slope) for step in (1e-6, 1e-8, 1e-7)) <= 1e-5 * size
