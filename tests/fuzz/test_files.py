"""Whatever a file holds, the command line says in one line what is wrong with it, and ends with 2."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .looks import looks

RECURRENT = str(Path(__file__).parents[1] / "golden" / "recurrent" / "spar_convlstm64_W8A6C8IO6.onnx")
#: A file of each kind, by its ending; the verb takes it in place of FILE.
VERBS = {
    "images of a fine-tune": (
        ".npz",
        (
            "finetune",
            "instantft-kv260",
            "--engine",
            "float",
            "--data",
            "FILE",
            "--epochs",
            "1",
            "--limit",
            "8",
            "-o",
            "OUT",
        ),
    ),
    "network of a fine-tune": (
        ".onnx",
        ("finetune", "FILE", "--board", "kv260", "--engine", "float", "--epochs", "1", "--limit", "8", "-o", "OUT"),
    ),
    "vectors of a unit": (
        ".npz",
        ("run", "nf4-decode", "--simulator", "amaranth", "--input", "FILE", "--output", "OUT.npz"),
    ),
    "tensors to quantise": (".safetensors", ("quantize", "FILE", "-o", "OUT.safetensors")),
    "arrays to quantise": (".npz", ("quantize", "FILE", "-o", "OUT.safetensors")),
    "a language model": (".gguf", ("pack", "FILE", "-o", "OUT")),
    "a recurrent network": (".onnx", ("import", "FILE", "-o", "OUT")),
    "sequences to label": (".npz", ("infer", RECURRENT, "--data", "FILE", "-o", "OUT.npz")),
    "images to label": (".npz", ("infer", "instantft-kv260", "--data", "FILE", "-o", "OUT.npz")),
}


def archive(arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_ARRAYS = st.dictionaries(
    st.sampled_from(["x", "w", "codes", "scales", "x_train", "y_train", "x_test", "y_test", ""]),
    st.builds(
        lambda shape, kind, value: np.full(shape, value).astype(kind),
        st.lists(st.integers(0, 3), max_size=4).map(tuple),
        st.sampled_from(["u1", "i8", "f4", "f8", "?", "U3", "c8"]),
        st.sampled_from([0, 1, 200, -7]),
    ),
    max_size=4,
).map(archive)
_STARTS = st.sampled_from(
    [
        b"",
        b"PK\x03\x04",
        b"GGUF\x03\x00\x00\x00",
        b"\x08\x07\x12\x04",
        (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    ]
)
_ANYTHING = st.builds(lambda start, rest: start + rest, _STARTS, st.binary(max_size=80))


@st.composite
def contents(draw):
    """Bytes with a likely start, archives of arrays that do not fit, and archives that lost their end."""
    whole = draw(st.one_of(_ANYTHING, _ARRAYS))
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


@pytest.mark.parametrize("what", VERBS)
def test_a_file_is_refused_in_words(run, what, tmp_path):
    ending, arguments = VERBS[what]

    @looks(15, 1500)
    @given(contents())
    def refused(content):
        path = tmp_path / f"file{ending}"
        path.write_bytes(content)
        code, _, said = run(
            *(each.replace("FILE", str(path)).replace("OUT", str(tmp_path / "out")) for each in arguments)
        )
        assert code in (0, 2), said
        assert "Traceback" not in said
        assert code == 0 or said.strip()

    refused()
