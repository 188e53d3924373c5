"""Short runs of presets whose switching activity is recorded."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.program.descent import AdamW
from gradloom.systems.diffusion.program.step import Stepper, lowered
from gradloom.systems.diffusion.small import SmallDiffusion, small_unet
from gradloom.systems.job import Job
from gradloom.systems.sequences.program.onchip import HIDDEN
from gradloom.systems.task import Task
from gradloom.systems.text.small import SmallLanguage
from gradloom.workload import Progress

from ..reference.tiles.program import TileMachine as Models
from ..run.builds.designs import Design
from ..run.counted import check_words
from ..run.device import SimulatedDevice
from ..run.machine import MachineRunner

__all__ = ["ActivityRequest", "diffusion_step", "finetune", "instant_step", "labels", "training_step"]

_MEMORY = 1 << 24
_EPOCHS, _BATCH, _TOKENS = 2, 2, 16


@dataclass(frozen=True, kw_only=True)
class ActivityRequest:
    """A run in simulated RTL.

    Parameters
    ----------
    design : Design
        With the preset.
    samples : int
        Images, or sequences.
    rank : int, optional
        Of the adapters, else the preset's; ``cache``: format of the forward cache, likewise.
    scratch : Path
        A folder that is removed.
    tell : callable
        Hears the progress.
    """

    design: Design
    samples: int
    scratch: Path
    tell: Progress
    rank: int | None = None
    cache: str | None = None

    @property
    def config(self) -> Any:
        """Of the machine."""
        return self.design.preset.config

    def files(self) -> Any:
        """Of the Verilog."""
        return self.design.files(lambda text: self.tell(0, 0, text))


def finetune(request: ActivityRequest) -> str:
    """A fine-tune on a few of the preset's own samples.

    Its results are compared with the reference.
    """
    preset = request.design.preset
    small = {"limit": request.samples, "epochs": _EPOCHS, "batch": min(_BATCH, request.samples), "engine": "rtl"}
    small |= {name: value for name in ("rank", "cache") if (value := getattr(request, name)) is not None}
    options = preset.workload.options(preset.name, small)
    job = Job(preset=preset, options=options.check(), design=request.design, output=request.scratch, tell=request.tell)
    task: Task = preset.workload.function("finetune")(job)
    task.forecast()
    task.compared(task.run("rtl"))
    return f"fine-tune of {request.samples} samples, {_EPOCHS} epochs, {task.steps} steps"


def _language_device(request: ActivityRequest) -> SimulatedDevice:
    machine = MachineRunner.simulated(request.config, request.files(), memory_bytes=_MEMORY, progress=request.tell)
    assert machine.device is not None
    return machine.device


def training_step(request: ActivityRequest) -> str:
    """A training step of a small transformer."""
    small = SmallLanguage(request.config, _MEMORY, rank=request.rank)
    device = _language_device(request)
    with device:
        small.step(device, small.tokens[:_TOKENS], AdamW(lr=1e-2, weight_decay=0.1))
    return f"AdamW step of a random transformer, 2 layers of 128, {_TOKENS} tokens"


def instant_step(request: ActivityRequest) -> str:
    """A step that makes the forward cache of a text, and one from it."""
    small = SmallLanguage(request.config, _MEMORY, rank=request.rank)
    device = _language_device(request)
    with device:
        small.tokens = small.tokens[:_TOKENS]
        small.instant(device, np.random.default_rng(1))
    return (
        f"two AdamW steps of a random transformer, 2 layers of 128, {len(small.tokens)} tokens, the second from cache"
    )


def diffusion_step(request: ActivityRequest) -> str:
    """A LoRA step of a small UNet, compared with models of the engines."""
    rank = request.rank or 2
    small = SmallDiffusion.drawn(
        small_unet(size=4, channels=(16, 16), text=8, groups=4, heads=1), text=4, rank=rank, targets="all"
    )
    step = lowered(request.config, small.network, small.learnt, images=1, lr=1e-3)
    data, noise = small.inputs(1, 0)
    wanted = Stepper(step, Models(request.config, step.program.length), small.learnt)
    loss, _ = wanted(data, noise)
    with MachineRunner.simulated(request.config, request.files(), progress=request.tell) as machine:
        made = Stepper(step, machine, small.learnt)
        check_words({"loss": made(data, noise)[0]}, {"loss": loss})
    made.ran[-1].check(**asdict(wanted.ran[-1]))
    return f"LoRA step of a random UNet, 2 levels of 8 channels, an image of 4 by 4, rank {rank}"


def network_step(request: ActivityRequest) -> str:
    """A LoRA step of a small convolutional network, compared with models of the engines."""
    from gradloom.graph.base import Tensor
    from gradloom.graph.network import Network, Port
    from gradloom.graph.operations import Convolution, Linear, Reduce
    from gradloom.systems.networks.program.prepared import Prepared, learning_of
    from gradloom.systems.networks.program.steps import MachineSteps

    x, inner, mean, y = (
        Tensor(name, sides, features)
        for name, sides, features in (("x", (8, 8), 3), ("inner", (8, 8), 16), ("mean", (1, 1), 16), ("y", (1, 1), 10))
    )
    shape: dict[str, Any] = {"kernel": (3, 3), "stride": (1, 1), "pads": ((1, 1), (1, 1)), "dilation": (1, 1)}
    listed = (
        Convolution((x,), inner, "first", positive=True, **shape),
        Reduce((inner,), mean, "mean", True),
        Linear((mean,), y, "last"),
    )
    random, rank = np.random.default_rng(0), request.rank or 2
    values = {w.name: random.standard_normal(w.shape) / 4 for each in listed for w in each.weights}
    ports = [Port(t.name, t.shape, t, t.shape, tuple(range(len(t.shape)))) for t in (x, y)]
    network = Network(listed, values, (ports[0],), (ports[1],))
    prepared = Prepared(learning_of(network, "classes", "lora", rank=rank), "classes")
    programs = prepared.programs(request.config, 4, prepared.rules(1e-3))
    given = prepared.inputs(random.standard_normal((4, *x.shape))), np.eye(10)[:4]
    wanted = MachineSteps(programs, Models(request.config, programs.length), prepared.integers(), "classes")
    loss = wanted(*given)
    with MachineRunner.simulated(request.config, request.files(), progress=request.tell) as machine:
        made = MachineSteps(programs, machine, prepared.integers(), "classes")
        check_words({"loss": np.array([made(*given)])}, {"loss": np.array([loss])})
    for found, health in zip(made.ran, wanted.ran):
        found.check(**asdict(health))
    return f"LoRA step of a convolution of 16 channels and a linear layer, 4 images of 8 by 8, rank {rank}"


def labels(request: ActivityRequest) -> str:
    """Labels of shipped sequences by a shipped network."""
    from gradloom.models.recurrent.stored import load_network
    from gradloom.models.sequences import FOLDS, spar_model, spar_windows
    from gradloom.systems.sequences.answers import run_cell

    units = 64 if request.config.hidden >= 64 else HIDDEN
    network = load_network(spar_model(0, units))
    x, _ = spar_windows(FOLDS[0])
    if request.samples > len(x):
        raise ValueError(f"samples={request.samples}: must be at most {len(x)}, the shipped sequences")
    codes = network.codes(x[: request.samples])
    run_cell(network, codes, request.config, request.files(), progress=request.tell)
    return f"labels of {request.samples} sequences of {codes.shape[1]} steps by an LSTM of {units}"
