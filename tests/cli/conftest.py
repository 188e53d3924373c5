"""A folder with a small language model."""

import pytest

from gradloom.systems.text import task as language

from ..language import save_model
from .small import MODEL, TEXT, Letters


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with ``small``, a model, and ``text.txt``, and the one we are in."""
    monkeypatch.setattr(language, "open_tokenizer", lambda path, **_: Letters())
    save_model(tmp_path / "small", MODEL)
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path
