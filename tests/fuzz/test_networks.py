"""Networks of every shape: each is refused by a size and a bound, or it runs as check, forecast and reference say."""

import re
from collections import Counter
from itertools import chain, count

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator
from gradloom.preset import PRESETS
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.run import machine as simulation
from gradloom.sim.time.forecast import forecast
from gradloom.systems.images.integers import fill_cache, fine_tune
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.simulated import compare, run_plan

from ..systems.images.conftest import SMALL, Machine
from .looks import DEEP
from .networks import Limits, draw

PLANNED = 2000 if DEEP else 24
RUN = 200 if DEEP else 12
#: Three of four are for the first, the others for the second.
LIMITS = {
    "instantft-kv260": Limits(edge=32, inputs=4, channels=40, dense=128, classes=10, kernel=5, rank=16, samples=80),
    "digits-ulx3s": Limits(edge=8, inputs=2, channels=16, dense=40, classes=10, kernel=2, rank=4, samples=20),
}
#: Draws that once differed: a block of a tap ends with a pixel before which rows of padding lie.
FOUND = 10_025, 10_081
TINY = Limits(edge=10, inputs=3, channels=20, dense=24, classes=4, kernel=3, rank=4, samples=24)


def planned(config, task):
    """``(plan, images, labels, a, b)``; its program has passed the check of progress."""
    network, settings = task.network, task.settings
    lowered = lower(network, config, task.rank, wide=task.wide)
    rng = np.random.default_rng(settings.samples)
    low, high = config.activation.lo >> 6, config.activation.hi >> 6
    images = rng.integers(low, high, (settings.samples, *network.input_shape))
    labels = rng.integers(0, network.classes, settings.samples)
    start = initial_adapters(network.taps, network.classes, task.rank, settings.seed)
    a = [PARAMETER.encode(m) for m, _ in start]
    b = [PARAMETER.encode(rng.normal(0, 0.3, m.shape)) for _, m in start]
    return plan_finetune(lowered, settings, images, labels, a, b), images, labels, a, b


def reason(error):
    """Why a network is refused, without its numbers; a name of a size and a bound are in it."""
    said = str(error)
    bound = re.search(r"\bneeds?\b|\bneeded\b|must|at least|at most|may reach|outside", said)
    assert bound and re.search(r"\d", said.split(" ", 1)[1]), said
    return re.sub(r"^\S+ |\d+", lambda found: "N" if found[0].isdigit() else "", said)[:60]


def test_no_network_has_a_program_that_stops():
    """Checked for every timing when it is planned, and forecast, which stands on its own."""
    found = Counter()
    for seed in range(PLANNED):
        name = "digits-ulx3s" if seed % 4 == 3 else "instantft-kv260"
        task = draw(seed, LIMITS[name])
        try:
            plan, *_ = planned(PRESETS[name].config, task)
        except ValueError as error:
            found[reason(error)] += 1
            continue
        assert forecast(plan).total > plan.commands
        found["planned"] += 1
    for why, times in found.most_common():
        print(f"{times:5} {why}")
    assert found["planned"] >= PLANNED / 4


@pytest.fixture(scope="module")
def machine():
    return Machine(SMALL)


def test_networks_in_rtl_are_the_reference_and_the_forecast(machine):
    done = refused = held = 0
    with machine.device() as device:
        host = Accelerator(device)
        simulated = simulation.MachineRunner(host)
        for seed in chain(FOUND, count(10_001)):
            if done == RUN:
                break
            task = draw(seed, TINY)
            try:
                plan, images, labels, a, b = planned(SMALL, task)
            except ValueError as error:
                reason(error)
                refused += 1
                continue
            cache = fill_cache(plan.lowered, images)
            reference = fine_tune(plan.lowered, task.settings, cache, labels, a, b)
            host.clear_cache()
            device.advance(SMALL.cache_slots // 16)  # a program would wait for it
            # With encoders that wait for STORE, cycles are within a bound of the forecast.
            held += not compare(run_plan(plan, simulated), reference, cache)["commands"]
            done += 1
    print(f"{done} run, {refused} refused, {held} with encoders that wait for STORE")
