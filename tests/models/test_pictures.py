"""Folders of pictures are the arrays that they show, and what is wrong with one is a line with its name."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from gradloom.models.class_folders import PARTS
from gradloom.models.datasets import digits_split
from gradloom.models.pictures import load_dataset, load_judged, load_parts

SHAPE = (1, 8, 8)


def write(folder, images, labels, ending="png"):
    for number, (image, label) in enumerate(zip(images, labels)):
        place = folder / f"digit {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.reshape(image.shape[-2:])).save(place / f"{number:04}.{ending}")


@pytest.fixture
def folder(tmp_path):
    """Thirty digits to learn from and ten to judge by, each class in both."""
    data = digits_split(96, 48, degrees=0)
    picked = {
        part: [i for label in range(10) for i in np.flatnonzero(getattr(data, f"y_{part}") == label)[:count]]
        for part, count in (("train", 3), ("test", 1))
    }
    for part, chosen in picked.items():
        write(tmp_path / "mine" / part, getattr(data, f"x_{part}")[chosen], getattr(data, f"y_{part}")[chosen])
    return tmp_path / "mine"


def test_a_folder_is_learnt_as_its_arrays_are(run, folder, tmp_path):
    data = load_dataset(folder, SHAPE, 10)
    assert data.x_train.shape == (30, 1, 8, 8) and data.y_train[:11].tolist() == [*range(10), 0]
    np.savez(tmp_path / "d.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    told = []
    for source, name in ((folder, "a"), (tmp_path / "d.npz", "b")):
        few = ("--engine", "reference", "--epochs", "2", "--json", "-o", tmp_path / name)
        code, out, err = run("finetune", "digits", "--data", source, *few)
        assert code == 0, err
        told.append(json.loads(out))
    assert told[0]["loss"] == told[1]["loss"] and told[0]["accuracy_after"] == told[1]["accuracy_after"]
    assert set(told[0]["files"]["data"]) == {"mine"}
    # A picture that changes is another request.
    before = told[0]["files"]["data"]["mine"]
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "train" / "digit 0" / "0000.png")
    code, out, _ = run("finetune", "digits", "--data", folder, *few[:-1], tmp_path / "c")
    assert json.loads(out)["files"]["data"]["mine"] != before
    code, out, _ = run("infer", "digits", "--data", folder, "--adapter", tmp_path / "b", "--json")
    assert code == 0 and json.loads(out)["accuracy"] == told[1]["accuracy_after"]
    code, out, _ = run("infer", "digits", "--data", folder / "test" / "digit 3", "--json")
    assert code == 0 and len(json.loads(out)["labels"]) == 1 and "accuracy" not in json.loads(out)


def test_a_folder_of_classes_alone_is_to_learn_from(folder):
    """Where what to judge by is held out of it; elsewhere its parts are asked for."""
    whole, flat = (load_parts(folder, SHAPE, 10, PARTS[:1]), load_parts(folder / "train", SHAPE, 10, PARTS[:1]))
    np.testing.assert_array_equal(whole["x_train"], flat["x_train"])
    with pytest.raises(
        ValueError, match="has no folder train: must have train/CLASS and test/CLASS; or give --held-out"
    ):
        load_dataset(folder / "train", SHAPE, 10)
    shutil.rmtree(folder / "train")
    with pytest.raises(ValueError, match="has no folder train"):
        load_parts(folder, SHAPE, 10, PARTS[:1])


def test_pictures_become_what_the_network_takes(tmp_path):
    """Colour becomes grey, size the network's, and a camera's turn is undone."""
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, 16:] = 200
    Image.fromarray(wide).save(tmp_path / "a.png")
    turned = Image.fromarray(wide)
    exif = turned.getexif()
    exif[0x0112] = 3
    turned.save(tmp_path / "b.png", exif=exif)
    images, labels = load_judged(tmp_path, SHAPE, 10)
    assert labels is None and images.shape == (2, 1, 8, 8)
    assert images[0, 0, 4].tolist()[:3] == [0, 0, 0] and images[0, 0, 4].tolist()[-3:] == [200, 200, 200]
    np.testing.assert_array_equal(images[1], images[0][:, ::-1, ::-1])
    colour, _ = load_judged(tmp_path, (3, 16, 32), 10)
    np.testing.assert_array_equal(colour[0], wide.transpose(2, 0, 1))


def spoilt(folder):
    (folder / "train" / "digit 0" / "0000.png").write_bytes(b"\x89PNG\r\n\x1a\nand nothing")


def deep(folder):
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(folder / "train" / "digit 0" / "deep.png")


def missing(folder):
    (folder / "test" / "digit 9").rename(folder / "test" / "digit x")


@pytest.mark.parametrize(
    "change, says",
    [
        (spoilt, "data=mine/train/digit 0/0000.png: is no picture that decodes"),
        (deep, "data=mine/train/digit 0/deep.png: has pixels of mode I;16, must have 8 bits a channel"),
        (missing, "data=mine: class digit x is in test and not in train"),
        (lambda folder: (folder / "train" / "a.png").touch(), "data=mine/train/a.png: is a file among folders of"),
        (lambda folder: (folder / "train" / "digit 1" / "a.txt").touch(), "a.txt: must end in .png, .jpg, .jpeg"),
        (
            lambda folder: shutil.rmtree(folder / "test" / "digit 9"),
            "data=mine: class digit 9 is in train and not in test: both must have the same folders",
        ),
        (
            lambda folder: [(folder / part / "more").mkdir() for part in ("train", "test")],
            "data=mine/train: has 11 class folders, the network has 10",
        ),
        (
            lambda folder: (folder / "test").rename(folder / "rest"),
            "data=mine: has no folder test: must have train/CLASS and test/CLASS; or",
        ),
    ],
    ids=["spoilt", "16 bits", "other class", "stray", "text", "missing class", "more classes", "no test"],
)
def test_a_wrong_folder_is_one_line(run, folder, monkeypatch, change, says):
    monkeypatch.chdir(folder.parent)
    change(folder)
    code, out, err = run("finetune", "digits", "--data", "mine", "--engine", "reference", "-o", "run")
    assert (code, out, err.count("\n")) == (2, "", 1) and says in err, err
    assert not (folder.parent / "run").exists()
