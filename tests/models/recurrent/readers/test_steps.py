"""What a step of an LSTM must be: other ones are refused in one line."""

import numpy as np
import pytest

from gradloom.models.recurrent.readers.reader import load_recurrent

from ..models import saved
from .steps import CONSTANTS, check_step, step_of

#: Edits of the step, constants, and what is expected: of ``!`` a refusal, of ``=`` the hidden states that are computed.
CASES = [
    (
        "m2 = Q(m1, SG) => m2 = Add(m1, h)",
        dict(),
        (
            "! no recurrent node: expected a Scan, a QuantLSTMCell, or one step of an LSTM with its states as "
            "inputs and outputs"
        ),
    ),
    (
        "s2 = Q(s1, SG) => s2 = Mul(s1, c)",
        dict(),
        "! no input of the graph is a cell state that the forget gate multiplies",
    ),
    (
        "m2 = Q(m1, SG) => m2 = Mul(o7, t2) ;; / m2, s2 / => / m2, s2 /",
        dict(),
        "! a quantiser is missing: that of the hidden state",
    ),
    ("m2 = Q(m1, SG) => m2 = Identity(m1)", dict(), "! a quantiser is missing: that of the hidden state"),
    (
        "m2 = Q(m1, SG) => m3 = Q(m1, SG); m2 = Q(m3, SG)",
        dict(),
        "! the hidden or the cell state goes through two quantisers in a row",
    ),
    (
        "s2 = Q(s1, SG) => s3 = Q(s1, SG); s2 = Q(s3, SG)",
        dict(),
        "! the cell state goes through two quantisers in a row",
    ),
    ("s2 = Q(s1, SG) => s2 = Identity(s1)", dict(), "= last"),
    (
        "k2 = Q(k1, SG) => k2 = Identity(k1)",
        dict(),
        "! node 'k1': a quantiser is missing: that of a product of the cell state",
    ),
    (
        "a2 = Q(a1, SG) => a2 = Identity(a1)",
        dict(),
        "! node 'a1': a quantiser is missing: that of a product of the cell state",
    ),
    (
        "k1 = Mul(f7, c) => k1 = Mul(f7, g7)",
        dict(),
        "! no input of the graph is a cell state that the forget gate multiplies",
    ),
    ("k1 = Mul(f7, c) => k1 = Mul(c, f7)", dict(), "= last"),
    ("k1 = Mul(f7, c) => cq = Q(c, SG); k1 = Mul(f7, cq)", dict(), "= last"),
    (
        "k1 = Mul(f7, c) => cq = Q(c, SX); k1 = Mul(f7, cq)",
        dict(),
        (
            "! node 'cq': the cell state is quantised twice, with scales 0.03125 and 0.0625, codes -32 to 31 and "
            "-32 to 31: the second must change nothing"
        ),
    ),
    (
        "k1 = Mul(f7, c) => cq = Q(c, SG); k1 = Mul(f7, cq) ;; s2 = Q(s1, SG) => s2 = Identity(s1)",
        dict(),
        "! a quantiser on the loop of the cell state, which has none where it is made",
    ),
    (
        "a1 = Mul(i7, g7) => a1 = Mul(i7, c)",
        dict(),
        "! its cell state is not forget gate * state + input gate * cell gate",
    ),
    ("a1 = Mul(i7, g7) => a1 = Mul(g7, i7)", dict(), "= last"),
    (
        "a1 = Mul(i7, g7) => a1 = Mul(i7, f7)",
        dict(),
        "! node 'a1' multiplies sigmoid and sigmoid: expected sigmoid and tanh",
    ),
    ("a1 = Mul(i7, g7) => a1 = Mul(g7, g7)", dict(), "! node 'a1' multiplies tanh and tanh: expected sigmoid and tanh"),
    (
        "a1 = Mul(i7, g7) => a1 = Add(i7, g7)",
        dict(),
        "! its cell state is not forget gate * state + input gate * cell gate",
    ),
    ("a1 = Mul(i7, g7) => in = Sub(ONE, f7); a1 = Mul(in, g7)", dict(), "= last"),
    (
        "a1 = Mul(i7, g7) => in = Sub(ONE, o7); a1 = Mul(in, g7)",
        dict(),
        "! node 'in': 1 minus what is not the forget gate",
    ),
    ("a1 = Mul(i7, g7) => in = Sub(E, f7); a1 = Mul(in, g7)", dict(E=np.float32(31 / 32)), "= last"),
    (
        "a1 = Mul(i7, g7) => in = Sub(E, f7); a1 = Mul(in, g7)",
        dict(E=np.float32(1 / 64)),
        "! node 'in': 0.015625 minus a gate of scale 0.03125: must be 1 or a multiple of the scale",
    ),
    (
        "a1 = Mul(i7, g7) => in = Sub(E, f7); a1 = Mul(in, g7)",
        dict(E=np.float32(33 / 32)),
        "! node 'in' (Sub): only 1 minus a gate is supported",
    ),
    (
        "a1 = Mul(i7, g7) => in = Sub(E, f7); a1 = Mul(in, g7)",
        dict(E=np.float32(0)),
        "! node 'in' (Sub): only 1 minus a gate is supported",
    ),
    (
        "a1 = Mul(i7, g7) => in = Sub(E, f7); a1 = Mul(in, g7)",
        dict(E=np.ones(3, np.float32)),
        "! node 'in' (Sub): only 1 minus a gate is supported",
    ),
    (
        "a1 = Mul(i7, g7) => in = Sub(f7, ONE); a1 = Mul(in, g7)",
        dict(),
        "! node 'in' (Sub): it adds a constant to what is no product with weights",
    ),
    (
        "a1 = Mul(i7, g7) => in = Sub(f7, i7); a1 = Mul(in, g7)",
        dict(),
        "! node 'in' (Sub): it subtracts values of the network: only constants can be subtracted",
    ),
    ("k1 = Mul(f7, c) => fn = Sub(ONE, i7); k1 = Mul(fn, c)", dict(), "= last"),
    (
        "k1 = Mul(f7, c) => k1 = Mul(f6, c)",
        dict(),
        "! node 'f6': a quantiser is missing: that of the forget gate's activation",
    ),
    ("s1 = Add(k2, a2) => s1 = Add(a2, k2)", dict(), "= last"),
    (
        "s1 = Add(k2, a2) => s1 = Add(k2, k2)",
        dict(),
        "! its cell state is not forget gate * state + input gate * cell gate",
    ),
    (
        "s1 = Add(k2, a2) => s1 = Add(a2, a2)",
        dict(),
        "! no input of the graph is a cell state that the forget gate multiplies",
    ),
    ("t1 = Tanh(s2) => t1 = Sigmoid(s2)", dict(), "! node 'm1': its hidden state has no tanh of the cell state"),
    ("t1 = Tanh(s2) => t1 = Tanh(s1)", dict(), "! node 't1': its input is not the cell state"),
    ("t1 = Tanh(s2) => t1 = Tanh(c)", dict(), "! node 't1': its input is not the cell state"),
    ("t1 = Tanh(s2) => s3 = Q(s2, SG); t1 = Tanh(s3)", dict(), "= last"),
    ("t1 = Tanh(s2) => s3 = Q(s2, SX); t1 = Tanh(s3)", dict(), "= last"),
    (
        "t2 = Q(t1, SG) => t2 = Identity(t1)",
        dict(),
        "! node 't1': a quantiser is missing: that of the tanh of the cell state",
    ),
    ("m1 = Mul(o7, t2) => m1 = Mul(t2, o7)", dict(), "= last"),
    ("m1 = Mul(o7, t2) => m1 = Mul(o7, o7)", dict(), "! node 'm1': its hidden state has no tanh of the cell state"),
    ("m1 = Mul(o7, t2) => m1 = Mul(g7, t2)", dict(), "! node 'g6': its input is not the cell state"),
    (
        "m1 = Mul(o7, t2) => m1 = Mul(o6, t2)",
        dict(),
        "! node 'o6': a quantiser is missing: that of the output gate's activation",
    ),
    ("m1 = Mul(o7, t2) => m1 = Mul(o5, t2)", dict(), "! the output gate has no activation: expected sigmoid or tanh"),
    ("f6 = Sigmoid(f5) => f6 = Tanh(f5)", dict(), "! node 'f6': the forget gate has tanh: expected sigmoid"),
    (
        "g6 = Tanh(g5) => g6 = Sigmoid(g5)",
        dict(),
        "! node 'a1' multiplies sigmoid and sigmoid: expected sigmoid and tanh",
    ),
    (
        "f6 = Sigmoid(f5) => f6 = Sigmoid(f4)",
        dict(),
        "! node 'f3': a quantiser is missing: that of the forget gate's accumulator",
    ),
    (
        "f6 = Sigmoid(f5) => f6 = Sigmoid(xq) ;; float[n,4] x => float[n,3] x",
        dict(Wi=CONSTANTS["Wi"][:3], Wf=CONSTANTS["Wf"][:3], Wg=CONSTANTS["Wg"][:3], Wo=CONSTANTS["Wo"][:3]),
        "! the forget gate is not a product of weights with the input and the hidden state",
    ),
    (
        "f1 = MatMul(xq, fw) => f1 = MatMul(h, fu)",
        dict(),
        "! node 'f3': two products with one source in the forget gate",
    ),
    (
        "f3 = Add(f1, f2) => f3 = Identity(f2)",
        dict(),
        "! node 'f2': the forget gate needs a product with the input and one with the hidden state",
    ),
    (
        "f3 = Add(f1, f2) => f3 = Identity(f1)",
        dict(),
        "! node 'f1': the forget gate needs a product with the input and one with the hidden state",
    ),
    (
        "f2 = MatMul(h, fu) => f2 = MatMul(c, fu)",
        dict(),
        "! node 'f3': a term of the forget gate is neither of the input nor of the hidden state",
    ),
    ("f2 = MatMul(h, fu) => hq = Q(h, SG); f2 = MatMul(hq, fu)", dict(), "= last"),
    (
        "f2 = MatMul(h, fu) => hq = Q(h, SX); f2 = MatMul(hq, fu)",
        dict(),
        (
            "! node 'hq': the hidden state is quantised twice, with scales 0.03125 and 0.0625, codes -32 to 31 and "
            "-32 to 31: the second must change nothing"
        ),
    ),
    ("f1 = MatMul(xq, fw) => x2 = Q(x, SX); f1 = MatMul(x2, fw)", dict(), "= last"),
    (
        "f1 = MatMul(xq, fw) => x2 = Q(x, SG); f1 = MatMul(x2, fw)",
        dict(),
        (
            "! node 'x2': the input is quantised twice, with scales 0.0625 and 0.03125, codes -32 to 31 and -32 to "
            "31: the second must change nothing"
        ),
    ),
    ("/ m2, s2 / => / s2, m2 /", dict(), "= last"),
    (
        "/ m2, s2 / => / m2 /",
        dict(),
        ("! one step of an LSTM needs 3 inputs and 2 outputs: x, h and c, and the new h and c; the graph has 3 and 1"),
    ),
    (
        "/ m2, s2 / => / m2, s2, f7 /",
        dict(),
        "! one step of an LSTM has outputs beside its states: export the step alone",
    ),
    ("float[n,4] x, float[n,3] h, float[n,3] c => float[n,3] c, float[n,3] h, float[n,4] x", dict(), "= last"),
    (
        "float[n,4] x, => float[n,4] x, float[n,3] z, ;; k1 = Mul(f7, c) => zq = Q(z, SG); k1 = Mul(f7, zq)",
        dict(),
        ("! one step of an LSTM needs 3 inputs and 2 outputs: x, h and c, and the new h and c; the graph has 4 and 2"),
    ),
    (
        "k1 = Mul(f7, c) => k1 = Mul(f7, o7)",
        dict(),
        "! no input of the graph is a cell state that the forget gate multiplies",
    ),
    (
        "f1 = MatMul(xq, fw) => x2 = Q(x, SX); x3 = Q(x2, SX); f1 = MatMul(x3, fw)",
        dict(),
        "! node 'f3': a term of the forget gate is neither of the input nor of the hidden state",
    ),
    (
        "m2 = Q(m1, SG) => m2 = Relu(m1) ;; s2 = Q(s1, SG) => s2 = Relu(s1)",
        dict(),
        (
            "! no recurrent node: expected a Scan, a QuantLSTMCell, or one step of an LSTM with its states as "
            "inputs and outputs"
        ),
    ),
    (
        "f5 = Q(f4, SA) => fj = Concat<axis=0>(f4, i4); f5 = Q(fj, SA)",
        dict(),
        "! node 'fj' (Concat): only gates can be joined",
    ),
    (
        "t2 = Q(t1, SG) => t2 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(t1, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75], [0.1, 0.5, 0.75], [0.25, 0.5, 0.5]])),
        (
            "! node 't2': it has 3 rows of thresholds behind a tanh, of which one table is made for all channels: "
            "give it one row"
        ),
    ),
    (
        (
            "t1 = Tanh(s2) => s3 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(s2, E); t1 "
            "= Tanh(s3)"
        ),
        dict(E=np.float32([[0.25, 0.5, 0.75], [0.1, 0.5, 0.75], [0.25, 0.5, 0.5]])),
        (
            "! node 's3': it has 3 rows of thresholds in front of a tanh, of which one table is made for all "
            "channels: give it one row"
        ),
    ),
    (
        (
            "t1 = Tanh(s2) => s3 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(s2, E); t1 "
            "= Tanh(s3)"
        ),
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "= last",
    ),
    (
        "f5 = Q(f4, SA) => f5 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(f4, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75], [0.1, 0.5, 0.75], [0.25, 0.5, 0.5]])),
        "= last",
    ),
    (
        "k2 = Q(k1, SG) => k2 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(k1, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75], [0.1, 0.5, 0.75], [0.25, 0.5, 0.5]])),
        "= last",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E) ;; fu = Q(Uf, SW) => fu = Q(Uf, E)",
        dict(E=np.float32([[1 / 64, 1 / 32, 1 / 128]])),
        "= last",
    ),
    (
        (
            "fw = Q(Wf, SW) => fw = DequantizeLinear<axis=1>(I, E, J) ;; fu = Q(Uf, SW) => fu = "
            "DequantizeLinear<axis=-1>(K, E, J)"
        ),
        dict(
            I=np.int8(np.arange(12).reshape(4, 3) * 20 - 118),
            J=np.zeros(3, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16]),
            K=np.int8(np.arange(9).reshape(3, 3) * 20 - 118),
        ),
        "= last",
    ),
    (
        (
            "fw = Q(Wf, SW) => ft = DequantizeLinear<axis=0>(I, E, J); fw = Transpose(ft) ;; fu = Q(Uf, SW) => fv = "
            "DequantizeLinear<axis=0>(K, E, J); fu = Transpose<perm=[1,0]>(fv)"
        ),
        dict(
            I=np.int8(np.arange(12).reshape(3, 4) * 20 - 118),
            J=np.zeros(3, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16]),
            K=np.int8(np.arange(9).reshape(3, 3) * 20 - 118),
        ),
        "= last",
    ),
    (
        (
            "fw = Q(Wf, SW) => ft = QuantizeLinear(Wf, E, J); fw = DequantizeLinear(ft, E, J) ;; fu = Q(Uf, SW) => "
            "fv = QuantizeLinear(Uf, E, J); fu = DequantizeLinear(fv, E, J)"
        ),
        dict(J=np.zeros(3, np.int8), E=np.float32([1 / 64, 1 / 32, 1 / 16])),
        "= last",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32(1 / 65)),
        (
            "! node 'f3': products with the input, quantised by 'xq', have the unit 0.000961538462 and products "
            "with the hidden state, quantised by 'm2', 0.00048828125, whose ratio 1.96923077 is no ratio of "
            "integers up to 1024: quantise the input and the hidden state with one scale"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32(16)),
        (
            "! node 'f3': products with the input, quantised by 'xq', have the unit 1 and products with the hidden "
            "state, quantised by 'm2', 0.00048828125, whose ratio 2048 is no ratio of integers up to 1024: quantise "
            "the input and the hidden state with one scale"
        ),
    ),
    ("fw = Q(Wf, SW) => fw = Q(Wf, E)", dict(E=np.float32(8)), "= last"),
    ("f5 = Q(f4, SA) => f5 = Q(f4, SA, Z, E)", dict(E=np.float32(2)), "= last"),
]


@pytest.mark.parametrize(("edits", "held", "expected"), CASES)
def test_a_step_has_the_interpreters_codes_or_is_refused(edits, held, expected, tmp_path):
    check_step(step_of(edits, **held), expected, tmp_path)


@pytest.mark.parametrize(("one", "scale", "code"), [(1, 1 / 32, 0), (31 / 32, 1 / 32, 31)])
def test_exactly_1_has_no_code_of_its_own(one, scale, code, tmp_path):
    edits = "f7 = Q(f6, SG) => f7 = Q(f6, E) ;; a1 = Mul(i7, g7) => in = Sub(D, f7); a1 = Mul(in, g7)"
    model = step_of(edits, E=np.float32(scale), D=np.float32(one))
    assert load_recurrent(saved(model, tmp_path)).cell.one == code
