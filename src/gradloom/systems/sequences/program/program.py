"""Programs that run a quantised LSTM on the cell engine."""

from dataclasses import dataclass

import numpy as np

from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.engines.cell.parameters import SUM_GROUPS
from gradloom.rtl.formats.cell import CellOpcode
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig

from .image import CellImage

__all__ = ["Batch", "CellConfig", "CellProgram", "CellSetup"]

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

    As many run together as the design interleaves.

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
        for first in range(0, count, config.sequences):
            some = rows[first : first + config.sequences]
            last = first + len(some) == count
            self._batch(slice(first, first + len(some)), some, wait=(2,) if first and states else (), last=last)
        self.end()

    def _batch(self, which: slice, rows: np.ndarray, *, wait: tuple[int, ...], last: bool) -> None:
        image, count, steps = self.image, len(rows), rows.shape[1]
        self.do(
            "cell",
            CellOpcode.RUN,
            steps=steps,
            sequences=count,
            hidden=image.hidden,
            inputs=image.inputs,
            every=1,
            fresh=int(self.fresh),
            unsigned=int(image.unsigned),
            window=image.window,
            window_unsigned=int(image.window_unsigned),
            filters=image.filters,
            front=image.front(steps) if image.window else 0,
            classes=image.classes,
            each=int(self.each),
            wait=wait,
            post=(1,) if self.states else (),
        )
        self.load(self.put(np.frombuffer(image.input_rows(rows), "<i4")), "cell", "x")
        hidden, logits, state = self.room(steps, count, image.result // 4), None, None
        if image.classes:
            logits = self.room(steps if self.each else 1, count, image.classes * 4 * self.config.parallel)
        # Sums wait for their STORE: of no more steps than have room may hidden states go before.
        few = max(SUM_GROUPS // (count * image.classes), 1) if self.each and image.classes else steps
        for first in range(0, steps, few):
            self.store(hidden.rows(first, first + few), "cell", "h")
            if logits is not None:
                self.store(logits.rows(first, first + few), "cell", "logits")
        if self.states:
            state = self.room(2, self.config.sequences, self.config.groups, 4)
            # The next command would overwrite the states.
            self.store(state, "cell", "state", wait=(1,), post=() if last else (2,))
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
