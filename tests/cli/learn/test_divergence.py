"""A fine-tune that diverged says so: on the error stream, in metrics.json and by its exit code."""

import json
import re

import numpy as np
import pytest

import gradloom
from gradloom.models.adapters.lora import load_lora
from gradloom.models.datasets import default_split
from gradloom.systems.metrics import UNITS, units_table, verdict

from ..small import MODEL

KV260, QLORA, INSTANT = "instantft-kv260", "edge-qlora-genesys2", "instantft-llm-genesys2"
#: The method that asks for each preset.
METHOD = {QLORA: "lora", INSTANT: "instantft"}


@pytest.mark.parametrize(
    "losses, more, reasons",
    [
        ([3, 2, 1, 1], {}, []),
        ([3, 2, 3, 2], {}, []),
        ([3, 2, 3, 2.01], {}, ["the mean loss of the last epoch is 2.505, above the first epoch's 2.5"]),
        # The second step of an epoch has a tenth of the samples.
        ([3, 2, 2, 3], {"counts": (10, 1)}, []),
        ([2, 3, 3, 2], {"counts": (10, 1)}, ["above the first epoch's 2.091"]),
        # One epoch and a half: the last two steps are an epoch as well as the first two.
        ([3, 2, 3.5], {}, ["the last epoch is 2.75, above the first epoch's 2.5"]),
        ([2, 3], {}, []),
        ([2], {"after": 2.5}, ["the loss is 2.5 after the last step, above 2 before the first"]),
        ([2, 1], {"after": float("inf")}, ["the loss is inf after the last step"]),
        ([3, 1, 1], {"steps": 4}, ["it ended after step 3 of 4: the next loss or adapter is not finite"]),
        ([3, 2, 1, 1], {"clipped": [999, 0, 1, 1], "words": [1000] * 4}, []),
        ([3, 2, 1, 1], {"clipped": [0, 0, 1, 2], "words": [1000] * 4}, ["3 of the 2,000 words .* 0.15 %, above 0.1 %"]),
        ([3, 2, 3, 3], {"clipped": [0, 0, 9, 9], "words": [1000] * 4}, ["the mean loss", "18 of the 2,000 words"]),
    ],
)
def test_a_verdict_follows_from_the_first_epoch_and_the_last(losses, more, reasons):
    told = verdict(losses, 2, **more)["diverged"]
    assert len(told) == len(reasons)
    for found, wanted in zip(told, reasons):
        assert re.search(wanted, found)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    data = default_split(degrees=90).limited(train=50, test=50)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    return path


def said_so(run, output, *arguments):
    """Metrics of a fine-tune that diverged."""
    code, out, err = run(*arguments, "-o", output, "--json")
    metrics = json.loads((output / "metrics.json").read_text())
    assert code == 4 and json.loads(out) == metrics and metrics["diverged"]
    assert err == (
        f"gradloom: the fine-tune diverged: {'; '.join(metrics['diverged'])}; the results are in {output}; "
        f"try a smaller --lr than {metrics['lr']:g}\n"
    )
    assert {each.name for each in output.iterdir()} == {
        ".gradloom",
        "adapter_config.json",
        "adapter_model.safetensors",
        "loss.png",
        "metrics.json",
        "report.html",
    }
    return metrics


def test_images_in_integers(run, digits, tmp_path):
    asked = "finetune", KV260, "--engine", "reference", "--data", digits, "--epochs", "3"
    metrics = said_so(run, tmp_path / "out", *asked, "--lr", "2")
    last = metrics["last_epoch"]
    # 50 samples make h, logits, d' and dh, and 3 steps make every adapter word, of ranks 4 on 2998 inputs, 5 taps.
    assert last["words"] == 50 * 2 * (5 * 4 + 10) + 3 * 4 * (784 + 1176 + 784 + 120 + 84 + 5 * 10)
    assert 0.001 * last["words"] < last["saturated"] <= metrics["health"]["saturated"]
    assert f"{last['saturated']:,} of the {last['words']:,} words" in metrics["diverged"][-1]
    labels = run("infer", KV260, "--adapter", tmp_path / "out", "--data", digits, "--json")
    assert labels[0] == 0 and json.loads(labels[1])["accuracy"] == metrics["accuracy_after"]

    code, out, err = run(*asked, "-o", tmp_path / "good", "--json")
    assert code == 0 and "diverged" not in err and json.loads(out)["diverged"] == []
    assert json.loads(out)["last_epoch"]["saturated"] == 0


def test_images_in_float_whose_adapters_overflow(run, digits, tmp_path):
    metrics = said_so(
        run, tmp_path / "out", "finetune", KV260, "--engine", "float", "--data", digits, "--epochs", "40", "--lr", "16"
    )
    assert 0 < len(metrics["loss"]) < 40 * 3 and "not finite" in metrics["diverged"][0]
    assert metrics["last_epoch"]["words"] is None
    labels = run("infer", KV260, "--adapter", tmp_path / "out", "--data", digits, "--engine", "float", "--json")
    assert labels[0] == 0 and json.loads(labels[1])["accuracy"] == metrics["accuracy_after"]


def test_the_python_function_returns_the_verdict(digits, tmp_path):
    metrics = gradloom.finetune(KV260, output=tmp_path, engine="reference", data=digits, epochs=2, lr=2.0)
    assert metrics["diverged"] and metrics["units"]["health.saturated"].startswith("words")


# In floating point the last norm bounds what InstantFT's adapters can spoil.
@pytest.mark.parametrize("preset, engine", [(QLORA, "reference"), (QLORA, "float"), (INSTANT, "reference")])
def test_language_models(run, here, preset, engine):  # noqa: F811
    metrics = said_so(
        run,
        here / "out",
        "finetune",
        "small",
        "--method",
        METHOD[preset],
        "--data",
        "text.txt",
        "--engine",
        engine,
        "--lr",
        "16",
        "--steps",
        "6",
        "--seq",
        "42",
    )
    assert (metrics["last_epoch"]["words"] is None) == (engine == "float")
    assert metrics["saturated"] is None or metrics["saturated"] >= metrics["last_epoch"]["saturated"]


@pytest.mark.parametrize("preset", [QLORA, INSTANT])
def test_an_adapter_of_a_language_model_is_the_last_that_was_finite(run, here, monkeypatch, preset):  # noqa: F811
    """An optimiser that breaks in its third step: the adapter is that of two."""
    from gradloom.systems.text.reference.optimizers import Sgd

    step, made = Sgd.step, []

    def breaking(self, parameters, gradients, *factor):
        made.append(1)
        step(self, parameters, gradients, *factor)
        if len(made) == 3:
            next(iter(parameters.values()))[0] = np.inf

    asked = (
        "finetune",
        "small",
        "--method",
        METHOD[preset],
        "--data",
        "text.txt",
        "--engine",
        "float",
        "--optimizer",
        "sgd",
        "--lr",
        "0.1",
        "--seq",
        "42",
    )
    with monkeypatch.context() as patch:
        patch.setattr(Sgd, "step", breaking)
        metrics = said_so(run, here / "out", *asked, "--steps", "5")
    assert len(metrics["loss"]) == 2 and metrics["diverged"][0].startswith("it ended after step 2 of 5")
    assert run(*asked, "--steps", "2", "-o", here / "two")[0] in (0, 4)
    assert (here / "out" / "adapter_model.safetensors").read_bytes() == (
        here / "two" / "adapter_model.safetensors"
    ).read_bytes()
    if preset == QLORA:
        assert load_lora(here / "out", MODEL)


def leaves(value, path=""):
    for name, each in value.items():
        if name in ("request", "parameters"):
            continue  # options and parameters as they were given
        if isinstance(each, dict):
            yield from leaves(each, f"{path}{name}.")
        elif isinstance(each, (int, float)) or isinstance(each, list) and each and _numbers(each[0]):
            yield path + name


def _numbers(first):
    """Of a list of numbers, of rows of them, or of records that have some."""
    rows = first.values() if isinstance(first, dict) else first if isinstance(first, list) else [first]
    return any(isinstance(each, (int, float)) for each in rows)


#: Numbers without a unit: options, and counts that are called what they count.
PLAIN = {
    "accumulate",
    "alpha",
    "batch",
    "epochs",
    "layers",
    "lr",
    "momentum",
    "rank",
    "samples",
    "seed",
    "seq",
    "steps",
}


def _unit(told, path):
    while path and path not in told:
        path = path.rpartition(".")[0]
    return told.get(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("finetune", KV260, "--engine", "reference", "--epochs", "1"),
        ("finetune", "small", "--steps", "1"),
        ("finetune", "small", "--method", "instantft", "--steps", "1"),
        ("finetune", "small", "--steps", "1", "--engine", "float"),
    ],
    ids=str,
)
def test_every_number_has_a_unit(run, here, digits, arguments):  # noqa: F811
    more = ("--data", digits if KV260 in arguments else "text.txt")
    told = json.loads(run(*arguments, *more, "--json", "-o", "out")[1])
    assert [path for path in leaves(told) if path not in PLAIN and _unit(told["units"], path) is None] == []
    assert set(told["units"]) <= set(UNITS)
    # Nothing is said of what is not there.
    assert all(
        _unit({path: 1 for path in leaves(told)}, path) or any(each.startswith(path) for each in leaves(told))
        for path in told["units"]
    )


def test_the_table_has_all_units():
    assert all(f"| `{path}` | " in units_table() for path in UNITS)
