"""What a file is, where another one is needed."""

import gzip
import re
import struct
import zipfile

import numpy as np
import pytest

from gradloom.models.adapters.peft import read_config
from gradloom.models.files.kinds import what_is
from gradloom.models.files.tensors import write_safetensors


def text(value):
    return struct.pack("<Q", len(value)) + value


def gguf(kind):
    fields = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + fields + text(b"general.type") + struct.pack("<I", 8) + text(kind)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n", "Git LFS pointer .*git lfs pull"),
        (gguf(b"adapter"), "GGUF file of a LoRA adapter"),
        (gguf(b"model"), "a GGUF file$"),
        (b"\n<!DOCTYPE html><html>", "HTML"),
        (b"<html>", "HTML"),
        (b"\x80\x02}q\x00.", "pickled PyTorch"),
        (gzip.compress(b"a", mtime=0), "gzip"),
        (b"PK\x03\x04abc", "cut short"),
        (b"\x08\x07\x12\x07pytorch", "ONNX"),
        (b"", "empty"),
    ],
)
def test_a_file_is_called_what_it_is(tmp_path, content, words):
    (tmp_path / "f").write_bytes(content)
    assert re.search(words, what_is(tmp_path / "f"))


def test_archives_are_told_by_what_they_hold(tmp_path):
    for name, words in (("model/data.pkl", "pickled PyTorch"), ("a.txt", "a ZIP archive")):
        with zipfile.ZipFile(tmp_path / "f", "w") as archive:
            archive.writestr(name, b"x")
        assert words in what_is(tmp_path / "f")
    np.savez(tmp_path / "a.npz", a=np.zeros(2))
    np.save(tmp_path / "a.npy", np.zeros(2))
    assert ".npz" in what_is(tmp_path / "a.npz") and ".npy" in what_is(tmp_path / "a.npy")


def test_safetensors_are_known_and_other_bytes_are_not(tmp_path):
    write_safetensors(tmp_path / "a", {"x": (np.zeros(2, np.float32), "float32")})
    assert what_is(tmp_path / "a") == "a safetensors file"
    (tmp_path / "b").write_bytes(b"hello, world")
    assert what_is(tmp_path / "b") is None and what_is(tmp_path) is None and what_is(tmp_path / "no") is None


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n"
#: Verbs that read a file, each in place of FILE.
READERS = {
    "a model": ("m.safetensors", ("plan", "FILE")),
    "a configuration": ("config.json", ("plan", ".")),
    "a pack": ("manifest.json", ("card", "write", ".", "-o", "out.img")),
    "a network": ("network.json", ("import", ".")),
    "a report": ("report.json", ("report", ".")),
    "a public key": ("k.pub", ("generate", "mesh", "--trust", "FILE", "-o", "out")),
    "a secret key": ("k", ("package", "keys", "--key", "FILE", "--version", "1", "-o", "out")),
    "a package": ("a.pkg", ("card", "install", "FILE", "--card", "c.img")),
    "a card": ("c.img", ("card", "rollback", "--card", "FILE")),
}


@pytest.mark.parametrize("case", READERS)
def test_a_pointer_of_git_lfs_is_called_one_by_every_reader(run, tmp_path, monkeypatch, case):
    name, words = READERS[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(POINTER)
    code, out, err = run(*(name if each == "FILE" else each for each in words))
    assert (code, out, err.count("\n")) == (2, "", 1) and name in err and "a Git LFS pointer" in err
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_pointer_in_place_of_an_adapter_s_config_is_called_one(tmp_path):
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text(POINTER)
    with pytest.raises(ValueError, match="adapter_config.json: is a Git LFS pointer"):
        read_config(tmp_path)
