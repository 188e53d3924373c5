"""Tokens are those of the model's own tokenizer."""

import json
from pathlib import Path

import pytest

from gradloom.rtl.models.tokenizer import open_tokenizer

DATA = Path(__file__).parents[1] / "golden" / "qlora_smollm2"


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
    return open_tokenizer(smollm2)


def test_the_first_64_tokens_are_those_of_transformers(tokenizer):
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    tokens = json.loads((DATA / "curve.json").read_text())["tokens"]
    assert tokenizer.encode(text)[:64] == tokens


@pytest.mark.parametrize("text, tokens", json.loads((DATA / "tokens.json").read_text(encoding="utf-8")))
def test_odd_texts_are_split_as_by_transformers(tokenizer, text, tokens):
    assert tokenizer.encode(text) == tokens
    assert tokenizer.decode(tokens) == text


def test_a_token_out_of_range_is_refused(tokenizer):
    assert tokenizer.size == 49152
    with pytest.raises(ValueError, match="token=49152: must be from 0 to 49151"):
        tokenizer.decode([1, 49152])


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
    with pytest.raises(ValueError, match=r"tokenizer\.json: no such file"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read as a tokenizer"):
        open_tokenizer(tmp_path)
