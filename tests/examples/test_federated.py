"""Rounds of simulated clients: what nobody has alone is learnt, and the average is exact."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest

from ..language import save_model
from ..models.files.language.test_tokenizer import CONTROL, own_file
from ..systems.text.conftest import MODEL

pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
FILE = Path(__file__).parents[2] / "docs" / "examples" / "quality" / "federated.py"


def test_rounds_lower_the_held_out_loss(tmp_path):
    spec = importlib.util.spec_from_file_location("federated", FILE)
    federated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(federated)
    model = dataclasses.replace(MODEL, vocab=448, context=64)
    save_model(tmp_path / "small", model)
    (tmp_path / "small" / "tokenizer.json").write_text(json.dumps(own_file([("<|end|>", CONTROL)])))
    texts = {"a": ["warp"] * 3, "b": ["weft"] * 6, "held": ["warp", "weft"]}
    for name, words in texts.items():
        lines = [json.dumps({"prompt": f"{word}? ", "completion": f"the {word} it is"}) for word in words]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    made = federated.rounds(
        str(tmp_path / "small"),
        [tmp_path / "a.jsonl", tmp_path / "b.jsonl"],
        tmp_path / "held.jsonl",
        tmp_path / "rounds",
        count=3,
        clip=0.5,
        epochs=2,
        seq=32,
        rank=2,
        lr=0.01,
    )
    losses = [each["held_out"]["loss"] for each in made]
    assert losses == sorted(losses, reverse=True) and losses[2] < losses[0] - 0.05
    assert all(each["exact"] and each["weights"] == [3, 6] for each in made)
    assert any(share < 1 for each in made for share in each["kept"].values())
