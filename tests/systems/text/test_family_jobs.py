"""A fine-tune of a family's folder by the integer reference, its answers in chat, and the merged folder."""

import dataclasses
import json

import numpy as np
import pytest

import gradloom
from gradloom.cli.models.merge import merge
from gradloom.models.adapters.language.merged import Merged, write_folder
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.language import Scaling
from gradloom.preset import PRESETS
from gradloom.systems.driver import finetune
from gradloom.systems.text.small import SMALL, random_tensors
from gradloom.systems.text.workload import QLoraOptions

from ...deep import deep
from ...models.files.language.test_tokenizer import CONTROL, own_file
from .conftest import TEMPLATE

for package in ("tokenizers", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed: make llm installs it")
QLORA = PRESETS["edge-qlora-genesys2"]

BASE = dataclasses.replace(SMALL, vocab=448, context=64)
GEMMA = {"norms": "both", "head_norms": True, "gate": "gelu_tanh", "local": (0,), "local_theta": 30.0, "score": 0.125}
FAMILIES = {
    # As llama2.c's models: no shape is a multiple of 64.
    "llama": {"hidden": 288, "inter": 168, "heads": 6, "kv_heads": 6, "head_dim": 48},
    "phi3": {"fused": True, "turned": 48, "scaling": Scaling(original=64, divisors=(1.5,) * 24, size=1.1)},
    "olmo2": {"norms": "after", "joint_norms": True},
    "gemma3_text": GEMMA,
    "qwen3": {"head_norms": True},
}


@deep
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_familys_folder_learns_answers_and_is_written(kind, tmp_path):
    model = dataclasses.replace(BASE, **FAMILIES[kind])
    folder = tmp_path / "small"
    folder.mkdir()
    tensors = random_tensors(np.random.default_rng(5), model)
    write_folder(folder, Merged(model, tensors.__getitem__, {}), lambda *_: None)
    assert json.loads((folder / "config.json").read_text())["model_type"] == kind
    (folder / "tokenizer.json").write_text(json.dumps(own_file([("<|end|>", CONTROL)])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    lines = [
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "yes" if n % 2 else "no"}]}
        for n in range(4)
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = {"model": folder, "data": tmp_path / "chat.jsonl", "seq": 16, "rank": 3, "keep": 0, "lr": 0.01, "steps": 3}
    exact, integers = (
        finetune(QLORA, QLoraOptions(**asked, engine=engine), output=tmp_path / engine)
        for engine in ("float", "reference")
    )
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=0.01)
    run = tmp_path / "reference"
    names = json.loads((run / "adapter_config.json").read_text())["target_modules"]
    assert names == (["qkv_proj"] if kind == "phi3" else ["q_proj", "v_proj"])
    said = gradloom.infer(str(folder), prompt="1?", adapter=run, tokens=3, chat=True)
    assert said["tokens"] is not None
    merge(run, tmp_path / "merged", model=folder)
    before, after = (json.loads((each / "config.json").read_text()) for each in (folder, tmp_path / "merged"))
    assert before == after
    found = open_checkpoint(tmp_path / "merged")
    assert any((found.tensor(name) != open_checkpoint(folder).tensor(name)).any() for name in found.model.tensors)
