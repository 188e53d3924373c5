# ruff: noqa
"""Made by gradloom.cli.stub; do not edit."""
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradloom import boards as boards
from gradloom.cli.aggregate import aggregate as aggregate
from gradloom.cli.choose import choose as choose
from gradloom.cli.collect import collect as collect
from gradloom.cli.delivery import apply as apply
from gradloom.cli.delivery import delta as delta
from gradloom.cli.delivery import keygen as keygen
from gradloom.cli.delivery import keys as keys
from gradloom.cli.delivery import sign as sign
from gradloom.cli.delivery import verify as verify
from gradloom.cli.lists import doctor as doctor
from gradloom.cli.lists import presets as presets
from gradloom.cli.lists import units as units
from gradloom.cli.diffusion import generate_images as generate_images
from gradloom.cli.energy import energy as energy
from gradloom.cli.generate import generate as generate
from gradloom.cli.install import install as install
from gradloom.cli.install import rollback as rollback
from gradloom.cli.infer import compare as compare
from gradloom.cli.infer import fetch as fetch
from gradloom.cli.infer import generate_text as generate_text
from gradloom.cli.infer import infer as infer
from gradloom.cli.designs import build as build
from gradloom.cli.designs import flash as flash
from gradloom.cli.designs import monitor as monitor
from gradloom.cli.designs import report as report
from gradloom.cli.designs import selftest as selftest
from gradloom.cli.units import quantize as quantize
from gradloom.cli.units import run as run
from gradloom.cli.language import load as load
from gradloom.cli.language import pack as pack
from gradloom.cli.language import plan as plan
from gradloom.cli.recurrent import export as export
from gradloom.cli.recurrent import import_model as import_model
from gradloom.cli.merge import merge as merge
from gradloom.cli.sweep import sweep as sweep
from gradloom.systems.diffusion.workload import DiffusionOptions as DiffusionOptions
from gradloom.systems.images.workload import ImageOptions as ImageOptions
from gradloom.systems.sequences.workload import SequenceOptions as SequenceOptions
from gradloom.systems.text.workload import InstantTextOptions as InstantTextOptions
from gradloom.systems.text.workload import QLoraOptions as QLoraOptions
from gradloom.options import Options

__version__: str

def finetune(
    preset: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    output: Path | str = "finetune",
    progress: Callable[[int, int, str], None] | None = None,
    lr: float | None = None,
    seed: int | None = None,
    engine: str | None = None,
    design: Path | str | None = None,
    rank: int | None = None,
    model: Path | str | None = None,
    data: Path | str | None = None,
    momentum: float | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    limit: int | None = None,
    cache: str | None = None,
    angle: float | None = None,
    text: Path | str | None = None,
    adapter: Path | str | None = None,
    optimizer: str | None = None,
    steps: int | None = None,
    seq: int | None = None,
    keep: int | None = None,
    resume: bool | None = None,
    layers: int | None = None,
    method: str | None = None,
    accumulate: int | None = None,
    targets: str | None = None,
    from_layer: int | None = None,
    store: str | None = None,
    deploy: str | None = None,
    held_out: Path | str | None = None,
    card: bool | None = None,
    card_steps: int | None = None,
    card_seconds: float | None = None,
    stop_steps: int | None = None,
    stop_seconds: float | None = None,
    pause_celsius: float | None = None,
    answer: bool | None = None,
    person: int | None = None,
    base: Path | str | None = None,
    style: str | None = None,
    prompt: str | None = None,
    alpha: float | None = None,
    generate: int | None = None,
) -> dict[str, Any]: ...
