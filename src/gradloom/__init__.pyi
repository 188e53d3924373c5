# ruff: noqa
"""Made by gradloom.rtl.cli.stub; do not edit."""
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradloom import boards as boards
from gradloom.rtl.cli.aggregate import aggregate as aggregate
from gradloom.rtl.cli.choose import choose as choose
from gradloom.rtl.cli.collect import collect as collect
from gradloom.rtl.cli.delivery import apply as apply
from gradloom.rtl.cli.delivery import delta as delta
from gradloom.rtl.cli.delivery import keygen as keygen
from gradloom.rtl.cli.delivery import keys as keys
from gradloom.rtl.cli.delivery import sign as sign
from gradloom.rtl.cli.delivery import verify as verify
from gradloom.rtl.cli.lists import doctor as doctor
from gradloom.rtl.cli.lists import presets as presets
from gradloom.rtl.cli.lists import units as units
from gradloom.rtl.cli.diffusion import generate_images as generate_images
from gradloom.rtl.cli.energy import energy as energy
from gradloom.rtl.cli.generate import generate as generate
from gradloom.rtl.cli.install import install as install
from gradloom.rtl.cli.install import rollback as rollback
from gradloom.rtl.cli.infer import compare as compare
from gradloom.rtl.cli.infer import fetch as fetch
from gradloom.rtl.cli.infer import generate_text as generate_text
from gradloom.rtl.cli.infer import infer as infer
from gradloom.rtl.cli.designs import build as build
from gradloom.rtl.cli.designs import flash as flash
from gradloom.rtl.cli.designs import monitor as monitor
from gradloom.rtl.cli.designs import report as report
from gradloom.rtl.cli.designs import selftest as selftest
from gradloom.rtl.cli.units import quantize as quantize
from gradloom.rtl.cli.units import run as run
from gradloom.rtl.cli.language import load as load
from gradloom.rtl.cli.language import pack as pack
from gradloom.rtl.cli.language import plan as plan
from gradloom.rtl.cli.recurrent import export as export
from gradloom.rtl.cli.recurrent import import_model as import_model
from gradloom.rtl.cli.merge import merge as merge
from gradloom.rtl.cli.sweep import sweep as sweep
from gradloom.rtl.workloads import DiffusionOptions as DiffusionOptions
from gradloom.rtl.workloads import ImageOptions as ImageOptions
from gradloom.rtl.workloads import InstantTextOptions as InstantTextOptions
from gradloom.rtl.workloads import QLoraOptions as QLoraOptions
from gradloom.rtl.workloads import SequenceOptions as SequenceOptions
from gradloom.rtl.workloads import Options

__version__: str

def finetune(
    preset: str,
    request: Options | None = None,
    *,
    output: Path | str = "finetune",
    progress: Callable[[int, int, str], None] | None = None,
    lr: float | None = None,
    seed: int | None = None,
    engine: str | None = None,
    design: Path | str | None = None,
    rank: int | None = None,
    model: Path | str | None = None,
    data: Path | str | None = None,
    angle: float | None = None,
    momentum: float | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    limit: int | None = None,
    cache: str | None = None,
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
