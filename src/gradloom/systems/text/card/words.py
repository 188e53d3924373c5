"""The words that a signed adapter brings to the job on a card."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradloom.firmware.chip.card import BLOCK, NOTE, PLAIN, CardError, read_header, read_section, section_of
from gradloom.models.adapters.language.gguf_lora import load_linears
from gradloom.models.adapters.language.instant import load_instant
from gradloom.models.adapters.lora import Adapter
from gradloom.models.filled import filled
from gradloom.models.language import LanguageModel
from gradloom.rtl.formats.weights.tiles import tile_rows

from ..operations.instant import InstantStep
from ..order import arranged

__all__ = ["BoardWords", "read_board"]

#: Features of a tile.
_TILE = 64


@dataclass(frozen=True)
class BoardWords:
    """A card's note and first block, and the words its job begins with."""

    about: Mapping[str, Any]
    block: bytes
    words: bytes

    @property
    def exact(self) -> int:
        """Number of the first word that is an exponent."""
        return int(self.about["state"]) // 4

    def of(self, adapter: Path | str) -> np.ndarray:
        """The words of an adapter like that of the card's job.

        Exponents are those that the job begins with. :class:`ValueError` names what does not fit.
        """
        words = bytearray(self.words)
        values = self._linears(adapter) if self.about.get("method") != "instantft" else self._blocks(adapter)
        for name, place in self.about["adapters"].items():
            coded = np.rint(np.ldexp(np.asarray(values[name], np.float64), int(place["frac"])))
            if np.abs(coded).max(initial=0) > place["most"]:
                raise ValueError(f"adapter: a value of {name} is beyond the card's exponents; make the card from it")
            data = tile_rows(coded.astype(np.int64), _TILE)
            if len(data) != place["bytes"]:
                raise ValueError(f"adapter: {name} has {len(data)} bytes, the card's job {place['bytes']}")
            words[place["offset"] : place["offset"] + len(data)] = data
        return np.frombuffer(bytes(words), "<i4")

    def _linears(self, adapter: Path | str) -> dict[str, np.ndarray]:
        """Values by name, of PEFT's format."""
        about = self.about
        model = LanguageModel(**about["shapes"])
        found = arranged(model, load_linears(adapter, model, rank=int(about["rank"])))
        wanted = {name[:-2] for name in about["adapters"]}
        if set(found) != wanted:
            raise ValueError(f"adapter: has {len(found)} linears, the card's job {len(wanted)}; name one of that job")
        return {f"{name}.{which}": values for name, each in found.items() for which, values in _parts(each)}

    def _blocks(self, adapter: Path | str) -> dict[str, np.ndarray]:
        """The same of InstantFT's."""
        about = self.about
        model, rank, layers = LanguageModel(**about["shapes"]), int(about["rank"]), int(about["layers"])
        found = load_instant(adapter, model, rank=rank)
        if len(found) != layers:
            raise ValueError(f"adapter: has {len(found)} blocks, the card's job {layers}; name one of that job")
        step = InstantStep(filled(model), int(about["tokens"]), rank, range(layers), int(about["rows"]))
        return {tensor.name: values for tensor, values in step.stacked(found).items()}


def _parts(adapter: Adapter) -> tuple[tuple[str, np.ndarray], ...]:
    return ("a", adapter.a), ("b", adapter.b.T * adapter.scale)


def read_board(file: BinaryIO) -> BoardWords:
    """What a card says of its job.

    :class:`CardError` says what is wrong with the card.
    """
    file.seek(0)
    block = file.read(BLOCK)
    sections, _ = read_header(block)
    note, first = (section_of(sections, kind) for kind in (NOTE, PLAIN))
    if note is None or first is None:
        raise CardError("the card has no fine-tune: write one with gradloom card write")
    about = json.loads(read_section(file, note).rstrip(b"\0"))
    if "words" not in about:
        raise CardError("the card has no room for signed adapters: write it again with gradloom card write")
    return BoardWords(about, block, read_section(file, first)[: about["words"]])
