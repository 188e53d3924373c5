"""Presets that work with language models."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.language import LanguageConfig

from .workload import InstantTextWorkload, QLoraWorkload

__all__ = ["EDGE_QLORA_GENESYS2", "INSTANTFT_LLM_GENESYS2"]

EDGE_QLORA_GENESYS2 = Preset(
    name="edge-qlora-genesys2",
    board="genesys2",
    summary="QLoRA: a language model's adapters beside NF4 linears; whole training steps on the accelerator",
    config=LanguageConfig(),
    workload=QLoraWorkload(),
)

INSTANTFT_LLM_GENESYS2 = Preset(
    name="instantft-llm-genesys2",
    board="genesys2",
    summary="InstantFT: a language model's adapters from every block to the head, learnt from a forward cache",
    config=LanguageConfig(),
    workload=InstantTextWorkload(),
)
