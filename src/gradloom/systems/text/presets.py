"""Presets that work with language models."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.language import LanguageConfig

from .workload import InstantTextOnLinux, InstantTextWorkload, QLoraOnLinux, QLoraWorkload

__all__ = ["EDGE_QLORA_GENESYS2", "EDGE_QLORA_KV260", "INSTANTFT_LLM_GENESYS2", "INSTANTFT_LLM_KV260"]

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

#: 64 x 12 multipliers: sizes of models are often multiples of 192, three tiles of outputs.
_ON_KV260 = LanguageConfig(address_bits=40, ports=2, columns=12, outputs=8, dots=4, ultra=1, depth=4096)

EDGE_QLORA_KV260 = Preset(
    name="edge-qlora-kv260",
    board="kv260",
    summary="QLoRA: a language model's adapters beside NF4 linears; whole training steps on 64 x 12 multipliers",
    config=_ON_KV260,
    workload=QLoraOnLinux(),
)

INSTANTFT_LLM_KV260 = Preset(
    name="instantft-llm-kv260",
    board="kv260",
    summary="InstantFT: the machine of edge-qlora-kv260, with adapters from every block to the head",
    config=_ON_KV260,
    workload=InstantTextOnLinux(),
)
