"""A configuration that is not refused makes a machine: words are the reference's, cycles those of its forecast."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.simulated import compare
from gradloom.systems.text.run.linear import LinearMachine, choose_exponents, mathematics, reference_step

from ..deep import deep
from ..engines.linear.conftest import make_layer
from ..engines.linear.test_linear_perf import agree
from ..systems.images.conftest import Machine
from .looks import looks

#: Each configuration is a simulation to build. Every run of the tests builds the small machines of other folders.
pytestmark = deep
RATE = 0.3


def power(low, high):
    """Powers of two, the small ones first."""
    return st.integers(low.bit_length() - 1, high.bit_length() - 1).map(lambda n: 1 << n)


@st.composite
def linear_machines(draw):
    """A configuration, and the shape of a layer within it."""
    edge = draw(st.sampled_from([16, 32]))
    columns = draw(st.sampled_from([n for n in (2, 4, 8) if n < edge]))
    outputs = draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= min(columns, edge // 8)]))
    config = LanguageConfig(
        edge=edge,
        columns=columns,
        outputs=outputs,
        dots=draw(st.sampled_from([n for n in (1, 2, 4) if n <= outputs])),
        rank=2 * draw(st.integers(1, min(edge // columns, 5))),
        tokens=draw(power(2, 32)),
        depth=draw(power(64, 1024)),
        lane_depth=draw(power(64, 256)),
        groups=draw(power(2, 16)),
        features=draw(power(edge // 4, 256)),
        head=draw(power(edge // 4, 64)),
        requests=draw(st.integers(0, 1)),
        packing=draw(st.integers(0, 1)),
        address_bits=draw(st.integers(32, 40)),
        outstanding=draw(power(1, 16)),
        queue_depth=draw(power(2, 16)),
    )
    tokens = draw(st.integers(1, config.tokens))
    rank = 2 * draw(st.integers(1, config.rank // 2))
    most = min(config.depth // tokens, config.lane_depth // (2 * rank), 3)
    tiles = draw(st.integers(1, most)), draw(st.integers(1, most))
    return config, (tiles[0] * edge, tiles[1] * edge, tokens, rank)


@looks(1, 6)
@given(linear_machines())
def test_a_legal_machine_for_linears_makes_a_step_as_reference_and_forecast_say(drawn):
    config, shape = drawn
    machine = LinearMachine(config)
    try:
        layer = make_layer(*shape, edge=config.edge)
        exponents = choose_exponents(layer, mathematics(layer, RATE))
        plan = machine.plan(layer, exponents, 1 << 16)
        program = Assembler()
        plan.product(program)
        plan.product(program, backward=True)
        plan.gradients(program)
        plan.update(program, RATE)
        agree(machine, program)
        expected = reference_step(layer, exponents, RATE).tensors
        for name, words in machine.results(plan, RATE).items():
            assert np.array_equal(words, expected[name]), name
    finally:
        machine.close()


@st.composite
def image_machines(draw):
    """A configuration, and a network of a convolution and a dense layer within it."""
    kernel = draw(st.integers(2, 4))
    panels = draw(st.sampled_from([2, 4, 8]))
    rank = draw(st.integers(-(-4 // panels), 16 // panels))
    edge = draw(st.integers(kernel + 1, 8))
    config = ImageConfig(
        rows=draw(st.integers(kernel**2, min(kernel**2 + 4, 32))),
        panels=panels,
        rank=rank,
        classes=draw(st.integers(2, 16)),
        taps=draw(st.integers(2, 16)),
        adapter_depth=draw(power(256, 512)),
        weight_depth=draw(power(512, 1024)),
        bias_depth=draw(power(8, 32)),
        feature_depth=draw(power(128, 256)),
        image_depth=draw(power(128, 512)),
        dense_depth=draw(power(512, 1024)),
        blocks=draw(power(16, 32)),
        kernel=kernel,
        width=draw(st.integers(8, 40)),
        positions=draw(power(64, 256)),
        address_bits=40,
        cache_slots=64 * draw(st.integers(1, 4)),
        queue_depth=draw(power(2, 16)),
        outstanding=draw(power(1, 16)),
        activation_bits=draw(st.sampled_from([24, 18])),
    )
    channels, outputs = draw(st.integers(1, 2)), draw(st.integers(1, config.columns))
    classes = draw(st.integers(2, config.classes))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    inputs = outputs * (edge - kernel + 1) ** 2
    network = LayerNetwork(
        name="drawn",
        input_shape=(channels, edge, edge),
        layers=(
            ConvLayer(
                weight=rng.normal(0, 0.2, (outputs, channels, kernel, kernel)),
                bias=rng.normal(0, 0.1, outputs),
                relu=draw(st.booleans()),
            ),
            DenseLayer(weight=rng.normal(0, inputs**-0.5, (classes, inputs)), bias=rng.normal(0, 0.1, classes)),
        ),
    )
    return config, network, draw(st.integers(1, 6))


def fits(drawn):
    config, network, _ = drawn
    try:
        lower(network, config, config.rank)
    except ValueError:
        return False
    return True


@looks(1, 6)
@given(image_machines().filter(fits))
def test_a_legal_machine_for_images_makes_a_step_as_reference_and_forecast_say(drawn):
    config, network, samples = drawn
    machine = Machine(config)
    plan, reference, cache = machine.plan(network, samples=samples, rank=config.rank, epochs=1, batch=samples)
    result = machine.run(plan)
    assert compare(result, reference, cache)["commands"] == result.ran.counters.commands_done
