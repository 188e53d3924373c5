"""Sums of a request's files: a folder's own files, and one sum of folders alone."""

from pathlib import Path

from gradloom.systems.job import Job


def sums(path):
    job = Job(preset=None, options=None, design=None, output=Path("out"), tell=None)
    return job.sums(path)


def test_folders_beside_files_are_not_read(tmp_path):
    """A model's folder may hold caches and other formats, gigabytes of them."""
    (tmp_path / "config.json").write_text("{}")
    before = sums(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"large")
    assert set(before) == {"config.json"} and sums(tmp_path) == before


def test_folders_alone_have_one_sum_of_names_and_contents(tmp_path):
    found = []
    for name, content in (("a.png", b"1"), ("a.png", b"2"), ("b.png", b"2")):
        folder = tmp_path / str(len(found)) / "data"
        (folder / "class").mkdir(parents=True)
        (folder / "class" / name).write_bytes(content)
        found.append(sums(folder)["data"])
    assert len(set(found)) == 3
