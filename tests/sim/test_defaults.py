"""What a preset does unless asked otherwise stands in one place, for the board, the verbs and the forecast."""

import dataclasses
import json

import numpy as np
import pytest

from gradloom import finetune
from gradloom.models.datasets import default_split
from gradloom.preset import PRESETS
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.systems.asked import Asked
from gradloom.systems.images import answer
from gradloom.systems.images.expectation import expectation
from gradloom.systems.images.integers import fill_cache, fine_tune, logits
from gradloom.systems.images.program.digits import digits_data, digits_plan
from gradloom.systems.images.program.program import Settings, plan_steps
from gradloom.systems.images.requests import ImageAnswers
from gradloom.systems.images.task import workload_on
from gradloom.systems.images.workload import DIGITS, LENET5

ULX3S = PRESETS["digits-ulx3s"]


def infer(preset, **options):
    """Labels by a preset and options by name."""
    return answer.infer(
        Asked(name=preset.name, preset=preset), ImageAnswers(**options).check(), lambda done, total, text: None
    )


def test_the_workload_is_that_of_the_presets_own_array():
    assert workload_on(ULX3S.config) == DIGITS == ULX3S.workload
    twice = workload_on(ULX3S.config.replace(rows=8))
    assert twice == dataclasses.replace(DIGITS, batch=8, samples=96, judged=48)
    wide = workload_on(ULX3S.config.replace(rows=12))
    assert (wide.batch, wide.samples, wide.judged) == (12, 144, 72)
    assert PRESETS["instantft-kv260"].workload == LENET5
    split = default_split()
    assert (len(split.x_train), len(split.x_test)) == (LENET5.samples, LENET5.judged)


def test_steps_are_those_of_the_boards_program():
    plan = digits_plan(ULX3S.config, epochs=3)
    steps = plan_steps(
        Settings(
            samples=DIGITS.samples,
            epochs=3,
            batch=DIGITS.batch,
            rate=DIGITS.lr,
            momentum=DIGITS.momentum,
            shuffled=DIGITS.shuffled,
        ),
        ULX3S.config.rows,
    )
    for ours, theirs in zip(steps, plan.steps(), strict=True):
        ours, theirs = dataclasses.asdict(ours), dataclasses.asdict(theirs)
        np.testing.assert_array_equal(ours.pop("samples"), theirs.pop("samples"))
        assert ours == theirs
    assert digits_plan(ULX3S.config).epochs == DIGITS.epochs


def test_a_fine_tune_without_options_is_the_boards(tmp_path):
    """All but the number of epochs, which is for time."""
    plan = digits_plan(ULX3S.config, epochs=4)
    lowered, data = plan.lowered, digits_data(plan.samples)
    train, test = (
        fill_cache(lowered, lowered.network.pixel_map.words(images, ULX3S.config.activation))
        for images in (data.x_train, data.x_test)
    )
    board = fine_tune(
        lowered, Settings(samples=len(data.y_train)), train, data.y_train, *plan.adapters, steps=plan.steps()
    )
    right = logits(lowered, test, board.a, board.b).argmax(axis=1) == data.y_test
    said = finetune(ULX3S.name, output=tmp_path, engine="reference", epochs=4)
    assert said["loss"] == board.mean_losses and said["accuracy_after"] == right.mean() > said["accuracy_before"]
    assert [said[name] for name in ("samples", "rank", "lr", "momentum", "batch", "clock_mhz")] == [
        96,
        4,
        0.07,
        0,
        8,
        75,
    ]
    assert infer(ULX3S, adapter=tmp_path)["accuracy"] == said["accuracy_after"]
    exact = finetune(ULX3S.name, output=tmp_path, engine="float", epochs=1)
    np.testing.assert_allclose(exact["loss"], said["loss"][:12], rtol=0.03)


def test_the_forecast_is_of_the_same_workload():
    said = expectation(ULX3S.config, DIGITS)["workload"]
    assert said == {
        "network": "digits",
        "samples": DIGITS.samples,
        "judged_by": DIGITS.judged,
        "epochs": DIGITS.epochs,
        "batch": DIGITS.batch,
        "rank": DIGITS.rank,
    }


def test_somebodys_own_data_are_shuffled(tmp_path):
    data = digits_data(8)
    np.savez(tmp_path / "d.npz", **{name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")})
    asked = {"output": tmp_path / "run", "engine": "reference", "epochs": 1}
    assert finetune(ULX3S.name, data=tmp_path / "d.npz", **asked)["loss"] != finetune(ULX3S.name, **asked)["loss"]


@pytest.mark.parametrize(
    "model, usual",
    [
        ("lenet5", ("(4)", "(0.05)", "(20)", "(10)")),
        ("digits", ("(0.07)", "(8)", "(40)")),
        ("smollm2-135m", ("(8)", "(0.001, with lion 0.0001, with sgd 0.1)")),
        ("spar-lstm", ("(0.04)", "(30)")),
        ("digits-unet", ("(0.003)", "(16)")),
    ],
)
def test_help_of_a_model_has_its_presets_defaults(run, model, usual):
    said = " ".join(run("finetune", model, "--help")[1].replace("│", " ").split())
    assert all(f"[default: {each}]" in said for each in usual), said


def test_what_a_larger_design_learnt_is_used_by_it(run, tmp_path):
    """Ranks of which the preset's own design holds no adapters."""
    larger = ULX3S.config.replace(taps=16, adapter_depth=512)
    (tmp_path / "design").mkdir()
    report = {"preset": ULX3S.name, "parameters": dataclasses.asdict(larger)}
    (tmp_path / "design" / "report.json").write_text(json.dumps(report))
    learn = ("finetune", ULX3S.name, "--engine", "reference", "--rank", 8, "--epochs", 1, "-o", tmp_path / "run")
    code, _, err = run(*learn)
    assert code == 2 and "taps" in err and not (tmp_path / "run").exists()
    code, out, err = run(*learn, "--design", tmp_path / "design", "--json")
    assert code == 0, err
    label = ("infer", ULX3S.name, "--adapter", tmp_path / "run", "--json")
    code, _, err = run(*label)
    assert code == 2 and "taps" in err
    code, labels, err = run(*label, "--design", tmp_path / "design")
    assert code == 0 and json.loads(labels)["accuracy"] == json.loads(out)["accuracy_after"]


@pytest.mark.parametrize(
    "report, named",
    [
        (None, "has no report.json; name a directory that gradloom generate made"),
        (
            {"preset": "instantft-kv260", "parameters": {}},
            "report.json describes no such design (it is of instantft-kv260",
        ),
        ({"preset": ULX3S.name, "parameters": {"rows": 3}}, "rows=3"),
    ],
)
@pytest.mark.parametrize("verb", ["finetune", "infer"])
def test_a_folder_that_is_no_design_is_refused(run, tmp_path, monkeypatch, report, named, verb):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "design").mkdir()
    if report is not None:
        (tmp_path / "design" / "report.json").write_text(json.dumps(report))
    code, out, err = run(verb, ULX3S.name, "--engine", "reference", "--design", "design")
    assert code == 2 and not out and err.startswith("gradloom: design=design: ") and named in err
    assert [path.name for path in tmp_path.iterdir()] == ["design"]


def test_presets_have_their_boards_clock():
    from gradloom import boards

    for preset in PRESETS.values():
        assert boards.find(preset.board).clock_hz == preset.config.clock_mhz * 1_000_000, preset.name
    assert ImageConfig().clock_mhz == 200
