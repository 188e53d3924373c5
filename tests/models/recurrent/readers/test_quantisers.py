"""Quantisers and weights of a step: each has the codes that the interpreter of onnx computes, or is refused."""

import numpy as np
import pytest

from .steps import check_step, step_of

#: Edits of the step, constants, and what is expected: of ``!`` a refusal, of ``=`` the hidden states that are computed.
CASES = [
    (
        "fw = Q(Wf, SW) => fw = Identity(Wf)",
        dict(),
        (
            "! node 'f1' (MatMul): a quantiser is missing: its weights 'fw' are floating point, expected codes of 2 "
            "to 8 bits through DequantizeLinear or Quant"
        ),
    ),
    ("fw = Q(Wf, SW) => fw = Identity(Wf)", dict(Wf=np.full((4, 3), 3, np.float32)), "= last"),
    (
        "fw = Q(Wf, SW) => fw = Identity(Wf)",
        dict(Wf=np.full((4, 3), 128, np.float32)),
        "! weights of the forget gate have codes from 128 to 128: must be from -128 to 127",
    ),
    ("fw = Q(Wf, SW) => fw = Identity(Wf)", dict(Wf=np.full((4, 3), -128, np.float32)), "= last"),
    (
        "fw = Q(Wf, SW) => fw = Identity(Wf)",
        dict(Wf=np.full((4, 3), -129, np.float32)),
        "! weights of the forget gate have codes from -129 to -129: must be from -128 to 127",
    ),
    (
        "fw = Q(Wf, SW) => fw = Identity(Wf)",
        dict(Wf=np.full((4, 3), 1 << 15, np.float32)),
        "! weights of the forget gate have codes from 32768 to 32768: must be from -128 to 127",
    ),
    (
        "fw = Q(Wf, SW) => fw = Identity(Wf)",
        dict(Wf=np.full((4, 3), (1 << 15) + 1, np.float32)),
        (
            "! node 'f1' (MatMul): a quantiser is missing: its weights 'fw' are floating point, expected codes of 2 "
            "to 8 bits through DequantizeLinear or Quant"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32([[1 / 64, 1 / 32, 1 / 128]])),
        (
            "! node 'f3': the unit of products with the input is from 1 to 4 times that of products with the hidden "
            "state: must be the same for all outputs: let the scales of both weights have one ratio"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32([[1 / 64]] * 4)),
        (
            "! node 'f1' (MatMul): its weights have a scale for each index of axis 0: expected one scale, or one "
            "for each output, along axis 1"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32([1 / 64, 1 / 32, 1 / 128])),
        "! node 'fw' (Quant): its scale has shape [3]: expected one scale, or one for each output",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.full((4, 3), 1 / 64, np.float32)),
        "! node 'fw' (Quant): its scale has shape [4, 3]: expected one scale, or one for each output",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32(0)),
        "! node 'fw' (Quant): its scale 'E' is 0: scales must be above 0",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.float32(-1)),
        "! node 'fw' (Quant): its scale 'E' is -1: scales must be above 0",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, E)",
        dict(E=np.zeros(0, np.float32)),
        "! node 'fw' (Quant): its scale 'E' is empty: it must have one value, or one for each output",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, E, B8)",
        dict(E=np.float32(1)),
        "! node 'fw' (Quant): its zero point is 1: it must be 0",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, E, B8)",
        dict(E=np.zeros(0, np.float32)),
        "! node 'fw' (Quant): its zero point is empty: it must be 0",
    ),
    ("fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)", dict(E=np.float32(2)), "= last"),
    ("fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)", dict(E=np.float32(9)), "= last"),
    ("fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)", dict(E=np.float32(1)), "= last"),
    ("fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)", dict(E=np.float32(32)), "= last"),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)",
        dict(E=np.float32(33)),
        "! node 'fw' (Quant): its bits are [33.0]: expected one integer from 1 to 32",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)",
        dict(E=np.float32(0)),
        "! node 'fw' (Quant): its bits are [0.0]: expected one integer from 1 to 32",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)",
        dict(E=np.float32(2.5)),
        "! node 'fw' (Quant): its bits are [2.5]: expected one integer from 1 to 32",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)",
        dict(E=np.float32(np.inf)),
        "! node 'fw' (Quant): its bits E are inf: bits must be finite",
    ),
    (
        "fw = Q(Wf, SW) => fw = Q(Wf, SW, Z, E)",
        dict(E=np.float32([8, 8])),
        "! node 'fw' (Quant): its bits are [8.0, 8.0]: expected one integer from 1 to 32",
    ),
    ("f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.Quant<signed=0>(f6, SG, Z, B6)", dict(), "= last"),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.Quant<signed=0, narrow=1>(f6, E, Z, B6)",
        dict(E=np.float32(1 / 128)),
        "= last",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.Quant<narrow=1>(f6, E, Z, B6)",
        dict(E=np.float32(1 / 128)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => g7 = qonnx.custom_op.general.Quant<narrow=1>(g6, E, Z, B6)",
        dict(E=np.float32(1 / 128)),
        "= last",
    ),
    ('g7 = Q(g6, SG) => g7 = qonnx.custom_op.general.Quant<rounding_mode="round">(g6, SG, Z, B6)', dict(), "= last"),
    (
        'g7 = Q(g6, SG) => g7 = qonnx.custom_op.general.Quant<rounding_mode="FLOOR">(g6, SG, Z, B6)',
        dict(),
        "! node 'g7' (Quant): rounding_mode=FLOOR: only ROUND, half to even, is supported",
    ),
    (
        "f7 = Q(f6, SG) => f7 = Q(f6, E)",
        dict(E=np.float32([1 / 32, 1 / 32, 1 / 16])),
        (
            "! node 'f7' (Quant): its scale 'E' has 3 values, one a channel: a quantiser of activations must have "
            "one scale"
        ),
    ),
    ("f7 = Q(f6, SG) => fc = Clip(f6, Z, E); f7 = Q(fc, SG)", dict(E=np.float32(0.75)), "= last"),
    ("g7 = Q(g6, SG) => gc = Relu(g6); g7 = Q(gc, SG)", dict(), "= last"),
    ("g7 = Q(g6, SG) => gc = Clip(g6, D, E); g7 = Q(gc, SG)", dict(D=np.float32(-0.75), E=np.float32(-0.5)), "= last"),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); g7 = DequantizeLinear(gd, SG, I)",
        dict(I=np.int8(0)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, E, I); g7 = DequantizeLinear(gd, E, I)",
        dict(I=np.int8(0), E=np.float32(1 / 256)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, E, I); g7 = DequantizeLinear(gd, E, I)",
        dict(I=np.uint8(0), E=np.float32(1 / 1024)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); g7 = DequantizeLinear(gd, SG, I)",
        dict(I=np.uint8(0)),
        "= last",
    ),
    ("g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG); g7 = DequantizeLinear(gd, SG)", dict(), "= last"),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); g7 = DequantizeLinear(gd, SG, I)",
        dict(I=np.int8(3)),
        "! node 'gd' (QuantizeLinear): its zero point 'I' is 3: it must be 0",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); g7 = DequantizeLinear(gd, SX, I)",
        dict(I=np.int8(0)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, E, I); g7 = DequantizeLinear(gd, E, I)",
        dict(I=np.zeros(3, np.int8), E=np.full(3, 1 / 32, np.float32)),
        (
            "! node 'gd' (QuantizeLinear): its scale 'E' has 3 values, one a channel: a quantiser of activations "
            "must have one scale"
        ),
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); ge = Clip(gd, D, E); g7 = DequantizeLinear(ge, SG, I)",
        dict(I=np.int8(0), D=np.int8(-16), E=np.int8(15)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); ge = Clip(gd, D, E); g7 = DequantizeLinear(ge, SG, I)",
        dict(I=np.int8(0), D=np.int8(15), E=np.int8(-16)),
        "! node 'ge' (Clip): min=15, max=-16 leave no code of -128 to 127",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); ge = Clip(gd, , E); g7 = DequantizeLinear(ge, SG, I)",
        dict(I=np.int8(0), E=np.int8(10)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, SG, I); ge = Clip(gd, D); g7 = DequantizeLinear(ge, SG, I)",
        dict(I=np.int8(0), D=np.int8(-10)),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => g7 = DequantizeLinear(g6, SG, I)",
        dict(I=np.int8(0)),
        "! node 'g7' (DequantizeLinear): its input is not a QuantizeLinear's",
    ),
    (
        "fw = Q(Wf, SW) => fw = DequantizeLinear(I, SW, J)",
        dict(I=np.int8(np.arange(12).reshape(4, 3) * 20 - 118), J=np.int8(0)),
        "= last",
    ),
    (
        "fw = Q(Wf, SW) => fw = DequantizeLinear<axis=1>(I, E, J)",
        dict(
            I=np.int8(np.arange(12).reshape(4, 3) * 20 - 118),
            J=np.zeros(3, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16]),
        ),
        (
            "! node 'f3': the unit of products with the input is from 2 to 8 times that of products with the hidden "
            "state: must be the same for all outputs: let the scales of both weights have one ratio"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = DequantizeLinear<axis=0>(I, E, J)",
        dict(
            I=np.int8(np.arange(12).reshape(4, 3) * 20 - 118),
            J=np.zeros(3, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16]),
        ),
        "! node 'fw' (DequantizeLinear): 3 scales for the 4 indices of axis 0",
    ),
    (
        "fw = Q(Wf, SW) => fw = DequantizeLinear<axis=0>(I, E, J)",
        dict(
            I=np.int8(np.arange(12).reshape(4, 3) * 20 - 118),
            J=np.zeros(4, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16, 1 / 64]),
        ),
        (
            "! node 'f1' (MatMul): its weights have a scale for each index of axis 0: expected one scale, or one "
            "for each output, along axis 1"
        ),
    ),
    (
        "fw = Q(Wf, SW) => fw = DequantizeLinear(I, SW, J)",
        dict(I=np.int8(np.arange(12).reshape(4, 3)), J=np.zeros(0, np.int8)),
        "! node 'fw' (DequantizeLinear): its zero point 'J' is empty: it must be 0",
    ),
    (
        "fw = Q(Wf, SW) => ft = DequantizeLinear<axis=0>(I, E, J); fw = Transpose(ft)",
        dict(
            I=np.int8(np.arange(12).reshape(3, 4) * 20 - 118),
            J=np.zeros(3, np.int8),
            E=np.float32([1 / 64, 1 / 32, 1 / 16]),
        ),
        (
            "! node 'f3': the unit of products with the input is from 2 to 8 times that of products with the hidden "
            "state: must be the same for all outputs: let the scales of both weights have one ratio"
        ),
    ),
    (
        "fw = Q(Wf, SW) => ft = DequantizeLinear(I, SW, J); fw = Transpose<perm=[1,0]>(ft)",
        dict(I=np.int8(np.arange(12).reshape(3, 4) * 20 - 118), J=np.int8(0)),
        "= last",
    ),
    (
        "fw = Q(Wf, SW) => ft = QuantizeLinear<axis=1>(Wf, E, J); fw = DequantizeLinear<axis=1>(ft, E, J)",
        dict(J=np.zeros(3, np.int8), E=np.float32([1 / 64, 1 / 32, 1 / 16])),
        (
            "! node 'f3': the unit of products with the input is from 2 to 8 times that of products with the hidden "
            "state: must be the same for all outputs: let the scales of both weights have one ratio"
        ),
    ),
    (
        "fw = Q(Wf, SW) => ft = QuantizeLinear(Wf, SW, J); fe = Clip(ft, D, E); fw = DequantizeLinear(fe, SW, J)",
        dict(J=np.int8(0), D=np.int8(-20), E=np.int8(30)),
        "= last",
    ),
    (
        "fw = Q(Wf, SW) => ft = QuantizeLinear(Wf, SW, J); fw = DequantizeLinear(ft, SW, J)",
        dict(J=np.int8(0)),
        "= last",
    ),
    ("f4 = Add(f3, Bf) => f4 = Add(f3, E)", dict(E=np.float32(0.25)), "= last"),
    (
        "f4 = Add(f3, Bf) => f4 = Add(f3, E)",
        dict(E=np.float32([0.25, 0.5])),
        "! node 'f4' (Add): its constant has 2 elements: expected 3, one a channel",
    ),
    ("f4 = Add(f3, Bf) => f4 = Identity(f3)", dict(), "= last"),
    ("f4 = Add(f3, Bf) => f4 = Mul(f3, E)", dict(E=np.float32([0.5, 2, 1])), "= last"),
    ("k1 = Mul(f7, c) => fd = Mul(E, f7); k1 = Mul(fd, c)", dict(E=np.float32([0.5])), "= last"),
    ("k1 = Mul(f7, c) => fd = Mul(f7, E); k1 = Mul(fd, c)", dict(E=np.float32(0.5)), "= last"),
    (
        "k1 = Mul(f7, c) => fd = Mul(f7, E); k1 = Mul(fd, c)",
        dict(E=np.float32(-0.5)),
        (
            "! node 'fd' (Mul): it multiplies by a constant what is neither a product with weights nor a "
            "quantiser's result"
        ),
    ),
    (
        "k1 = Mul(f7, c) => fd = Mul(f7, E); k1 = Mul(fd, c)",
        dict(E=np.float32([0.5, 1, 1])),
        (
            "! node 'fd' (Mul): it multiplies by a constant what is neither a product with weights nor a "
            "quantiser's result"
        ),
    ),
    (
        "k1 = Mul(f7, c) => fd = Add(f7, E); k1 = Mul(fd, c)",
        dict(E=np.float32(0.5)),
        "! node 'fd' (Add): it adds a constant to what is no product with weights",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=0.0>(f6, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "= last",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=-0.5>(f6, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75], [0.1, 0.5, 0.75], [0.25, 0.5, 0.5]])),
        (
            "! node 'f7': it has 3 rows of thresholds behind a sigmoid, of which one table is made for all "
            "channels: give it one row"
        ),
    ),
    (
        'f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, data_layout="NCL">(f6, E)',
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "! node 'f7' (MultiThreshold): data_layout=NCL is not supported",
    ),
    (
        (
            'f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, data_layout="NC", '
            'out_dtype="INT4">(f6, E)'
        ),
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "= last",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold(f6, E)",
        dict(E=np.float32([0.25, 0.5, 0.75])),
        "! node 'f7' (MultiThreshold): its thresholds have shape [3]: expected [channels or 1, steps]",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold(f6, E)",
        dict(E=np.zeros((1, 0), np.float32)),
        "! node 'f7' (MultiThreshold): its thresholds have shape [1, 0]: expected [channels or 1, steps]",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold(f6, E)",
        dict(E=np.float32([[0.25, np.nan]])),
        "! node 'f7' (MultiThreshold): its thresholds 'E' hold NaN",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold(f6, E)",
        dict(E=np.float32([[0.25, 0.5], [0.25, 0.2], [0.25, 0.5]])),
        "! node 'f7' (MultiThreshold): its thresholds of channel 1 are not sorted: they must ascend",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold(f6, E)",
        dict(E=np.float32([[0.25, 0.5], [0.25, 0.4]])),
        "! node 'f7' (MultiThreshold): it has thresholds for 2 channels: expected 1 or 3",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.0>(f6, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "! node 'f7' (MultiThreshold): out_scale=0, out_bias=0: must be finite, the scale above 0",
    ),
    (
        "f7 = Q(f6, SG) => f7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25, out_bias=0.1>(f6, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "! node 'f7' (MultiThreshold): out_bias=0.1 is no multiple of out_scale=0.25: its zero point must be 0",
    ),
    (
        "g7 = Q(g6, SG) => gr = Relu(g6); g7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25>(gr, E)",
        dict(E=np.float32([[0.25, 0.5, 0.75]])),
        "= last",
    ),
    (
        "g7 = Q(g6, SG) => gr = Relu(g6); g7 = qonnx.custom_op.general.MultiThreshold<out_scale=0.25>(gr, E)",
        dict(E=np.float32([[0.0, 0.5, 0.75]])),
        "! node 'g7' (MultiThreshold): a threshold of at most 0 behind a Relu has no effect: remove it",
    ),
    (
        "f5 = Q(f4, SA) => fj = Concat<axis=1>(f4, i4); fk = Q(fj, SA); f5, fl = Split<axis=1, num_outputs=2>(fk)",
        dict(),
        "= last",
    ),
    ("f5 = Q(f4, SA) => fj = Concat<axis=1>(f4, i4); fk = Q(fj, SA); f5 = Slice(fk, i_0, i_3, i_1)", dict(), "= last"),
    (
        "f5 = Q(f4, SA) => fj = Concat<axis=1>(f4, i4); fk = Q(fj, SA); f5 = Slice(fk, i_1, i_4, i_1)",
        dict(),
        "! node 'f5' (Slice): channels 1 to 3 of its input: only gates can be taken apart",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, E, I); g7 = DequantizeLinear(gd, E, I)",
        dict(I=np.int16(0), E=np.float32(1 / 40000), opset=21),
        "= last True",
    ),
    (
        "g7 = Q(g6, SG) => gd = QuantizeLinear(g6, E, I); g7 = DequantizeLinear(gd, E, I)",
        dict(I=np.uint16(0), E=np.float32(1 / 100000), opset=21),
        "= last True",
    ),
]


@pytest.mark.parametrize(("edits", "held", "expected"), CASES)
def test_a_step_has_the_interpreters_codes_or_is_refused(edits, held, expected, tmp_path):
    check_step(step_of(edits, **held), expected, tmp_path)
