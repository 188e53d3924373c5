"""Programs that run a quantised recurrent network on the cell engine."""

from dataclasses import dataclass

import numpy as np

from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.engines.cell.parameters import RESULT_BEATS, SUM_GROUPS
from gradloom.rtl.formats.cell import CODES_A_BEAT, CellOpcode
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig

from .image import CellImage
from .layers import Layer

__all__ = ["Batch", "CellConfig", "CellProgram", "CellSetup"]

#: Tokens: the last command has ended; its states have left; results that the next layer takes are in memory.
_RAN, _LEFT, _KEPT = 1, 2, 3
#: Beats of results whose steps' x may be loaded before their STORE: of two parts the queue of results has room.
_AHEAD = RESULT_BEATS // 4
#: Configurations of machines with a cell engine.
CellConfig = RecurrentConfig | SequenceConfig


class CellSetup(PlacedProgram):
    """Loads a network into the engine, where it stays.

    ``first``: offset of its first word in the window.
    """

    def __init__(self, image: CellImage, config: CellConfig, first: int = 0) -> None:
        super().__init__(config, first)
        self.first = first
        for port in ("weights", "rows", "tables", "quantizers"):
            self.load(self.put(np.frombuffer(getattr(image, port), "<i4")), "cell", port)
        self.end()


@dataclass(frozen=True)
class Batch:
    """Sequences of a command, and the places of its results.

    ``logits`` : sums of the dense layer, where there is one. ``state`` : last states, where they leave.
    """

    sequences: slice
    hidden: Place
    logits: Place | None
    state: Place | None


class CellProgram(PlacedProgram):
    """Runs sequences of one length by the network that is loaded.

    As many run together as the design interleaves; each direction of a layer counts. Layer by layer all steps are
    kept in memory, from where the next layer takes them.

    Parameters
    ----------
    image : CellImage
    rows : array of int ``[sequences, steps, codes]``
        Rows of x: see :meth:`CellImage.windows`.
    config : CellConfig
    each : bool
        The dense layer follows each step, not the last alone.
    fresh : bool
        States begin at zero, not as the program before left them; then there must be one batch.
    states : bool
        The last states leave too.

    Attributes
    ----------
    batches : list of Batch
    """

    def __init__(
        self,
        image: CellImage,
        rows: np.ndarray,
        config: CellConfig,
        *,
        each: bool = False,
        fresh: bool = True,
        states: bool = True,
    ) -> None:
        super().__init__(config)
        self.image, self.each, self.fresh, self.states = image, each, fresh, states
        count, steps, _ = rows.shape
        if steps >= 1 << 16:
            raise ValueError(f"steps={steps}: must be at most {(1 << 16) - 1}")
        self.batches: list[Batch] = []
        together = config.sequences // max(layer.directions for layer in image.layers)
        for first in range(0, count, together):
            some = rows[first : first + together]
            last = first + len(some) == count
            self._batch(slice(first, first + len(some)), some, wait=(_LEFT,) if first and states else (), last=last)
        self.end()

    def _batch(self, which: slice, rows: np.ndarray, *, wait: tuple[int, ...], last: bool) -> None:
        image, count, steps = self.image, len(rows), rows.shape[1]
        hidden, logits, below = None, None, None
        for layer in image.layers:
            top = layer is image.layers[-1]
            self.do(
                "cell",
                CellOpcode.RUN,
                **layer.operands(steps),
                sequences=count * layer.directions,
                every=1,
                fresh=int(self.fresh),
                classes=layer.classes,
                each=int(self.each and top),
                wait=wait,
                post=(_RAN,) if self.states and top else (),
            )
            wait = ()
            joined = below is not None and not layer.directions == below.directions == 1
            if hidden is None:
                self.load(self.put(np.frombuffer(image.input_rows(rows), "<i4")), "cell", "x")
            elif not joined:
                self.load(hidden, "cell", "x", wait=(_KEPT,))
            kept = self.room(steps, count * layer.directions, layer.result // 4)
            if top and image.classes:
                size = image.classes * 4 * self.config.parallel
                logits = self.room(steps if self.each else 1, count * layer.directions, size)
            if joined and below is not None and hidden is not None:
                self._joined(layer, below, hidden, kept, logits)
            else:
                self._stores(layer, kept, logits)
            hidden, below = kept, layer
        assert hidden is not None
        state = None
        if self.states:
            state = self.room(2, self.config.state_places, 4)
            # The next command would overwrite the states.
            self.store(state, "cell", "state", wait=(_RAN,), post=() if last else (_LEFT,))
        self.batches.append(Batch(which, hidden, logits, state))

    def _stores(self, layer: Layer, kept: Place, logits: Place | None, first: int = 0, last: int | None = None) -> None:
        """STOREs of the results of steps ``first`` to ``last``; of a layer that another follows, kept for it."""
        steps, count, _ = kept.shape
        end = steps if last is None else min(last, steps)
        # Sums wait for their STORE: of no more steps than have room may hidden states go before.
        few = max(SUM_GROUPS // (count * layer.classes), 1) if self.each and layer.classes else steps
        for at in range(first, end, few):
            until = min(at + few, end)
            follows = layer is not self.image.layers[-1] and until == steps
            self.store(kept.rows(at, until), "cell", "h", post=(_KEPT,) if follows else ())
            if logits is not None and (self.each or until == steps):
                self.store(logits.rows(at, until) if self.each else logits, "cell", "logits")

    def _joined(self, layer: Layer, below: Layer, hidden: Place, kept: Place, logits: Place | None) -> None:
        """Loads x where it is no copy of the results below, some steps ahead of the STOREs."""
        steps, count, _ = kept.shape
        ahead = max(_AHEAD // (count * layer.result // CODES_A_BEAT), 1)
        wait: tuple[int, ...] = (_KEPT,)
        for first in range(0, steps + ahead, ahead):
            for piece in layer.pieces(below, count // layer.directions, steps, first, first + ahead):
                place = Place(hidden.offset + CODES_A_BEAT * piece.first, (piece.last - piece.first, 4))
                self.load(place, "cell", "x", wait=wait)
                wait = ()
            if first:
                self._stores(layer, kept, logits, first - ahead, first)

    def hidden(self, batch: Batch, words: np.ndarray) -> np.ndarray:
        """Codes ``[sequences, steps, hidden]`` from a batch's words."""
        return self.image.hidden_codes(_raw(words), batch.sequences.stop - batch.sequences.start)

    def sums(self, batch: Batch, words: np.ndarray) -> np.ndarray:
        """Sums ``[sequences, rows, classes]`` of the dense layer."""
        return self.image.sums(_raw(words), batch.sequences.stop - batch.sequences.start)

    def state(self, batch: Batch, words: np.ndarray) -> np.ndarray:
        """Codes ``[2, sequences, hidden]`` of the last cell and hidden states."""
        return self.image.state_codes(_raw(words), batch.sequences.stop - batch.sequences.start)


def _raw(words: np.ndarray) -> bytes:
    return np.ascontiguousarray(words).astype("<i4").tobytes()
