"""A Scan of a step, and what is around it."""

import numpy as np
import pytest

from .graphs import numbers
from .steps import check_scan, step_of

#: Edits of the step, constants, and what is expected: of ``!`` a refusal, of ``=`` a network.
CASES = [
    ("/ h1, c1, y => / y", dict(), "= last"),
    ("h1, c1, y = Scan => c1, h1, y = Scan", dict(), "= last"),
    ("float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] s2)", dict(), "= last"),
    (
        "float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] k2)",
        dict(),
        "! node 'h1' (Scan): a scan output is neither the hidden nor the cell state",
    ),
    ("num_scan_inputs=1 => num_scan_inputs=2", dict(), "! node 'h1' (Scan): num_scan_inputs=2: only 1 is supported"),
    (
        "num_scan_inputs=1, => num_scan_inputs=1, scan_input_directions=[1],",
        dict(),
        ("! node 'h1' (Scan): scan_input_directions=[1], scan_output_directions=[]: must be 0 in both, or 1 in both"),
    ),
    (
        "num_scan_inputs=1, => num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1],",
        dict(),
        "! node 'h1': it runs backward alone: only beside a node that runs forward",
    ),
    (
        "num_scan_inputs=1, => num_scan_inputs=1, scan_input_directions=[0], scan_output_directions=[0],",
        dict(),
        "= last",
    ),
    (
        "num_scan_inputs=1, => num_scan_inputs=1, scan_output_directions=[1],",
        dict(),
        ("! node 'h1' (Scan): scan_input_directions=[], scan_output_directions=[1]: must be 0 in both, or 1 in both"),
    ),
    (
        "num_scan_inputs=1, => num_scan_inputs=1, scan_input_directions=[2],",
        dict(),
        ("! node 'h1' (Scan): scan_input_directions=[2], scan_output_directions=[]: must be 0 in both, or 1 in both"),
    ),
    (
        "float[n,3] h, float[n,3] c, float[n,4] x) => float[n,3] h, float[n,4] x) ;; (h0, c0, xq) => (h0, xq)",
        dict(),
        "! node 'h1' (Scan): it has 1 states: expected 2, those of an LSTM",
    ),
    (
        "float[n,3] h, float[n,3] c, float[n,4] x) => float[n,3] h, float[n,3] c)",
        dict(),
        "! node 'g1' (MatMul): its input 'x' comes from nowhere",
    ),
    (
        "(h0, c0, xq) => (h0, c0, B4)",
        dict(B4=np.zeros((5, 2, 4), np.float32)),
        "! node 'h1' (Scan): its input 'B4' is constant",
    ),
    (
        "h1, c1, y = Scan => xr = Relu(X); h1, c1, y = Scan ;; (h0, c0, xq) => (h0, c0, xr)",
        dict(),
        "! node 'xr': a quantiser is missing: that of the input",
    ),
    ("(h0, c0, xq) => (h0, c0, X)", dict(), "! input 'X': a quantiser is missing: that of the input"),
    (", xq) => , X) ;; f1 = MatMul(x, => x2 = Q(x, SX, Z, B8); f1 = MatMul(x2,", dict(), "= last"),
    ("f1 = MatMul(x, => x2 = Q(x, SX, Z, B8); f1 = MatMul(x2,", dict(), "= last"),
    (
        "f1 = MatMul(x, => x2 = Q(x, SG); f1 = MatMul(x2,",
        dict(),
        (
            "! node 'x2': the input is quantised twice, with scales 0.0625 and 0.03125, codes -128 to 127 and -32 "
            "to 31: the second must change nothing"
        ),
    ),
    (
        "xq = Q(X, SX) => xp = Q(X, SX); xq = Q(xp, SX)",
        dict(),
        (
            "! node 'xq': the input of the recurrent node is quantised twice, with scales 0.0625 and 0.0625, codes "
            "-128 to 127 and -32 to 31: the second must change nothing"
        ),
    ),
    (
        "xq = Q(X, SX) => xp = Q(X, SX); xq = Q(xp, SG)",
        dict(),
        (
            "! node 'xq': the input of the recurrent node is quantised twice, with scales 0.0625 and 0.03125, codes "
            "-128 to 127 and -32 to 31: the second must change nothing"
        ),
    ),
    (
        "xq = Q(X, SX) => xp = Q(X, SX); xq = Sigmoid(xp)",
        dict(),
        "! node 'xq': a quantiser is missing: that of the input",
    ),
    (
        "xq = Q(X, SX) => xp = Sigmoid(X); xq = Q(xp, SX)",
        dict(),
        "! node 'xq': only convolutions, dense layers and pools over time may be before the recurrent node",
    ),
    ("(h0, c0, xq) => (Q3, c0, xq)", dict(Q3=np.zeros((2, 3), np.float32)), "= last"),
    (
        "(h0, c0, xq) => (Q3, c0, xq)",
        dict(Q3=np.eye(3, dtype=np.float32)[1:]),
        "! node 'h1' (Scan): its start state 'Q3' is 1, not 0: it must be 0 or an input",
    ),
    (
        "(h0, c0, xq) => (h0, Q3, xq)",
        dict(Q3=np.eye(3, dtype=np.float32)[1:]),
        "! node 'h1' (Scan): its start state 'Q3' is 1, not 0: it must be 0 or an input",
    ),
    (
        (
            "num_scan_inputs=1, => num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], ;; float[t,n,4] X "
            "=> float[n,t,4] X"
        ),
        dict(),
        "= last",
    ),
    (
        (
            "num_scan_inputs=1, => num_scan_inputs=1, scan_input_axes=[-2], scan_output_axes=[-2], ;; float[t,n,4] "
            "X => float[n,t,4] X"
        ),
        dict(),
        "= last",
    ),
    (
        (
            "float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] m2, float[n,3] s2) ;; h1, c1, y = => h1, "
            "c1, y, z = ;; num_scan_inputs=1, => num_scan_inputs=1, scan_output_axes=[1,0], ;; / h1, c1, y => / h1, "
            "c1, y, z"
        ),
        dict(),
        "= last",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); e = MatMul(h1, ew)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        "= last",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); e = MatMul(c1, ew)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        "! node 'e': its input is not the hidden state",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); e = MatMul(y, ew)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        "= all",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ea = Q(h1, SG); ew = Q(EW, SW); e = MatMul(ea, ew)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        (
            "! node 'ea': its quantiser is not supported behind the recurrent nodes: only dense layers, Relu, "
            "Sigmoid, Tanh, Clip, Softmax, LogSoftmax, and the last, mean or maximum of all steps"
        ),
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); e = MatMul(h1, EW)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        "= last",
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); eb = Relu(ea); ec = Q(eb, "
            "SX); ed = Q(ED, SW); e = MatMul(ec, ed)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=np.rint(numbers(2, 2, scale=40)) / 64),
        "= last",
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); ex = Q(ea, SA); eb = "
            "Sigmoid(ex); ec = Q(eb, SG); ed = Q(ED, SW); e = MatMul(ec, ed)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=np.rint(numbers(2, 2, scale=40)) / 64),
        "= last",
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); ex = Q(ea, SA); eb = "
            "Sigmoid(ex); ec = Q(eb, SG); e = MatMul(ec, ED)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=numbers(2, 2)),
        "! node 'ea': weights of the dense layer behind it must have 8 bits",
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); eb = Sigmoid(ea); ec = "
            "Q(eb, SG); ed = Q(ED, SW); e = MatMul(ec, ed)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=np.rint(numbers(2, 2, scale=40)) / 64),
        (
            "! node 'ec': its quantiser is not supported behind the recurrent nodes: only dense layers, Relu, "
            "Sigmoid, Tanh, Clip, Softmax, LogSoftmax, and the last, mean or maximum of all steps"
        ),
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); ec = "
            "qonnx.custom_op.general.Quant<signed=0>(ea, SX, Z, B6); ed = Q(ED, SW); e = MatMul(ec, ed)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=np.rint(numbers(2, 2, scale=40)) / 64),
        "= last",
    ),
    (
        (
            "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); ec = Q(ea, SX); ed = Q(ED, "
            "SW); e = MatMul(ec, ed)"
        ),
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64, ED=np.rint(numbers(2, 2, scale=40)) / 64),
        (
            "! node 'ec': its quantiser is not supported behind the recurrent nodes: only dense layers, Relu, "
            "Sigmoid, Tanh, Clip, Softmax, LogSoftmax, and the last, mean or maximum of all steps"
        ),
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); e1 = MatMul(h1, ew); e = Q(e1, SX)",
        dict(EW=np.rint(numbers(3, 2, scale=40)) / 64),
        (
            "! node 'e': its quantiser is not supported behind the recurrent nodes: only dense layers, Relu, "
            "Sigmoid, Tanh, Clip, Softmax, LogSoftmax, and the last, mean or maximum of all steps"
        ),
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW, Z, E); e = MatMul(h1, ew)",
        dict(EW=np.float32([[127, -128]] * 3) / 64, E=np.float32(16)),
        "= last",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW, Z, E); e = MatMul(h1, ew)",
        dict(EW=np.float32([[128, -128]] * 3) / 64, E=np.float32(16)),
        "= last",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW, Z, E); e = MatMul(h1, ew)",
        dict(EW=np.float32([[127, -129]] * 3) / 64, E=np.float32(16)),
        "= last",
    ),
    (
        "/ h1, c1, y => / e ;; , xq) => , xq); ew = Q(EW, SW); ea = MatMul(h1, ew); e = Sigmoid(ea)",
        dict(EW=np.rint(numbers(3, 1, scale=40)) / 64),
        "= last",
    ),
    (
        "h1, c1, y = Scan => l1, l2, l3 = LSTM(X, W, U, B); h1, c1, y = Scan ;; / h1, c1, y => / h1, c1, y, l1",
        dict(),
        (
            "! node 'l1' (LSTM): it is in floating point: quantise it by data, gradloom import m.onnx --calibrate "
            "D.npz -o DIR, or by Brevitas, or as a Scan of QuantizeLinear and DequantizeLinear"
        ),
    ),
    (
        "/ h1, c1, y => / SW",
        dict(),
        (
            "! no recurrent node: expected Scan or QuantLSTMCell, or one step of an LSTM with its states as inputs "
            "and outputs"
        ),
    ),
    (
        "/ h1, c1, y => / EX ;; , xq) => , xq); EX = Identity(SW)",
        dict(),
        (
            "! no recurrent node: expected Scan or QuantLSTMCell, or one step of an LSTM with its states as inputs "
            "and outputs"
        ),
    ),
]


@pytest.mark.parametrize(("edits", "held", "expected"), CASES)
def test_a_scan_computes_what_its_graph_says_or_is_refused(edits, held, expected, tmp_path):
    check_scan(step_of(edits, around="scan", **held), expected, tmp_path)
