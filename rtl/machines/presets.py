"""Named configurations, each with the board it is for."""

from dataclasses import dataclass
from typing import Any

from ..plugins import Table
from ..workloads import (
    DIGITS,
    LENET5,
    DiffusionWorkload,
    InstantTextWorkload,
    QLoraWorkload,
    SequenceAnswers,
    SequenceWorkload,
    Workload,
)
from .configs import DiffusionConfig, ImageConfig, LanguageConfig, RecurrentConfig, SequenceConfig

__all__ = ["KNOWN", "PRESETS", "Preset", "find_preset", "find_workload"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named configuration.

    Parameters
    ----------
    name, board, summary : str
    config : ShellParameters
        Configuration of a machine, which it names.
    workload : Workload
        Its kind of fine-tune: options with their usual values, and the verbs that it has.
    """

    name: str
    board: str
    summary: str
    config: Any
    workload: Workload


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="instantft-kv260",
            board="kv260",
            summary="InstantFT: convolutional networks with direct-to-output adapters and an NF4 forward cache",
            config=ImageConfig(),
            workload=LENET5,
        ),
        Preset(
            name="edge-qlora-genesys2",
            board="genesys2",
            summary="QLoRA: a language model's adapters beside NF4 linears; whole training steps on the accelerator",
            config=LanguageConfig(),
            workload=QLoraWorkload(),
        ),
        Preset(
            name="instantft-llm-genesys2",
            board="genesys2",
            summary="InstantFT: a language model's adapters from every block to the head, learnt from a forward cache",
            config=LanguageConfig(),
            workload=InstantTextWorkload(),
        ),
        Preset(
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
        ),
        Preset(
            name="lstm-kv260",
            board="kv260",
            workload=SequenceWorkload(),
            summary="quantised LSTM, exact to the code, that learns from its states, without a pass back through time",
            config=SequenceConfig(
                tap_channels=64,
                positions=512,
                kernel=2,
                adapter_depth=512,
                weight_depth=1024,
                bias_depth=4,
                feature_depth=64,
                image_depth=1024,
                blocks=8,
                bank_luts=1,
            ),
        ),
        Preset(
            name="cdm-qta-kv260",
            board="kv260",
            workload=DiffusionWorkload(),
            summary="CDM-QTA: a diffusion model's adapters, all products in INT8, two a DSP slice",
            config=DiffusionConfig(),
        ),
        Preset(
            name="lstm-zcu104",
            board="zcu104",
            workload=SequenceAnswers(),
            summary="quantised LSTM: weights beside their slices, two products a slice, answers exact to the code",
            config=RecurrentConfig(),
        ),
        Preset(
            name="lstm-ulx3s",
            board="ulx3s",
            workload=SequenceAnswers(),
            summary="quantised LSTM of 32 elements: at power-up it labels windows that lie on the chip",
            config=RecurrentConfig(
                hidden=32,
                inputs=32,
                parallel=1,
                products=1,
                sequences=1,
                table_cycles=2,
                queue_depth=4,
                outstanding=2,
                address_bits=32,
                clock_mhz=75,
            ),
        ),
    )
}

#: All of these, and those of plug-ins.
KNOWN: Table[Preset] = Table("preset", "gradloom.presets", PRESETS, holds="gradloom.rtl.machines.presets:Preset")


def find_preset(name: str, *, verb: str | None = None) -> Preset:
    """The preset called ``name``.

    Its workload must have ``verb`` where one is given.
    """
    found = KNOWN.find(name)
    if verb is not None and not found.workload.can(verb):
        able = ", ".join(each.name for each in PRESETS.values() if each.workload.can(verb))
        learns = found.workload.can("prepare")
        what = f"fine-tunes {found.workload.title}, which has" if learns else "answers and does not learn, it has"
        raise ValueError(f"preset {name!r}: {what} no {verb.replace('_', '-')}; must be one of {able}")
    return found


def find_workload(board: str, kind: str) -> Preset | None:
    """The preset of a board whose workload is of ``kind``, if there is one."""
    return next((each for each in KNOWN.values() if (each.board, each.workload.kind) == (board, kind)), None)
