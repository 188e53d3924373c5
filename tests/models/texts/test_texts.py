"""A text is read without its byte-order mark; what is no flat text is refused."""

import pytest

from gradloom.models.files.texts import read_text

FLAT = ["Once upon a time.\nAnd so on.", "[1, 2] is a list", "{ not JSON\n}", "[note] x", "", '["a", "b"]', "é\u2028x"]
RECORDS = [
    '{"text": "a"}\n{"text": "b"}\n',
    '\n {"messages": [{"role": "user", "content": "x"}]}\nrest',
    '[{"text": "a"}]',
    '[\n {"prompt": 1}\n]',
    '{\n "a": [1]\n}',
]


@pytest.mark.parametrize("text", FLAT)
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_flat_text_is_read_without_its_mark(text, start, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(start + text, encoding="utf-8", newline="\n")
    assert read_text(path) == text


@pytest.mark.parametrize("text", RECORDS)
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_records_are_refused_by_what_they_are(text, start, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(start + text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"held_out=.*text\.txt: holds records of JSON, must be flat text"):
        read_text(path, "held_out")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", b"plain", r"holds records \(\.jsonl\)"),
        ("a.CSV", b"a,b\n1,2\n", r"holds records \(\.CSV\)"),
        ("a.txt", "hé".encode("utf-16"), "is not UTF-8 .*; save it as UTF-8"),
        ("a.txt", "he".encode("utf-16-le"), "character 1 is 0; is it UTF-16"),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid x\n", "is a Git LFS pointer"),
        ("a.txt", b"<!DOCTYPE html><html>", "is a page of HTML"),
        ("a.txt", b"GGUF\x03", "is a GGUF file, a text is needed"),
    ],
)
def test_another_kind_of_file_is_named(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"text=.*{message}"):
        read_text(path)
