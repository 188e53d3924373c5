"""The program of a LoRA step on models of the engines is the reference of tensors, word for word."""

import numpy as np
import pytest

from gradloom.compiler.integers.descent import IntegerDescent
from gradloom.compiler.integers.held import joined
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.program.progress import check_progress
from gradloom.rtl.formats.tiles.codes import WIDE, coded
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.records import TileRecord, record_of, tile_argument
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.reference.element import ElementModel
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.systems.diffusion.program.step import Stepper, lowered
from gradloom.systems.diffusion.small import SmallDiffusion, small_unet

from ...program.tiles.orders import ORDERS

CONFIG = DiffusionConfig()
#: Opcodes of the element engine that a UNet has no use for.
OTHERS = {getattr(ElementOpcode, name) for name in ("MASK", "MULTIPLY", "LARGER", "EQUAL", "TABLE")}


def same(stepper, tiles, values, name):
    wanted, made = coded(values, tiles.bits), stepper.codes(tiles)
    np.testing.assert_array_equal(made.exponents, wanted.exponents.reshape(made.exponents.shape), err_msg=name)
    np.testing.assert_array_equal(made.codes, wanted.codes.reshape(made.codes.shape), err_msg=name)


def steps(shapes, *, text, images, count=1, order=None, whole=True, config=CONFIG, **more):
    """Runs steps both ways; all memory that steps leave is compared."""
    small = SmallDiffusion.drawn(shapes, text=text, **more)
    step = lowered(config, small.network, small.learnt, images=images, lr=1e-3, whole=whole)
    check_progress(step.program.instructions, config.machine.engines, depth=16)
    rule = IntegerDescent({name: each.rule for name, each in step.learners.items()})
    exact, machine = IntegerNetwork(small.network, list(small.learnt)), TileMachine(config, step.program.length, order)
    stepper = Stepper(step, machine, small.learnt)
    learnt = {name: rule.begun(name, x) for name, x in small.learnt.items()}
    exact.values |= learnt
    for number in range(1, count + 1):
        data, noise = small.inputs(images, 10 + number)
        loss, after = stepper(data, noise)
        found = exact.forward(data)
        values = {each.name: each for each in step.values}
        for name, held in found.items():
            for tiles in values[name].places.values() if whole and name in values else ():
                same(stepper, tiles, held.exact, f"step {number}: {name}")
        wanted, last = exact.falling("values", found["conv_out"], noise)
        assert loss == wanted
        gradients = exact.backward(found, last)
        assert gradients.keys() == learnt.keys() == step.learners.keys()
        learnt = rule(learnt, gradients)
        for name, each in step.learners.items():
            same(stepper, each.gradient, gradients[name], name)
            np.testing.assert_array_equal(after[name], learnt[name], err_msg=name)
            same(stepper, each.codes, learnt[name], f"codes of {name}")
            moments = each.words.unpack_moments(machine.read(each.words.moments, 2 * each.words.size))
            for made, expected in zip(moments, rule.moments[name]):
                np.testing.assert_array_equal(made, expected & 0xFFFFFFFF)
            exact.renewed(name, learnt[name])
    counts = exact.take_counts()
    assert machine.underflowed == counts.zeroed and machine.saturated == counts.clipped + rule.clipped
    assert machine.models["product"].lost == counts.lost and count * step.stored == counts.stored
    return step, machine, counts, rule


def test_steps_of_all_operations_are_the_reference_word_for_word():
    """16 channels, attention over 64 rows; twice, commands in an order that the tokens allow."""
    step, machine, counts, rule = steps(small_unet(), text=16, images=1, count=2, order=ORDERS[0])
    assert machine.saturated == counts.clipped == rule.clipped == 0
    kinds = {(each.engine.name, each.opcode) for each in step.program.instructions}
    assert {opcode for name, opcode in kinds if name == "element"} == set(ElementOpcode) - OTHERS
    # Rows of scores are of one tile.
    assert {opcode for name, opcode in kinds if name == "norm"} == set(range(NormOpcode.LARGEST))
    assert {opcode for name, opcode in kinds if name == "product"} == {0, 1, 2}
    assert machine.underflowed > 0 == counts.lost


@pytest.mark.parametrize("order", ORDERS)
def test_records_that_are_only_forwarded(order):
    """Most records of 16 bits do not go to memory; what the host reads is the same."""
    step, *_ = steps(small_unet(), text=16, images=1, order=order, whole=False)
    stores = [each.operands for each in step.program.instructions if each.engine.name == "store"]
    only = [each for each in stores if each.get("only")]
    assert len(only) > len(stores) / 4 and any(record_of(each["arg"]).bits == WIDE for each in only)


def test_images_that_share_tiles_and_tensors_of_several_tiles():
    """Four images of 16 rows in a tile, 128 features and 64 channels a level; adapters of cross-attention."""
    shapes = small_unet(size=8, channels=(64, 64), attends=(True, True), text=64)
    steps(shapes, text=8, images=4, order=ORDERS[1], targets="cross-attention")


def test_images_of_four_pixels_and_small_ranks():
    """One head, tensors without a gradient, words beyond the features of a record."""
    shapes = small_unet(size=4, channels=(16, 16), attends=(True, True), text=8, heads=1, groups=4)
    steps(shapes, text=16, images=4, order=ORDERS[0], rank=2, targets="attention")


def test_images_that_do_not_fill_tiles():
    """Five images of 16 rows: a tile and a quarter of one."""
    shapes = small_unet(size=8, channels=(16, 16), attends=(False, True), text=8, heads=1, groups=4)
    steps(shapes, text=4, images=5, order=ORDERS[0], rank=2, targets="attention", whole=False)


def test_records_of_gradients_that_take_several_commands():
    shapes = small_unet(size=4, channels=(64, 64), text=64)
    step, *_ = steps(shapes, text=4, images=1, rank=32, targets="cross-attention", order=ORDERS[1])
    assert len(step.updates) > len(step.learners)


def test_columns_of_tiles_far_apart_are_rounded_as_the_engine_does():
    """JOIN puts codes under the larger exponent, with 8 bits more."""
    rng = np.random.default_rng(4)
    one, other = (coded(rng.standard_normal((64, 16)) * size, WIDE) for size in (1.0, 2.0**-12))
    model = ElementModel(CONFIG)
    record = TileRecord(64, 16, WIDE)
    for port, x in (("a", one), ("b", other)):
        model.load(port, tile_argument(0, 64, 16), record.pack(x.codes.astype(int), int(x.exponents[0, 0])))
    given = {"rows": 63, "features": 15, "a_beat": 1, "b_beat": 0, "split": 1, "fresh": 1}
    model.run(ElementOpcode.JOIN, given)
    made = coded(joined((one, slice(8, 16)), (other, slice(0, 8))), WIDE)
    codes, exponent = record.unpack(model.store("o", tile_argument(0, 64, 16, wide=True), record.beats))
    assert (codes == made.codes).all() and exponent == made.exponents[0, 0]
    assert (made.values[:, 8:] != other.values[:, :8]).any()


BAD = {
    "a tensor that fills a tile in part": (dict(channels=(16, 64)), {}, "groups of 10 features must be a power of two"),
    "sides that are no power of two": (dict(size=12), {}, "144 rows of a group must divide 64 or be a multiple of it"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_the_program_does_not_do_is_refused(name):
    shapes, more, says = BAD[name]
    with pytest.raises(ValueError, match=says):
        steps(small_unet(**shapes), **({"text": 16, "images": 1} | more))
