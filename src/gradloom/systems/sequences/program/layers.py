"""A recurrent layer on the cell engine: sizes, and commands' operands."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from gradloom.rtl.engines.cell.parameters import CellParameters
from gradloom.rtl.formats.cell import CODES_A_BEAT
from gradloom.rtl.formats.gates import GATES

from .words import CellWords

__all__ = ["CellLayer", "BeatsBelow"]


@dataclass(frozen=True)
class BeatsBelow:
    """Beats ``first`` to ``last`` (exclusive) of the layer below, one behind another, that are a part of x."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class CellLayer:
    """A layer of one direction or of two.

    Parameters
    ----------
    words : tuple of CellWords
        By pass, and by direction. Of two, the second goes through the sequence from its end.
    number : int
        Of the first direction's cell in the engine; of two directions even.
    config : CellParameters
    gru : bool
    inputs : int
        Elements of a row of x, of the cell's input.
    window : int
        Codes of a window; 0: there is no convolution in front.
    unsigned, window_unsigned : bool
        Codes of the cell's input, and of windows, are 0 to 255.
    passes : int
        Of a step: two of a GRU that resets in front of the product.
    pick : str
        Steps of the layer below that it takes: ``all``, the ``last``, or those that both directions end with, ``ends``.
    """

    words: tuple[CellWords, ...]
    number: int
    config: CellParameters
    gru: bool
    inputs: int
    window: int
    unsigned: bool
    window_unsigned: bool
    passes: int = 1
    pick: str = "all"

    @property
    def directions(self) -> int:
        """One or two."""
        return len(self.words) // self.passes

    @property
    def beside(self) -> int:
        """Rows of results that a step of a sequence has."""
        return self.directions * self.passes

    @property
    def units(self) -> int:
        """Elements of a direction's hidden state."""
        units: int = self.words[0].cell.cell.units
        return units

    @property
    def hidden(self) -> int:
        """Chunks of a direction's hidden state."""
        return -(-self.units // self.config.parallel)

    @property
    def filters(self) -> int:
        """Groups of sums of the convolution."""
        window = self.words[0].window
        return 0 if window is None else -(-len(window.conv.conv.weight) // (GATES * self.config.parallel))

    @property
    def classes(self) -> int:
        """Groups of sums of the dense layer."""
        head = self.words[0].head
        return 0 if head is None else -(-len(head) // (GATES * self.config.parallel))

    @property
    def row(self) -> int:
        """Bytes of a row of x: a step of a sequence."""
        return _whole(self.window or self.inputs)

    @property
    def result(self) -> int:
        """Bytes of a row of h, of a direction."""
        return _whole(self.hidden * self.config.parallel)

    def front(self, steps: int) -> int:
        """Group of a convolution's first results, for a command of ``steps``.

        Behind the sums of a step they leave groups that are busy no more; of a single step they leave the first.
        """
        last = self.hidden - self.filters
        return last if steps * self.passes > 1 and last >= self.filters else 0

    def operands(self, steps: int) -> dict[str, int]:
        """Operands of RUN by name, without those of what leaves."""
        parallel = self.config.parallel
        return {
            "steps": steps * self.passes,
            "hidden": self.hidden,
            "inputs": -(-self.inputs // parallel),
            "unsigned": int(self.unsigned),
            "window": -(-self.window // parallel),
            "window_unsigned": int(self.window_unsigned),
            "filters": self.filters,
            "front": self.front(steps) if self.window else 0,
            "cell": self.number,
            "both": self.directions - 1,
            "gru": int(self.gru),
            "passes": self.passes - 1,
        }

    def taken(self, rows: np.ndarray) -> np.ndarray:
        """Rows ``[sequences, steps, codes]`` as sequences of the engine: each in both directions, in all passes."""
        if self.directions == 2:
            rows = np.stack([rows, rows[:, ::-1]], axis=1).reshape(-1, *rows.shape[1:])
        return np.repeat(rows, self.passes, axis=1)

    def told(self, found: np.ndarray) -> np.ndarray:
        """Of the engine's sequences ``[n, rows, values]`` those of the network, of the last pass of each step.

        ``[sequences, directions, steps, values]``, in the order of time. A single row is of the last step.
        """
        found = found[:, ::-1][:, :: self.passes][:, ::-1]
        apart = found.reshape(-1, self.directions, *found.shape[1:])
        if self.directions == 1:
            return apart
        return np.stack([apart[:, 0], apart[:, 1, ::-1]], axis=1)

    def pieces(self, below: "CellLayer", sequences: int, steps: int, first: int, last: int) -> Iterator[BeatsBelow]:
        """What x of steps ``first`` to ``last`` (exclusive) is of the results of the layer below.

        ``sequences``: of the network.
        """
        size, found = below.result // CODES_A_BEAT, None
        for begin in self._begins(below, sequences, steps, range(first, min(last, steps))):
            if found is not None and found.last == begin * size:
                found = BeatsBelow(found.first, found.last + size)
                continue
            if found is not None:
                yield found
            found = BeatsBelow(begin * size, (begin + 1) * size)
        if found is not None:
            yield found

    def _begins(self, below: "CellLayer", sequences: int, steps: int, chosen: range) -> Iterator[int]:
        """Rows of the results below, in the order in which x takes them."""
        for step, _, sequence, own in product(chosen, range(self.passes), range(sequences), range(self.directions)):
            time = steps - 1 - step if own else step
            for other in range(below.directions):
                # The last pass made the state.
                at = (steps - 1 - time if other else time) * below.passes + below.passes - 1
                yield (at * sequences + sequence) * below.directions + other


def _whole(size: int) -> int:
    """Bytes of whole beats."""
    return -(-size // CODES_A_BEAT) * CODES_A_BEAT
