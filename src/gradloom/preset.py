"""Named configurations, each with the board it is for."""

from dataclasses import dataclass
from typing import Any

from .plugins import Homes, Table
from .workload import Workload

__all__ = ["KINDS", "KNOWN", "PRESETS", "Preset", "find_preset", "find_workload"]


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


#: Where presets stand, as a plug-in's entry point says it of its own.
PRESETS: Homes[Preset] = Homes(
    {
        "instantft-kv260": "gradloom.systems.images.presets:INSTANTFT_KV260",
        "edge-qlora-genesys2": "gradloom.systems.text.presets:EDGE_QLORA_GENESYS2",
        "instantft-llm-genesys2": "gradloom.systems.text.presets:INSTANTFT_LLM_GENESYS2",
        "digits-ulx3s": "gradloom.systems.images.presets:DIGITS_ULX3S",
        "lstm-kv260": "gradloom.systems.sequences.presets:LSTM_KV260",
        "cdm-qta-kv260": "gradloom.systems.diffusion.presets:CDM_QTA_KV260",
        "lstm-zcu104": "gradloom.systems.sequences.presets:LSTM_ZCU104",
        "lstm-ulx3s": "gradloom.systems.sequences.presets:LSTM_ULX3S",
        "tile-kv260": "gradloom.systems.networks.presets:TILE_KV260",
        "edge-qlora-kv260": "gradloom.systems.text.presets:EDGE_QLORA_KV260",
        "instantft-llm-kv260": "gradloom.systems.text.presets:INSTANTFT_LLM_KV260",
    }
)

#: Kinds of workloads that learn, in the order in which their options are told. Those that only answer have no options
#: of their own.
KINDS: Homes[type[Workload]] = Homes(
    {
        "images-instantft": "gradloom.systems.images.workload:ImageWorkload",
        "text-qlora": "gradloom.systems.text.workload:QLoraWorkload",
        "text-instantft": "gradloom.systems.text.workload:InstantTextWorkload",
        "sequences-instantft": "gradloom.systems.sequences.workload:SequenceWorkload",
        "diffusion-lora": "gradloom.systems.diffusion.workload:DiffusionWorkload",
        "networks": "gradloom.systems.networks.workload:NetworkWorkload",
    }
)

#: All of these, and those of plug-ins.
KNOWN: Table[Preset] = Table("preset", "gradloom.presets", PRESETS, holds="gradloom.preset:Preset")


def find_preset(name: str, *, verb: str | None = None) -> Preset:
    """The preset called ``name``.

    Its workload must have ``verb`` where one is given.
    """
    found = KNOWN.find(name)
    if verb is not None and not found.workload.can(verb):
        able = ", ".join(each.name for each in PRESETS.values() if each.workload.can(verb))
        learns = found.workload.can("finetune")
        what = f"fine-tunes {found.workload.title}, which has" if learns else "answers and does not learn, it has"
        raise ValueError(f"preset {name!r}: {what} no {verb.replace('_', '-')}; must be one of {able}")
    return found


def find_workload(board: str, kind: str) -> Preset | None:
    """The preset of a board whose workload is of ``kind``, if there is one."""
    return next((each for each in KNOWN.values() if (each.board, each.workload.kind) == (board, kind)), None)
