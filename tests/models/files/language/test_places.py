"""Where a model's weights are: by name, in a file, in a folder, and what is there instead."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.files.language import checkpoint as places
from gradloom.models.files.language.checkpoint import find_model, find_weights, open_checkpoint
from gradloom.models.language import BUILT_IN

from .test_language import write_gguf


def test_a_name_is_its_package_s_file(tmp_path, monkeypatch):
    (tmp_path / "some_weights").mkdir()
    (tmp_path / "some_weights" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(places, "_PACKAGES", {"smollm2-135m": "some_weights"})
    said = "^smollm2-135m: its weights are not installed; make llm installs them, or name a file or folder$"
    with pytest.raises(ValueError, match=said):
        find_weights("smollm2-135m")
    (tmp_path / "some_weights" / "m.gguf").write_bytes(b"")
    assert find_weights("smollm2-135m") == tmp_path / "some_weights" / "m.gguf"
    monkeypatch.setattr(places, "_PACKAGES", {"smollm2-135m": "no_such_package"})
    with pytest.raises(ValueError, match=said):
        find_weights("smollm2-135m")
    with pytest.raises(ValueError, match="^tinyllama-1.1b: is known by its shapes only; name a file or folder"):
        find_weights("tinyllama-1.1b")
    assert str(find_weights("nowhere")) == "nowhere" and find_weights(tmp_path) == tmp_path
    assert find_model("smollm2-135m") is BUILT_IN["smollm2-135m"]


def test_a_folder_s_one_gguf_file_is_its_model(tiny, tensors, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    said = r"m: has no config.json and {} \.gguf files: a model is the one or exactly one of the other$"
    with pytest.raises(ValueError, match=said.format(0)):
        open_checkpoint(folder)
    write_gguf(folder / "a.gguf", tensors)
    assert replace(find_model(str(folder)), name="tiny") == tiny
    (folder / "b.gguf").write_bytes(b"")
    with pytest.raises(ValueError, match=said.format(2)):
        open_checkpoint(folder)
    (folder / "b.gguf").unlink()
    (folder / "a.gguf").rename(folder / "a-00001-of-00002.gguf")
    (folder / "a-00002-of-00002.gguf").write_bytes(b"")
    assert open_checkpoint(folder).path == folder / "a-00001-of-00002.gguf"
    for name, what in (
        ("adapter_config.json", "an adapter: name its model here"),
        ("model_index.json", "a pipeline of"),
    ):
        (folder / name).write_text("{}")
        with pytest.raises(ValueError, match=f"m: has {name}: is {what}"):
            open_checkpoint(folder)
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("m.bin", b"hello, world", "m.bin: must be a folder or end in .gguf or .safetensors$"),
        ("m.bin", b"\x80\x02}", "m.bin: must be a folder or end in .gguf or .safetensors; is a pickled PyTorch file"),
        ("m.safetensors", b"<html>", "m.safetensors: is a page of HTML"),
        ("m.safetensors", b"x", "config.json: no such file$"),
        ("m-00001-of-00002.safetensors", b"", "is part 1 of 2 of a model: name the folder "),
    ],
)
def test_another_file_is_told_by_what_it_is(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        open_checkpoint(tmp_path / name)
    with pytest.raises(ValueError, match=r"none: no such file or folder, nor a model known by name \(.*smollm2-135m"):
        open_checkpoint(tmp_path / "none")


def test_one_part_of_one_is_a_whole(folder, tiny):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    assert open_checkpoint(folder / "model-00001-of-00001.safetensors").model == tiny


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({}, "weight_map is not an object of file names"),
        ({"weight_map": {}}, "weight_map is not an object of file names"),
        ({"weight_map": {"a": 1}}, "weight_map is not an object of file names"),
        ({"weight_map": {"a": "../b"}}, 'weight_map names "../b": must be a file of the folder'),
        ({"weight_map": {"a": "x", "b": "y", "c": "y"}}, "x: no such file; it is one of 2 parts that model.saf"),
        ([], r"must be an object of JSON, not \[\]"),
    ],
)
def test_an_index_that_names_no_files_is_refused(folder, index, says):
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=says):
        open_checkpoint(folder)


def test_a_tensor_is_in_one_file_and_has_floats(folder):
    held = load_file(folder / "model.safetensors")
    names = sorted(held)
    for part, some in (("a", names[:2]), ("b", names[1:])):
        save_file({name: held[name] for name in some}, folder / f"{part}.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=rf"b.safetensors: tensor {names[1]} is in another file of .*, too$"):
        open_checkpoint(folder)
    save_file({names[0]: held[names[0]]}, folder / "a.safetensors")
    checkpoint = open_checkpoint(folder)
    np.testing.assert_array_equal(checkpoint.tensor(names[0]), held[names[0]])
    assert checkpoint.nf4(names[0]) is None
    with pytest.raises(ValueError, match="has no tensor other$"):
        checkpoint.tensor("other")


def test_a_folder_without_weights_says_what_is_there(folder):
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    for name, says in (
        (None, "no such file$"),
        ("pytorch_model.bin", "no such file; pytorch_model.bin can run code when it is read: save the model as"),
        ("x.gguf", "no such file; name the file .*x.gguf to read that$"),
        ("model-00001-of-00002.safetensors", "no such file; its parts are there, but not model.safetensors.index.json"),
    ):
        if name is not None:
            (folder / name).write_bytes(b"")
        with pytest.raises(ValueError, match=f"model.safetensors: {says}"):
            open_checkpoint(folder)
    weights.write_bytes(content)
    for text, says in (("{", r"is not JSON \(.*\); is it truncated\?$"), ("<html>", "is a page of HTML")):
        (folder / "config.json").write_text(text)
        with pytest.raises(ValueError, match=f"config.json: {says}"):
            open_checkpoint(folder)
