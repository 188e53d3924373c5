"""Headers of GGUF files by their bytes: every type of field, and what is refused where."""

import struct

import numpy as np
import pytest

from gradloom.models.files.language.gguf import GgufFile, gguf_linear, turned_pairs


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(value)) + value


def field(key, kind, content):
    return text(key) + struct.pack("<I", kind) + content


def tensor(name, shape, kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(fields=(), tensors=(), *, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, len(tensors), len(fields)) + b"".join((*fields, *tensors))


def written(path, content, data=b"", align=32):
    path.write_bytes(content + b"\0" * (-len(content) % align) + data)
    return path


#: Numbers by the type of a field: its number, its code of struct, and a value.
NUMBERS = [
    (0, "B", 200),
    (1, "b", -100),
    (2, "H", 60000),
    (3, "h", -30000),
    (4, "I", 4_000_000_000),
    (5, "i", -2_000_000_000),
    (6, "f", 0.5),
    (7, "?", True),
    (10, "Q", 1 << 63),
    (11, "q", -(1 << 62)),
    (12, "d", 0.1),
]


def test_every_type_of_field_is_read(tmp_path):
    fields = [field(f"n{kind}", kind, struct.pack(f"<{code}", value)) for kind, code, value in NUMBERS]
    fields += [
        field(f"a{kind}", 9, struct.pack("<IQ", kind, 2) + struct.pack(f"<2{code}", value, value))
        for kind, code, value in NUMBERS
    ]
    fields += [field("text", 8, text("ü")), field("texts", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b"))]
    for version in (2, 3):
        found = GgufFile(written(tmp_path / "m.gguf", header(fields, version=version))).fields
        assert found == {
            **{f"n{kind}": value for kind, _, value in NUMBERS},
            **{f"a{kind}": [value] * 2 for kind, _, value in NUMBERS},
            "text": "ü",
            "texts": ["a", "b"],
        }


@pytest.mark.parametrize("align", [8, 32, 64])
def test_tensors_lie_one_behind_another_at_the_alignment(tmp_path, align):
    fields = [field("general.alignment", 4, struct.pack("<I", align))] if align != 32 else []
    one, two = np.arange(3, dtype="<f4"), np.arange(8, dtype="<f2").reshape(2, 4)
    data = one.tobytes() + b"\0" * (-12 % align) + two.tobytes() + b"\0" * (-16 % align)
    tensors = [tensor("one", (3,)), tensor("two", (4, 2), 1, -(-12 // align) * align)]
    file = GgufFile(written(tmp_path / "m.gguf", header(fields, tensors), data, align))
    assert file.align == align
    np.testing.assert_array_equal(file.tensor("one"), one)
    np.testing.assert_array_equal(file.tensor("two"), two.astype(np.float32))
    assert file.stored("two") == two.tobytes() and file.tensors["two"].shape == (2, 4)


def test_fields_are_as_they_are_in_the_file(tmp_path):
    fields = [field("a", 0, b"\1"), field("general.file_type", 4, struct.pack("<I", 7)), field("b", 0, b"\2")]
    file = GgufFile(written(tmp_path / "m.gguf", header(fields)))
    assert file.metadata == b"".join(fields)
    at = file.file_type_at
    assert struct.unpack("<I", file.metadata[at : at + 4]) == (7,)
    other = GgufFile(written(tmp_path / "o.gguf", header([field("general.file_type", 5, struct.pack("<i", 7))])))
    assert other.file_type_at is None


def test_a_field_has_a_type_and_may_have_a_default(tmp_path):
    file = GgufFile(written(tmp_path / "m.gguf", header([field("a", 4, struct.pack("<I", 7))])))
    assert (file.get("a", int), file.get("b", int, 3)) == (7, 3)
    with pytest.raises(ValueError, match=r"m\.gguf: a is a int, which it cannot be$"):
        file.get("a", str)
    with pytest.raises(ValueError, match=r"m\.gguf: has no field b$"):
        file.get("b", int)


FOUR = np.arange(4, dtype="<f4").tobytes()
CASES = {
    "version 1": (header(version=1), "GGUF version 1: must be 2 or 3, little-endian"),
    "version 4": (header(version=4), "GGUF version 4: must be 2 or 3, little-endian"),
    "magic": (header(magic=b"GGUX"), "begins with b'GGUX': a GGUF file begins with b'GGUF'"),
    "key twice": (header([field("a", 0, b"\1")] * 2), "field a is there twice: write the file again"),
    "type 13": (header([field("a", 13, b"\1")]), "field a has type 13, which GGUF does not know"),
    "array of arrays": (
        header([field("a", 9, struct.pack("<IQ", 9, 1))]),
        "field a is an array of type 9, which is not known",
    ),
    "array too long": (
        header([field("a", 9, struct.pack("<IQ", 0, 1 << 62))]),
        f"is truncated: field a ends at byte {24 + 9 + 4 + 12 + (1 << 62)}, the file at 64",
    ),
    "text too long": (
        header([text("a") + struct.pack("<IQ", 8, 1 << 40)]),
        f"is truncated: a text of its header ends at byte {24 + 9 + 12 + (1 << 40)}, the file at 64",
    ),
    "no UTF-8": (header([field("a", 8, text(b"\xff"))]), "the text at byte 37 is not UTF-8"),
    "alignment 0": (header([field("general.alignment", 4, bytes(4))]), "general.alignment=0: must be a power of two"),
    "alignment 24": (
        header([field("general.alignment", 4, struct.pack("<I", 24))]),
        "general.alignment=24: must be a power of two",
    ),
    "alignment of text": (
        header([field("general.alignment", 8, text("32"))]),
        "general.alignment='32': must be a power of two",
    ),
    "no dimensions": (header((), [tensor("t", ())]), "tensor t has 0 dimensions: 1 to 4 are possible"),
    "five dimensions": (header((), [tensor("t", (1,) * 5)]), "tensor t has 5 dimensions: 1 to 4 are possible"),
    "twice": (header((), [tensor("t", (2,)), tensor("t", (2,), 0, 32)]), "tensor t is there twice: write the file"),
    "no element": (header((), [tensor("t", (4, 0))]), "tensor t has shape [0, 4]: F32 has blocks of 1"),
    "part of a block": (header((), [tensor("t", (33,), 8)]), "tensor t has shape [33]: Q8_0 has blocks of 32"),
    "a gap": (header((), [tensor("t", (2,), 0, 32)]), "tensor t begins at byte 96, the one before it ends at 64"),
    "beyond": (header((), [tensor("t", (5,))]), "is truncated: tensor t ends at byte 84, the file at 80"),
    "absurd": (
        header((), [tensor("t", (1 << 62, 1 << 62))]),
        f"is truncated: tensor t ends at byte {96 + (1 << 126)}, the file at 80",
    ),
    "type 99": (header((), [tensor("t", (4,), 99)]), "tensor t is of type 99: F32, F16, BF16"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_header_that_is_wrong_is_one_line(tmp_path, case):
    content, says = CASES[case]
    path = written(tmp_path / "m.gguf", content, FOUR * (3 if case == "a gap" else 1))
    with pytest.raises(ValueError) as refused:
        GgufFile(path)
    said = str(refused.value)
    size = f"the file at {path.stat().st_size}"
    assert said.startswith(f"{path}: " + (says.rsplit("the file at", 1)[0] + size if "the file at" in says else says))
    assert "\n" not in said


def test_a_tensor_may_end_where_the_file_does(tmp_path):
    path = written(tmp_path / "m.gguf", header((), [tensor("t", (4,))]), FOUR)
    assert GgufFile(path).tensor("t").tolist() == [0, 1, 2, 3]
    for rank in (1, 4):
        path = written(tmp_path / "m.gguf", header((), [tensor("t", (4, *[1] * (rank - 1)))]), FOUR)
        assert GgufFile(path).tensor("t").shape == (*[1] * (rank - 1), 4)


def test_rows_of_pairs_are_turned_and_back():
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    assert turned_pairs(rows, 2)[:, 0].tolist() == [0, 4, 8, 2, 6, 10, 12, 16, 20, 14, 18, 22]
    np.testing.assert_array_equal(turned_pairs(turned_pairs(rows, 2), 2, back=True), rows)
    assert gguf_linear("model.layers.3.self_attn.q_proj") == "blk.3.attn_q.weight"
