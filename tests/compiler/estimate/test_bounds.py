"""Bounds of small lists by hand: an array of 64 by 32, tiles of 64 by 64, beats of 32 bytes.

A record of r rows and f features has a beat in front, and for each row those that its features fill: 32 codes of 8
bits, or 16 of 16 bits, and eight words. The element engine takes 8 codes a cycle; STORE makes 16, of products a beat.
"""

from types import SimpleNamespace

import pytest

from gradloom.compiler.estimate.bounds import UNITS, Bound, step_bounds, summed
from gradloom.graph.operations import Activation, Add, Attention, Concat, Linear, Norm, Upsample
from gradloom.preset import PRESETS
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.sim.time.norm import norm_cycles

from ..nets import conv, tensor

CONFIG = PRESETS["cdm-qta-kv260"].config
#: Cycles of a command of the element engine besides those of its beats.
ELEMENT = 4 + 29


def bounds_of(operations, batch=1, known=(), **config):
    """A row of units' cycles for each layer and way, in their order; ``config``: what is not the preset's."""
    given = SimpleNamespace(**{"machine": CONFIG.machine, **vars(CONFIG), **config})
    found = step_bounds(operations, given, batch, known=known)
    made = {(each.layer, each.way): tuple(getattr(each, unit) for unit in UNITS) for each in found}
    assert len(made) == len(found)
    return made


def norm(opcode, *, rows, features, tiles=1, by_row=True):
    """Cycles of a command of the norm engine with so many of each."""
    return norm_cycles(opcode, {"rows": rows - 1, "features": features - 1, "tiles": tiles - 1}, by_row, 16)


def linear(x, name, features, **more):
    return Linear((x,), tensor(name, *x.sides, features), name, **more)


def test_a_linear_layer_with_an_adapter():
    """200 rows are 3 tiles and 8 rows of a fourth, 70 features a tile and 6, 130 features two tiles and 2."""
    found = bounds_of([linear(tensor("x", 10, 10, 70), "y", 130, rank=8)], 2)
    assert list(found) == [("y", "forward"), ("loss", "backward"), ("y", "backward"), ("y", "update")]
    x, hidden = 8 + 200 * (2 + 1), 4 + 200 * 1
    a, b, weights = 2 + 8 * (2 + 1), 3 + 130 * 1, 6 + 70 * (2 + 2 + 1)
    wide, narrow = 12 + 200 * (4 + 4 + 1), 12 + 200 * (2 + 2 + 1)
    # Four blocks of 64 rows through all tiles of 64 by 32, and the bias with every row through all columns.
    array = 256 * (2 * 5 + 2 * 1 + 1 * 5) + 200 * 5
    assert found["y", "forward"] == (array, 0, 0, x + a + hidden + b + weights, hidden + wide)
    # Of 12 tiles of a result in 8 slots nothing stays; two commands, error and gradient, of 17 beats of codes a row.
    element = 2 * (200 * 17 + 12 * ELEMENT)
    assert found["loss", "backward"] == (0, element, 0, 3 * wide, 2 * wide)
    # B is there since the forward pass. 70 rows of dA are two blocks, as are 130 of dB with a block of 2.
    array = 256 * 3 + 128 * 4 + 192 * 4
    gradients = 2 + 8 * (4 + 1), 3 + 130 * 1
    assert found["y", "backward"] == (array, 0, 0, narrow + 2 * hidden, hidden + sum(gradients))
    # A has 9 beats of words a row, B one.
    words = 8 * 9 + 130 * 1
    assert found["y", "update"] == (
        0,
        words + (2 + 3) * ELEMENT,
        0,
        sum(gradients) + 4 * words,
        3 * words + sum(gradients),
    )


def test_a_second_layer_wants_the_gradient_of_what_it_reads():
    """Weights that the forward pass left in a slot are not read again; without a bias no row streams for one."""
    x = tensor("x", 64, 64)
    first = linear(x, "first", 64, rank=8, bias=False)
    found = bounds_of([first, linear(first.o, "second", 64, rank=8, bias=False)])
    square, thin = 1 + 64 * 2, 1 + 64
    factor_a, factor_b = 1 + 8 * 2, 1 + 64
    # W, A and B with 64 rows of stream each: W and B have two passes of 32 columns.
    assert found["second", "forward"][0] == 64 * (2 + 1 + 2)
    assert found["second", "forward"][3] == square + factor_a + thin + factor_b + square
    # dX, P, PA, dA and dB.
    assert found["second", "backward"][0] == 64 * (2 + 1 + 2 + 1 + 1)
    # The gradient as a stream, h and back as what is kept, back as a stream; x, A, B and W have slots.
    assert found["second", "backward"][3] == square + 3 * thin
    assert found["second", "backward"][4] == thin + (1 + 8 * 4) + (1 + 64) + square
    assert found["first", "backward"][0] == 64 * (1 + 1 + 1)


@pytest.mark.parametrize(
    ("shape", "slots", "reads"),
    [
        # 4 rows of 2 tiles, 6 tiles of weights: by columns 3 times x, by rows of tiles twice the weights.
        ((200, 70, 130), (4, 4), (1, 2)),
        # Of 3 slots a row of 2 tiles has one, so four blocks; x 3 times reads less than the weights 4 times.
        ((200, 70, 130), (3, 4), (1, 4)),
        ((200, 200, 65), (4, 4), (2, 1)),
        # No row of tiles has slots.
        ((200, 300, 130), (4, 4), (3, 1)),
        # All weights have slots, whatever x has.
        ((200, 70, 130), (4, 6), (1, 1)),
        ((200, 70, 130), (1, 6), (1, 1)),
        # All of x has slots.
        ((200, 70, 130), (8, 4), (1, 1)),
    ],
)
def test_the_order_that_reads_least(shape, slots, reads):
    rows, inside, outside = shape
    found = bounds_of([linear(tensor("x", rows, inside), "y", outside)], x_slots=slots[0], w_slots=slots[1])

    def record(rows, features):
        whole, rest = divmod(features, 64)
        return -(-rows // 64) * -(-features // 64) + rows * (2 * whole + -(-rest // 32))

    x, weights = record(rows, inside), record(inside, outside)
    assert found["y", "forward"][3] == x * reads[0] + weights * reads[1]


def test_slots_keep_what_was_used_last():
    """Three tensors take turns in two slots; one that does not fit clears them."""
    a, b, c, d = (tensor(name, 64, 64) for name in "abcd")
    sums = [Add(pair, tensor(f"sum{n}", 64, 64)) for n, pair in enumerate([(a, b), (b, a), (c, b), (c, a), (b, b)])]
    large = tensor("large", 192, 64)
    more = [Activation((large,), tensor("raised", 192, 64), "silu"), Add((b, d), tensor("last", 64, 64))]
    found = bounds_of([*sums, *more], element_slots=2)
    tile = 1 + 64 * 4
    reads = [found[f"sum{n}", "forward"][3] // tile for n in range(5)]
    # c takes the place of b, and b that of a; c, which was there, stays for a; then b takes its place.
    assert reads == [2, 0, 2, 1, 1] and all(found[f"sum{n}", "forward"][3] % tile == 0 for n in range(5))
    assert found["raised", "forward"][3] == 3 + 192 * 4
    assert found["last", "forward"][3] == 2 * tile
    assert found["raised", "forward"][1] == 192 * 8 + 3 * ELEMENT


@pytest.mark.parametrize("side", [4, 8, 16, 24, 32, 64])
@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("size", ["same", "down", "up"])
def test_convolutions_read_tiles_with_the_rows_around(side, way, size):
    """Of an input without slots: every tile that has pixels of a row that a tile of the result needs."""
    other = {"same": side, "down": 2 * side, "up": side // 2}[size]
    ops = [linear(tensor("x", other, other, 16), "seen", 16, rank=8)]
    if size == "up":
        ops.append(Upsample((ops[0].o,), tensor("risen", side, side, 16), "nearest", "asymmetric"))
    ops.append(conv(ops[-1].o, "y", 16, 3, stride=2 if size == "down" else 1, pads=1))
    assert ops[-1].o.sides == (side, side)
    found = bounds_of(ops, x_slots=0)
    if way == "backward":
        # Gradients of pixels that upsampling wrote come first, and are added by themselves.
        side, other = (side, side) if size == "up" else (other, side)
    total = 0
    for tile in range(-(-side * side // 64)):
        rows = {pixel // side for pixel in range(64 * tile, min(64 * tile + 64, side * side))}
        # One row above and one below, in pixels of what is read; two below where that is the finer image.
        low, high = (min(rows) - 1) * other // side, -(-(max(rows) + 1) * other // side) + (other > side)
        read = [row for row in range(low, high + 1) if 0 <= row < other]
        total += len({(row * other + place) // 64 for row in read for place in range(other)})
    tiles = -(-other * other // 64)
    # Of the turned weights the codes are there since the forward pass.
    weights = 9 * (1 + 16) if way == "forward" else 0
    assert found["y", way][3] == round((tiles + other * other) * total / tiles) + weights


def test_norms_of_rows_and_of_images():
    """Statistics, then results; of a gradient both twice. A group has 64 rows or features at most."""
    rows, image = tensor("rows", 64, 137), tensor("image", 10, 10, 137)
    of_rows = Norm((rows,), tensor("a", 64, 137), "of_rows", eps=1e-5)
    # The last row of tiles counts as a whole one.
    more = Norm((tensor("more", 70, 137),), tensor("b", 70, 137), "more", eps=1e-5)
    of_image = Norm((image,), tensor("c", 10, 10, 137), "of_image", eps=1e-5, over_rows=True, groups=10)
    few = Norm((tensor("few", 5, 7),), tensor("d", 5, 7), "few", eps=1e-5)
    found = bounds_of([of_rows, more, of_image, few], 2, norm_slots=1)
    wide = 4 + 4 + 1
    sums = norm(NormOpcode.SUMS, rows=64, features=64, tiles=3)
    made = norm(NormOpcode.NORM, rows=64, features=64, tiles=3)
    assert found["a", "forward"] == (0, 0, 2 * sums + 2 * 3 * made, 6 + 128 * wide, 0)
    assert found["b", "forward"] == (0, 0, 3 * sums + 3 * 3 * made, 9 + 140 * wide, 0)
    # Of two samples three columns of two tiles each.
    sums = norm(NormOpcode.SUMS, rows=64, features=64, tiles=2, by_row=False)
    made = norm(NormOpcode.NORM, rows=64, features=64, tiles=2, by_row=False)
    assert found["c", "forward"] == (0, 0, 2 * 3 * (sums + 2 * made), 12 + 200 * wide, 0)
    both = [norm(opcode, rows=10, features=7) for opcode in (NormOpcode.SUMS, NormOpcode.NORM)]
    assert found["d", "forward"][2:4] == (sum(both), 1 + 10 * 1)


def test_a_norms_gradient_reads_both_and_gathers_twice():
    x = tensor("x", 64, 64)
    low = linear(x, "low", 64, rank=8)
    found = bounds_of([low, Norm((low.o,), tensor("y", 64, 64), "norm", eps=1e-5)])
    opcodes = (NormOpcode.SUMS, NormOpcode.BACK_SUMS, NormOpcode.BACK)
    cycles = sum(norm(opcode, rows=64, features=64) for opcode in opcodes)
    # What was normed has a slot; its gradient is read by products, 8 bits wide.
    assert found["y", "backward"] == (0, 0, cycles, 1 + 64 * 4, 1 + 64 * 4)


def attention(heads, features, *, queries=100, keys=77, ranks=(0, 0, 0)):
    """Linear layers q, k, v of ranks, and their attention."""
    x, text = tensor("x", queries, 64), tensor("text", keys, 64)
    layers = [linear(t, name, features, rank=r) for t, name, r in zip((x, text, text), "qkv", ranks)]
    return [*layers, Attention(tuple(e.o for e in layers), tensor("mixed", queries, features), heads, 0.5)]


def record(rows, features, codes):
    """Beats of all records of a matrix, ``codes`` of a beat."""
    whole, rest = divmod(features, 64)
    return -(-rows // 64) * -(-features // 64) + rows * (64 // codes * whole + -(-rest // codes))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_goes_through_the_norm_engine_head_by_head(heads):
    """100 queries are a tile and 36 rows; of keys a row of scores has two tiles."""
    found = bounds_of(attention(heads, 96), norm_slots=2, x_slots=1, w_slots=2)
    array = heads * (64 + 64) * (-(-96 // heads // 64) * 3 + 2 * -(-96 // heads // 32))
    opcodes = (NormOpcode.LARGEST, NormOpcode.POWERS, NormOpcode.SHARES)
    soft = heads * sum(norm(each, rows=r, features=keys) for each in opcodes for r in (64, 36) for keys in (64, 13))
    q, k, scores = record(100, 96, 32), record(77, 96, 32), heads * record(100, 77, 16)
    # A tile of q is read for both columns of scores. One of P is read for each column of tiles that its head has a
    # part of: of 2 heads of 48 features the second is in two, of 4 heads of 24 the third.
    p = heads * record(100, 77, 32)
    read = 2 * q + k + scores + round({1: 2, 2: 1.5, 4: 1.25}[heads] * p) + k
    assert found["mixed", "forward"] == (array, 0, soft, read, 2 * scores + record(100, 96, 16))


@pytest.mark.parametrize("wanted", [(0, 0, 2), (2, 0, 0), (0, 2, 0), (2, 2, 2)])
def test_attentions_gradients(wanted):
    """P and dY there; the scores' gradient where q's or k's is wanted, then one product each."""
    ops = attention(2, 64, queries=64, keys=64, ranks=wanted)
    found = bounds_of(ops, element_slots=1, norm_slots=1, x_slots=64, w_slots=64)["mixed", "backward"]
    tile, wide = 1 + 64 * 2, 1 + 64 * 4
    q, k, v = wanted
    scores = bool(q or k)
    # A pass is 64 rows of one head; a head is 32 of a tile's features wide, and scores 64.
    passes = 2 * ((2 if scores else 0) + bool(q) + bool(k) + bool(v))
    soft = 2 * norm(NormOpcode.SOFTMAX_BACK, rows=64, features=64) if scores else 0
    # dY streams for dP and is kept for dV; P streams since the mix, for dV from its slot. The norm engine has two
    # tiles of P and of dP each at 16 bits, and the array those of dS at 8.
    read = (tile + 2 * 2 * wide + 2 * tile if scores else 0) + (tile if v else 0)
    # k streamed to no product: it is kept as before, and q, which streamed, is kept now.
    read += tile if k else 0
    write = (2 * wide + 2 * wide if scores else 0) + sum(tile for each in wanted if each)
    assert found == (64 * passes, 0, soft, read, write)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_gradients_of_wide_rows_are_pulled_by_results(heads):
    """77 keys are two tiles: shares of 8 bits, and results of each head, which may lie in two tiles."""
    ops = attention(heads, 96, ranks=(2, 0, 0))
    found = bounds_of(ops, element_slots=1, norm_slots=0, x_slots=64, w_slots=64)["mixed", "backward"]
    # First and last features of a head in each tile that it lies in.
    parts = {1: [64, 32], 2: [48, 64, 32], 4: [24, 48, 64, 8, 32]}[heads]
    pulls = sum(norm(NormOpcode.PULLS, rows=r, features=last) for r in (64, 36) for last in parts)
    made = heads * sum(norm(NormOpcode.SOFT_BACK, rows=r, features=keys) for r in (64, 36) for keys in (64, 13))
    assert found[2] == pulls + made
    p, dp, y = heads * record(100, 77, 32), heads * record(100, 77, 16), record(100, 96, 16)
    # dY streams for dP; the array has dS from memory; k was kept for the scores, and is now.
    products = record(100, 96, 32) + p
    assert found[3] == p + dp + round(2 * y * len(parts) / 2) + products


def test_what_is_no_product_is_a_pass_of_elements():
    """Sums, activations, and four steps for a pixel that upsampling wrote four times.

    Whole tiles side by side are what they were apart.
    """
    x = tensor("x", 8, 8, 64)
    low = linear(x, "low", 64, rank=8)
    raised = Activation((low.o,), tensor("raised", 8, 8, 64), "silu")
    both = Concat((low.o, raised.o), tensor("both", 8, 8, 128), 2)
    large = Upsample((both.o,), tensor("large", 16, 16, 128), "nearest", "asymmetric")
    ops = [low, raised, both, large, conv(large.o, "y", 64, 3, pads=1)]
    found = bounds_of(ops, element_slots=1)
    tile = 1 + 64 * 4
    one = 64 * 8 + ELEMENT
    assert found["raised", "forward"] == (0, one, 0, tile, tile)
    # Upsampling is what addresses the convolution reads by.
    assert not {("large", "forward"), ("both", "forward")}.intersection(found)
    assert found["large", "backward"] == (0, 2 * (4 * 64 * 8 + ELEMENT), 0, 8 * tile, 2 * tile)
    assert found["both", "backward"] == (0, 0, 0, 0, 0)
    # Its own, and the sum with that of the concatenation, which the product reads at 8 bits.
    assert found["raised", "backward"] == (0, 2 * one, 0, 4 * tile, 2 * tile)


def test_parts_of_tiles_side_by_side_are_a_pass_of_elements():
    """40 features and 24 are a tile, of which each part of the gradient is read, as 16 bits by a sum."""
    x = tensor("x", 8, 8, 64)
    low, other = linear(x, "low", 40, rank=8), linear(x, "other", 24, rank=8)
    raised = Activation((other.o,), tensor("raised", 8, 8, 24), "silu")
    both = Concat((low.o, raised.o), tensor("both", 8, 8, 64), 2)
    found = bounds_of([low, other, raised, both, linear(both.o, "y", 64)], element_slots=1)
    # The activation was written, and not read; what it reads took the only slot.
    read = (1 + 64 * 3) + (1 + 64 * 2)
    assert found["both", "forward"] == (0, 64 * 8 + ELEMENT, 0, read, 1 + 64 * 4)
    # Of 40 features codes of 8 bits take two beats a row, of 24 those of 16.
    parts = 64 * 5 + ELEMENT + 64 * 3 + ELEMENT
    assert found["both", "backward"] == (0, parts, 0, 1 + 64 * 4, (1 + 64 * 3) + (1 + 64 * 2))


@pytest.mark.parametrize("features", [64, 31 * 64])
def test_products_that_are_one_sum_are_written_once(features):
    """As long as slots hold what a tile of the sum takes: else a pass of elements adds them."""
    x = tensor("x", 64, 64)
    first = linear(x, "first", 64, rank=8)
    parts = [linear(first.o, name, features) for name in "ab"]
    total = Add((parts[0].o, parts[1].o), tensor("total", 64, features))
    found = bounds_of([first, *parts, total])
    wide = 1 + 64 * 4
    many = features > 64
    assert found["b", "backward"][-1] == (wide if many else 1 + 64 * 2)
    assert found["a", "backward"][1] == (64 * 8 + ELEMENT if many else 0)
    assert found["a", "backward"][-1] == (2 * wide if many else 0)


def test_biases_stream_as_rows_and_convolutions_have_them_too():
    x = tensor("x", 8, 8, 64)
    for bias in (False, True):
        found = bounds_of([conv(x, "y", 40, 3, pads=1, bias=bias)], 3)
        assert found["y", "forward"][0] == 3 * 64 * 2 * 9 + (3 * 64 * 2 if bias else 0)


def test_a_known_inputs_products_are_read_by_the_element_engine():
    """No weights; at 16 bits what the adapter is added to, in its place among what is written once."""
    text = tensor("text", 64, 64)
    ops = [linear(text, "v", 64, bias=False), linear(text, "k", 64, rank=8, bias=False)]
    whole, known = bounds_of(ops), bounds_of(ops, known={"text"})
    tile, wide, thin, factors = 1 + 64 * 2, 1 + 64 * 4, 1 + 64, (1 + 8 * 2) + (1 + 64)
    assert whole["v", "forward"] == (64 * 2, 0, 0, 2 * tile, 0) and known["v", "forward"] == (0, 0, 0, wide, 0)
    # The result is read at 16 bits by the error; ``hidden`` is written and read.
    assert whole["k", "forward"] == (64 * (2 + 1 + 2), 0, 0, factors + thin + tile, thin + wide)
    assert known["k", "forward"] == (64 * (1 + 2), 0, 0, tile + factors + thin + wide, thin + wide)


def test_the_array_may_be_another():
    x = tensor("x", 64, 128)
    ops = [linear(x, "y", 64, bias=False)]
    sizes = {(64, 32): 64 * 2 * 2, (64, 64): 64 * 2, (16, 32): 64 * 8 * 2, (128, 64): 128}
    for array, cycles in sizes.items():
        assert step_bounds(ops, CONFIG, array=array)[0].array == cycles


def test_a_bound_is_the_most_of_its_units_and_bounds_count_one_after_another():
    for number, unit in enumerate(UNITS):
        each = Bound("x", "forward", **{name: 5 for name in UNITS} | {unit: 7 + number})
        assert each.cycles == 7 + number
    bounds = [Bound("x", "forward", 1, 2, 3, 4, 5), Bound("x", "backward", 60, 20, 30, 40, 50)]
    assert summed(iter(bounds)) == {"array": 61, "element": 22, "norm": 33, "read": 44, "write": 55, "cycles": 65}
    assert Bound("x", "forward").cycles == 0
