"""Labels are those of the machine that learnt: its codes, its integers."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gradloom import finetune
from gradloom.models.datasets import DATA, default_split
from gradloom.preset import PRESETS
from gradloom.systems.asked import Asked
from gradloom.systems.images import answer
from gradloom.systems.images.requests import ImageAnswers


def infer(preset, **options):
    """Labels by a preset and options by name."""
    return answer.infer(
        Asked(name=preset.name, preset=preset), ImageAnswers(**options).check(), lambda done, total, text: None
    )


PRESET = next(iter(PRESETS.values()))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    data = default_split(degrees=90).limited(train=40, test=100)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    return path


@pytest.mark.parametrize("names", [("x_test", "y_test"), ("x", "y"), ("x_test",), ("x",), ("x", "y_test")])
def test_images_alone_are_labelled_and_judged_only_where_labels_are_given(digits, tmp_path, names, run):
    with np.load(digits) as held:
        arrays = {name: held[f"{name[0]}_test"] for name in names}
    np.savez(tmp_path / "some.npz", **arrays)
    code, out, _ = run("infer", PRESET.name, "--data", tmp_path / "some.npz", "--json")
    told, whole = json.loads(out), infer(PRESET, data=digits)
    assert code == 0 and told["labels"] == whole["labels"]
    assert told.get("accuracy") == (whole["accuracy"] if names[1:] == (names[0].replace("x", "y"),) else None)
    said = run("infer", PRESET.name, "--data", tmp_path / "some.npz", "--limit", 7)[1]
    assert ("% as given" in said) == ("accuracy" in told) and said.startswith("7 images labelled")
    assert f"labels: {' '.join(map(str, told['labels'][:7]))}\n" in said and "more" not in said
    assert re.search(rf"^{told['labels'][0]} +{told['labels'][:7].count(told['labels'][0])}$", said, re.MULTILINE)


_IMAGES = np.zeros((4, 28, 28), np.uint8)


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"y": np.zeros(4, int)}, "holds neither x nor x_test"),
        ({"x": _IMAGES, "x_test": _IMAGES}, "holds x_test and x: one of"),
        ({"x": _IMAGES / 255}, "x has dtype float64: images must be uint8"),
        ({"x": _IMAGES[0]}, r"x has shape \(28, 28\): expected \(n, h, w\) or \(n, c, h, w\)"),
        ({"x": _IMAGES[:0]}, "must not be empty"),
        ({"x": _IMAGES[:, :8]}, r"has images of \(1, 8, 28\): lenet5 takes \(1, 28, 28\)"),
        ({"x": _IMAGES, "y": np.zeros(3, int)}, "y has 3 labels: x has 4 images"),
        ({"x_test": _IMAGES, "y_test": np.full(4, 10)}, r"y_test\[0\] is 10: labels must be from 0 to 9"),
        ({"x": _IMAGES, "y": np.zeros(4)}, "y has dtype float64: labels must be integers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_images_that_are_none_are_refused_with_field_value_and_bound(run, tmp_path, arrays, message):
    np.savez(tmp_path / "some.npz", **arrays)
    code, out, err = run("infer", PRESET.name, "--data", tmp_path / "some.npz", "-o", tmp_path / "labels.npz")
    assert (code, out, err.count("\n")) == (2, "", 1) and re.search(message, err) and "some.npz" in err
    assert not (tmp_path / "labels.npz").exists()


def test_a_limit_beyond_the_images_is_refused(digits):
    with pytest.raises(ValueError, match="limit=101: must be from 1 to 100"):
        infer(PRESET, data=digits, limit=101)


@pytest.mark.parametrize(
    "engine, cache, codes",
    [
        ("reference", "nf4", "nf4"),
        ("reference", "int8", "int8"),
        ("reference", "none", "nf4"),
        ("float", "none", "none"),
    ],
)
def test_an_adapter_says_which_codes_it_learnt_from(engine, cache, codes, digits, tmp_path):
    metrics = finetune(PRESET.name, output=tmp_path, data=digits, epochs=2, engine=engine, cache=cache)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["gradloom_codes"] == codes
    labels = infer(PRESET, data=digits, adapter=tmp_path, engine=engine, output=tmp_path / "labels.npz")
    assert labels["accuracy"] == metrics["accuracy_after"]

    before = np.load(tmp_path / "labels.npz")["logits"]
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    other = {"nf4": "int8"}.get(codes, "nf4")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"gradloom_codes": other}))
    infer(PRESET, data=digits, adapter=tmp_path, engine=engine, output=tmp_path / "labels.npz")
    assert not np.array_equal(before, np.load(tmp_path / "labels.npz")["logits"])


def test_one_logit_labels_images_and_learns(run, tmp_path):
    """1 or 0 on upright digits, by the difference of LeNet's own logits; then 0 or 1."""
    model = onnx.load(DATA / "lenet5.onnx")
    last = model.graph.node[-1]
    for name in last.input[1:]:
        (held,) = (each for each in model.graph.initializer if each.name == name)
        both = numpy_helper.to_array(held)
        held.CopyFrom(numpy_helper.from_array(both[1:2] - both[:1], name))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    onnx.save(model, tmp_path / "m.onnx")
    for verb in ("infer", "finetune"):  # not by digits of ten classes
        code, _, said = run(verb, tmp_path / "m.onnx", "--board", "kv260", "--engine", "reference", "-o", "o.npz")
        assert code == 2 and "data: must be given, the shipped images have 10 classes and m has 2" in said
    data = default_split()
    few = {part: getattr(data, f"y_{part}") < 2 for part in ("train", "test")}
    arrays = {f"{x}_{part}": getattr(data, f"{x}_{part}")[few[part]][:60] for x in "xy" for part in few}
    np.savez(tmp_path / "same.npz", **arrays)
    np.savez(tmp_path / "swapped.npz", **arrays | {name: 1 - arrays[name] for name in ("y_train", "y_test")})
    code, said, _ = run("infer", tmp_path / "m.onnx", "--data", tmp_path / "same.npz")
    assert code == 0 and said.startswith("one logit: class 1 where it is above 0\n60 images labelled")
    told = infer(PRESET, data=tmp_path / "same.npz", model=tmp_path / "m.onnx")
    assert told["one_logit"] and told["accuracy"] > 0.95 and set(told["labels"]) == {0, 1}
    metrics = finetune(
        str(tmp_path / "m.onnx"),
        board="kv260",
        output=tmp_path / "run",
        data=tmp_path / "swapped.npz",
        engine="reference",
    )
    assert metrics["one_logit"] and metrics["accuracy_before"] < 0.1 < 0.9 < metrics["accuracy_after"]
    assert metrics["first_epoch"]["loss"] > 2 * metrics["last_epoch"]["loss"] > 0
