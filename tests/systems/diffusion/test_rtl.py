"""A LoRA step of a small UNet in simulated RTL of the whole machine."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from gradloom.sim.reference.tiles.program import TileMachine as Models
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.diffusion.program.step import Stepper, lowered
from gradloom.systems.diffusion.small import SmallDiffusion, small_unet

from ...deep import deep
from ...tiles import LEAST

TAKERS = {"product": "xw", "element": "ab", "norm": "ab"}


@pytest.mark.parametrize("ports", [LEAST.ports, pytest.param(1, marks=deep)])
def test_steps_leave_the_memory_of_the_models_in_the_cycles_of_the_forecast(forecast_is_compared, ports):
    """Two of all operations, AdamW and new codes; every byte, every counter, each command's first and last cycle."""
    config = replace(LEAST, ports=ports)
    shapes = small_unet(size=8, channels=(16, 16), attends=(False, True), text=16, groups=4)
    small = SmallDiffusion.drawn(shapes, text=4, rank=2)
    step = lowered(config, small.network, small.learnt, images=1, lr=1e-3)
    stores = [each.operands for each in step.program.instructions if each.engine.name == "store"]
    # Memory and a slot, only a slot, only memory; each port that takes forwards.
    assert {(each.get("forward", 0), each.get("only", 0)) for each in stores} == {(1, 0), (1, 1), (0, 0)}
    taken = {str(each["to"]) for each in stores if each.get("forward")}
    assert taken == {f"{engine}.{port}" for engine, ports in TAKERS.items() for port in ports}
    models = Models(config, step.program.length)
    with MachineRunner.simulated(config, timing={"read_latency": 9}) as device:
        expected, made = Stepper(step, models, small.learnt), Stepper(step, device, small.learnt)
        for number in (1, 2):
            given = small.inputs(1, number)
            (loss, factors), (found, after) = expected(*given), made(*given)
            assert found == loss
            assert after.keys() == factors.keys() and all((after[name] == factors[name]).all() for name in after)
            memories = (each.read(0, step.program.offset) for each in (device, models))
            one, other = (np.frombuffer(each, np.uint8) for each in memories)
            assert not np.flatnonzero(one != other).size
            assert made.ran[-1].check(**asdict(expected.ran[-1]))["commands"] == len(step.program)
    constants = "product.FIFO", "element.ElementEngine.finish", "norm.NormEngine.ready", "update.AdamLane.latency"
    forecast_is_compared(made.ran[-1], *constants, **asdict(expected.ran[-1]))
