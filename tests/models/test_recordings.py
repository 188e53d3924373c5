"""Folders of CSV and WAV files are the sequences in them, and a fault is a line with its file's name."""

import json

import numpy as np
import pytest

from gradloom.models.recordings import WHOLE, Cut, labelled_recordings, learnt_recordings
from gradloom.models.sequences import CLASSES, spar_person
from gradloom.models.sound import Sound
from tests.models.test_sound import sweep, write

NAMES = "time,ax,ay\n"


def table(path, rows, names=NAMES):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(names + "".join(",".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    """Two classes, each of ten rows to learn from and ten to judge by."""
    for part in ("train", "test"):
        for label, name in enumerate(("rest", "walk")):
            table(tmp_path / "d" / part / name / "1.csv", [(n, 10 * label + n, -n) for n in range(10)])
    return tmp_path / "d"


def learnt(path, **cut):
    return learnt_recordings(path, classes=2, channels=2, cut=Cut(columns="ay,ax", **cut))


def test_windows_are_cut_by_name_and_class(folder):
    found = learnt(folder, window=4, hop=3)
    assert found["x_train"].shape == (6, 4, 2) and found["y_train"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found["x_test"][4].tolist() == [[-3, 13], [-4, 14], [-5, 15], [-6, 16]]
    whole = learnt_recordings(folder, classes=2, channels=3, cut=WHOLE)
    assert whole["x_train"].shape == (2, 10, 3)
    x, y = labelled_recordings(folder / "test" / "walk", classes=2, channels=3, cut=Cut(window=5))
    assert x.shape == (2, 5, 3) and y is None
    assert labelled_recordings(folder, classes=2, channels=3, cut=WHOLE)[1].tolist() == [0, 1]


def test_sound_becomes_features(tmp_path):
    for part in ("train", "test"):
        for name in ("no", "yes"):
            (tmp_path / part / name).mkdir(parents=True)
            write(tmp_path / part / name / "1.wav", sweep())
    found = learnt_recordings(tmp_path, classes=2, channels=10, cut=Cut(sound="mfcc", window=3))
    np.testing.assert_array_equal(
        found["x_train"][1], Sound.of("mfcc").features(sweep() / 2.0**15)[3:6].astype(np.float32)
    )


def test_a_fine_tune_from_csv_is_that_of_its_arrays(run, tmp_path):
    """By the command line; the fine-tune's request has the window, which then holds for answers, too."""
    data = spar_person(2)
    model = "src/gradloom/models/data/spar_lstm64_without_1_2_3.onnx"
    for part in ("train", "test"):
        for n, (x, y) in enumerate(zip(getattr(data, f"x_{part}")[::2], getattr(data, f"y_{part}")[::2])):
            table(tmp_path / "mine" / part / f"{y}" / f"{n:03}.csv", np.concatenate([x, x]).tolist(), names="")
    cut = Cut(window=100)
    arrays = learnt_recordings(tmp_path / "mine", classes=len(CLASSES), channels=6, cut=cut)
    np.savez(tmp_path / "d.npz", **arrays)
    told = []
    for source, more in ((tmp_path / "mine", ("--window", "100")), (tmp_path / "d.npz", ())):
        few = ("--engine", "reference", "--epochs", "1", "--json", "-o", tmp_path / source.stem / "run")
        code, out, err = run("finetune", model, "--data", source, *more, *few)
        assert code == 0, err
        told.append(json.loads(out))
    assert told[0]["loss"] == told[1]["loss"] and told[0]["accuracy_after"] == told[1]["accuracy_after"]
    assert told[0]["request"]["window"] == 100
    adapter = ("--adapter", tmp_path / "mine" / "run")
    code, out, err = run("infer", model, *adapter, "--data", tmp_path / "mine", "--json")
    assert code == 0 and json.loads(out)["accuracy"] == told[0]["accuracy_after"], err
    code, _, err = run("infer", model, *adapter, "--data", tmp_path / "d.npz", "--window", "5")
    assert code == 2 and "window=5: must be left out with data=" in err
    code, _, err = run("finetune", "spar-lstm", "--window", "5")
    assert code == 2 and err == "gradloom: window=5: must be left out without data\n"


FAULTS = {
    "a word": ({"rows": [(0, 1, 2), (1, "x", 3)]}, "line 3: 'x' is no finite number"),
    "no value": ({"rows": [(0, 1, "nan")]}, "line 2: 'nan' is no finite number"),
    "a row": ({"rows": [(0, 1, 2), (1, 2)]}, "line 3 has 2 columns, those before it 3"),
    "no rows": ({"rows": []}, "has no row of numbers"),
    "no names": ({"rows": [(0, 1, 2)], "names": ""}, "has no row that names its columns; columns=ay,ax: must be"),
    "a short one": ({"rows": [(0, 1, 2)]}, "has 1 step: at least 4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_is_not_read_is_named(folder, fault):
    given, why = FAULTS[fault]
    table(folder / "train" / "walk" / "2.csv", **given)
    with pytest.raises(ValueError, match=rf"2\.csv: {why}"):
        learnt(folder, window=4)


def test_what_does_not_fit_is_named(folder):
    table(folder / "test" / "rest" / "2.csv", [(0, 1, 2)])
    with pytest.raises(ValueError, match=r"1 step, the recordings before it 10: give --window"):
        learnt(folder)
    with pytest.raises(ValueError, match="has 3 channels, the network takes 6"):
        learnt_recordings(folder, classes=2, channels=6, cut=WHOLE)
    with pytest.raises(ValueError, match=r"1\.csv: must end in \.wav"):
        learnt_recordings(folder, classes=2, channels=10, cut=Cut(sound="mfcc"))
    with pytest.raises(ValueError, match="hop=2: must be left out without window"):
        Cut(hop=2)
