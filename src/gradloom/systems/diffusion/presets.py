"""Presets that work with diffusion models."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

from .workload import DiffusionWorkload

__all__ = ["CDM_QTA_KV260"]

CDM_QTA_KV260 = Preset(
    name="cdm-qta-kv260",
    board="kv260",
    workload=DiffusionWorkload(),
    summary="CDM-QTA: a diffusion model's adapters, all products in INT8, two a DSP slice",
    config=DiffusionConfig(),
)
