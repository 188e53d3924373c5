# ruff: noqa
"""Made by gradloom.cli.stub; do not edit."""
from collections.abc import Callable, Sequence
from pathlib import Path

from gradloom import boards as boards
from gradloom.cli.field import card as card
from gradloom.cli.field import package as package
from gradloom.cli.design.designs import build as build
from gradloom.cli.design.designs import flash as flash
from gradloom.cli.design.designs import monitor as monitor
from gradloom.cli.design.designs import report as report
from gradloom.cli.design.designs import selftest as selftest
from gradloom.cli.learn.digits import compare as compare
from gradloom.cli.learn.digits import fetch as fetch
from gradloom.cli.design.energy import energy as energy
from gradloom.cli.models.export import export as export
from gradloom.cli.design.generate import generate as generate
from gradloom.cli.lists import doctor as doctor
from gradloom.cli.lists import presets as presets
from gradloom.cli.lists import units as units
from gradloom.cli.models.merge import merge as merge
from gradloom.cli.models.pack import pack as pack
from gradloom.cli.models.recurrent import import_model as import_model
from gradloom.cli.design.sweep import sweep as sweep
from gradloom.cli.design.units import quantize as quantize
from gradloom.cli.design.units import run as run
from gradloom.systems.diffusion.requests import DiffusionPlan as DiffusionPlan
from gradloom.systems.diffusion.requests import Pictures as Pictures
from gradloom.systems.diffusion.workload import DiffusionOptions as DiffusionOptions
from gradloom.systems.images.requests import ImageAnswers as ImageAnswers
from gradloom.systems.images.requests import ImageChoice as ImageChoice
from gradloom.systems.images.requests import ImagePlan as ImagePlan
from gradloom.systems.images.workload import ImageOptions as ImageOptions
from gradloom.systems.results import Chosen as Chosen
from gradloom.systems.results import HeldOut as HeldOut
from gradloom.systems.results import Inferred as Inferred
from gradloom.systems.results import Planned as Planned
from gradloom.systems.results import Step as Step
from gradloom.systems.results import Tuned as Tuned
from gradloom.systems.sequences.requests import SequenceAnswers as SequenceAnswers
from gradloom.systems.networks.workload import NetworkOptions as NetworkOptions
from gradloom.systems.sequences.workload import SequenceOptions as SequenceOptions
from gradloom.systems.text.requests import TextAnswers as TextAnswers
from gradloom.systems.text.requests import TextChoice as TextChoice
from gradloom.systems.text.requests import TextPlan as TextPlan
from gradloom.systems.text.workload import CardOptions as CardOptions
from gradloom.systems.text.workload import InstantCardOptions as InstantCardOptions
from gradloom.systems.text.workload import InstantTextOptions as InstantTextOptions
from gradloom.systems.text.workload import QLoraOptions as QLoraOptions
from gradloom.options import Options

__version__: str

def choose(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    time: str | None = None,
    memory: str | None = None,
    update: str | None = None,
    output: Path | str | None = None,
    seed: int | None = None,
    data: Path | str | None = None,
    steps: int | None = None,
    seq: str | None = None,
    jobs: int | None = None,
    scale: float | None = None,
    loss: str | None = None,
) -> Chosen: ...

def finetune(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    output: Path | str = "finetune",
    progress: Callable[[int, int, str], None] | None = None,
    callbacks: Sequence[Callable[[Step], object]] = (),
    lr: float | None = None,
    seed: int | None = None,
    engine: str | None = None,
    design: Path | str | None = None,
    held_out: Path | str | float | None = None,
    judge_steps: int | None = None,
    patience: int | None = None,
    rank: int | None = None,
    data: Path | str | None = None,
    class_weights: str | None = None,
    momentum: float | None = None,
    schedule: str | None = None,
    batch: int | None = None,
    epochs: int | float | None = None,
    limit: int | None = None,
    cache: str | None = None,
    angle: float | None = None,
    skip_bad: bool | None = None,
    shuffle: bool | None = None,
    adapter: Path | str | None = None,
    optimizer: str | None = None,
    steps: int | None = None,
    warmup: float | None = None,
    decay: float | None = None,
    seq: int | None = None,
    layers: int | None = None,
    keep: int | None = None,
    generate: int | None = None,
    resume: bool | None = None,
    method: str | None = None,
    accumulate: int | None = None,
    targets: str | None = None,
    from_layer: int | None = None,
    rslora: bool | None = None,
    plus: float | None = None,
    init: str | None = None,
    lora_fa: bool | None = None,
    store: str | None = None,
    deploy: str | None = None,
    window: int | None = None,
    hop: int | None = None,
    columns: str | None = None,
    sound: str | None = None,
    person: int | None = None,
    base: Path | str | None = None,
    style: str | None = None,
    prompt: str | None = None,
    alpha: float | None = None,
    scale: float | None = None,
    loss: str | None = None,
    smoothing: float | None = None,
    precise: str | None = None,
) -> Tuned: ...

def infer(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    adapter: Path | str | None = None,
    engine: str | None = None,
    port: str | None = None,
    baud: int | None = None,
    data: Path | str | None = None,
    angle: float | None = None,
    limit: int | None = None,
    design: Path | str | None = None,
    output: Path | str | None = None,
    prompt: str | None = None,
    tokens: int | None = None,
    top_k: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    chat: bool | None = None,
    head: str | None = None,
    window: int | None = None,
    hop: int | None = None,
    columns: str | None = None,
    sound: str | None = None,
    stream: bool | None = None,
    rate: float | None = None,
    alpha: float | None = None,
    count: int | None = None,
    steps: int | None = None,
    scale: float | None = None,
    loss: str | None = None,
    precise: str | None = None,
    batch: int | None = None,
) -> Inferred: ...

def plan(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    rank: int | None = None,
    samples: int | None = None,
    method: str | None = None,
    targets: str | None = None,
    seq: int | None = None,
    bits: int | None = None,
    optimizer: str | None = None,
    store: str | None = None,
    head: str | None = None,
    axi_bits: int | None = None,
    from_layer: int | None = None,
    texts: int | None = None,
    steps: int | None = None,
    only: str | None = None,
    forecast: bool | None = None,
    array: str | None = None,
    batch: int | None = None,
    known_prompt: bool | None = None,
    loss: str | None = None,
    precise: str | None = None,
) -> Planned: ...
