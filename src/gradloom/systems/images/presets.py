"""Presets that work with convolutional networks."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.images import ImageConfig

from .workload import DIGITS, LENET5

__all__ = ["DIGITS_ULX3S", "INSTANTFT_KV260"]

INSTANTFT_KV260 = Preset(
    name="instantft-kv260",
    board="kv260",
    summary="InstantFT: convolutional networks with direct-to-output adapters and an NF4 forward cache",
    config=ImageConfig(),
    workload=LENET5,
)

DIGITS_ULX3S = Preset(
    name="digits-ulx3s",
    board="ulx3s",
    workload=DIGITS,
    summary="InstantFT, small and alone on the chip: at power-up an adapter learns 8x8 digits that lie in it",
    config=ImageConfig(
        rows=4,
        panels=2,
        rank=2,
        kernel=2,
        width=8,
        positions=64,
        taps=8,
        adapter_depth=256,
        weight_depth=2048,
        bias_depth=16,
        feature_depth=64,
        image_depth=128,
        dense_depth=256,
        blocks=4,
        cache_slots=64,
        queue_depth=4,
        outstanding=2,
        address_bits=32,
        clock_mhz=75,
        activation_bits=18,
    ),
)
