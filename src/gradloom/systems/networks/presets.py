"""Presets that work with any feed-forward network."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

from .workload import NetworkWorkload

__all__ = ["TILE_KV260"]

TILE_KV260 = Preset(
    name="tile-kv260",
    board="kv260",
    workload=NetworkWorkload(),
    summary="networks from ONNX files: convolutions, attention, norms and AdamW on tiles; the design of cdm-qta-kv260",
    config=DiffusionConfig(),
)
