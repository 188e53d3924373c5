"""Conversations are rendered as transformers renders them."""

import json
from pathlib import Path

import pytest

from gradloom.models.texts.template import ChatTemplate, open_texts

pytest.importorskip("jinja2", reason="jinja2 is not installed: make llm installs it")
HELD = json.loads((Path(__file__).parents[2] / "golden/language/chat.json").read_text(encoding="utf-8"))
TURN = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("name", HELD["templates"])
def test_texts_are_those_of_transformers(name):
    template = ChatTemplate(HELD["templates"][name], HELD["tokens"])
    cases = [case for case in HELD["cases"] if case["template"] == name]
    assert len(cases) == 10
    for case in cases:
        if "refused" in case:
            with pytest.raises(ValueError, match="the model's chat template refuses it: " + case["refused"]):
                template.render(case["messages"], ask=case["ask"])
        else:
            assert template.render(case["messages"], ask=case["ask"]) == case["text"]


def test_a_template_cannot_leave_its_sandbox_nor_change_messages():
    for source in ("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ messages[0].role.x.y }}"):
        with pytest.raises(ValueError, match="refuses it"):
            ChatTemplate(source, {}).render(TURN)
    with pytest.raises(ValueError, match="is no template of Jinja"):
        ChatTemplate("{% for %}", {})


def test_a_folders_template_and_tokens_are_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    config = {"bos_token": {"content": "<s>"}, "eos_token": None, "chat_template": "{{ bos_token }}c"}
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = open_texts(tmp_path)
    assert found.end == "</s>" and found.template.render(TURN) == "<s>c"
    several = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": several}))
    assert open_texts(tmp_path).template.render(TURN) == "d"
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}j")
    assert open_texts(tmp_path).template.render(TURN) == "</s>j"


def test_what_has_no_template_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no chat template"):
        _ = open_texts(tmp_path).template
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": [{"name": "rag", "template": "r"}]}')
    with pytest.raises(ValueError, match="must be a text, or a list with one called default"):
        open_texts(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: "):
        open_texts(tmp_path)


def test_the_real_models_template_is_in_its_file(smollm2):
    found = open_texts(smollm2)
    assert found.end == "<|im_end|>"
    assert found.template.render([{"role": "system", "content": "s"}, *TURN], ask=True) == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    )
