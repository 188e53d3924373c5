"""Tokens are those of the model's own tokenizer."""

import json
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.files.language.tokenizer import open_tokenizer

from ....fuzz.looks import looks

DATA = Path(__file__).parents[3] / "golden" / "qlora_smollm2"


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


HELD = json.loads((Path(__file__).parents[3] / "golden/language/language.json").read_text(encoding="utf-8"))["tokens"]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def write(path, fields=(), *, pre="gpt-2", model="gpt2", more=(), merges=None):
    """A GGUF file with the vocabulary of the golden tokens; ``more``: further tokens with their kinds."""
    tokens = HELD["tokens"] + [token for token, _ in more]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([NORMAL] * len(HELD["tokens"]) + [kind for _, kind in more])
    writer.add_token_merges(HELD["merges"] if merges is None else merges)
    for key, kind, value in fields:
        writer.add_key_value(f"tokenizer.ggml.{key}", value, gguf.GGUFValueType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture
def needed():
    return pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")


@pytest.mark.parametrize("pre", HELD["ids"])
def test_splits_are_those_of_each_familys_own_class(pre, needed, tmp_path):
    found = open_tokenizer(write(tmp_path / "m.gguf", [("add_bos_token", "BOOL", False)], pre=pre))
    assert [found.encode(text) for text in HELD["texts"]] == HELD["ids"][pre]


def own_file(more, before=(), after=()):
    """``tokenizer.json`` of the same vocabulary, as transformers writes it."""
    count = len(HELD["tokens"])
    added = [
        {"id": count + at, "content": token, "special": kind != USER_DEFINED}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for at, (token, kind) in enumerate(more)
        if kind != UNUSED
    ]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    around = [
        {"SpecialToken": {"id": HELD["tokens"][each], "type_id": 0}} if isinstance(each, int) else each
        for each in (*before, {"Sequence": {"id": "A", "type_id": 0}}, *after)
    ]
    special = {
        HELD["tokens"][each]: {"id": HELD["tokens"][each], "ids": [each], "tokens": [HELD["tokens"][each]]}
        for each in (*before, *after)
    }
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
        | {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"},
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": bytes_,
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": around, "special_tokens": special},
        "decoder": bytes_,
        "model": {
            "type": "BPE",
            "vocab": {token: at for at, token in enumerate(HELD["tokens"])},
            "merges": HELD["merges"],
        },
    }


MORE = [
    ("<tool_call>", USER_DEFINED),
    ("<|end|>", CONTROL),
    ("<unk>", UNKNOWN),
    ("    ", USER_DEFINED),
    ("[PAD1]", UNUSED),
]


def test_tokens_of_a_gguf_file_are_those_of_its_tokenizer_json(needed, tmp_path):
    pieces = [token for token, _ in MORE] + [" ", "a", "then", "12", "\n", "é", "<", "<|end", "   "]

    @looks(15, 500)
    @given(st.lists(st.sampled_from(pieces) | st.text(max_size=3)), st.booleans(), st.booleans())
    def one(parts, bos, eos):
        fields = [("add_bos_token", "BOOL", bos), ("bos_token_id", "UINT32", 3)]
        fields += [("add_eos_token", "BOOL", eos), ("eos_token_id", "UINT32", 4)]
        (tmp_path / "tokenizer.json").unlink(missing_ok=True)
        ours = open_tokenizer(write(tmp_path / "m.gguf", fields, more=MORE))
        own = json.dumps(own_file(MORE, [3] * bos, [4] * eos))
        (tmp_path / "tokenizer.json").write_text("\ufeff" + own, encoding="utf-8")
        theirs = open_tokenizer(tmp_path, model_size=ours.size)
        tokens = ours.encode("".join(parts))
        assert tokens == theirs.encode("".join(parts)) == open_tokenizer(tmp_path / "m.gguf").encode("".join(parts))
        assert ours.decode(tokens) == theirs.decode(tokens)
        assert ours.control == theirs.control and ours.size == theirs.size

    one()


def test_a_user_defined_token_is_one_token(needed, tmp_path):
    found = open_tokenizer(write(tmp_path / "m.gguf", more=MORE))
    first = len(HELD["tokens"])
    assert found.encode("<tool_call><|end|>") == [first, first + 1]
    assert found.control == {first + 1, first + 2}


def test_tokens_that_only_pad_a_model_have_no_text(needed, tmp_path):
    found = open_tokenizer(write(tmp_path / "m.gguf", more=MORE), model_size=500)
    assert found.size == 500 and found.decode([0, len(HELD["tokens"]) + 4, 499]) == HELD["tokens"][0]
    assert len(found.encode("[PAD1]")) > 1
    path = write(tmp_path / "twice.gguf", more=[("<x>", UNUSED), ("<x>", CONTROL), ("<x>", UNUSED)])
    assert open_tokenizer(path).encode("<x>") == [len(HELD["tokens"]) + 1]


def test_llama_3_has_a_token_before_each_text(needed, tmp_path):
    path = write(tmp_path / "m.gguf", [("bos_token_id", "UINT32", 421)], pre="llama-bpe", more=[("<|begin|>", CONTROL)])
    assert open_tokenizer(path).encode("") == [421]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": "llama"}, "tokenizer is 'llama'"),
        ({"pre": "deepseek-llm"}, "splits 'deepseek-llm'"),
        ({"pre": None}, "splits 'default'"),
        ({"fields": [("add_space_prefix", "BOOL", True)]}, "add_space_prefix=true"),
        ({"fields": [("add_sep_token", "BOOL", True)]}, "add_sep_token=true"),
        ({"fields": [("remove_extra_whitespaces", "BOOL", True)]}, "remove_extra_whitespaces=true"),
        ({"fields": [("precompiled_charsmap", "STRING", "abc")]}, 'precompiled_charsmap="abc"'),
        ({"fields": [("a_new_key", "UINT32", 0)]}, "a_new_key=0"),
        ({"fields": [("add_bos_token", "BOOL", True)]}, "no field tokenizer.ggml.bos_token_id"),
        ({"fields": [("add_eos_token", "BOOL", True), ("eos_token_id", "UINT32", 999)]}, "eos_token_id=999"),
        ({"more": [("x", BYTE)]}, r"token_type\[421\]=6"),
        ({"more": [("!", NORMAL)]}, r"tokens\[421\]='!': is token 0, too"),
        ({"merges": ["a b c"]}, "is damaged"),
        ({"merges": ["z z"]}, "a merge needs token 'zz'"),
        ({"merges": ["q ŝŝ"]}, "a merge needs token"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_refused_with_the_way_out(change, message, needed, tmp_path):
    path = write(tmp_path / "m.gguf", **change)
    with pytest.raises(
        ValueError, match=rf"m\.gguf: .*{message}.*; or put the model's tokenizer\.json beside"
    ) as error:
        open_tokenizer(path)
    assert "\n" not in str(error.value)
    if "more" not in change:
        (tmp_path / "tokenizer.json").write_text(json.dumps(own_file([])))
        assert open_tokenizer(path).encode(HELD["texts"][0]) == HELD["ids"]["gpt-2"][0]


def test_a_tokenizer_of_another_model_is_refused(needed, tmp_path):
    path = write(tmp_path / "m.gguf")
    own = own_file([])
    vocabulary = own["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(own))
    with pytest.raises(ValueError, match=r"token \d+ is 'b', .*m\.gguf has 'a': it is another model's"):
        open_tokenizer(path)
    (tmp_path / "m.gguf").unlink()
    with pytest.raises(ValueError, match=r"token \d+ .* of the text: the model has 60 tokens.*put the model's own"):
        open_tokenizer(tmp_path, model_size=60).encode("then")


def test_a_tokenizer_json_that_draws_tokens_or_is_a_pointer_is_refused(needed, tmp_path):
    own = own_file([])
    own["model"]["dropout"] = 0.1
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(own))
    with pytest.raises(ValueError, match=r"dropout=0\.1"):
        open_tokenizer(tmp_path)
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ValueError, match="is a Git LFS pointer"):
        open_tokenizer(tmp_path)
