"""Convolutions by address: of any sides, strides, dilation and padding, forward and back."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gradloom.rtl.engines.product.spec import SPEC
from gradloom.rtl.formats.tiles.pixels import Pixels, taps
from gradloom.rtl.formats.tiles.product import SIDE, SOURCE, ProductOpcode
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import BenchCommand, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference.product import gathered
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.forecast import MODELS
from gradloom.sim.time.product import ProductTime

from ...deep import deep
from ..forwarding import CONFIG
from .machine import ProductConfig
from .play import Play, Stepped, convolved

SMALL = ProductConfig(array_rows=16, array_columns=16, x_slots=8, w_slots=8)


class Shape:
    """A convolution of ``count`` images with one channel."""

    def __init__(self, count, sides, kernel, stride, dilation, pads):
        self.count, self.sides, self.kernel, self.stride, self.dilation = count, sides, kernel, stride, dilation
        self.pads = pads
        self.result = tuple(
            (side + sum(pad) - by * (size - 1) - 1) // step + 1
            for side, pad, by, size, step in zip(sides, pads, dilation, kernel, stride)
        )

    def __repr__(self):
        return f"Shape{self.count, self.sides, self.kernel, self.stride, self.dilation, self.pads}"

    def pixels(self, back):
        if back:
            return Pixels(self.count, self.sides, self.result, self.stride, divide=True, every=True)
        return Pixels(self.count, self.result, self.sides, self.stride)

    def taps(self, back):
        return taps(self.kernel, [pad[0] for pad in self.pads], self.dilation, back=back)

    def windows(self):
        """Slices of the padded image that the kernel's elements meet."""
        for at in np.ndindex(self.kernel):
            yield (
                slice(None),
                *(
                    slice(n * by, n * by + (count - 1) * step + 1, step)
                    for n, by, count, step in zip(at, self.dilation, self.result, self.stride)
                ),
            )

    def forward(self, x, w):
        padded = np.pad(x, ((0, 0), *self.pads))
        return sum(padded[window] * weight for window, weight in zip(self.windows(), w.flat))

    def back(self, dy, w):
        padded = np.zeros((self.count, *(side + sum(pad) for side, pad in zip(self.sides, self.pads))), np.int64)
        for window, weight in zip(self.windows(), w.flat):
            padded[window] += dy * weight
        inner = (slice(pad[0], pad[0] + side) for pad, side in zip(self.pads, self.sides))
        return padded[(slice(None), *inner)]


@st.composite
def shapes(draw):
    """Images and sequences: sides to 40, kernels to 7, strides to 3, dilation to 3, pads to either side."""
    flat = draw(st.booleans())
    made = []
    for side in range(2):
        size, by = (1, 1) if flat and not side else (draw(st.integers(1, 7)), draw(st.integers(1, 3)))
        pads = (0, 0) if flat and not side else tuple(draw(st.integers(0, by * (size - 1))) for _ in range(2))
        made.append((1 if flat and not side else draw(st.integers(1, 40)), size, draw(st.integers(1, 3)), by, pads))
    shape = Shape(draw(st.integers(1, 3)), *zip(*made))
    assume(min(shape.result) >= 1)
    return shape


@settings(deadline=None, max_examples=60)
@given(shapes(), st.booleans(), st.integers(0, 99))
def test_rows_of_any_convolution_are_numpys(shape, back, seed):
    """Sums over the rows that are read are the convolution, or its gradient; the engine's counters find each row."""
    random, pixels = np.random.default_rng(seed), shape.pixels(back)
    read, w = random.integers(-9, 10, (shape.count, *pixels.source)), random.integers(-9, 10, shape.kernel)
    wanted = (shape.back if back else shape.forward)(read, w)
    rows = np.stack([pixels.rows(*place) for place in shape.taps(back)])
    made = np.where(rows < 0, 0, read.reshape(-1)[rows])
    assert (np.tensordot(w.reshape(-1), made, 1) == wanted.reshape(-1)).all()
    for place, sources in zip(shape.taps(back), rows):
        for first in range(0, len(sources), 64):
            own = sources[first : first + 64]
            low = (
                int(own.max(initial=0, where=own >= 0)) // 64
                if not (own >= 0).any()
                else int(own[own >= 0].min()) // 64
            )
            operands = pixels.place(first, *place, low) | {"rows": len(own) - 1, "x_pitch": 1, "reach": 127}
            slots, lines, inside = gathered(operands, pixels.shape, 0)
            np.testing.assert_array_equal(np.where(inside, 64 * (low + slots) + lines, -1), own)


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"result": (0, 4)}, "result=0x4: must be 1 to 1024"),
        ({"source": (4, 1025)}, "source=4x1025: must be 1 to 1024"),
        ({"stride": (5, 1)}, "stride=5x1: must be 1 to 4"),
        ({"every": True}, "every=True: needs places that are divided"),
        ({"source": (1000, 1), "stride": (3, 1), "divide": True}, "must be 2048 places at most"),
    ],
)
def test_images_that_have_no_address_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Pixels(**{"count": 1, "result": (4, 4), "source": (4, 4)} | wrong)


def test_a_place_that_is_too_far_is_refused():
    with pytest.raises(ValueError, match="dx=64: must be -64 to 63"):
        Pixels(1, (4, 4), (4, 4)).place(0, 0, 64, 0)


#: Tiles of images whose sides are no powers of two: the result's first row, rows, and the convolution.
TILES = [
    (64, 64, False, Shape(3, (49, 10), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 0)))),
    (128, 40, True, Shape(2, (9, 21), (5, 4), (3, 2), (1, 2), ((2, 0), (3, 1)))),
    (0, 64, True, Shape(5, (7, 7), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))),
    (70, 33, False, Shape(1, (1, 1024), (1, 7), (1, 1), (1, 9), ((0, 0), (54, 0)))),
    (960, 64, True, Shape(1, (1, 1024), (1, 2), (1, 2), (1, 1), ((0, 0), (0, 0)))),
    (15, 20, False, Shape(30, (3, 3), (2, 2), (1, 1), (1, 1), ((0, 0), (0, 1)))),
]


def tiled(play, number):
    row, rows, back, shape = TILES[number]
    pads = [pad[0] for pad in shape.pads]
    given = shape.kernel, pads, shape.dilation
    convolved(play, shape.pixels(back), row, *given, back=int(back), count=5, rows=rows)


def wild(play):
    """Operands that no convolution has, with which the counters do what the reference's do."""
    random = play.random
    play.load("w", 0).load("x", 0, count=8).fence()
    few = {"width": 9, "height": 5, "same": 30, "below": 90, "image": 200, "end_x": 20, "end_y": 12}
    for o in range(4):
        while True:
            shape = {name: int(random.integers(most + 1)) for name, most in few.items()}
            shape |= {name: int(random.integers(4)) for name in ("stride_x", "stride_y", "rest_x", "rest_y")}
            shape |= {"divide": int(random.integers(2))}
            shape |= {"every": int(random.integers(2)) & shape["divide"]}
            place = {name: int(random.integers(-9, 10)) for name in ("dx", "dy")}
            place |= {"column": int(random.integers(shape["width"] + 1)), "source": int(random.integers(1 << SOURCE))}
            place |= {"line": int(random.integers(shape["height"] + 1)), "reach": 7, "x_pitch": 1, "rows": 63}
            try:
                slots, _, inside = gathered(place, shape, 0)
            except ValueError:
                continue
            if inside.sum() > 20 and len(set(slots)) > 2:
                break
        play.run(SCAN, fresh=1, gather=1, o=o, **place, **shape)
        play.run(PRODUCT, start=1, last=1, gather=1, o=o, **place)
    for o in range(4):
        play.store(o)


SCAN, PRODUCT = ProductOpcode.SCAN, ProductOpcode.PRODUCT


def test_tiles_and_cycles_are_those_of_the_reference(monkeypatch):
    monkeypatch.setitem(MODELS, "product", ProductTime)
    plays = []
    for number in range(len(TILES) + 2):
        play = Play(number)
        if number < len(TILES):
            tiled(play, number)
        else:
            wild(play)
        plays.append(play.end() or play)
    with MachineRunner.simulated(CONFIG, timing={"read_latency": 20}) as machine:
        for play in plays:
            ran = machine.run(play)
            for place, content in play.expected:
                assert machine.read(place.offset, place.length) == content, plays.index(play)
            ran.check(saturated=play.model.saturated, underflowed=play.model.underflowed)


def few(play):
    """A gradient in two elements of its kernel, of some rows that end an image."""
    pixels = Pixels(2, (3, 8), (1, 3), (3, 3), True, True)
    convolved(play, pixels, 15, (1, 2), (0, 0), back=1, count=1, rows=12)


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, SMALL)


@pytest.mark.parametrize("pressure", pressures(300)[2:], ids=str)
def test_gathered_rows_are_the_same_under_stalls(bench, pressure):
    play = Stepped(few, SMALL)
    bench.check(*play.steps, words={"o": play.words}, **pressure)


@pytest.mark.parametrize("name", [pytest.param("carried", marks=deep), pytest.param("unturned", marks=deep), "unheld"])
def test_a_wrong_address_is_found(monkeypatch, name):
    from gradloom.rtl.engines.product import feeds, front, places

    module, unit = (front, "ShapeOfImages") if name == "carried" else (feeds, "Places")
    monkeypatch.setattr(module, unit, mutant(getattr(places, unit), name))
    bench = EngineBench(SPEC, SMALL)
    if name == "unheld":
        beyond = {"gather": 1, "source": 64, "k_to": 63, "fresh": 1, "start": 1, "last": 1}
        assert not bench.run(BenchCommand(PRODUCT, beyond)).codes
        return
    play = Stepped(few, SMALL)
    with pytest.raises(AssertionError, match="words differ"):
        bench.check(*play.steps, words={"o": play.words})


@pytest.mark.parametrize("wrong", [{"source": 64}, {"source": (1 << SOURCE) - 1}, {"column": 1}, {"line": 1}], ids=str)
def test_rows_that_are_not_held_are_an_error(bench, wrong):
    operands = {"gather": 1, "k_to": 63, "fresh": 1, "start": 1, "last": 1}
    run = bench.run(BenchCommand(PRODUCT, operands | wrong))
    assert run.codes == [Error.BAD_OPERAND] and not run.done


def test_zeros_between_places_that_are_not_divided_are_an_error(bench):
    scan = {"gather": 1, "fresh": 1, "width": (1 << SIDE) - 1}
    assert bench.run(BenchCommand(SCAN, scan | {"every": 1})).codes == [Error.BAD_OPERAND]
    assert not bench.run(BenchCommand(SCAN, scan | {"every": 1, "divide": 1})).codes
