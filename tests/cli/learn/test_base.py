"""An adapter belongs to the model that it learnt on, which its run names."""

import json

import numpy as np
import pytest

from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.systems.text.base import digest

from ...language import save_model
from ..small import MODEL, SAY, tuned

OTHER = "adapter=run: learnt on small with other norms than those of other; give the model that it learnt on"


@pytest.fixture
def ran(run, here):
    """A run in ``run``, and a model of the same shapes in ``other``."""
    metrics = tuned(run, "--engine", "float", "--steps", "2", "--seq", "42", output="run")
    save_model(here / "other", MODEL, seed=6)
    return metrics


def test_verbs_take_the_model_of_the_run(run, ran, here):
    assert ran["base"] == digest(open_checkpoint(here / "small")) != digest(open_checkpoint(here / "other"))
    code, out, err = run("merge", "run", "-o", "merged", "--json")
    assert code == 0 and json.loads(out)["model"] == "small", err
    q = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(open_checkpoint(here / "merged").tensor(q), open_checkpoint(here / "small").tensor(q))
    (here / "small").rename(here / "moved")
    for verb in (("merge", "run", "-o", "again"), ("export", "run", "--to", "gguf", "-o", "a.gguf")):
        code, _, err = run(*verb)
        assert code == 2 and "model=small: that of the run is not here; name it by --model" in err
        assert run(*verb, "--model", "moved")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "run", "-o", "merged", "--model", "other"),
        ("export", "run", "--to", "gguf", "-o", "a.gguf", "--model", "other"),
        (*SAY[:1], "other", *SAY[2:], "--adapter", "run"),
    ],
)
def test_a_model_with_other_norms_is_refused(run, ran, here, words):
    before = sorted(here.iterdir())
    code, _, err = run(*words)
    assert code == 2 and OTHER in " ".join(err.split())
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("card", "write", "{}", "--adapter", "run", "-o", "out"),
        ("package", "sign", "run", "--base", "{}", "--key", "root.key", "--version", "1", "-o", "out"),
    ],
    ids=["card", "package"],
)
def test_a_pack_of_another_model_is_refused_for_boards(run, ran, here, words):
    for name in ("small", "other"):
        assert run("pack", name, "-o", f"{name}.pack")[0] == 0
    assert run("package", "keys", "-o", "root.key")[0] == 0
    code, _, err = run(*(each.format("other.pack") for each in words))
    told = OTHER.replace("of other;", "of other.pack;")
    assert code == 2 and told in " ".join(err.split()) and not (here / "out").exists()
    code, _, err = run(*(each.format("small.pack") for each in words))
    assert code == 0 and (here / "out").exists(), err
