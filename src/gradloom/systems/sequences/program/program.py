"""Programs that run a quantised recurrent network on the cell engine."""

from dataclasses import dataclass

import numpy as np

from gradloom.program.memory import MemoryMap
from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.engines.cell.parameters import RESULT_BEATS, SUM_GROUPS
from gradloom.rtl.formats.cell import CODES_A_BEAT, CellOpcode
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig

from .image import CellImage
from .layers import CellLayer

__all__ = ["Batch", "CellConfig", "CellProgram", "CellSetup", "LayerProgram"]

#: Tokens: the last command has ended; its states have left; results that the next layer takes are in memory.
_RAN, _LEFT, _KEPT = 1, 2, 3
#: Beats of results whose steps' x may be loaded before their STORE: of two parts the queue of results has room.
_AHEAD = RESULT_BEATS // 4
#: Configurations of machines with a cell engine.
CellConfig = RecurrentConfig | SequenceConfig


class LayerProgram(PlacedProgram):
    """Commands that load a network, and that run its layers one behind another.

    ``first``: offset of its first word in the window; or ``memory``, where there is more.
    """

    #: The dense layer follows each step.
    each = False
    #: Posted when results that the next layer takes are in memory.
    kept_token = _KEPT
    #: Steps of x in a LOAD; 0: all.
    apart = 0

    def __init__(
        self, image: CellImage, config: CellConfig, *, first: int = 0, memory: MemoryMap | None = None
    ) -> None:
        super().__init__(config, first, memory)
        self.image = image

    def cut(self) -> None:
        """Called where commands that others write may stand."""

    def network(self) -> None:
        """LOADs of the network, which stays in the engine."""
        for port in ("weights", "rows", "tables", "quantizers"):
            self.load(self.put(np.frombuffer(getattr(self.image, port), "<i4")), "cell", port)

    def given(self, rows: np.ndarray) -> Place:
        """Place of x of the first layer; ``rows`` ``[sequences, steps, codes]``: see :meth:`CellImage.windows`."""
        return self.put(np.frombuffer(self.image.input_rows(rows), "<i4").reshape(rows.shape[1], -1, 4))

    def enter(
        self,
        layer: CellLayer,
        below: tuple[CellLayer, Place] | None,
        x: Place,
        count: int,
        kept: Place | None = None,
        logits: Place | None = None,
    ) -> None:
        """LOADs of a layer's x, and STOREs of its results.

        ``x``: of the first layer, of ``count`` sequences; or the layer ``below`` with its results.
        ``kept``, ``logits``: places of hidden states of all steps and of sums, where they leave.
        """
        steps = x.shape[0]
        if below is not None and layer.pick != "all" and not self.each:
            self._ended(layer, *below, count)
            if kept is not None:
                self._stores(layer, kept, logits)
            return
        if below is not None and not layer.beside == below[0].beside == 1:
            self._joined(layer, *below, (steps, count), kept, logits)
            return
        if below is not None:
            x = below[1]
        wait: tuple[int, ...] = () if below is None else (self.kept_token,)
        for first in range(0, steps, self.apart or steps):
            self.load(x.rows(first, first + (self.apart or steps)), "cell", "x", wait=wait)
            self.cut()
            wait = ()
        if kept is not None:
            self._stores(layer, kept, logits)

    def _stores(
        self, layer: CellLayer, kept: Place, logits: Place | None, first: int = 0, last: int | None = None
    ) -> None:
        """STOREs of the results of steps ``first`` to ``last``; of a layer that another follows, kept for it."""
        steps, count, _ = kept.shape
        end = steps if last is None else min(last, steps)
        # Sums wait for their STORE: of no more steps than have room may hidden states go before.
        few = max(SUM_GROUPS // (count * layer.classes), 1) if self.each and layer.classes else steps
        for at in range(first, end, few):
            until = min(at + few, end)
            follows = layer is not self.image.layers[-1] and until == steps
            self.store(kept.rows(at, until), "cell", "h", post=(self.kept_token,) if follows else ())
            if logits is not None and (self.each or until == steps):
                self.store(logits.rows(at, until) if self.each else logits, "cell", "logits")

    def _ended(self, layer: CellLayer, below: CellLayer, hidden: Place, count: int) -> None:
        """Loads the results of the layer below that a sequence ends with."""
        steps = hidden.shape[0]
        wait: tuple[int, ...] = (self.kept_token,)
        if below.directions == 1 or layer.pick == "ends":
            size = count * below.directions * below.result
            self.load(Place(hidden.offset + hidden.length - size, (size // 16, 4)), "cell", "x", wait=wait)
            return
        for piece in layer.pieces(below, count, steps, steps - 1, steps):
            place = Place(hidden.offset + CODES_A_BEAT * piece.first, (piece.last - piece.first, 4))
            self.load(place, "cell", "x", wait=wait)
            wait = ()

    def _joined(
        self,
        layer: CellLayer,
        below: CellLayer,
        hidden: Place,
        sizes: tuple[int, int],
        kept: Place | None,
        logits: Place | None,
    ) -> None:
        """Loads x where it is no copy of the results below, some steps ahead of the STOREs."""
        steps, count = sizes
        ahead = max(_AHEAD // (count * layer.beside * layer.result // CODES_A_BEAT), 1)
        wait: tuple[int, ...] = (self.kept_token,)
        for first in range(0, steps + ahead, ahead):
            for piece in layer.pieces(below, count, steps, first, first + ahead):
                place = Place(hidden.offset + CODES_A_BEAT * piece.first, (piece.last - piece.first, 4))
                self.load(place, "cell", "x", wait=wait)
                wait = ()
            self.cut()
            if first and kept is not None:
                self._stores(layer, kept, logits, first - ahead, first)


class CellSetup(LayerProgram):
    """Loads a network into the engine, where it stays.

    ``first``: offset of its first word in the window.
    """

    def __init__(self, image: CellImage, config: CellConfig, first: int = 0) -> None:
        super().__init__(image, config, first=first)
        self.first = first
        self.network()
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


class CellProgram(LayerProgram):
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
        super().__init__(image, config)
        self.each, self.fresh, self.states = each, fresh, states
        count, steps, _ = rows.shape
        if steps > image.most_steps:
            raise ValueError(f"steps={steps}: must be at most {image.most_steps}")
        self.batches: list[Batch] = []
        together = config.sequences // max(layer.directions for layer in image.layers)
        for first in range(0, count, together):
            some = rows[first : first + together]
            last = first + len(some) == count
            self._batch(slice(first, first + len(some)), some, wait=(_LEFT,) if first and states else (), last=last)
        self.end()

    def _batch(self, which: slice, rows: np.ndarray, *, wait: tuple[int, ...], last: bool) -> None:
        image, count, steps = self.image, len(rows), rows.shape[1]
        hidden: Place | None = None
        logits: Place | None = None
        below: tuple[CellLayer, Place] | None = None
        for layer in image.layers:
            last_layer = layer is image.layers[-1]
            if layer.pick != "all" and not self.each:
                steps = 1
            self.do(
                "cell",
                CellOpcode.RUN,
                **layer.operands(steps),
                sequences=count * layer.directions,
                every=1,
                fresh=int(self.fresh),
                classes=layer.classes,
                each=int(self.each and last_layer),
                wait=wait,
                post=(_RAN,) if self.states and last_layer else (),
            )
            wait = ()
            if below is None:
                x = self.given(rows)
            kept = self.room(steps, count * layer.beside, layer.result // 4)
            if last_layer and image.classes:
                size = image.classes * 4 * self.config.parallel
                rows_ = (steps, layer.beside) if self.each else (1, layer.directions)
                logits = self.room(rows_[0], count * rows_[1], size)
            self.enter(layer, below, x, count, kept, logits)
            below = layer, kept
            if layer is image.top:
                hidden = kept
        assert hidden is not None
        state = None
        if self.states:
            state = self.room(2, self.config.state_places, 4)
            # The next command would overwrite the states.
            self.store(state, "cell", "state", wait=(_RAN,), post=() if last else (_LEFT,))
        self.batches.append(Batch(which, hidden, logits, state))

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
