"""Writes chat.json: conversations as transformers renders them by templates of several families' kinds.

Needs transformers and jinja2: ``python make_chat.py``. Templates are our own; between them they use what the families'
templates use. Where a template refuses a conversation, ``refused`` has its words.
"""

import json
from pathlib import Path

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TEMPLATES = {
    # Marks around each message, and a system message where there is none.
    "marks": """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|start|>system\\nBe kind.<|end|>\\n' }}
{% endif %}
{{ '<|start|>' + message['role'] + '\\n' + message['content'] + '<|end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
    {{ '<|start|>assistant\\n' }}
{% endif %}""",
    # Turns must alternate; the system message goes into the first question.
    "turns": """{%- if messages[0].role == 'system' -%}
    {%- set system = '<<SYS>>' + messages[0].content | trim + '<</SYS>>' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system, rest = '', messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must alternate user, assistant, ' + message.role + ' does not') }}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {{ bos_token + '[INST] ' + (system if loop.first else '') + message.content | trim + ' [/INST]' }}
    {%- else -%}
        {{ ' ' + message.content | trim + ' ' + eos_token }}
    {%- endif -%}
{%- endfor -%}""",
    # Marks of what is learnt, which transformers' own tag leaves out of the text.
    "generation": """{{ bos_token }}
{% for m in messages %}
  {% if m.role == 'assistant' %}
A: {% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}

  {% elif m.role in ('user', 'system') %}
{{ m.role | upper }}: {{ m.content }}
  {% else %}
{{ raise_exception('no role ' ~ m.role) }}
  {% endif %}
{% endfor %}
{% if add_generation_prompt %}A: {% endif %}""",
    # JSON, a break of a loop, and a namespace.
    "json": """{% set ns = namespace(count=0) %}
{% for m in messages %}
{% if ns.count >= 8 %}{% break %}{% endif %}
{% set ns.count = ns.count + 1 %}
{{ m | tojson }},{{ m.content | length }}<{{ tools is none }}>
{% endfor %}
{{ '{"role": "assistant"' if add_generation_prompt else '' }}""",
    # A macro, and a year that no clock changes.
    "macro": """{% macro say(role, text) %}<{{ role }}>{{ text | trim }}</{{ role }}>{% endmacro %}
{{ strftime_now('%%') }}{% for m in messages %}
{{ say(m['role'], m['content']) }}{% if not loop.last %} {% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}""",
}
CONVERSATIONS = [
    [("user", "Hi <b> & 'é'"), ("assistant", "  Hello.\n")],
    [("system", " Be brief. "), ("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2")],
    [("user", "a"), ("user", "b"), ("assistant", "c")],
    [("user", "{{ 1 + 1 }} {% x %}")],
    [("judge", "x"), ("assistant", "y")],
]

tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")), **TOKENS)
cases = []
for name, template in TEMPLATES.items():
    for turns in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in turns]
        for ask in (False, True):
            case = {"template": name, "messages": messages, "ask": ask}
            try:
                case["text"] = tokenizer.apply_chat_template(
                    messages, chat_template=template, add_generation_prompt=ask, tokenize=False
                )
            except jinja2.TemplateError as error:
                case["refused"] = str(error)
            cases.append(case)
held = {"tokens": TOKENS, "templates": TEMPLATES, "cases": cases}
Path(__file__).with_name("chat.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
