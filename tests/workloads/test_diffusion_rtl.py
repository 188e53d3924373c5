"""A LoRA step of a small UNet in simulated RTL of the whole machine."""

import numpy as np

from gradloom.rtl.machines.configs import DiffusionConfig
from gradloom.rtl.plan.diffusion.writer import lower
from gradloom.sim.run.designs import design
from gradloom.sim.run.programs import forecast_placed
from gradloom.sim.workloads.diffusion_integers import IntegerDescent
from gradloom.sim.workloads.diffusion_steps import Device, Models, Stepper, check_step
from gradloom.sim.workloads.small_diffusion import SmallDiffusion, small_unet

#: The least array; slots for a convolution, and for an image.
SMALL = DiffusionConfig(array_rows=16, array_columns=16, x_slots=8, w_slots=16, element_slots=2, norm_slots=2)


def test_a_step_leaves_the_memory_of_the_models_in_the_cycles_of_the_forecast():
    """All operations, AdamW and new codes; every byte, every counter, and every command's first and last cycle."""
    shapes = small_unet(size=4, channels=(8, 8), attends=(False, True), text=8, heads=1, groups=4)
    small, rule = SmallDiffusion.drawn(shapes, text=4, rank=2), IntegerDescent(1e-3)
    adapters = rule.begun(small.adapters)
    step = lower(SMALL, small.listed, small.weights, images=1, fractions=rule.fractions, rule=rule.rule)
    models = Models(SMALL, step.program.length)
    data, noise = small.inputs(1, 3)
    wanted = Stepper(step, models, adapters)(data, noise)
    with Device(SMALL, design(SMALL), lambda done, total, text: None, timing={"read_latency": 9}) as device:
        made = Stepper(step, device, adapters)(data, noise)
        memory = device.read(0, step.program.offset)
    assert made[0] == wanted[0]
    assert all((made[1][name].parts[part] == wanted[1][name].parts[part]).all() for name in made[1] for part in "ab")
    found, expected = (np.frombuffer(each, np.uint8) for each in (memory, models.read(0, step.program.offset)))
    assert not np.flatnonzero(found != expected).size
    health = {"saturated": models.machine.saturated, "underflowed": models.machine.underflowed}
    timing = forecast_placed(step.program, read_latency=9)
    check_step(device.ran[0], step.instructions(1), timing, **health)
