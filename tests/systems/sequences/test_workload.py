"""Recurrent networks learn people: sums of codes, an exact head."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from gradloom import finetune
from gradloom.models.recurrent.host import Function
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import NORM, PARTS, TapPart, TapSums, parts_of, scales_for, tap_network
from gradloom.models.sequences import FOLDS, fold_of, spar_model, spar_person, spar_windows
from gradloom.preset import PRESETS
from gradloom.sim.reference import cell
from gradloom.systems.images.integers import fill_cache
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.sequences.adapted import infer_adapted
from gradloom.systems.sequences.export import export_adapted
from gradloom.systems.sequences.requests import SequenceAnswers
from gradloom.systems.sequences.taps import start_of, tap_sums, tap_words
from gradloom.systems.sequences.task import SHIFTS, real_taps

from ...models.recurrent.models import AUTHORS, BREVITAS

PRESET = "lstm-kv260"
NETWORK = load_network(spar_model(0))
TAPS = TapSums(parts=parts_of(NETWORK), shifts=SHIFTS)


@pytest.fixture(scope="module")
def ran():
    """A few windows: codes of the input, what the reference makes of them, sums."""
    codes = NETWORK.input.codes(spar_person(2).x_test[::9])
    trace = cell.run(NETWORK, codes)
    return codes, trace, tap_sums(NETWORK, trace)


def test_sums_are_those_of_the_codes_one_by_one(ran):
    codes, trace, sums = ran
    quantise = NETWORK.cell.squashed
    for sample in (0, 3):
        hidden = [sum(int(step[unit]) for step in trace.h[sample]) for unit in range(64)]
        quarters = [
            sum(int(codes[sample, at, channel]) for at in range(first, last))
            for first, last in ((0, 24), (24, 50), (50, 74), (74, 100))
            for channel in range(6)
        ]
        squashed = quantise.codes(np.tanh(trace.state.c[sample] * NETWORK.cell.state.scale))
        want = [*trace.h[sample, -1], *squashed, *hidden, *quarters]
        np.testing.assert_array_equal(sums[sample], want)


@pytest.mark.parametrize("parallel", [2, 4, 8])
def test_every_design_starts_with_the_same_adapters(ran, parallel):
    """With ``parallel=4`` or 8 each quarter's six sums are followed by two zeros."""

    def made(parallel):
        taps = TapSums(parts=parts_of(NETWORK, parallel), shifts=SHIFTS)
        words = tap_words(taps, tap_sums(NETWORK, ran[1], parallel))[0].reshape(len(ran[0]), -1)
        ((a, b),) = start_of(NETWORK, taps, 3, 7, parallel)
        assert b.shape == (7, 3) and not b.any()
        return words @ a.T

    np.testing.assert_allclose(made(parallel), made(1), rtol=1e-12)
    assert np.abs(made(1)).min() > 0


def test_words_are_sums_shifted_and_clipped_and_counted():
    parts = tuple(TapPart(kind=kind, layer=0, way=0, size=1, name=kind) for kind in PARTS)
    taps = TapSums(parts=parts, shifts=(0, 4, 16, 20))
    words, clipped = tap_words(taps, np.array([[5, -3, 127, -9], [5, -3, 128, -7]]))
    assert taps.shape == (1, 1, 16) and clipped == 2
    np.testing.assert_array_equal(
        words[:, 0, 0, :4], [[5, -48, 127 << 16, -(1 << 23)], [5, -48, (1 << 23) - 1, -7 << 20]]
    )
    assert not words[:, 0, 0, 4:].any()


def test_scales_bring_each_part_near_to_the_norm():
    sums = _base_sums(0)
    found = scales_for(NETWORK, sums)
    assert found == TAPS
    words = tap_words(found, sums)[0].reshape(len(sums), -1) / 2**16
    for name in PARTS:
        norm = np.sqrt((words[:, found.part(name)[0]] ** 2).sum(axis=1).mean())
        assert NORM / 2**0.5 <= norm <= NORM * 2**0.5


def _base_sums(fold):
    """Of every ninth window of the people whom a network has seen."""
    network = load_network(spar_model(fold))
    seen = tuple(person for person in range(1, 11) if person not in FOLDS[fold])
    codes = network.input.codes(spar_windows(seen)[0][::9])
    return tap_sums(network, cell.run(network, codes))


@pytest.mark.parametrize("fold", [1, 2])
def test_one_set_of_scales_is_that_of_all_shipped_networks(fold):
    assert scales_for(load_network(spar_model(fold)), _base_sums(fold)) == TAPS


def test_the_machine_has_the_recurrent_networks_own_logits(ran):
    """All weights and scales of the shipped networks are powers of two apart: the dense layer is exact."""
    _, trace, sums = ran
    config = PRESETS[PRESET].config
    lowered = lower(tap_network(NETWORK, TAPS, 50), config, 4)
    held = fill_cache(lowered, tap_words(TAPS, sums)[0])
    np.testing.assert_array_equal(held.logits / 2**16, cell.logits(NETWORK, trace))
    assert not held.saturated.any()


def test_float_taps_are_near_to_the_integers(ran):
    codes, _, sums = ran
    exact = real_taps(NETWORK, TAPS, codes * NETWORK.input.scale)
    words = tap_words(TAPS, sums)[0].reshape(len(sums), -1)[:, : TAPS.elements] / 2**16
    np.testing.assert_array_equal(exact[:, TAPS.part("input")[0]], words[:, TAPS.part("input")[0]])
    for name in ("h", "tanh c", "sum of h"):
        one, other = exact[:, TAPS.part(name)[0]], words[:, TAPS.part(name)[0]]
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.98
        assert 0.8 < np.linalg.norm(other) / np.linalg.norm(one) < 1.2


def test_a_person_is_learnt(tmp_path):
    """64.5 % before: the person whom the networks know least."""
    metrics = finetune(PRESET, person=2, engine="reference", output=tmp_path / "run")
    assert metrics["accuracy_before"] == pytest.approx(91 / 141) and metrics["accuracy_after"] > 0.86
    assert not metrics["diverged"] and metrics["taps_clipped"] == 0 and metrics["samples"] == 140
    # The LSTM and its taps too.
    assert metrics["forecast"]["total"] < 700_000
    assert metrics["request"]["person"] == 2 and metrics["request"]["lr"] == metrics["lr"] == 0.04
    exact = finetune(PRESET, person=2, engine="float", output=tmp_path / "float")
    assert abs(exact["accuracy_after"] - metrics["accuracy_after"]) < 0.06
    again = finetune(PRESET, person=2, engine="reference", output=tmp_path / "again")
    assert again == metrics
    for name in ("metrics.json", "adapter_model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


@pytest.mark.parametrize("cache", ["nf4", "int8"])
def test_a_users_network_and_data(cache, run, tmp_path):
    """The golden network, whose scales follow from data."""
    data = spar_person(9)
    np.savez(
        tmp_path / "d.npz",
        x_train=data.x_train[::4],
        y_train=data.y_train[::4],
        x_test=data.x_test[::4],
        y_test=data.y_test[::4],
    )
    np.savez(tmp_path / "b.npz", x=spar_person(1).x_train[::7])
    asked = ["finetune", spar_model(2), "--engine", "reference", "--epochs", 3, "--json", "--cache", cache]
    model = ["--data", tmp_path / "d.npz"]
    code, out, err = run(*asked, *model, "--base", tmp_path / "b.npz", "-o", tmp_path / "o")
    told = json.loads(out)
    assert code == 0, err
    assert told["samples"] == 35 and told["judged"] == 32 and told["person"] is None
    assert told["files"].keys() == {"model", "data", "base"} and told["tap_shifts"] == list(SHIFTS)
    config = json.loads((tmp_path / "o" / "adapter_config.json").read_text())
    assert config["gradloom_codes"] == cache
    assert json.loads(run(*asked, *model, "-o", tmp_path / "p", "--limit", 10)[1])["samples"] == 10


SHORT = {
    "x_train": np.zeros((2, 3, 6)),
    "x_test": np.zeros((2, 3, 6)),
    "y_train": np.zeros(2, int),
    "y_test": np.zeros(2, int),
}
WILD = {name: value + 9 if name[0] == "x" else value for name, value in SHORT.items()} | {
    "x_train": np.full((2, 30, 6), 9.0),
    "x_test": np.full((2, 30, 6), 9.0),
}
MODEL = (spar_model(0),)
BAD = {
    "a person too many": (("--person", "11"), None, "person=11: must be from 1 to 10"),
    "a person beside data": ((*MODEL, "--person", "1", "--data", "d.npz"), SHORT, "person=1: must be left out"),
    "data without a network": (("--data", "d.npz"), SHORT, "data=d.npz: needs a network of its own"),
    "a base without a network": (("--base", "d.npz"), SHORT, "base=d.npz: must be left out"),
    "too few steps": (
        (*MODEL, "--data", "d.npz"),
        SHORT,
        "data=d.npz: its sequences have 3 steps, 2 of them at the cell: at least 4",
    ),
    "saturated": ((*MODEL, "--data", "d.npz"), WILD, "data=d.npz: 100.0 % of x saturate"),
    "too many to learn from": (("--limit", "141"), None, "limit=141: there are 140 training sequences"),
    "no dense layer": ((BREVITAS,), None, "has no dense layer behind its recurrent node"),
    "other channels": (
        (*MODEL, "--data", "d.npz"),
        {**SHORT, "x_train": np.zeros((2, 3, 5))},
        "x_train has 5 channels",
    ),
    "no such network": (("m.onnx",), None, "m.onnx: is no file"),
    "an option of images": (("--angle", "3"), None, "angle=3.0: must be left out, lstm-kv260 fine-tunes"),
    "momentum of 1": (("--momentum", "1"), None, "momentum=1.0: must be from 0 to below 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_request_is_one_line_and_leaves_nothing(case, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked, data, said = BAD[case]
    if data is not None:
        np.savez("d.npz", **data)
    before = sorted(tmp_path.iterdir())
    asked = asked if not str(asked[0]).startswith("--") else (PRESET, *asked)
    code, out, err = run("finetune", *asked, "--engine", "reference", "-o", "out")
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err, err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("engine", ["reference", "float"])
@pytest.mark.parametrize("cache", ["nf4", "int8"])
def test_the_adapter_of_a_fine_tune_answers(run, tmp_path, engine, cache):
    """With the accuracy that the fine-tune has: on a shipped network, and on a user's with its own data."""
    data = spar_person(2)
    kept = {name: getattr(data, name)[::9] for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "d.npz", **kept)
    np.savez(tmp_path / "test.npz", x=kept["x_test"], y=kept["y_test"])
    own = {"data": tmp_path / "d.npz", "rank": 2}
    for number, (network, more) in enumerate(((PRESET, {"person": 2}), (str(spar_model(0)), own))):
        folder = tmp_path / str(number)
        told = finetune(network, output=folder, engine=engine, epochs=4, cache=cache, **more)
        asked = (PRESET,) if number == 0 else (spar_model(0), "--data", tmp_path / "test.npz")
        words = ("infer", *asked, "--adapter", folder, "--engine", engine, "-o", tmp_path / "o.npz", "--json")
        code, out, err = run(*words)
        assert code == 0, err
        assert json.loads(out)["accuracy"] == told["accuracy_after"]
        assert number == 1 or told["accuracy_after"] != told["accuracy_before"]
        with np.load(tmp_path / "o.npz") as file:
            assert file["labels"].tolist() == json.loads(out)["labels"] == file["logits"].argmax(axis=1).tolist()
            answers = file["logits"]
        if number == 0:
            # Taps are laid out as in the design that learnt, whichever answers.
            wide = PRESETS[PRESET].config.replace(parallel=4, window=64)
            infer_adapted(wide, SequenceAnswers(adapter=folder, engine=engine, output=tmp_path / "wide.npz"))
            with np.load(tmp_path / "wide.npz") as file:
                np.testing.assert_array_equal(file["logits"], answers)
    code, _, err = run("infer", PRESET, "--adapter", tmp_path / "1")
    assert code == 2 and "data: must be given" in err and err.count("\n") == 1
    for words, said in (
        ((PRESET, "--adapter", tmp_path / "0", "--engine", "rtl"), "engine=rtl: must be reference or float with an"),
        ((PRESET, "--adapter", tmp_path / "0", "--stream"), "stream=True: must be left out with --adapter"),
        ((PRESET, "--adapter", tmp_path / "0", "--limit", "0"), "limit=0: must be at least 1"),
        ((PRESET, "--adapter", tmp_path), "metrics.json: no such file"),
        (("lstm-zcu104", "--adapter", tmp_path / "0"), "must be left out, lstm-zcu104 answers and does not learn"),
    ):
        code, _, err = run("infer", *words)
        assert code == 2 and said in err and err.count("\n") == 1


@pytest.mark.parametrize("person", [each[-1] for each in FOLDS])
def test_an_adapter_is_exported_beside_the_network_that_it_learnt_with(tmp_path, person):
    finetune(PRESET, output=tmp_path / "run", engine="float", epochs=1, limit=5, person=person)
    told = export_adapted(tmp_path / "run", tmp_path / "a.onnx", None)
    assert told["name"] == load_network(spar_model(fold_of(person))).name


@pytest.mark.parametrize("engine", ["reference", "float"])
def test_a_rare_movement_is_learnt_sooner(tmp_path, engine):
    """Of one class two windows are left; balanced, they count as much as those of another class together."""
    data, rare = spar_person(2), 4
    kept = np.sort(np.append(np.flatnonzero(data.y_train != rare), np.flatnonzero(data.y_train == rare)[:2]))
    parts = {"x_train": data.x_train[kept], "y_train": data.y_train[kept], "x_test": data.x_test, "y_test": data.y_test}
    np.savez(tmp_path / "few.npz", **parts)
    found = {
        weights: finetune(
            str(spar_model(0)),
            board="kv260",
            data=tmp_path / "few.npz",
            epochs=4,
            engine=engine,
            class_weights=weights,
            output=tmp_path / weights,
        )
        for weights in ("none", "balanced")
    }
    called = {weights: sum(row[rare] for row in each["confusion_after"]) for weights, each in found.items()}
    right = {weights: each["confusion_after"][rare][rare] for weights, each in found.items()}
    assert called["balanced"] > called["none"] and right["balanced"] > right["none"], (called, right)


def test_a_network_without_logits_of_a_sequence_is_refused():
    with pytest.raises(ValueError, match="has no dense layer behind its recurrent node"):
        tap_network(load_network(AUTHORS), TAPS, 5)


def test_a_dense_layer_that_is_not_right_behind_is_said_to_be_so():
    network = replace(NETWORK, head=None, tail=(Function(op="relu", name="behind"),))
    with pytest.raises(ValueError, match="has no dense layer right behind its recurrent node"):
        tap_network(network, TAPS, 5)


@pytest.mark.parametrize("op", ["sigmoid", "relu"])
def test_a_fine_tune_of_other_than_logits_is_refused(op):
    network = replace(NETWORK, tail=(Function(op=op, name="behind"),))
    with pytest.raises(ValueError, match=rf"has a {op} \('behind'\) behind its dense layer: a fine-tune needs"):
        tap_network(network, TAPS, 5)


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="minutes: GRADLOOM_DEEP=1")
def test_in_rtl_every_word_is_the_references(tmp_path):
    metrics = finetune(PRESET, person=2, limit=30, epochs=2, output=tmp_path / "run")
    assert metrics["equal_to_reference"]["adapter_words"] > 0
    assert metrics["cycles"]["total"] == metrics["forecast"]["total"]


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="a minute: GRADLOOM_DEEP=1")
def test_ten_people_are_learnt_and_nobody_loses(tmp_path):
    shares = []
    for person in range(1, 11):
        metrics = finetune(PRESET, person=person, engine="reference", output=tmp_path / str(person))
        shares.append((metrics["accuracy_before"], metrics["accuracy_after"]))
    before, after = 100 * np.array(shares).T
    assert after.mean() >= 90.5 and (after - before).min() >= -0.5
