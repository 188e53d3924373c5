"""Presets, a unit and its budget, for this package's entry points.

gradloom finds them there. They import no Amaranth.
"""
from dataclasses import dataclass
from typing import ClassVar

from gradloom.options import Bounds, TuneOptions, option
from gradloom.preset import Preset
from gradloom.rtl.catalog import Unit
from gradloom.workload import Workload

from .parameters import ScaleConfig, ScaleLanguageConfig


@dataclass(frozen=True, kw_only=True)
class GainOptions(TuneOptions):
    """Options of a recalibration."""

    lr: float = option("Learning rate.", 0.5, choices=(1.0, 0.5, 0.25, 0.125, 0.0625))
    steps: int = option("Updates of the factors.", 8, bounds=Bounds(1, 1000))


@dataclass(frozen=True, kw_only=True)
class GainWorkload(Workload):
    """Recalibration of features whose gains have drifted."""

    kind: ClassVar = "features-gain"
    title: ClassVar = "gains of features"
    label: ClassVar = "features"
    takes: ClassVar = {"finetune": GainOptions}
    functions: ClassVar = {"finetune": "first_engine.task:GainTask"}
    units: ClassVar = {name: "half the mean squared error" for name in ("loss", "loss_before", "loss_after")}


ALONE = Preset(name="scale-genesys2", board="genesys2", summary="trainable factors alone", config=ScaleConfig(),
               workload=GainWorkload())
BESIDE = Preset(name="scale-language-genesys2", board="genesys2", summary="trainable factors in the language machine",
                config=ScaleLanguageConfig(), workload=GainWorkload())


def make():
    """The engine alone."""
    from .spec import SPEC

    return SPEC.unit(SPEC, ALONE.config)


UNIT = Unit(name="scale", summary="trainable factors, one a channel", parameters=(), make=make)
#: Levels of logic between the registers of its modules.
LEVELS = {"scale": 9, "scale_requantize": 7}
