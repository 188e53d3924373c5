"""Scans in a row and side by side, layers in front of them, and bodies that are none of an LSTM."""

import numpy as np
import pytest

from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.readers.reader import load_recurrent

from ..models import saved
from .graphs import numbers, refusal
from .steps import CONSTANTS, step_of

#: Edits of the step, how it is made, and what is expected: of ``!`` a refusal, of ``=`` what reaches the answer, how
#: many layers there are, and whether the last has two directions.
CASES = [
    ("", dict(around="scan", second="h0, c0, y"), "= last 2 False"),
    ("", dict(around="scan", second="h0, c0, y", opset=11), "= last 2 False"),
    ("", dict(around="scan", opset=10), "! node 'h1' (Scan): opset 10: must be from 11 to 23"),
    ("", dict(around="scan", opset=11), "= last 1 False"),
    ("", dict(around="scan", opset=23), "= last 1 False"),
    ("", dict(around="scan", opset=24), "! node 'h1' (Scan): opset 24: must be from 11 to 23"),
    (
        "",
        dict(around="scan", second="h0, c0, xq"),
        (
            "! node 'h2' (Scan): a second recurrent node with the same input and direction: only stacked nodes, and "
            "two directions, are supported"
        ),
    ),
    (
        "",
        dict(around="scan", second="h0, c0, xq / , scan_input_directions=[1], scan_output_directions=[1]"),
        "= last 1 True",
    ),
    ("", dict(around="scan", second="h0, c0, h1"), "! node 'h2' (Scan): its input 'h1' must have 3 dimensions"),
    (
        "",
        dict(around="scan", second="h0, c0, y / , scan_input_axes=[1]"),
        "! node 'h2' (Scan): its steps are not those of the recurrent node before it",
    ),
    ("}> (h0, c0, xq) => }> (h0, c0, xq); yq = Q(y, SG)", dict(around="scan", second="h0, c0, yq"), "= last 2 False"),
    (
        "}> (h0, c0, xq) => }> (h0, c0, xq); yq = Q(y, SX)",
        dict(around="scan", second="h0, c0, yq"),
        (
            "! node 'yq': the hidden state of the layer before is quantised twice, with scales 0.03125 and 0.0625, "
            "codes -32 to 31 and -32 to 31: the second must change nothing"
        ),
    ),
    (
        "}> (h0, c0, xq) => }> (h0, c0, xq); yq = Relu(y)",
        dict(around="scan", second="h0, c0, yq"),
        "! node 'h2' (Scan): its input is neither that of the recurrent node before it nor all its hidden states",
    ),
    (
        "xq = Q(X, SX) => xq = Q(X, SX); xp = Relu(xq)",
        dict(around="scan", second="h0, c0, xp"),
        "! node 'h2' (Scan): its input is neither that of the recurrent node before it nor all its hidden states",
    ),
    (
        "float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] s2)",
        dict(around="scan", second="h0, c0, y"),
        "! node 'h2' (Scan): its input is not all hidden states of the recurrent node before it",
    ),
    (
        "xq = Q(X, SX) => xq = Q(X, SX); xr = Unsqueeze(xq, i_0); xs = Squeeze(xr, i_0)",
        dict(around="scan", second="h0, c0, xs / , scan_input_directions=[1], scan_output_directions=[1]"),
        "= last 1 True",
    ),
    (
        ("float[n,4] x) => float[n,4] x) ;; , xq) => , X) ;; f1 = MatMul(x, => x2 = Q(x, SX, Z, B8); f1 = MatMul(x2,"),
        dict(around="scan"),
        "= last 1 False",
    ),
    (
        "k1 = Mul(f7, c) => k1 = Mul(f7, SA) ;; float[n,3] c, float[n,4] x) => float[n,3] SA, float[n,4] x)",
        dict(around="scan"),
        "! node 'h1' (Scan): inputs of its body are constants",
    ),
    (
        "float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] SA)",
        dict(around="scan"),
        "! node 'h1' (Scan): output 'SA' of its body does not depend on its states",
    ),
    (
        "float[n,3] s2, float[n,3] m2) => float[n,3] SA, float[n,3] m2)",
        dict(around="scan"),
        "! node 'h1' (Scan): output 'SA' of its body does not depend on its states",
    ),
    (
        "s1 = Add(k2, a2) => s1 = Mul(k2, a2)",
        dict(around="scan"),
        (
            "! node 'h1' (Scan): its states are not those of an LSTM: one must be a product of the output gate, the "
            "other a sum"
        ),
    ),
    (
        "m1 = Mul(o7, t2) => m1 = Add(o7, t2)",
        dict(around="scan"),
        (
            "! node 'h1' (Scan): its states are not those of an LSTM: one must be a product of the output gate, the "
            "other a sum"
        ),
    ),
    (
        "float[n,3] h, => float[n,2] h,",
        dict(
            around="scan",
            Ui=np.ones((2, 3), np.float32),
            Uf=np.ones((2, 3), np.float32),
            Ug=np.ones((2, 3), np.float32),
            Uo=np.ones((2, 3), np.float32),
        ),
        (
            "! node 'h1' (Scan): weights of the input gate have shapes [3, 4] and [3, 2], its bias [3]: expected "
            "[hidden, inputs], [hidden, hidden] and [hidden]"
        ),
    ),
    (
        "float[n,3] h, => float[n,2] h,",
        dict(
            Ui=np.ones((2, 3), np.float32),
            Uf=np.ones((2, 3), np.float32),
            Ug=np.ones((2, 3), np.float32),
            Uo=np.ones((2, 3), np.float32),
        ),
        "! no input of the graph is a hidden state with square weights",
    ),
    (
        (
            "m2, s2 / => m2, s2, j / ;; k1 = Mul(f7, c) => j = Concat<axis=1>(x, h); k1 = Mul(f7, c) ;; float[n,4] "
            "x => float[n,k] x"
        ),
        dict(),
        "! node 'j' (Concat): it joins values whose number of channels is not known",
    ),
    (
        (
            "f1 = MatMul(xq, fw) => j = Concat<axis=1>(xq, h); f1 = MatMul(j, fj) ;; f3 = Add(f1, f2) => f3 = "
            "Identity(f1) ;; fu = Q(Uf, SW) => fj = Q(FJ, SW) ;; f2 = MatMul(h, fu) => f2 = Identity(f1)"
        ),
        dict(FJ=np.concatenate([CONSTANTS["Wf"], CONSTANTS["Uf"]])),
        "= last 1 False",
    ),
    (
        (
            ", xq) => , xq); zl = Gather(y, s_m1); e = MatMul(zl, ew); ew = Q(EW, SW) ;; / h1, c1, y => / e ;; "
            "float[n,3] s2, float[n,3] m2) => float[n,3] s2, float[n,3] s2)"
        ),
        dict(around="scan", EW=np.rint(numbers(3, 2, scale=40)) / 64),
        "! node 'zl' (Gather): its input is not all hidden states",
    ),
    (
        (
            "xq = Q(X, SX) => xt = Transpose<perm=[1,2,0]>(X); xc = Conv(xt, ck); ck = Q(CK, SW); xd = "
            "Transpose<perm=[2,0,1]>(xc); xq = Q(xd, SX)"
        ),
        dict(around="scan", CK=np.rint(numbers(4, 4, 1, scale=40)) / 64),
        "! input 'X': a quantiser is missing: that of the input",
    ),
    (
        (
            "xq = Q(X, SX) => xp = Q(X, SX); xt = Transpose<perm=[1,2,0]>(xp); ck = Q(CK, SW); xc = Conv(xt, ck); "
            "xd = Transpose<perm=[2,0,1]>(xc); xq = Q(xd, SX)"
        ),
        dict(around="scan", CK=np.rint(numbers(4, 4, 1, scale=40)) / 64),
        "= last 1 False",
    ),
    (
        (
            "xq = Q(X, SX) => xp = Q(X, SX); xt = Transpose<perm=[1,2,0]>(xp); ck = Q(CK, SW); xc = Conv(xt, ck); "
            "xd = Transpose<perm=[2,0,1]>(xc); xq = Q(xd, SX)"
        ),
        dict(around="scan", CK=np.rint(numbers(2, 4, 1, scale=40)) / 64),
        "! node 'h1': it takes 4 channels, the layer before it gives 2",
    ),
    (
        "xq = Q(X, SX) => xp = Q(X, SX); ck = Q(CK, SW); xc = MatMul(xp, ck); xq = Q(xc, SX)",
        dict(around="scan", CK=np.rint(numbers(4, 4, scale=40)) / 64),
        "= last 1 False",
    ),
    (
        (
            "xq = Q(X, SX) => xp = Q(X, SX); xt = Transpose<perm=[1,2,0]>(xp); xc = "
            "AveragePool<kernel_shape=[3]>(xt); xd = Transpose<perm=[2,0,1]>(xc); xq = Q(xd, SX)"
        ),
        dict(around="scan"),
        (
            "! node 'xc' (AveragePool): its kernel has 3 elements: their number must be a power of two, for an "
            "exact mean"
        ),
    ),
    (
        (
            "xq = Q(X, SX) => xp = Q(X, SX); xt = Transpose<perm=[1,2,0]>(xp); xc = "
            "AveragePool<kernel_shape=[4]>(xt); xd = Transpose<perm=[2,0,1]>(xc); xq = Q(xd, SX)"
        ),
        dict(around="scan"),
        "= last 1 False",
    ),
    ("xq = Q(X, SX) => xp = Mul(X, PP); xq = Q(xp, SX)", dict(around="scan", PP=np.float32(0.5)), "= last 1 False"),
    (
        "xq = Q(X, SX) => xp = Relu(X); xr = Mul(xp, PP); xq = Q(xr, SX)",
        dict(around="scan", PP=np.float32(0.5)),
        (
            "! node 'xr' (Mul): it multiplies by a constant what is neither a product with weights nor a "
            "quantiser's result"
        ),
    ),
]


@pytest.mark.parametrize(("edits", "more", "expected"), CASES)
def test_layers_are_read_or_refused(edits, more, expected, tmp_path):
    model = step_of(edits, **more)
    if expected[0] == "!":
        assert refusal(model, tmp_path, load_recurrent) == expected[2:]
        return
    network = load_recurrent(saved(model, tmp_path))
    assert f"= {network.pick} {len(network.layers)} {network.backward is not None}" == expected


def test_a_quantised_loop_takes_no_data(tmp_path):
    assert refusal(step_of(around="scan"), tmp_path, load_native) == (
        "no LSTM, GRU, RNN node, but a Scan, which must hold quantisers and takes no --calibrate: in floating point, "
        "give native nodes"
    )
