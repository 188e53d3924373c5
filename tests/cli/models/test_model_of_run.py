"""A run's network is found from its folder, wherever it is exported; another file in its place is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.datasets import digits_split
from gradloom.models.onnx_import import load_pretrained
from gradloom.models.onnx_network import network_onnx
from gradloom.models.sequences import spar_model, spar_person
from gradloom.systems.images.workload import DIGITS

from ...systems.networks.small import write_data, write_network


def image_network(folder):
    (folder / "net.onnx").write_bytes(network_onnx(load_pretrained(DIGITS.network)))
    data = digits_split(24, 24, degrees=90)
    parts = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    np.savez(folder / "data.npz", **parts)


def network(folder):
    write_network(folder / "net.onnx")
    write_data(folder / "data.npz")


def sequences(folder):
    shutil.copy(spar_model(0), folder / "net.onnx")
    data = spar_person(1)
    parts = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    np.savez(folder / "data.npz", **{name: each[:16] for name, each in parts.items()})


@pytest.mark.parametrize("make", [image_network, network, sequences])
def test_a_runs_network_is_found_from_its_folder(run, tmp_path, monkeypatch, make):
    for name in ("nets", "work", "elsewhere"):
        (tmp_path / name).mkdir()
    make(tmp_path / "nets")
    monkeypatch.chdir(tmp_path / "work")
    few = ("--engine", "float", "--epochs", "1", "--data", "../nets/data.npz", "-o", "tuned")
    code, _, err = run("finetune", "../nets/net.onnx", "--board", "kv260", *few)
    assert code == 0, err
    assert str(tmp_path) not in Path("tuned/metrics.json").read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def exported(*words):
        code, out, err = run("export", "../work/tuned", "-o", "tuned.onnx", *words)
        assert code == 0 or (code, out, err.count("\n"), Path("tuned.onnx").exists()) == (2, "", 1, False), err
        made = Path("tuned.onnx").read_bytes() if code == 0 else b""
        Path("tuned.onnx").unlink(missing_ok=True)
        return made, err

    wanted, err = exported()
    assert wanted, err
    # A copy with another name is as good; it is looked for here, too.
    network = tmp_path / "nets" / "net.onnx"
    network.rename("other.onnx")
    assert exported("--model", "other.onnx")[0]
    assert "model=net.onnx: that of the run is not here; name it by --model" in exported()[1]
    shutil.copy("other.onnx", "net.onnx")
    assert exported()[0] == wanted
    # One in its place is not.
    Path("net.onnx").unlink()
    network.write_bytes(Path("other.onnx").read_bytes() + b"\x72\x00")
    for words in ((), ("--model", network)):
        assert f"{network.name} is not the run's, whose SHA-256 is in ../work/tuned/metrics.json" in exported(*words)[1]
    assert "model=none.onnx: no such file" in exported("--model", "none.onnx")[1]
