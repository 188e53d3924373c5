"""The source of the signatures' arithmetic is the one that is known, or is fetched again."""

import hashlib

import pytest

from gradloom.firmware.chip import monocypher_source


def test_files_have_the_known_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(monocypher_source, "_place", lambda: tmp_path)
    monkeypatch.setattr(monocypher_source, "SUMS", {"a.c": hashlib.sha256(b"a").hexdigest()})
    (tmp_path / "a.c").write_bytes(b"a")
    assert monocypher_source.monocypher() == tmp_path and monocypher_source.fetch() == tmp_path
    (tmp_path / "a.c").write_bytes(b"b")
    with pytest.raises(ValueError, match="^a.c: Monocypher .* is not there; python -m .*monocypher_source fetches its"):
        monocypher_source.monocypher()
    (tmp_path / "a.c").unlink()
    with pytest.raises(ValueError, match="^a.c: Monocypher .* is not there"):
        monocypher_source.monocypher()
