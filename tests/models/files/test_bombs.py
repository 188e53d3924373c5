"""Small files that ask for much: refused in one line, before it is taken."""

import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradloom.models.files.archive import read_npz
from gradloom.models.onnx_import import load_onnx


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """Five GB of zeros in five MB: as many blocks of a MB, in arrays of 512 MB."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.npz"
    block = bytes(1 << 20)
    header = np.lib.format.header_data_from_array_1_0(np.empty(0, np.uint8)) | {"shape": (512 << 20,)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(512):
                file.write(block)
    # Nine more arrays that point at the same bytes.
    with zipfile.ZipFile(path, "a") as archive:
        (entry,) = archive.infolist()
        for number in range(9):
            other = zipfile.ZipInfo(f"x{number}.npy")
            for name in (
                "header_offset",
                "compress_size",
                "file_size",
                "CRC",
                "compress_type",
                "flag_bits",
                "create_version",
                "extract_version",
            ):
                setattr(other, name, getattr(entry, name))
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
        archive._didModify = True
    return path


def test_an_archive_of_5_gb_is_refused_before_it_is_read(bomb):
    assert bomb.stat().st_size < 6e6
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); "
        "from gradloom.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "quantize", bomb, "-o", bomb.with_suffix(".safetensors")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "its arrays take 5,368," in done.stderr and "at most" in done.stderr


def test_what_compresses_well_is_read(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(64 << 20, np.uint8))
    assert (tmp_path / "zeros.npz").stat().st_size < 1 << 20
    assert read_npz(tmp_path / "zeros.npz")["x"].shape == (64 << 20,)


@pytest.mark.parametrize(
    "kind, values",
    [
        ("ConstantOfShape", {"a": np.array([1 << 20, 1 << 20])}),
        ("Range", {"a": np.int64(0), "b": np.int64(1 << 40), "c": np.int64(1)}),
        ("Add", {"a": np.zeros((1 << 16, 1)), "b": np.zeros((1, 1 << 16))}),
        ("Gather", {"a": np.zeros((1, 1 << 16)), "b": np.zeros(1 << 16, np.int64)}),
    ],
)
def test_a_network_that_computes_a_huge_constant_is_refused(tmp_path, kind, values):
    graph = helper.make_graph(
        [helper.make_node(kind, list(values), ["big"], name="bomb"), helper.make_node("Mul", ["x", "big"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1, 8, 8))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "bomb.onnx")
    with pytest.raises(ValueError, match=r"bomb.*elements: at most 67,108,864"):
        load_onnx(tmp_path / "bomb.onnx")


_DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "name, verb",
    [
        ("report.json", ("report", "DIR")),
        ("report.json", ("finetune", "instantft-kv260", "--design", "DIR")),
        ("adapter_config.json", ("infer", "instantft-kv260", "--adapter", "DIR")),
        ("network.json", ("import", "DIR")),
        ("config.json", ("pack", "DIR", "-o", "packed")),
        ("tokenizer.json", ("infer", "DIR", "--prompt", "a")),
        ("manifest.json", ("card", "write", "DIR", "-o", "card.img")),
        ("board/settings.json", ("build", "ulx3s", "DIR", "--dry-run")),
    ],
)
def test_deeply_nested_json_is_a_wrong_request(run, tmp_path, monkeypatch, name, verb):
    monkeypatch.chdir(tmp_path)
    design = tmp_path / "design"
    for folder in ("rtl", "board"):
        (design / folder).mkdir(parents=True)
    for other in ("adapter_model.safetensors", "model.safetensors", name):
        (design / other).write_text(_DEEP if other == name else "")
    code, _, said = run(*(str(design) if each == "DIR" else each for each in verb))
    assert (code, len(said.splitlines())) == (2, 1), said


def test_a_deep_header_of_tensors_is_a_wrong_request(run, tmp_path):
    header = _DEEP.encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    code, _, said = run("quantize", tmp_path / "w.safetensors", "-o", tmp_path / "o.safetensors")
    assert (code, len(said.splitlines())) == (2, 1), said
