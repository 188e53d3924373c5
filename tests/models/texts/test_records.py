"""Records become windows of tokens of which the answers are learnt; what is not understood is refused by its line."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.models.texts.example import Example, foretold, targets_of
from gradloom.models.texts.reader import ExampleCounts, read_records
from gradloom.models.texts.template import ModelTexts, open_texts

from ..files.language.test_tokenizer import CONTROL, own_file

pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
pytest.importorskip("jinja2", reason="jinja2 is not installed: make llm installs it")
GOLDEN = Path(__file__).parents[2] / "golden" / "qlora_chat"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'judge' %}{{ raise_exception('Only user and assistant') }}{% endif %}"
    "{% if m.role != 'ghost' %}<{{ m.role }}>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def chat(*turns):
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


ASKED = chat(("user", "hi"), ("assistant", "yes"), ("user", "more"), ("assistant", "no"))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(own_file([("<|end|>", CONTROL)])))
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    return open_tokenizer(folder), open_texts(folder)


@pytest.fixture
def read(model, tmp_path):
    def read(*records, seq=64, texts=model[1], **more):
        path = tmp_path / "data.jsonl"
        lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read_records(path, model[0], texts, seq, **more)

    return read


def learnt(model, example):
    return model[0].decode([token for token, each in zip(example.tokens, example.learnt) if each])


@pytest.mark.parametrize(
    "record, text, answers",
    [
        ({"text": "then"}, "then<|end|>", None),
        ({"text": "then<|end|>", "id": 3}, "then<|end|>", None),
        ({"prompt": "one", "completion": " two"}, "one two<|end|>", " two<|end|>"),
        # A token with characters of both is one of the answer.
        ({"prompt": "one ", "completion": "two"}, "one two<|end|>", " two<|end|>"),
        (ASKED, "<user>hi<|end|><assistant>yes<|end|><user>more<|end|><assistant>no<|end|>", "yes<|end|>no<|end|>"),
        (
            {"prompt": ASKED["messages"][:3], "completion": ASKED["messages"][3:]},
            "<user>hi<|end|><assistant>yes<|end|><user>more<|end|><assistant>no<|end|>",
            "no<|end|>",
        ),
    ],
)
def test_answers_are_learnt_and_nothing_else(record, text, answers, read, model):
    found = read(record)
    (example,) = found.windows
    size = found.counts.tokens
    assert model[0].decode(example.tokens[:size]) == text and set(example.tokens[size:]) <= {model[0].token("<|end|>")}
    assert learnt(model, example) == (model[0].decode(example.tokens[1:size]) if answers is None else answers)
    assert len(example) == 64 == size + found.counts.padding
    assert found.counts.learnt == foretold(example) == (targets_of(example) >= 0).sum()


def test_each_token_of_a_long_text_is_foretold_once(read, model):
    text = "abcdefgh" * 5
    whole = read({"text": text}).windows[0]
    size = whole.learnt.count(True) + 1
    found = read({"text": text}, {"text": "x"}, seq=8)
    assert found.counts.split == 1 and found.counts.examples == 2
    assert found.records.tolist() == [0] * (len(found.windows) - 1) + [1]
    pairs = [
        (example.tokens[place], target)
        for example in found.windows[:-1]
        for place, target in enumerate(targets_of(example).tolist())
        if target >= 0
    ]
    assert pairs == list(zip(whole.tokens[: size - 1], whole.tokens[1:size]))


def test_windows_without_an_answer_are_counted(read):
    found = read({"prompt": "a b c d e f g h " * 3, "completion": "yes"}, seq=8)
    counts = found.counts
    assert counts.masked_windows >= 2 and counts.masked_tokens == 8 * counts.masked_windows
    assert len(found.windows) * 8 == counts.tokens + counts.padding


def test_plain_tokens_foretell_all_but_the_first():
    assert targets_of([3, 4, 5]).tolist() == [4, 5, -1] and foretold([3, 4, 5]) == 2
    masked = Example((3, 4, 5), (True, False, True))
    assert targets_of(masked).tolist() == [-1, 5, -1] and foretold(masked) == 1
    assert np.asarray(masked).tolist() == [3, 4, 5] and tuple(masked) == (3, 4, 5)
    with pytest.raises(ValueError, match="every token is masked"):
        Example((3, 4), (True, False))
    with pytest.raises(ValueError, match="learnt=1: must be as many as tokens, 2"):
        Example((3, 4), (True,))


BAD = [
    ("{", "is no JSON"),
    ("[1]", "is a list: must be an object"),
    ({"instruction": "a", "output": "b"}, "has instruction, output: must have text, or prompt and completion"),
    ({"text": "a", "messages": []}, "has text, messages: .*, one of them"),
    ({"text": 3}, "text: must be a text, not a number"),
    ({"prompt": "a"}, "completion: is missing"),
    ({"prompt": "a", "completion": ""}, "completion: is empty"),
    ({"prompt": 1, "completion": "b"}, "prompt: must be a text, or messages, not a number"),
    ({"text": ""}, "every token is masked"),
    ({"messages": []}, "messages: must be a list of messages"),
    ({"messages": ["a"]}, r"messages\[0\]: must be an object with role and content, not a text"),
    ({"messages": [{"role": "user"}]}, r"messages\[0\]\.content: must be a text, not null"),
    (ASKED | {"tools": [{}]}, "tools: must be left out"),
    ({"messages": [ASKED["messages"][0] | {"name": "n"}]}, r"messages\[0\]\.name: must be left out"),
    (chat(("user", "a")), "none has role=assistant"),
    (chat(("assistant", "a")), r"messages\[0\]\.role=assistant: an answer must follow"),
    (chat(("user", "a"), ("assistant", " ")), r"messages\[1\]\.content: is empty"),
    (chat(("judge", "a"), ("assistant", "b")), "template refuses it: Only user and assistant"),
    (chat(("ghost", "qq"), ("assistant", "b")), r"messages\[0\]\.role=ghost: the model's chat template does not know"),
]


@pytest.mark.parametrize("record, message", BAD)
def test_a_bad_line_is_refused_by_number_and_field(record, message, read):
    good = {"text": "fine"}
    with pytest.raises(ValueError, match=rf"data=.*data\.jsonl: line 3: .*{message}") as error:
        read(good, "", record, good)
    assert "\n" not in str(error.value)
    found = read(good, "", record, good, skip_bad=True)
    assert (found.counts.examples, found.counts.bad_lines) == (2, 1) and ": line 3: " in found.counts.first_bad


def test_bytes_that_are_no_text_and_files_without_examples_are_refused(read, model, tmp_path):
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "a"}\n\xff\n')
    with pytest.raises(ValueError, match=r"line 2: is not UTF-8 \(invalid start byte at byte 0\)"):
        read_records(tmp_path / "b.jsonl", *model, 8)
    with pytest.raises(ValueError, match=r"held_out=.*has no example; .*line 1: is no JSON"):
        read("x", skip_bad=True, option="held_out")
    (tmp_path / "g.jsonl").write_bytes(b"GGUF\x03")
    with pytest.raises(ValueError, match=r"data=.*g\.jsonl: is a GGUF file, lines of JSON are needed"):
        read_records(tmp_path / "g.jsonl", *model, 8)


def test_a_template_that_changes_earlier_answers_is_refused(read, model):
    forgets = ModelTexts(model[1].path, {}, "{% for m in messages %}{{ m.content[loop.revindex0:] }}|{% endfor %}")
    with pytest.raises(ValueError, match=r"messages\[1\]: the model's chat template changes what it rendered before"):
        read(chat(("user", "abcde"), ("assistant", "abcde"), ("user", "f"), ("assistant", "g")), texts=forgets)


def test_a_folder_has_texts_and_records(model, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"has no \.txt or \.jsonl or \.ndjson file"):
        read_records(folder, *model, 16)
    (folder / "b.txt").write_text("second")
    (folder / "a.jsonl").write_text('{"text": "first"}\n{"prompt": "p", "completion": "q"}')
    (folder / "c.TXT").write_text("third")
    (folder / ".hidden").write_text("x")
    found = read_records(folder, *model, 16)
    texts = [model[0].decode(each.tokens).split("<|end|>")[0] for each in found.windows]
    assert texts == ["first", "pq", "second", "third"] and found.counts == ExampleCounts(
        examples=4, tokens=found.counts.tokens, learnt=found.counts.learnt, padding=found.counts.padding
    )
    for odd, make in (("d.csv", Path.touch), ("more", Path.mkdir)):
        make(folder / odd)
        with pytest.raises(ValueError, match=rf"data=.*{odd}: must be \.txt or \.jsonl or \.ndjson; move it"):
            read_records(folder, *model, 16)
        (folder / "d.csv").unlink(missing_ok=True)


def test_windows_are_read_when_they_are_asked_for(read):
    found = read(*({"text": "abc " * (number % 7 + 1)} for number in range(300)), seq=8)
    windows = found.windows
    chosen = windows.chosen(np.array([5, 2]))
    assert list(chosen) == [windows[5], windows[2]] and list(windows[3:5]) == [windows[3], windows[4]]
    assert len(windows) == len(found.records) and found.records[-1] == 299


def test_a_question_is_put_as_an_example_puts_it(model, read):
    """Its tokens are those of a conversation before its answer; a model without a template is refused."""
    tokenizer, texts = model
    example = read(chat(("user", "hi"), ("assistant", "yes"))).windows[0]
    asked = texts.question(tokenizer, "hi")
    assert asked == list(example.tokens[: len(asked)])
    assert np.flatnonzero(targets_of(example) >= 0)[0] + 1 == len(asked)


def test_tokens_and_answers_are_those_of_transformers(smollm2):
    golden = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))
    found = read_records(GOLDEN / "chat.jsonl", open_tokenizer(smollm2), open_texts(smollm2), 64)
    assert len(found.windows) == len(golden["tokens"]) == 40
    for example, tokens, labels in zip(found.windows, golden["tokens"], golden["labels"]):
        assert list(example.tokens[: len(tokens)]) == tokens
        assert (np.flatnonzero(targets_of(example) >= 0) + 1).tolist() == labels
