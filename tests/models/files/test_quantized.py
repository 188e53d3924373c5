"""A quantised file is bitsandbytes' own layout; a bad file leaves nothing behind."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.files.quantized import quantize_file

NPZ = np.load(Path(__file__).parents[2] / "golden" / "nf4.npz")
BLOCK_64 = sorted(key[:-2] for key in NPZ.files if key.endswith("b64.w"))


def state_of(tensors, name):
    return json.loads(tensors[f"{name}.quant_state.bitsandbytes__nf4"].tobytes())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_file_holds_bitsandbytes_tensors(tmp_path, suffix):
    weights = {f"{name}.weight": NPZ[f"{name}.w"] for name in BLOCK_64}
    source = tmp_path / f"w{suffix}"
    np.savez(source, **weights) if suffix == ".npz" else save_file(weights, source)
    quantize_file(source, tmp_path / "q.safetensors")
    out = load_file(tmp_path / "q.safetensors")
    for name in BLOCK_64:
        key = f"{name}.weight"
        np.testing.assert_array_equal(out[key], NPZ[f"{name}.packed"][:, None])
        np.testing.assert_array_equal(out[f"{key}.absmax"], NPZ[f"{name}.absmax"])
        assert out[f"{key}.quant_map"].shape == (16,)
        assert state_of(out, key) == {
            "quant_type": "nf4",
            "blocksize": 64,
            "dtype": "float32",
            "shape": list(weights[key].shape),
        }
    assert len(out) == 4 * len(weights)


def test_double_quantised_file_holds_bitsandbytes_tensors(tmp_path):
    np.savez(tmp_path / "w.npz", **{name: NPZ[f"{name}.w"] for name in BLOCK_64})
    quantize_file(tmp_path / "w.npz", tmp_path / "q.safetensors", double=True)
    out = load_file(tmp_path / "q.safetensors")
    for name in BLOCK_64:
        np.testing.assert_array_equal(out[name], NPZ[f"{name}.packed"][:, None])
        np.testing.assert_array_equal(out[f"{name}.nested_quant_map"], NPZ[f"{name}.dq_code"])
        state = state_of(out, name)
        assert state["nested_blocksize"] == 256 and state["nested_dtype"] == "float32"
        # bitsandbytes' mean has torch's summation order: the last bit may differ, and with it absmax2.
        np.testing.assert_array_max_ulp(np.float32(state["nested_offset"]), NPZ[f"{name}.dq_offset"], 2)
        np.testing.assert_allclose(out[f"{name}.nested_absmax"], NPZ[f"{name}.dq_absmax2"], rtol=1e-6)
        np.testing.assert_array_equal(out[f"{name}.absmax"], NPZ[f"{name}.dq_absmax"])
    assert len(out) == 6 * len(BLOCK_64)


def test_biases_are_kept_and_named(tmp_path):
    bias = np.arange(5, dtype=">f2")  # the file must say it in little-endian
    np.savez(tmp_path / "w.npz", bias=bias, w=np.ones((3, 5)), c=np.ones((2, 2, 3, 3)))
    result = quantize_file(tmp_path / "w.npz", tmp_path / "q.safetensors", block=32)
    out = load_file(tmp_path / "q.safetensors")
    assert result["kept"] == ["bias"] and [t["name"] for t in result["quantized"]] == ["w", "c"]
    assert out["bias"].dtype == np.float16 and out["bias"].tolist() == bias.tolist()
    # 15 codes of 1.0; the last nibble is the code of 0.
    assert out["w"].ravel().tolist() == [0xFF] * 7 + [0xF7]
    assert state_of(out, "c")["shape"] == [2, 2, 3, 3]


def test_bfloat16_is_read_and_kept_as_such(tmp_path):
    values = np.array([[1.0, -0.5], [0.0, 0.25]], np.float32)
    words = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps(
        {
            "w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
            "b": {"dtype": "BF16", "shape": [2], "data_offsets": [8, 12]},
        }
    ).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + words + words[:4])
    quantize_file(tmp_path / "w.safetensors", tmp_path / "q.safetensors")
    content = (tmp_path / "q.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["b"]["dtype"] == "BF16"
    first, end = header["w.absmax"]["data_offsets"]
    start = len(content) - max(t["data_offsets"][1] for n, t in header.items() if n != "__metadata__")
    assert np.frombuffer(content[start + first : start + end], "<f4").tolist() == [1.0]
    first, end = header["w.quant_state.bitsandbytes__nf4"]["data_offsets"]
    assert json.loads(content[start + first : start + end])["dtype"] == "bfloat16"


def test_output_is_the_same_every_time(tmp_path):
    np.savez(tmp_path / "w.npz", **{name: NPZ[f"{name}.w"] for name in BLOCK_64})
    for n in range(2):
        quantize_file(tmp_path / "w.npz", tmp_path / f"q{n}.safetensors", double=True)
    assert (tmp_path / "q0.safetensors").read_bytes() == (tmp_path / "q1.safetensors").read_bytes()


def npz(**arrays):
    def make(path):
        np.savez(path, **arrays)

    return "in.npz", make


def cut(name, make):
    def make_cut(path):
        make(path)
        path.write_bytes(path.read_bytes()[:-40])

    return name, make_cut


GOOD = np.ones((4, 64), np.float32)
NAN = np.where(np.arange(256).reshape(4, 64) == 66, np.nan, GOOD)


@pytest.mark.parametrize(
    "source, change, message",
    [
        (("in.npz", lambda path: None), {}, "no such file"),
        (npz(w=GOOD), dict(block=48), "block=48: must be one of 32, 64"),
        (npz(w=NAN), {}, r"tensor w\[1, 2\] is nan, must be finite"),
        (npz(w=GOOD * np.inf), {}, r"tensor w\[0, 0\] is inf"),
        (npz(w=np.full((2, 2), 1e300)), {}, r"w\[0, 0\] is 1e\+300, must be finite in float32"),
        (npz(w=np.ones((2, 2), np.int32)), {}, "tensor w is int32, must be float16"),
        (npz(w=np.ones((0, 4))), {}, r"tensor w has shape \[0, 4\]"),
        (npz(w=np.array([[None]])), {}, "w cannot be read; .* Python objects"),
        (npz(), {}, "holds no tensors"),
        (npz(b=np.ones(4)), {}, "nothing to quantise"),
        (npz(**{"w": GOOD, "w.absmax": np.ones(4)}), {}, "w.absmax would be written twice"),
        (cut(*npz(w=GOOD)), {}, "a ZIP archive that is cut short"),
        (cut("in.safetensors", lambda path: save_file({"w": GOOD}, path)), {}, "cannot be read as a safetensors"),
        (("in.safetensors", lambda path: save_file({"w": GOOD.astype(np.int8)}, path)), {}, "tensor w is I8"),
        (("in.npz", lambda path: path.write_bytes(b"")), {}, "is empty"),
        (("in.npz", lambda path: path.write_bytes(b"\x93NUMPY")), {}, r"one array of NumPy \(\.npy\)"),
        (("in.pt", lambda path: path.write_bytes(b"x")), {}, "must end in .npz or .safetensors"),
        (npz(w=GOOD), dict(dst="out.npz"), "ends in .safetensors"),
        (npz(w=GOOD), dict(dst="in.npz/out.safetensors"), "in.npz is no directory"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_bad_input_is_one_clear_message_and_leaves_nothing(tmp_path, source, change, message):
    name, make = source
    make(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    change = dict(change)
    dst = tmp_path / change.pop("dst", "out.safetensors")
    with pytest.raises(ValueError, match=message) as raised:
        quantize_file(tmp_path / name, dst, **change)
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) == before
