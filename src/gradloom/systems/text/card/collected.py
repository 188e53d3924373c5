"""A trained adapter off a board's memory card, as PEFT's files.

Beside them lie ``optimizer.safetensors`` with AdamW's moments as torch has them, and ``log.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradloom.firmware.card import BLOCK, DELIVERY, KEPT, NOTE, CardError, read_header, read_section, section_of
from gradloom.firmware.delivered import Area
from gradloom.firmware.kept import Copy, newest
from gradloom.json_file import json_text
from gradloom.models.adapters.lora import Adapter, save_lora
from gradloom.models.adapters.peft_files import key
from gradloom.models.files.tensors import write_safetensors
from gradloom.models.language import LanguageModel
from gradloom.rtl.formats.tiles import untile_moments, untile_rows

__all__ = ["Collected", "collected_files", "read_collected"]

#: Features of a tile, and fraction bits of an adapter's word more than its exponent says.
_TILE, _SPARE = 64, 14
LOG, OPTIMIZER = "log.json", "optimizer.safetensors"


@dataclass(frozen=True)
class Collected:
    """What a job has learnt, with what its card says about it."""

    about: Mapping[str, Any]
    copy: Copy

    @property
    def model(self) -> LanguageModel:
        """Shapes of the base."""
        return LanguageModel(**self.about["shapes"])

    @property
    def scale(self) -> float:
        """Alpha over rank."""
        return float(self.about["alpha"] / self.about["rank"])

    def adapters(self) -> dict[str, Adapter]:
        """Adapters by linear."""
        words = {name: self._words(name, place) for name, place in self.about["adapters"].items()}
        return {
            name[:-2]: Adapter(values, words[f"{name[:-2]}.b"].T / self.scale, self.scale)
            for name, values in words.items()
            if name.endswith(".a")
        }

    def _words(self, name: str, place: Mapping[str, int]) -> np.ndarray:
        data, rank = self._bytes(name, place), int(self.about["rank"])
        frac = int.from_bytes(self._bytes(name, {"offset": place["exponent"], "bytes": 4}), "little", signed=True)
        words = untile_rows(data, rank, len(data) // 4 // rank, _TILE)
        return np.ldexp(words.astype(np.float64), -(frac + _SPARE))

    def moments(self) -> dict[str, np.ndarray]:
        """AdamW's moments by PEFT's names.

        They end in ``.exp_avg`` and ``.exp_avg_sq``; SGD has none.
        """
        if "moment_scales" not in self.about:
            return {}
        rank, found = int(self.about["rank"]), {}
        for name, place in self.about["moments"].items():
            data = self._bytes(name, place)
            pair = untile_moments(data, rank, len(data) // 8 // rank, _TILE)
            linear, _, end = name.rpartition(".")
            # B's words hold the factor alpha over rank, so its gradients lack it.
            factor = self.scale if end == "mb" else 1.0
            scales = zip(("exp_avg", "exp_avg_sq"), self.about["moment_scales"], (factor, factor**2))
            for (which, scale, power), bits in zip(scales, pair):
                values = bits.astype("<u4").view("<f4") * np.float32(scale * power)
                name_of = key(linear, "B" if end == "mb" else "A")
                found[f"{name_of}.{which}"] = np.ascontiguousarray(values.T if end == "mb" else values, np.float32)
        return found

    def log(self) -> dict[str, Any]:
        """Steps, why they were stored, and each step's loss and clipped words."""
        return {
            "steps": self.copy.runs,
            "of": self.about["steps"],
            "reason": self.copy.reason.name.lower(),
            "stored": self.copy.sequence,
            "loss": [each.loss for each in self.copy.log],
            "saturated": [each.saturated for each in self.copy.log],
        }

    def _bytes(self, name: str, place: Mapping[str, int]) -> bytes:
        data = self.copy.words[place["offset"] : place["offset"] + place["bytes"]]
        if len(data) != place["bytes"]:
            raise CardError(f"{name} is outside the stored words: job and card do not belong together")
        return data


def read_collected(file: BinaryIO) -> Collected:
    """The newest copy on a card, and its note.

    :class:`CardError` says what is wrong with the card.
    """
    sections, identity = read_header(file.read(BLOCK))
    note, area = (section_of(sections, kind) for kind in (NOTE, KEPT))
    if area is None or note is None:
        raise CardError("the card has no fine-tune: write one with gradloom card write")
    text = read_section(file, note)
    room = area.size // 2
    if section_of(sections, DELIVERY) is not None:
        # What a job has learnt from another adapter is not for the installed one.
        current = Area.of(file).state(file).current
        identity ^= current.total if current is not None else 0
    copy = newest(file, area.start, room, identity)
    if copy is not None:
        return Collected(json.loads(text.rstrip(b"\0")), copy)
    written = []
    for place in (0, 1):
        file.seek(area.start + place * room)
        written.append(any(file.read(BLOCK)))
    if any(written):
        raise CardError("no stored copy is whole: the board stores a new one when it runs again")
    raise CardError("the board has stored nothing yet")


def collected_files(found: Collected, folder: Path) -> dict[str, Any]:
    """Writes adapter, moments and log.

    Returns the log with the number of parameters.
    """
    adapters = found.adapters()
    save_lora(folder, found.model, adapters)
    moments = found.moments()
    if moments:
        write_safetensors(folder / OPTIMIZER, {name: (values, "float32") for name, values in moments.items()})
    log = found.log()
    (folder / LOG).write_text(json_text(log), encoding="utf-8")
    return log | {"parameters": sum(part.size for each in adapters.values() for part in each.parts.values())}
