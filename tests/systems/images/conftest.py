"""Whole machines in simulation: generated, built once, driven by the host's own driver."""

import numpy as np
import pytest

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.run import machine as simulation
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.device import SimulatedDevice, build_device
from gradloom.systems.images.integers import fill_cache, fine_tune
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.simulated import run_plan

#: Small enough to build in seconds, with every engine there is.
SMALL = ImageConfig(
    rows=9,
    panels=4,
    rank=2,
    classes=4,
    taps=6,
    adapter_depth=128,
    weight_depth=1024,
    bias_depth=16,
    feature_depth=128,
    image_depth=512,
    dense_depth=256,
    blocks=16,
    kernel=3,
    width=16,
    positions=128,
)


def small_network(seed=0, *, convs=2, gain=1.0):
    """8x8 images of two channels; convolutions with odd shapes; two dense layers. ``gain``: of all weights."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(0, gain / np.sqrt(np.prod(shape[1:])), shape)

    layers = [
        ConvLayer(weight=normal(5, 2, 3, 3), bias=rng.normal(0, 0.1, 5), pads=(1, 1, 1, 1), relu=True, pool=2),
        ConvLayer(weight=normal(11, 5, 3, 2), bias=rng.normal(0, 0.1, 11), pads=(1, 0, 1, 1), relu=True),
    ][:convs]
    flat = {0: 128, 1: 80, 2: 176}[convs]
    layers += [
        DenseLayer(weight=normal(18, flat), bias=rng.normal(0, 0.1, 18), relu=True),
        DenseLayer(weight=normal(4, 18), bias=rng.normal(0, 0.1, 4)),
    ]
    return LayerNetwork(name="small", input_shape=(2, 8, 8), layers=tuple(layers))


class Machine:
    """A built design and what is asked of it again and again."""

    def __init__(self, config):
        self.config = config
        self.files = design(config)
        self.program = build_device(self.files, data_bits=config.shell["data_bits"], address_bits=config.address_bits)

    def device(self):
        return SimulatedDevice(self.program)

    def run(self, plan, files=None, **timing):
        """A plan on a machine of its own."""
        with simulation.MachineRunner.simulated(self.config, files or self.files, timing=timing) as simulated:
            return run_plan(plan, simulated)

    def plan(
        self, network, *, samples=12, rank=2, seed=0, wide=False, darkest=0, brightest=65536, spread=0.3, **settings
    ):
        """``(plan, reference, cache)`` of a fine-tune on made-up images and labels."""
        rng = np.random.default_rng(seed)
        images = rng.integers(darkest, brightest, (samples, *network.input_shape))
        labels = rng.integers(0, network.classes, samples)
        lowered = lower(network, self.config, rank, wide=wide)
        start = initial_adapters(network.taps, network.classes, rank, seed)
        a = [PARAMETER.encode(m) for m, _ in start]
        b = [PARAMETER.encode(rng.normal(0, spread, m.shape)) for _, m in start]
        asked = Settings(samples=samples, **settings)
        plan = plan_finetune(lowered, asked, images, labels, a, b)
        cache = fill_cache(lowered, images)
        return plan, fine_tune(lowered, asked, cache, labels, a, b), cache


@pytest.fixture(scope="session")
def machine():
    return Machine(SMALL)
