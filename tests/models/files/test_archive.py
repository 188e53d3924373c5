"""Arrays of a ``.npz`` file, and its bounds: at the bound, and one beyond it."""

import numpy as np
import pytest

from gradloom.models.files import archive
from gradloom.models.files.archive import read_labelled, read_npz

ARRAYS = {"x": np.arange(6.0).reshape(2, 3), "y": np.arange(2), "z": np.zeros(0)}


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS)
    return tmp_path / "a.npz"


@pytest.mark.parametrize(
    ("names", "optional", "found"),
    [((), (), "xyz"), (("y",), (), "y"), (("x",), ("z", "none"), "xz"), ((), ("none",), ""), ((), ("z",), "z")],
)
def test_arrays_are_those_that_are_asked_for(path, names, optional, found):
    held = read_npz(path, names, optional=optional)
    assert list(held) == list(found)
    for name in found:
        np.testing.assert_array_equal(held[name], ARRAYS[name])


def test_parts_have_samples_and_labels(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=[1], y_train=[2], x_test=[3], y_test=[4], other=[5])
    assert {key: int(value[0]) for key, value in read_labelled(path, ("test", "train")).items()} == {
        "x_test": 3,
        "y_test": 4,
        "x_train": 1,
        "y_train": 2,
    }
    with pytest.raises(ValueError, match=r"a\.npz: x_val, y_val missing: the file must hold x_val, y_val$"):
        read_labelled(path, ("val",))


def test_what_arrays_take_has_a_bound_of_so_many_bytes_and_so_many_a_byte_of_the_file(path, monkeypatch):
    size = sum(np.load(path).zip.getinfo(f"{name}.npy").file_size for name in ARRAYS)
    held = path.stat().st_size
    for ratio in (0, 1, 3):
        if ratio * held > size:
            continue
        monkeypatch.setattr(archive, "_RATIO", ratio)
        monkeypatch.setattr(archive, "_FREE", size - ratio * held)
        assert len(read_npz(path)) == 3
        monkeypatch.setattr(archive, "_FREE", size - ratio * held - 1)
        with pytest.raises(ValueError) as refused:
            read_npz(path)
        assert str(refused.value) == (
            f"{path}: its arrays take {size:,} bytes: at most {size - 1:,}, which are {size - ratio * held - 1:,} and "
            f"{ratio} times the file; write it without compression, by numpy.savez"
        )
    monkeypatch.undo()
    assert (archive._FREE, archive._RATIO) == (1 << 28, 64)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "is empty: download or copy it again"),
        (b"hello, world", "not a readable .npz file; is it truncated?"),
        (b"PK\x03\x04abc", "is a ZIP archive that is cut short: download or copy it again"),
        (np.zeros(3), "it holds one array, not an archive (.npz) of named ones"),
    ],
)
def test_what_is_no_archive_is_one_line(tmp_path, content, says):
    path = tmp_path / "a.npz"
    if isinstance(content, np.ndarray):
        with path.open("wb") as file:
            np.save(file, content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        read_npz(path)
    assert str(refused.value) == f"{path}: {says}"


def test_an_archive_that_is_broken_within_is_called_truncated(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3] + b"\0" * 40 + content[len(content) // 3 + 40 :])
    with pytest.raises(ValueError, match="a.npz: . cannot be read; is the file truncated, or holds it Python"):
        read_npz(path)
