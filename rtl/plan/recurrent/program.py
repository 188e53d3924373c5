"""A program that runs a quantised LSTM on the cell engine."""

from dataclasses import dataclass

import numpy as np

from ...formats.cell import CellOpcode
from ...machines.configs import RecurrentConfig
from ...models.recurrent.network import RecurrentNetwork
from ..program.placed import Place, PlacedProgram
from .image import CellImage

__all__ = ["CellProgram"]


@dataclass(frozen=True)
class Batch:
    """Sequences of a command, and the places of their states."""

    sequences: slice
    hidden: Place
    state: Place


class CellProgram(PlacedProgram):
    """Loads a network, then runs sequences of one length.

    As many run together as the design interleaves.

    Parameters
    ----------
    network : RecurrentNetwork
    codes : array of int ``[sequences, steps, inputs]``
        Of the cell's input.
    config : RecurrentConfig

    Attributes
    ----------
    image : CellImage
    batches : list of Batch
    """

    def __init__(self, network: RecurrentNetwork, codes: np.ndarray, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.image = image = CellImage(network, config)
        count, steps, _ = codes.shape
        if steps >= 1 << 16:
            raise ValueError(f"steps={steps}: must be at most {(1 << 16) - 1}")
        self.batches: list[Batch] = []
        ports = ("weights", "rows", "tables", "quantizers")
        for number, port in enumerate(ports):
            last = number == len(ports) - 1
            self.load(self._bytes(getattr(image, port)), "cell", port, post=(0,) if last else ())
        for first in range(0, count, config.sequences):
            some = codes[first : first + config.sequences]
            last = first + len(some) == count
            self._batch(slice(first, first + len(some)), some, wait=(2,) if first else (0,), last=last)
        self.end()

    def _bytes(self, raw: bytes) -> Place:
        return self.put(np.frombuffer(raw, "<i4"))

    def _batch(self, which: slice, codes: np.ndarray, *, wait: tuple[int, ...], last: bool) -> None:
        image, count, steps = self.image, len(codes), codes.shape[1]
        self.do(
            "cell",
            CellOpcode.RUN,
            steps=steps,
            sequences=count,
            hidden=image.hidden,
            inputs=image.inputs,
            every=1,
            fresh=1,
            unsigned=int(image.unsigned),
            wait=wait,
            post=(1,),
        )
        hidden = self.room(steps, count, image.result // 4)
        state = self.room(2, self.config.sequences, self.config.groups, 4)
        self.load(self._bytes(image.input_rows(codes)), "cell", "x")
        self.store(hidden, "cell", "h")
        # The next command would overwrite the states.
        self.store(state, "cell", "state", wait=(1,), post=() if last else (2,))
        self.batches.append(Batch(which, hidden, state))

    def hidden(self, batch: Batch, words: np.ndarray) -> np.ndarray:
        """Codes ``[sequences, steps, hidden]`` from a batch's words."""
        count = batch.sequences.stop - batch.sequences.start
        return self.image.hidden_codes(np.ascontiguousarray(words).astype("<i4").tobytes(), count)

    def state(self, batch: Batch, words: np.ndarray) -> np.ndarray:
        """Codes ``[2, sequences, hidden]`` of the last cell and hidden states."""
        return self.image.state_codes(words.astype("<i4").tobytes(), batch.sequences.stop - batch.sequences.start)
