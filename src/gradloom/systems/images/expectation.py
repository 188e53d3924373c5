"""Forecast and memory map of a preset's own workload.

Planning and following all of it takes seconds; groups and steps repeat, so that a few of each say what all of them
take.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.output import some
from gradloom.program.assembler import Instruction
from gradloom.program.memory import BLOCK
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.asked import Asked
from gradloom.systems.results import Planned, PlannedWork
from gradloom.workload import Progress

from .program.digits import digits_plan
from .program.lowered import Lowered
from .program.lowering import lower
from .program.program import ImagePlanned, Settings, memory_map, plan_finetune
from .requests import ImagePlan
from .workload import DIGITS, LENET5, ImageWorkload

__all__ = ["ON_CHIP", "SAMPLES", "expectation", "plan"]

#: Images that are learnt from.
SAMPLES = LENET5.samples

#: Cycles of the memory in block RAM, as :func:`forecast` counts them.
ON_CHIP = MemoryTime(read_latency=5, write_latency=1)


def expectation(
    config: ImageConfig,
    workload: ImageWorkload = LENET5,
    *,
    rank: int | None = None,
    wide: bool = False,
    model: Path | str | None = None,
    samples: int | None = None,
) -> Planned:
    """``workload``, ``forecast`` and ``memory_map`` of a design.

    They are plain values. ``workload``: of its preset.

    ``rank``: of the adapters, else the workload's; ``wide``: cached activations are codes of 8 bits. ``model``: another
    network than the workload's, an .onnx file, which learns from ``samples`` images.

    Where the design cannot run the workload, ``forecast`` and ``memory_map`` are None and ``reason`` says why.
    """
    rank = workload.rank if rank is None else rank
    if model is None and workload.network == DIGITS.network:
        return _alone(config, rank, wide)
    network = load_pretrained(workload.network) if model is None else load_onnx(Path(model))
    settings = Settings(
        samples=SAMPLES if samples is None else samples,
        epochs=workload.epochs,
        batch=workload.batch,
        rate=workload.lr,
        momentum=workload.momentum,
    )
    return _in_memory(network, settings, config, rank, wide)


def plan(asked: Asked, options: ImagePlan, tell: Progress) -> Planned:
    """Forecast and memory map of a fine-tune on the preset's design.

    As :func:`expectation`, with ``preset`` and ``board``.
    """
    preset = asked.preset
    assert isinstance(preset.workload, ImageWorkload)
    found = expectation(preset.config, preset.workload, rank=options.rank, model=options.model, samples=options.samples)
    if found["forecast"] is None:
        raise ValueError(f"model={asked.name}: {preset.name} does not fine-tune it: {found['reason']}")
    return {"preset": preset.name, "board": preset.board, **found}


def _in_memory(network: LayerNetwork, settings: Settings, config: ImageConfig, rank: int, wide: bool) -> Planned:
    workload: PlannedWork = {
        "network": network.name,
        "samples": settings.samples,
        "epochs": settings.epochs,
        "batch": settings.batch,
        "rank": rank,
    }
    try:
        lowered = lower(network, config, rank, wide=wide)
        if config.cache_slots - config.rows < settings.samples:
            raise ValueError(
                f"cache_slots={config.cache_slots}: not all of the {some(settings.samples, 'image')} are "
                f"kept, and this forecast does not include computing them in each epoch"
            )
    except ValueError as error:
        return {"workload": workload, "forecast": None, "memory_map": None, "reason": str(error)}
    cost = _Cost(lowered, settings).whole()
    cycles, commands = [int(n) for n in cost[:-1]], int(cost[-1])
    held = memory_map(lowered, settings, commands)
    return {
        "workload": workload,
        "forecast": {
            "cycles": sum(cycles),
            "phases": dict(zip(IMAGES.phases, cycles)),
            "clock_mhz": config.clock_mhz,
            "milliseconds": round(sum(cycles) / (1e3 * config.clock_mhz), 3),
            "commands": commands,
        },
        "memory_map": {
            "window_bytes": held.end,
            "regions": [
                {"name": name, "address": offset, "bytes": size} for name, (offset, size) in held.areas.items()
            ],
        },
    }


def _alone(config: ImageConfig, rank: int, wide: bool) -> Planned:
    """Expectation of a tuner that runs on its own.

    Its memory is requested one burst at a time, which is not followed here, so that it takes a little longer.
    """
    plan = digits_plan(config, rank=rank, wide=wide)
    phases = dict.fromkeys(IMAGES.phases, 0)
    commands = 0
    for stage in plan.stages:
        at, asm = plan.programs[stage.program]
        found = forecast(asm.instructions, config=config, program_offset=at - BLOCK * stage.block, memory=ON_CHIP)
        times = stage.runs * stage.blocks
        commands += times * len(asm)
        for name, cycles in found.phases.items():
            phases[name] += times * cycles
    cycles = sum(phases.values())
    return {
        "workload": {
            "network": plan.lowered.network.name,
            "samples": plan.train_blocks * plan.samples,
            "judged_by": plan.test_blocks * plan.samples,
            "epochs": plan.epochs,
            "batch": plan.samples,
            "rank": plan.lowered.rank,
        },
        "forecast": {
            "cycles": cycles,
            "phases": phases,
            "clock_mhz": config.clock_mhz,
            "milliseconds": round(cycles / (1e3 * config.clock_mhz), 3),
            "commands": commands,
        },
        "memory_map": {
            "window_bytes": len(plan.image),
            "regions": [{"name": name, "bytes": size} for name, size in plan.sizes.items()],
        },
    }


class _Cost:
    """Cycles by phase, and commands at the end, as one vector.

    The difference of two programs is the cost of a part.
    """

    def __init__(self, lowered: Lowered, settings: Settings) -> None:
        self.lowered = lowered
        self.settings = settings

    def whole(self) -> np.ndarray:
        """Cost of the workload."""
        rows, batch, samples = self.lowered.config.rows, self.settings.batch, self.settings.samples
        if samples < 4 * max(rows, batch):
            plan = self._plan(samples, self.settings.epochs)
            return self._base(plan) + self._learning(plan)
        # Full groups, full steps; what is left over is the same in each program.
        groups, rest = divmod(samples, rows)
        two, three = (self._base(self._plan(rows * n + rest, 1)) for n in (2, 3))
        base = two + (groups - 2) * (three - two)

        steps, rest = divmod(samples, batch)
        # Of two steps the second is no usual one: with many reads in flight it overlaps both ends of an epoch.
        few = {
            (n, epochs): self._learning(self._plan(batch * n + rest, epochs))
            for n, epochs in ((3, 1), (3, 2), (5, 1), (5, 2))
        }
        first = few[3, 1] + (steps - 3) * (few[5, 1] - few[3, 1]) / 2
        short, long = few[3, 2] - few[3, 1], few[5, 2] - few[5, 1]
        later = short + (steps - 3) * (long - short) / 2
        return np.rint(base + first + (self.settings.epochs - 1) * later)

    def _plan(self, samples: int, epochs: int) -> ImagePlanned:
        network = self.lowered.network
        zeros = np.zeros
        return plan_finetune(
            self.lowered,
            Settings(samples=samples, epochs=epochs, batch=self.settings.batch),
            zeros((samples, *network.input_shape), np.int64),
            zeros(samples, np.int64),
            [zeros((self.lowered.rank, n), np.int64) for n in network.taps],
            [zeros((network.classes, self.lowered.rank), np.int64) for _ in network.taps],
        )

    def _base(self, plan: ImagePlanned) -> np.ndarray:
        """The network's forward, once a sample, and all loads before it."""
        commands = plan.assembler.instructions
        return self._follow([*commands[: _second_fence(commands)], commands[-1]], 0)

    def _learning(self, plan: ImagePlanned) -> np.ndarray:
        """Everything after it."""
        commands = plan.assembler.instructions
        return self._follow(commands[_second_fence(commands) :], 1)

    def _follow(self, commands: Sequence[Instruction], more: int) -> np.ndarray:
        found = forecast(commands, config=self.lowered.config)
        return np.array([*found.phases.values(), len(commands) - 1 + more], float)


def _second_fence(commands: Sequence[Instruction]) -> int:
    fences = [
        n for n, command in enumerate(commands) if command.engine == CONTROL and command.opcode == ControlOpcode.FENCE
    ]
    return fences[1]
