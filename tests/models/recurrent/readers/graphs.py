"""Small graphs of ONNX as text, and what the readers say of them."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from gradloom.models.recurrent.readers.native import load_native

from ..models import saved

__all__ = ["AROUND", "CHANNELS", "UNITS", "Case", "cases", "made", "numbers", "refusal"]

#: Elements of a hidden state, and channels of the input.
UNITS, CHANNELS = 3, 4
_DOMAINS = ("com.microsoft", "qonnx.custom_op.general", "onnx.brevitas", "other")


def numbers(*shape, seed=1, scale=0.5):
    """Real numbers that are the same in each run."""
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


#: Weights by name: of an LSTM in one direction and in two, of one behind each, and of dense layers.
WEIGHTS = {
    "W": numbers(1, 12, CHANNELS),
    "U": numbers(1, 12, UNITS, seed=2),
    "B": numbers(1, 24, seed=3),
    "W2": numbers(2, 12, CHANNELS, seed=4),
    "U2": numbers(2, 12, UNITS, seed=5),
    "B2": numbers(2, 24, seed=6),
    "V": numbers(1, 12, UNITS, seed=7),
    "V2": numbers(1, 12, 2 * UNITS, seed=8),
    "D": numbers(UNITS, 2, seed=9),
    "D1": numbers(UNITS, 1, seed=9),
    "D6": numbers(2 * UNITS, 2, seed=10),
    "E": numbers(2, UNITS, seed=11),
    "K2": numbers(2, seed=12),
    "K3": numbers(UNITS, seed=13),
    "K4": numbers(CHANNELS, seed=14),
    "C3": numbers(4, 4, 3, seed=16),
    "A4": numbers(CHANNELS, seed=30),
    "M4": numbers(CHANNELS, seed=31),
    "V4": numbers(CHANNELS, seed=32) ** 2,
    "L2": np.arange(1, 3, dtype=np.float32),
    "L3": np.arange(1, 4, dtype=np.float32),
    "O1": np.ones(1, np.float32),
    "O3": np.ones(3, np.float32),
    "O4": np.ones(4, np.float32),
    "O5": np.ones(5, np.float32),
    "M": np.float32(np.nan),
    "Z": np.float32(0),
    "Q0": np.zeros((1, 5, 3), np.float32),
    "Q1": np.eye(3, dtype=np.float32)[None, [1, 1, 1, 1, 1]],
    "H0": np.zeros((1, 9), np.float32),
    "H1": np.eye(9, dtype=np.float32)[:1],
    "N5": np.full(5, 4, np.int32),
    "P": np.float32(0.5),
    "N": np.float32(-0.5),
}
_LSTM, _END = "y, h, s = LSTM<hidden_size=3>({}, W, U, B)", "o = Squeeze<axes=[0]>(h); q = MatMul(o, D)"
_MERGED = f"c = Reshape(v, i_0_0_m1); {_LSTM.format('c')}; {_END}"
#: What stands around nodes, by a letter: those behind an LSTM of one direction or of two, whose states are
#: ``y``, ``h`` and ``s``; those that make ``b`` of ``a``, both [n, channels, steps]; those that make ``c`` [steps, n,
#: channels] of ``x``; those that make ``b`` [n, 2, steps, 2] of ``u`` [n, 1, steps, features], whose channels come
#: before the features in what the LSTM sees, or behind them, or whose steps come behind the features; and nodes alone.
AROUND = {
    "1": f"t = Transpose<perm=[1,0,2]>(x); {_LSTM.format('t')}; @",
    "2": 't = Transpose<perm=[1,0,2]>(x); y, h, s = LSTM<hidden_size=3, direction="bidirectional">(t, W2, U2, B2); @',
    "n": f"a = Transpose<perm=[0,2,1]>(x); @; c = Transpose<perm=[2,0,1]>(b); {_LSTM.format('c')}; {_END}",
    "c": f"@; {_LSTM.format('c')}; {_END}",
    "p": f"u = Unsqueeze<axes=[1]>(x); @; v = Transpose<perm=[2,0,1,3]>(b); {_MERGED}",
    "f": f"u = Unsqueeze<axes=[1]>(x); @; v = Transpose<perm=[2,0,3,1]>(b); {_MERGED}",
    "t": f"a = Transpose<perm=[0,2,1]>(x); u = Unsqueeze<axes=[1]>(a); @; v = Transpose<perm=[3,0,1,2]>(b); {_MERGED}",
    "-": "@",
}


def _constant(name):
    """A constant that its name describes: ``i_0_m1`` is ``[0, -1]``, ``s_2`` is 2, ``f_2_3`` are numbers [2, 3]."""
    kind, *rest = name.split("_")
    whole = [int(each.replace("m", "-")) for each in rest]
    return numbers(*whole) if kind == "f" else np.array(whole[0] if kind == "s" else whole, np.int64)


def made(text, inputs="float[n,5,4] x", outputs=None, opset=12, **held):
    """A model of the nodes in ``text``, whose outputs are those of the last node unless named.

    ``held``: constants by name, beside those that names describe and :data:`WEIGHTS`.
    """
    nodes = text.replace(";", "\n").strip().splitlines()
    names = (outputs or nodes[-1].split("=", 1)[0]).replace(" ", "").split(",")
    body = "\n".join(nodes)
    graph = onnx.parser.parse_graph(f"g ({inputs}) => ({', '.join(f'float {name}' for name in names)}) {{ {body} }}")
    inner = [each.g for node in graph.node for each in node.attribute if each.HasField("g")]
    taken = {name for each in (graph, *inner) for node in each.node for name in node.input}
    own = {name: _constant(name) for name in taken if re.fullmatch(r"[isf](_m?\d+)+", name)}
    known = WEIGHTS | own | held
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(known[name]), name) for name in sorted(taken & {*known})
    )
    opsets = [onnx.helper.make_opsetid("", opset), *(onnx.helper.make_opsetid(each, 1) for each in _DOMAINS)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@dataclass(frozen=True)
class Case:
    """Nodes, what is around them, and what is expected: of ``!`` a refusal, of ``=`` a network, of ``~`` one that
    onnxruntime does not run."""

    around: str
    text: str
    kind: str
    expected: str
    more: dict[str, str]

    def model(self):
        """The model; :func:`made` has its fields."""
        more = {name: int(value) if name == "opset" else value for name, value in self.more.items()}
        return made(AROUND[self.around].replace("@", self.text), **more)


def cases(*names):
    """Cases of files: each the letter of :data:`AROUND` and nodes, then one of ``!=~`` and what is expected.

    A line in front of it that begins with ``@`` has fields of :func:`made`.
    """
    found, head, more = [], (), {}
    for line in (line for name in names for line in Path(__file__).with_name(name).read_text().splitlines()):
        if line.startswith("@"):
            more = dict(each.split(": ") for each in line[2:].split(" | "))
        elif line[:2] in ("! ", "= ", "~ "):
            found.append(Case(*head, line[0], line[2:], more))
            more = {}
        else:
            head = line[0], line[2:]
    return [pytest.param(each, id=each.text[-70:]) for each in found]


def refusal(model, folder, load=load_native):
    """The line in which a model is refused, without the file's name; none of one that is read."""
    path = saved(model, folder)
    try:
        load(path)
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{path}: ") and "\n" not in said
        return said.removeprefix(f"{path}: ")
    return None
