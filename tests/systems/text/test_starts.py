"""Starts and recipes of LoRA: PiSSA, LoftQ, rsLoRA, LoRA+ and LoRA-FA, beside PEFT's numbers and in RTL."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter, load_lora
from gradloom.models.adapters.starts import largest_part, relative
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW, Lion
from gradloom.systems.driver import finetune
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.mathematics import linear, linear_backward
from gradloom.systems.text.reference.optimizers import FloatAdamW
from gradloom.systems.text.run.trainer import Trainer, trainer_machine
from gradloom.systems.text.workload import QLoraOptions

from ...language import save_model
from ...models.files.language.test_tokenizer import CONTROL, own_file
from .conftest import CONFIG, MODEL, TOKENS

PEFT = np.load(Path(__file__).parents[2] / "golden" / "peft_starts" / "starts.npz")
SMALL = dataclasses.replace(MODEL, vocab=448)


@pytest.mark.parametrize("name", ["pissa", "pissa_rs"])
def test_pissa_is_pefts(name):
    """Signs of singular vectors are free: the products are compared, and what is left frozen."""
    scale = float(PEFT[f"{name}_scale"])
    made = largest_part(PEFT["w"], 4, scale)
    np.testing.assert_allclose(made.b @ made.a, PEFT[f"{name}_b"] @ PEFT[f"{name}_a"], atol=1e-6)
    np.testing.assert_allclose(PEFT["w"] - scale * made.b @ made.a, PEFT[f"{name}_base"], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(made.a, axis=1), np.linalg.norm(PEFT[f"{name}_a"], axis=1), rtol=1e-5)


def test_loftq_is_pefts_decomposition_of_the_residual():
    one, two = (largest_part(PEFT["residual"], 4, scale) for scale in (1.0, 2.0))
    wanted = PEFT["loftq_b"] @ PEFT["loftq_a"]
    np.testing.assert_allclose(one.b @ one.a, wanted, atol=1e-7)
    np.testing.assert_allclose(2.0 * two.b @ two.a, wanted, atol=1e-7)


class OneLinear:
    """PEFT's linear and its mean square, in the place of a language model."""

    def gradients(self, tokens, adapters):
        (each,) = adapters.values()
        off = linear(PEFT["x"], PEFT["w"], each) - PEFT["y"]
        _, found = linear_backward(2 * off / off.size, PEFT["x"], PEFT["w"], each)
        return float((off**2).mean()), {"0": found}


@pytest.mark.parametrize("name, scale", [("plus", 2.0), ("plus_rs", 4.0)])
def test_lora_plus_and_rslora_are_pefts(name, scale):
    adapters = {"0": Adapter(PEFT["plus_start"].copy(), np.zeros((24, 4), np.float32), scale)}
    seen = []
    fine_tune(
        OneLinear(),
        [(0,)],
        adapters,
        FloatAdamW(lr=0.01, weight_decay=0.1),
        3,
        plus=16.0,
        after=lambda losses, kept: seen.append({w: v.copy() for w, v in adapters["0"].parts.items()}) or False,
    )
    for step, parts in enumerate(seen):
        for which, values in parts.items():
            np.testing.assert_allclose(values, PEFT[f"{name}_{which}"][step], atol=2e-6)


def test_a_change_since_the_start_is_an_adapter_of_twice_the_rank():
    random = np.random.default_rng(3)
    first, last = (Adapter(random.normal(size=(2, 5)), random.normal(size=(3, 2)), 1.5) for _ in range(2))
    made = relative({"x": last}, {"x": first})["x"]
    assert made.rank == 4 and made.scale == 1.5
    np.testing.assert_allclose(made.b @ made.a, last.b @ last.a - first.b @ first.a)


@pytest.fixture
def small(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: make llm installs it")
    save_model(tmp_path / "small", SMALL)
    (tmp_path / "small" / "tokenizer.json").write_text(json.dumps(own_file([("<|end|>", CONTROL)])))
    (tmp_path / "text.txt").write_text("the warp is strung once and stays; the weft is thrown across it. " * 2)
    return tmp_path


def tuned(small, output="out", **options):
    usual = {"model": small / "small", "data": small / "text.txt", "seq": 16, "rank": 4, "keep": 0, "lr": 0.01}
    usual |= {"engine": "float", "steps": 3}
    return finetune(PRESETS["edge-qlora-genesys2"], QLoraOptions(**{**usual, **options}), output=small / output)


@pytest.mark.parametrize("init", ["pissa", "loftq"])
def test_a_start_learns_alike_in_integers_and_goes_on_from_its_folder(small, init):
    plain = tuned(small)
    exact, integers = (tuned(small, engine=engine, output=engine, init=init) for engine in ("float", "reference"))
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=0.01)
    # What is frozen is the same but for its quantiser, so the first loss is near to the plain one's, but another.
    assert 0 < abs(exact["loss"][0] - plain["loss"][0]) < 0.02
    saved = load_lora(small / "float", SMALL)
    assert {each.rank for each in saved.values()} == {8 if init == "pissa" else 4}
    again = tuned(small, output="again", adapter=small / "float", steps=1, rank=None)
    assert again["loss_before"] == pytest.approx(exact["loss_deployed" if init == "pissa" else "loss_after"], rel=1e-5)


def test_pissa_lacks_its_part_and_loftq_nears_the_weight(small):
    from gradloom.models.files.language.checkpoint import open_checkpoint
    from gradloom.systems.text.quantized import Quantized

    source = open_checkpoint(small / "small" / "model.safetensors")
    plain, name = Quantized(source), "model.layers.0.self_attn.q_proj"
    weight = source.tensor(f"{name}.weight")
    part = largest_part(weight, 4, 2.0)
    rest = Quantized(source, without={name: part}).linear(name).weight()
    assert np.linalg.norm(rest) < 0.97 * np.linalg.norm(weight)
    assert np.linalg.norm(rest + 2.0 * part.b @ part.a - weight) < np.linalg.norm(plain.linear(name).weight() - weight)
    lost = weight - plain.linear(name).weight()
    near = largest_part(lost, 4, 2.0)
    assert np.linalg.norm(lost - 2.0 * near.b @ near.a) < 0.97 * np.linalg.norm(lost)


def test_lora_fa_leaves_a_as_it_is(small):
    exact, integers = (tuned(small, engine=engine, output=engine, lora_fa=True) for engine in ("float", "reference"))
    whole = tuned(small, output="whole")
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=0.01)
    assert exact["adapter_parameters"] < whole["adapter_parameters"] and exact["loss"][2] != whole["loss"][2]
    found = [load_lora(small / name, SMALL) for name in ("float", "reference", "whole")]
    for name, each in found[0].items():
        np.testing.assert_allclose(found[1][name].a, each.a, atol=1e-5)
        assert np.abs(found[2][name].a - each.a).max() > 1e-3 and each.b.any() and found[1][name].b.any()


@pytest.mark.parametrize(
    "rule", [AdamW(lr=2e-2, weight_decay=0.5), Lion(lr=1e-3, weight_decay=0.5), 0.1], ids=["adamw", "lion", "sgd"]
)
@pytest.mark.parametrize("count", [1, 2])
def test_in_rtl_b_alone_learns_and_a_step_has_fewer_cycles(frozen, adapters, fresh, monkeypatch, rule, count):
    """Each word of each step is the reference's; the forecast is compared with the counters."""
    monkeypatch.setattr("gradloom.systems.text.run.trainer.StepMachine", lambda config, **_: fresh)

    def trainer(held):
        copies = {name: dataclasses.replace(each, a=each.a.copy(), b=each.b.copy()) for name, each in adapters.items()}
        return Trainer(frozen, copies, [0, 1], rule, texts=count, held=held)

    integers, machine, whole = trainer(True), trainer(True), trainer(False)
    trainer_machine(machine, [TOKENS], CONFIG)
    for _ in range(2):
        expected, found = integers.update([TOKENS] * count), machine.update([TOKENS] * count)
        assert found.loss == expected.loss and found.equal["words"] and found.cycles == found.forecast
    trainer_machine(whole, [TOKENS], CONFIG)
    other = whole.update([TOKENS] * count)
    assert found.cycles["total"] < other.cycles["total"]
    for name, each in integers.adapters.items():
        np.testing.assert_array_equal(machine.adapters[name].a, adapters[name].a)
        np.testing.assert_array_equal(machine.adapters[name].b, each.b)
        assert np.abs(each.b - adapters[name].b).max() > 1e-4


BAD = [
    ({"init": "pissa", "adapter": "float"}, r"init=pissa: must be left out with --adapter float, which is the start"),
    ({"init": "loftq", "method": "ia3", "rank": None}, r"init=loftq: must be left out with --method ia3"),
    ({"init": "olora"}, r"init=olora: must be one of random, pissa, loftq"),
    ({"init": "pissa", "deploy": "int8"}, r"deploy=int8: must be none with --init pissa, whose adapter has twice"),
    ({"lora_fa": True, "store": "nf4", "engine": "reference"}, r"lora_fa=True: must be left out with --store nf4"),
    ({"lora_fa": True, "method": "lora-xs"}, r"lora_fa=True: must be left out with --method lora-xs"),
]


@pytest.mark.parametrize("options, says", BAD)
def test_a_wrong_recipe_is_one_line(small, options, says):
    with pytest.raises(ValueError, match=says) as error:
        tuned(small, **options)
    assert "\n" not in str(error.value) and not (small / "out").exists()
