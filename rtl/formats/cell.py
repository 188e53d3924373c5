"""Words of the cell engine in memory."""

from enum import IntEnum

from amaranth.lib import data

from .gates import GATES
from .pair import Pair

__all__ = [
    "CENTRED",
    "CODE",
    "CODES_A_BEAT",
    "NEW",
    "PAIR",
    "QUANTIZERS_A_CELL",
    "SINGLE",
    "TAP_PARTS",
    "TAP_QUARTERS",
    "TAP_SHIFT",
    "TAP_WORD",
    "CellOperands",
    "CellOpcode",
    "GateWord",
    "QuantizerWord",
    "Quantizers",
    "TableWord",
    "TapArgument",
    "gate_sum",
]

#: Codes of an input or of a hidden state in a beat, a byte each.
CODES_A_BEAT = 16
#: Bits of a gate's code, and of a code of the input.
CODE = 9
#: Two products of a slice.
PAIR = Pair(19)
#: Bits of a slice's sum of one chain.
SINGLE = 24
#: Bits of a sum of a gate, with its offset, that meets a multiplier; sums beyond are clipped.
CENTRED = 18


class CellOpcode(IntEnum):
    """Opcodes of the cell engine."""

    RUN = 0  #: steps of a cell; x: input or window of each; h: codes of hidden states; logits: sums of the dense layer


#: Steps of one sequence, or of several that take turns, a step of each.
CellOperands = data.StructLayout(
    {
        "steps": 16,  #: steps of each sequence, 1 or more
        "sequences": 8,  #: 1 to the design's ``sequences``
        "hidden": 9,  #: elements of the hidden state, divided by ``parallel``, rounded up
        "inputs": 9,  #: elements of the input, likewise
        "every": 1,  #: h of all steps leaves, not of the last alone
        "fresh": 1,  #: states begin at zero, not as the command before left them
        "unsigned": 1,  #: codes of the input are 0 to 255, not -128 to 127
        "window": 9,  #: codes of a convolution's window likewise; 0: x has the input itself
        "filters": 8,  #: outputs of the convolution, divided by ``4 * parallel``, rounded up
        "front": 8,  #: group that has the first of them; they leave behind the sums of the groups in front
        "classes": 8,  #: outputs of the dense layer, divided by ``4 * parallel``, rounded up; 0: none
        "each": 1,  #: the dense layer follows each step, not the last alone
        "quiet": 1,  #: no h leaves
        "window_unsigned": 1,  #: codes of x are 0 to 255 where they are windows
        "channels": 8,  #: channels of x whose sums are taps, divided by ``parallel``, rounded up; 0: none
        "own": 8,  #: so many times ``channels`` chunks at the begin of a row of x are added up
        "cell": 4,  #: cell whose weights, settings and states count
        "both": 1,  #: each second sequence is one of the cell behind, which must be odd: the other direction's
        "gru": 1,  #: the cell is a GRU; only in a design with ``gru``
        "passes": 1,  #: of two steps the first is of ``cell``, an LSTM's, the second of a GRU's behind it; see Feed
        "_reserved": 56,
    }
)

#: Places of rows of settings: of the gates, then of the convolution's outputs; zeros for the dense layer's behind them.
#: A row of weights is followed by ``((clip(n + offset)) * multiplier + addend) >> shift``; a beat a row, rows of an
#: element's gates side by side. ``clip`` is to :data:`CENTRED` bits.
#: Of a GRU, the gates are update, reset, input's part of the new state, and hidden state's part. ``gated`` is the
#: multiplier of reset gate times hidden state's part, where the sum of the input's part has ``multiplier``.
GateWord = data.StructLayout({"offset": 32, "multiplier": 32, "addend": 32, "gated": 32})


class Quantizers(IntEnum):
    """Beats of the load port ``quantizers``.

    Of gates and WINDOW only shift, rounding and ends count, of STATE only the ends. Of a GRU, KEPT is the quantiser of
    the new state's sum, of which the multiplier is that of each row, HIDDEN that of the hidden state, and ADDED has the
    multiplier and the addend of update gate times old hidden state; STATE has the ends of KEPT. In a design with
    several cells a cell's beats begin at each multiple of 16.
    """

    INPUT = 0  #: accumulator of the input gate
    FORGET = 1  #: of the forget gate
    CELL = 2  #: of the cell gate
    OUTPUT = 3  #: of the output gate
    KEPT = 4  #: forget gate * state
    ADDED = 5  #: input gate * cell gate
    HIDDEN = 6  #: output gate * tanh of the state
    STATE = 7  #: sum of KEPT and ADDED
    WINDOW = 8  #: a convolution's sum


#: Beats of ``quantizers`` from a cell to the next.
QUANTIZERS_A_CELL = 16
#: The gate of a GRU whose rows have ``gated``.
NEW = 2

#: ``(n * multiplier + addend) >> shift``, clipped to ``lo..hi``. With ``even``, a result whose ``shift`` bits below are
#: all 0 loses its last bit: with half a unit in ``addend`` that is rounding half to even. With ``near`` the lowest
#: :data:`~.requantizer.NEAR` of them do not count; only in a design with ``ties``. ``one`` of HIDDEN is the code that a
#: GRU's update gate is subtracted from.
QuantizerWord = data.StructLayout(
    {"multiplier": 31, "near": 1, "addend": 48, "shift": 6, "even": 1, "one": 9, "lo": 16, "hi": 16}
)

#: Beat n of the load port ``tables``: the codes of sigmoid or tanh for the code n of each gate's accumulator, and the
#: code of tanh for the state n; n is a code in two's complement.
TableWord = data.StructLayout({"gates": data.ArrayLayout(16, GATES), "squash": 16, "_reserved": 48})


#: Parts of the taps in their order: hidden state, tanh of the cell state, sum of the hidden states of all steps, sums
#: of x over each of the quarters of the steps.
TAP_PARTS, TAP_QUARTERS = 4, 4
#: Bits of a word of the taps, to which it is clipped, and of a shift.
TAP_WORD, TAP_SHIFT = 24, 5

#: Operand ``arg`` of a STORE from ``taps``: the words of a part are shifted left by so many bits, at most 20.
TapArgument = data.StructLayout(
    {
        "sequence": 6,  #: whose taps leave
        "h": TAP_SHIFT,  #: shift of the hidden state
        "squashed": TAP_SHIFT,  #: of the tanh of the cell state
        "sum": TAP_SHIFT,  #: of the sum of hidden states
        "x": TAP_SHIFT,  #: of the sums of x
        "cell": 3,  #: whose states they are
        "plain": 1,  #: there is no cell state, so none of its tanh
        "alone": 1,  #: no sums of x follow
        "_reserved": 1,
    }
)


def gate_sum(products: int, parallel: int) -> int:
    """Bits of the sum of a gate over its ``parallel`` chains."""
    return (PAIR.apart if products == 2 else SINGLE) + (parallel - 1).bit_length()
