"""What is held out judges a fine-tune, in each system and engine."""

import numpy as np
import pytest

import gradloom
from gradloom.models.adapters.peft import load_adapters
from gradloom.models.datasets import digits_split, mnist_test
from gradloom.models.onnx_import import load_pretrained
from gradloom.models.sequences import spar_model, spar_person


def held(made):
    return {each["step"]: each for each in made["held_out_losses"]}


def tuned(folder, preset="digits-ulx3s", output="out", **options):
    return gradloom.finetune(preset, output=folder / output, **options)


@pytest.mark.parametrize("engine", ["reference", "float"])
def test_images_are_judged_by_epoch_and_the_lowest_is_kept(tmp_path, engine):
    made = tuned(tmp_path, engine=engine, epochs=3, lr=0.1)
    losses = held(made)
    assert list(losses) == [0, 12, 24, 36] and made["kept_step"] == 36
    for when, step in (("before", 0), ("after", 36)):
        assert made[f"held_out_{when}"] == losses[step]["loss"]
        assert made[f"accuracy_{when}"] == losses[step]["accuracy"]
        counts = np.array(made[f"confusion_{when}"])
        assert counts.sum() == 48 and counts.trace() / 48 == made[f"accuracy_{when}"]
    early = tuned(tmp_path, output="early", engine=engine, epochs=40, lr=0.1, patience=2)
    found = held(early)
    assert max(found) == early["kept_step"] + 24 == len(early["loss"]) < 480
    assert early["held_out_after"] == min(each["loss"] for each in found.values())
    epochs = early["kept_step"] // 12
    again = tuned(tmp_path, output="again", engine=engine, epochs=epochs, lr=0.1)
    assert again["held_out_after"] == early["held_out_after"]
    kept, wanted = (load_adapters(tmp_path / name, load_pretrained("digits"))[0] for name in ("early", "again"))
    for pair, other in zip(kept, wanted):
        np.testing.assert_array_equal(pair[0], other[0])


def test_a_share_of_images_needs_no_test_part_and_a_file_takes_its_place(tmp_path):
    data = digits_split(90, 48)
    np.savez(tmp_path / "d.npz", x_train=data.x_train, y_train=data.y_train)
    np.savez(tmp_path / "h.npz", x=data.x_test, y=data.y_test)
    usual = {"engine": "reference", "epochs": 1, "data": tmp_path / "d.npz"}
    made = tuned(tmp_path, **usual, held_out="0.2")
    assert made["samples"] == 72 and np.sum(made["confusion_before"]) == 18
    assert made["request"]["held_out"] == "0.2" and set(made["files"]) == {"data"}
    filed = tuned(tmp_path, **usual, held_out=tmp_path / "h.npz", output="filed")
    assert filed["samples"] == 90 and np.sum(filed["confusion_after"]) == 48 and "held_out" in filed["files"]
    page = (tmp_path / "filed" / "report.html").read_text()
    assert "Answers after, a row a class" in page


def test_sequences_are_held_out(tmp_path):
    data = spar_person(9)
    np.savez(tmp_path / "d.npz", x_train=data.x_train, y_train=data.y_train)
    np.savez(tmp_path / "h.npz", x=data.x_test[::4], y=data.y_test[::4])
    usual = {
        "preset": str(spar_model(2)),
        "engine": "reference",
        "epochs": 2,
        "data": tmp_path / "d.npz",
        "board": "kv260",
    }
    drawn = tuned(tmp_path, **usual, held_out="0.1")
    filed = tuned(tmp_path, **usual, held_out=tmp_path / "h.npz", output="filed")
    for made, samples, judged in ((drawn, 126, 14), (filed, 140, len(data.y_test[::4]))):
        assert (made["samples"], made["judged"], len(held(made))) == (samples, judged, 3)
        assert np.sum(made["confusion_after"]) == judged and made["held_out_after"] < made["held_out_before"]


@pytest.mark.parametrize("engine", ["reference", "float"])
def test_pictures_are_judged_by_epoch(tmp_path, engine):
    images, labels = mnist_test()
    np.savez(tmp_path / "d.npz", x_train=images[:8], y_train=labels[:8])
    usual = {"engine": engine, "data": tmp_path / "d.npz", "batch": 2, "generate": 0, "held_out": "0.25"}
    made = tuned(tmp_path, "cdm-qta-kv260", **usual, steps=4)
    losses = held(made)
    assert (made["samples"], made["judged"], list(losses)) == (6, 2, [0, 3, 4])
    assert (made["loss_before"], made["loss_after"]) == (losses[0]["loss"], losses[4]["loss"])
    early = tuned(tmp_path, "cdm-qta-kv260", **usual, steps=9, lr=1.0, judge_steps=1, patience=2, output="early")
    assert early["steps"] == len(early["loss"]) == early["kept_step"] + 2 < 9
    assert early["loss_after"] == min(each["loss"] for each in held(early).values())


BAD = [
    ("digits-ulx3s", {"patience": 2}, r"patience=2: must be 0 with --engine rtl, whose program .* --engine reference"),
    ("digits-ulx3s", {"held_out": "2"}, r"held_out=2: must be above 0 and below 1, or a file"),
    ("digits-ulx3s", {"held_out": "h.npz"}, r"held_out=.*h\.npz: must be a share of the shipped samples; or give"),
    ("digits-ulx3s", {"data": "d.npz", "held_out": "x.npz"}, r"held_out=.*x\.npz: has no labels to judge by"),
    ("digits-ulx3s", {"data": "d.npz"}, r"x_test, y_test missing"),
    ("lstm-kv260", {"held_out": "0.5"}, r"held_out=0\.5: must be left out without data, whose recordings have a part"),
    ("cdm-qta-kv260", {"held_out": "0.5"}, r"held_out=0\.5: must be left out without --data, whose digits have a part"),
]


@pytest.mark.parametrize("preset, options, says", BAD)
def test_a_wrong_part_is_one_line(tmp_path, preset, options, says):
    data = digits_split(20, 8)
    np.savez(tmp_path / "d.npz", x_train=data.x_train, y_train=data.y_train)
    np.savez(tmp_path / "h.npz", x=data.x_test, y=data.y_test)
    np.savez(tmp_path / "x.npz", x=data.x_test)
    files = {name: tmp_path / value if ".npz" in str(value) else value for name, value in options.items()}
    usual = {} if options.get("patience") else {"engine": "float"}
    with pytest.raises(ValueError, match=says) as error:
        tuned(tmp_path, preset, **usual, **files)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
