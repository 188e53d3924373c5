"""A trained adapter off a board's memory card, as PEFT's files, or InstantFT's.

Beside them lie ``optimizer.safetensors`` with AdamW's moments as torch has them, and ``log.json``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np

from gradloom.firmware.chip.card import BLOCK, DELIVERY, KEPT, NOTE, CardError, read_header, read_section, section_of
from gradloom.firmware.chip.delivered import Area
from gradloom.firmware.chip.kept import Copy, newest
from gradloom.json_file import json_text
from gradloom.models.adapters.language.instant import key as instant_key
from gradloom.models.adapters.language.instant import save_instant
from gradloom.models.adapters.lora import Adapter, save_lora
from gradloom.models.adapters.peft_files import key
from gradloom.models.files.tensors import write_safetensors
from gradloom.models.filled import filled
from gradloom.models.language import LanguageModel
from gradloom.rtl.formats.weights.tiles import untile_moments, untile_rows

from ..operations.instant import A, B, InstantStep
from ..operations.shapes import paired
from ..order import restored

__all__ = ["CardResults", "Collected", "CollectedFiles", "CollectedLog", "collected_files", "read_collected"]

#: Features of a tile, and fraction bits of an adapter's word more than its exponent says.
_TILE, _SPARE = 64, 14
LOG, OPTIMIZER = "log.json", "optimizer.safetensors"


class CollectedLog(TypedDict):
    """Steps that a board has made, ``of`` how many, and why they were stored; loss and clipped words by step."""

    steps: int
    of: int
    reason: str
    stored: int
    loss: list[float | None]
    saturated: list[int]


class CollectedFiles(CollectedLog):
    """The log beside an adapter of so many parameters."""

    parameters: int


class CardResults(CollectedFiles):
    """A folder with what a board has learnt, and its log."""

    output: str
    model: str


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
        return float(self.about["alpha"] / self.rank)

    @property
    def rank(self) -> int:
        """Of the adapters."""
        return int(self.about["rank"])

    @cached_property
    def instant(self) -> InstantStep | None:
        """How InstantFT has its words; None of QLoRA."""
        about = self.about
        if about.get("method") != "instantft":
            return None
        return InstantStep(
            filled(self.model), int(about["tokens"]), self.rank, range(int(about["layers"])), int(about["rows"])
        )

    def save(self, folder: Path) -> int:
        """Writes the adapter, and returns the number of its parameters."""
        words = {name: self._words(name, place) for name, place in self.about["adapters"].items()}
        adapters: dict[Any, Adapter]
        if self.instant is None:
            adapters = {
                name[:-2]: Adapter(values, words[f"{name[:-2]}.b"].T / self.scale, self.scale)
                for name, values in words.items()
                if name.endswith(".a")
            }
            save_lora(folder, self.model, restored(self.model, adapters, self.rank))
        else:
            adapters = {
                layer: Adapter(a, b / self.scale, self.scale)
                for layer, (a, b) in self.instant.split(words[A], words[B]).items()
            }
            save_instant(folder, self.model, adapters)
        return sum(part.size for each in adapters.values() for part in each.parts.values())

    def _rows(self, name: str) -> int:
        if self.instant is None:
            return paired(self.rank)
        return (self.instant.b if name.endswith("b") else self.instant.a).rows

    def _words(self, name: str, place: Mapping[str, int]) -> np.ndarray:
        data, rows, frac = self._bytes(name, place), self._rows(name), place["frac"]
        if "exponent" in place:
            own = self._bytes(name, {"offset": place["exponent"], "bytes": 4})
            frac = int.from_bytes(own, "little", signed=True) + _SPARE
        return np.ldexp(untile_rows(data, rows, len(data) // 4 // rows, _TILE).astype(np.float64), -frac)

    def moments(self) -> dict[str, np.ndarray]:
        """AdamW's moments by the names of the adapter's tensors.

        They end in ``.exp_avg`` and ``.exp_avg_sq``; SGD has none.
        """
        if "moment_scales" not in self.about:
            return {}
        found: dict[str, np.ndarray] = {}
        # B's words hold the factor alpha over rank, so its gradients lack it.
        for number, (which, scale) in enumerate(zip(("exp_avg", "exp_avg_sq"), self.about["moment_scales"])):
            factor = self.scale ** (number + 1)
            held = {}
            for name, place in self.about["moments"].items():
                data, rows = self._bytes(name, place), self._rows(name)
                bits = untile_moments(data, rows, len(data) // 8 // rows, _TILE)[number]
                values = bits.astype("<u4").view("<f4")
                held[name] = values * np.float32(scale * (factor if name.endswith("b") else 1.0))
            found |= {f"{name}.{which}": values for name, values in self._named(held)}
        return {name: np.ascontiguousarray(values, np.float32) for name, values in found.items()}

    def _named(self, moments: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Those of each tensor of the adapter, as it has it."""
        if self.instant is None:
            held = {
                name[:-3]: Adapter(values, moments[f"{name[:-3]}.mb"].T, self.scale)
                for name, values in moments.items()
                if name.endswith(".ma")
            }
            for linear, each in restored(self.model, held, self.rank).items():
                yield from ((key(linear, which.upper()), values) for which, values in each.parts.items())
            return
        a, b = (moments[f"{name[:-1]}m{name[-1]}"] for name in (A, B))
        for layer, parts in self.instant.split(a, b).items():
            for which, values in zip("AB", parts):
                yield instant_key(layer, which), values

    def log(self) -> CollectedLog:
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


def collected_files(found: Collected, folder: Path) -> CollectedFiles:
    """Writes adapter, moments and log.

    Returns the log with the number of parameters.
    """
    parameters = found.save(folder)
    moments = found.moments()
    if moments:
        write_safetensors(folder / OPTIMIZER, {name: (values, "float32") for name, values in moments.items()})
    log = found.log()
    (folder / LOG).write_text(json_text(log), encoding="utf-8")
    return {**log, "parameters": parameters}
