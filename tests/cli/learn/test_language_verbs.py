"""Presets for language models on the command line: a small model, and a tokenizer of one letter a token."""

import dataclasses
import json

import numpy as np
import pytest

import gradloom
from gradloom.firmware.chip.card import read_card
from gradloom.models.adapters.language.methods import METHODS
from gradloom.models.adapters.language.vectors import load_vectors
from gradloom.models.adapters.lora import fresh_lora, load_lora
from gradloom.models.language import BUILT_IN
from gradloom.rtl.formats.weights.tiles import untile_rows
from gradloom.systems.text.base import opened
from gradloom.systems.text.coded_head import coded_head
from gradloom.systems.text.reference.llama import Llama, greedy

from ..small import MODEL, PRESET, SAY, TEXT, TUNE, Letters, tuned


def test_a_fine_tune_leaves_metrics_a_plot_and_an_adapter_for_peft(run, here):
    said = tuned(run, "--steps", "6", "--lr", "0.01", "--seq", "42", "--targets", "all", "--rank", "4")
    assert said == json.loads((here / "out" / "metrics.json").read_text())
    assert (said["engine"], said["preset"], said["tokens"], said["layers"]) == ("reference", PRESET, len(TEXT), 2)
    assert len(said["loss"]) == 6 and said["loss_before"] == said["loss"][0] > said["loss_after"] + 0.1
    assert (here / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")
    adapters = load_lora(here / "out", MODEL, rank=4)
    assert len(adapters) == 14 and all(each.scale == 2 and each.b.any() for each in adapters.values())
    config = json.loads((here / "out" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["task_type"], config["r"]) == ("LORA", "CAUSAL_LM", 4)
    assert sorted(file.name for file in (here / "out").iterdir()) == [
        ".gradloom",
        "adapter_config.json",
        "adapter_model.safetensors",
        "loss.png",
        "metrics.json",
        "report.html",
    ]


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_integers_learn_as_float_does(run, here, optimizer):
    options = ("--optimizer", optimizer, "--steps", "5")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    assert exact["saturated"] is None and integers["saturated"] == 0 and integers["cycles"] is None
    assert exact["lr"] == {"adamw": 0.001, "sgd": 0.1}[optimizer]
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert integers["loss"] != exact["loss"]


def test_gradients_of_several_texts_make_an_update(run, here):
    """Two texts an update: integers follow floats, and updates are as many as asked for."""
    options = ("--accumulate", "2", "--steps", "3", "--seq", "40")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    assert integers["accumulate"] == 2 and len(integers["loss"]) == len(exact["loss"]) == 3
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert tuned(run, "--engine", "float", "--steps", "3", "--seq", "40", output="one")["loss"] != exact["loss"]


def test_texts_of_several_blocks(run, here):
    """Integers follow floats, with texts added up and a text that judges; a plan counts probabilities."""
    (here / "text.txt").write_text(4 * TEXT)
    options = ("--seq", "100", "--steps", "2", "--accumulate", "2", "--held-out", "text.txt", "--targets", "all")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    assert (integers["seq"], integers["saturated"]) == (100, 0) and len(integers["loss"]) == 2
    for name in ("loss", "loss_after"):
        np.testing.assert_allclose(integers[name], exact[name], rtol=2e-3)
    held_out = ([each["loss"] for each in said["held_out_losses"]] for said in (integers, exact))
    np.testing.assert_allclose(*held_out, rtol=2e-3)
    short, long = (json.loads(run("plan", "small", "--seq", seq, "--json")[1]) for seq in ("64", "128"))
    assert long["fits"] and long["memory"]["step_tensors"] > 2 * short["memory"]["step_tensors"]
    assert long["memory"]["programs"] > 2 * short["memory"]["programs"] - 4096


def test_a_card_has_all_that_a_board_needs(run, here):
    """What the board does with it: ``tests/systems/text/card/test_board_job.py``."""
    options = ("--steps", "3", "--seq", "42", "--rank", "4")
    code, out, err = run("card", "write", "small", "--data", "text.txt", "-o", "out", "--json", *options)
    assert (code, err) == (0, ""), err
    said = json.loads(out)
    assert sorted(path.name for path in (here / "out").iterdir()) == [".gradloom", "card.img", "job.json"]
    assert said == json.loads((here / "out" / "job.json").read_text())
    image = (here / "out" / "card.img").read_bytes()
    sections = read_card(image)
    assert [each.name for each in sections] == [
        "adapters, texts",
        "weights",
        "programs",
        "learnt",
        "signed",
        "about",
        "job",
    ]
    assert len(image) == said["card_bytes"] and (said["texts"], said["tokens"], len(said["commands"])) == (2, 42, 1)
    header = sections[-1].parts[0]
    assert (header[:4], int.from_bytes(header[16:20], "little")) == (b"GLRN", sections[0].offset)
    # By class, as a plan says it beforehand.
    options = ("--seq", "42", "--rank", "4", "--texts", "2", "--steps", "3")
    planned = json.loads(run("plan", "small", *options, "--json")[1])
    assert planned["memory"] == said["memory"] and planned["total_bytes"] == said["memory_bytes"]
    assert 0 <= said["memory"]["page_rounding"] < 2 * 4096 and min(said["memory"].values()) >= 0
    assert said["memory"]["programs"] >= 32 * sum(said["commands"]) > 0 < said["memory"]["step_tensors"]
    # What is kept is where the first section brings it.
    exponents = -(-len(said["adapters"]) // 2 * 48 // 64) * 64
    words = [*said["adapters"].values(), *said["moments"].values()]
    assert sum(each["bytes"] for each in words) + exponents == said["kept"]["bytes"]
    for each in said["adapters"].values():
        found = int.from_bytes(sections[0].parts[0][each["exponent"] :][:4], "little", signed=True)
        assert found + 14 == each["frac"]
    assert (said["kept"]["every"], said["kept"]["cycles"]) == (0, 60 * 200_000_000)
    code, _, err = run("card", "collect", "--card", here / "out" / "card.img", "-o", here / "adapter")
    assert code == 2 and "the board has stored nothing yet" in err
    found = load_lora_words(sections[0].parts[0], said["adapters"])
    expected = fresh_lora(MODEL, rank=4, targets=("q_proj", "v_proj"))
    for name, each in expected.items():
        np.testing.assert_allclose(found[f"{name}.a"], each.a, atol=1e-6)
        assert not found[f"{name}.b"].any()


def load_lora_words(data, places):
    """Values of adapters as ``job.json`` tells."""
    return {
        name: untile_rows(data[at["offset"] : at["offset"] + at["bytes"]], 4, at["bytes"] // 16, 64)
        * 2.0 ** -at["frac"]
        for name, at in places.items()
    }


def test_a_fine_tune_goes_on_from_an_adapter(run, here):
    first = tuned(run, "--engine", "float", "--steps", "3", "--lr", "0.01", "--seq", "84")
    second = tuned(run, "--engine", "float", "--steps", "2", "--seq", "84", "--adapter", "out", output="further")
    assert second["loss_before"] == first["loss_after"] > second["loss_after"]
    assert (second["rank"], second["targets"]) == (8, ["q_proj", "v_proj"])
    assert second["loss"][0] == pytest.approx(first["loss_after"])


def test_windows_of_a_text_are_learnt_in_turn(run, here, monkeypatch):
    seen = []
    gradients = Llama.gradients

    def told(self, tokens, adapters):
        seen.append(Letters().decode(tokens))
        return gradients(self, tokens, adapters)

    monkeypatch.setattr(Llama, "gradients", told)
    said = tuned(run, "--engine", "float", "--steps", "5", "--seq", "40")
    assert seen == [TEXT[:40], TEXT[40:80], TEXT[:40], TEXT[40:80], TEXT[:40]] and len(TEXT) == 84
    assert (said["seq"], said["windows"], said["tokens_left_out"]) == (40, 2, 4)


def test_a_window_has_the_length_that_was_asked_for(run, here):
    """Two tokens more than a window: one window, not two halves."""
    (here / "text.txt").write_text(TEXT[:66])
    said = tuned(run, "--engine", "float", "--steps", "2", "--seq", "64")
    assert (said["tokens"], said["windows"], said["tokens_left_out"]) == (66, 1, 2)
    code, out, _ = run(*TUNE, "--engine", "float", "--steps", "1")
    assert code == 0
    assert "windows of 64 tokens: 1; the last 2 of the text's 66 tokens are left out" in " ".join(out.split())
    (here / "text.txt").write_text(TEXT[:63])
    for engine in ("float", "reference"):
        code, out, err = run(*TUNE[:-1], "short", "--engine", engine)
        assert code == 2 and out == "" and not (here / "short").exists()
        assert (
            "data=text.txt: has 63 tokens, a window of seq=64 needs at least 64; give a longer text, or give --seq 63"
        ) in " ".join(err.split())


def test_the_shortest_window_is_two_tokens(run, here):
    """One to read and one to foretell."""
    integers, exact = (
        tuned(run, "--engine", engine, "--seq", "2", "--steps", "3", output=engine) for engine in ("reference", "float")
    )
    assert integers["windows"] == 42
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)


def test_the_first_layers_alone_may_learn(run, here):
    assert tuned(run, "--layers", "1", "--steps", "1")["layers"] == 1
    assert set(load_lora(here / "out", MODEL)) == {f"model.layers.0.self_attn.{each}_proj" for each in "qv"}


def test_the_last_layers_alone_may_learn(run, here):
    """What enters them is kept of both windows; PEFT's config names the layers."""
    options = ("--from-layer", "1", "--steps", "5", "--seq", "40", "--targets", "all")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert integers["request"]["from_layer"] == 1 and integers["layers"] == 2
    assert (integers["cached_texts"], integers["cache_bytes_per_text"]) == (2, 4 * 40 * 128)
    reads = integers["base_bytes"]
    assert reads[0] == reads[1] > reads[2] == reads[3] == reads[4]
    assert json.loads((here / "reference" / "adapter_config.json").read_text())["layers_to_transform"] == [1]
    assert {name.split(".")[2] for name in load_lora(here / "reference", MODEL)} == {"1"}
    further = tuned(run, "--engine", "float", "--steps", "1", "--seq", "40", "--adapter", "float", output="further")
    assert further["request"]["from_layer"] == 1 and further["loss_before"] == pytest.approx(exact["loss_after"])


@pytest.mark.parametrize("method, vectors", [("layernorm", 5), ("ia3", 6)])
def test_vectors_learn_and_come_in_again(run, here, method, vectors):
    """In integers as in float; PEFT's files, from which a fine-tune goes on, and that say another text."""
    options = ("--method", method, "--steps", "4", "--seq", "42", "--lr", "0.01")
    integers, exact = (tuned(run, "--engine", engine, *options, output=engine) for engine in ("reference", "float"))
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert (integers["method"], integers["rank"], integers["saturated"]) == (method, None, 0)
    known = METHODS[method]
    assert integers["adapter_parameters"] == known.parameters(MODEL, known.usual, range(2))
    config = json.loads((here / "reference" / "adapter_config.json").read_text())
    assert config["peft_type"] == known.peft_type and set(config["target_modules"]) == set(known.usual)
    found = load_vectors(here / "reference", MODEL, known)
    assert len(found) == vectors and all(np.ptp(each.values) > 0 for each in found.values())
    again = tuned(run, *options, "--engine", "float", "--adapter", "float", output="further")
    assert again["loss_before"] < exact["loss_before"] - 0.02
    said = [
        json.loads(run(*SAY, "--tokens", "3", "--json", *more)[1])["tokens"]
        for more in ((), ("--adapter", "further"), ("--adapter", "further"))
    ]
    assert said[1] == said[2]


def test_vectors_of_the_last_layers(run, here):
    """What enters them is kept; PEFT's config names the modules whole."""
    options = ("--method", "ia3", "--from-layer", "1", "--steps", "3", "--seq", "40", "--accumulate", "2")
    integers, exact = (
        tuned(run, "--engine", engine, *options, "--targets", "v,down", output=engine)
        for engine in ("reference", "float")
    )
    np.testing.assert_allclose(integers["loss"], exact["loss"], rtol=2e-3)
    assert integers["request"]["from_layer"] == 1 and integers["cached_texts"] == 2
    config = json.loads((here / "reference" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["model.layers.1.self_attn.v_proj", "model.layers.1.mlp.down_proj"]
    assert config["feedforward_modules"] == ["model.layers.1.mlp.down_proj"]
    for more, named in (
        ((), "from_layer=1: must be"),
        (("--targets", "k"), "targets=k: reference has down_proj, v_proj"),
        (("--method", "layernorm"), 'peft_type="IA3": must be "LN_TUNING"'),
        (("--layers", "1"), "layers=1: reference has an adapter on model.layers.1."),
    ):
        layers = ("--layers", "1", "--from-layer", "1") if not more else ()
        code, out, err = run(*TUNE, "--method", "ia3", "--adapter", "reference", *more, *layers)
        assert code == 2 and out == "" and named in " ".join(err.split()), err


@pytest.mark.parametrize("method", ["layernorm", "ia3"])
def test_a_plan_of_vectors(run, method, monkeypatch):
    model = dataclasses.replace(BUILT_IN["smollm2-135m"], layers=3)
    monkeypatch.setitem(BUILT_IN, "smollm2-135m", model)
    code, out, err = run("plan", "smollm2-135m", "--method", method, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "") and told["fits"] and told["method"] == method and told["rank"] is None
    known = METHODS[method]
    assert told["adapter_parameters"] == known.parameters(model, known.usual, range(3))
    assert told["memory"]["optimizer"] == 8 * told["adapter_parameters"]
    less = json.loads(run("plan", "smollm2-135m", "--method", method, "--from-layer", "2", "--json")[1])
    assert less["step"]["macs"] < told["step"]["macs"] and less["memory"]["forward_cache"] == 4 * 64 * 576


def test_text_before_and_after_a_fine_tune(run, here):
    tuned(
        run, "--engine", "float", "--steps", "150", "--lr", "0.003", "--targets", "all", "--seq", "84", "--rank", "16"
    )
    assert json.loads((here / "out" / "metrics.json").read_text())["loss_after"] < 0.5
    words = ("infer", "small", "--prompt", TEXT[:20], "--tokens", "12", "--json")
    before, after = (json.loads(run(*words, *more)[1]) for more in ((), ("--adapter", "out")))
    assert before["engine"] == after["engine"] == "float" and before["text"] != after["text"]
    assert TEXT[20:].startswith(after["text"]) and len(after["tokens"]) == 12
    assert Letters().decode(after["tokens"]) == after["text"]
    code, out, err = run(*words[:-1], "--adapter", "out")
    assert code == 0 and out == TEXT[:20] + after["text"] + "\n" and "12 tokens in floating point" in err
    assert gradloom.infer(str(here / "small"), prompt=TEXT[:20], tokens=12) == before


def test_a_text_in_integers(run, here):
    """Tokens are those of floating point, by what has learnt too; norms are no part of it."""
    tuned(run, "--engine", "float", "--steps", "20", "--lr", "0.01", "--method", "lora-xs")
    words = ("infer", "small", "--prompt", TEXT[:3], "--tokens", "4")
    for more in ((), ("--adapter", "out"), ("--head", "nf")):
        exact, whole = (json.loads(run(*words, *more, "--json", "--engine", by)[1]) for by in ("float", "reference"))
        assert whole["tokens"] == exact["tokens"] and whole["engine"] == "reference" and whole["clipped"] == 0
    code, out, err = run(*words, "--engine", "reference")
    assert code == 0 and "4 tokens in the machine's integers, 0 words clipped, by " in err and "cycles" not in err
    made = json.loads(run(*words, "--engine", "reference", "--json")[1])
    assert f"by {made['programs']} programs, {made['tokens_a_program']:.2f} a program that gave some" in err
    assert 1 < made["programs"] and 1 <= made["tokens_a_program"] <= 4
    drawn = [json.loads(run(*words, "--top-k", "50", "--seed", seed, "--json")[1])["tokens"] for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    tuned(run, "--steps", "1", "--method", "layernorm", output="norms")
    code, _, err = run(*words, "--engine", "reference", "--adapter", "norms")
    assert code == 2 and err.count("adapter=norms: norms or factors have learnt") == 1


def test_a_text_by_a_head_in_codes(run, here):
    """The likeliest tokens are those of the coded head."""
    checkpoint = opened(None, here / "small")
    llama, told = Llama(checkpoint.model, checkpoint.tensor), {}
    plain, coded = llama.head, coded_head(llama).weight()
    for head in (plain, coded):
        llama.head = head
        told[head is coded] = {n: list(greedy(llama, Letters().encode(TEXT[n : n + 3]), 12)) for n in range(12)}
    differ = [n for n in told[True] if told[True][n] != told[False][n]]
    assert differ
    words = ("infer", "small", "--prompt", TEXT[differ[0] : differ[0] + 3], "--tokens", "12", "--json")
    for coded, more in ((False, ()), (True, ("--head", "nf"))):
        assert json.loads(run(*words, *more)[1])["tokens"] == told[coded][differ[0]]


def test_a_head_in_codes_is_for_answers(run, here):
    code, _, err = run("infer", "small", "--prompt", "a", "--head", "nf", "--port", "nowhere")
    assert code == 2 and err.count("head=nf: must be left out with --port") == 1
    code, _, err = run("card", "write", "small", "--data", "text.txt", "--head", "nf", "-o", "card")
    assert code == 2 and "head=nf: must be float16 where nothing is answered; or give --answer" in err
    assert run("infer", "small", "--prompt", "a", "--head", "nf4")[0] == 2


def test_presets_are_listed(run):
    listed = {each["name"]: each for each in json.loads(run("list", "presets", "--json")[1])}
    assert listed[PRESET]["board"] == "genesys2" and "NF4 linears" in listed[PRESET]["summary"]


def test_the_preset_is_generated_with_its_project(run, tmp_path, monkeypatch):
    small = [
        f"{key}={value}"
        for key, value in (
            ("edge", 16),
            ("columns", 4),
            ("rank", 4),
            ("tokens", 8),
            ("depth", 128),
            ("lane_depth", 64),
            ("groups", 4),
            ("outputs", 2),
        )
    ]
    code, out, _ = run(
        "generate", PRESET, "-o", tmp_path / "out", "--json", *(word for each in small for word in ("--set", each))
    )
    report = json.loads(out)
    assert code == 0 and report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["board"] == "genesys2" and report["parameters"]["edge"] == 16
    assert "project" not in report
    assert not {"forecast", "workload", "memory_map"} & set(report)
    assert sum(report["counted"]["dsp"].values()) == 16 * 5 + 17 + 2 * 4 + 4 + 8 + 7
    assert {port["name"]: port["width"] for port in report["ports"]}["m_axi_rdata"] == 64
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {
        "report.json",
        "registers/registers.md",
        "registers/gradloom.xml",
        "rtl/gradloom.v",
        "board/mig.prj",
        "board/soc/picorv32.v",
        "firmware/gradloom_soc/soc_main.c",
    } <= files
    for verb in ("build", "flash"):
        code, out, _ = run(verb, "genesys2", tmp_path / "out", "--dry-run")
        assert code == 0 and {"build": "build.tcl", "flash": "openFPGALoader -b genesys2"}[verb] in out
    monkeypatch.setattr("gradloom.rtl.soc.find_spec", lambda name: None)
    code, out, _ = run("generate", PRESET, "-o", tmp_path / "again", *(w for each in small for w in ("--set", each)))
    assert code == 0 and "pip install pythondata-cpu-picorv32" in " ".join(out.split()) and "DSP slices" in out
    report = json.loads((tmp_path / "again" / "report.json").read_text())
    assert report["project"] == {"files": None, "reason": report["project"]["reason"]}
