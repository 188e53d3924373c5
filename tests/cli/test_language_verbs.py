"""Presets for language models on the command line: a small model, and a tokenizer of one letter a token."""

import dataclasses
import json
from importlib.resources import files

import numpy as np
import pytest
from safetensors.numpy import save_file

import gradloom
from gradloom import boards
from gradloom.firmware.card import read_card
from gradloom.models.adapters.lora import fresh_lora, load_lora
from gradloom.models.adapters.methods import METHODS
from gradloom.models.adapters.vectors import load_vectors
from gradloom.models.files.checkpoint import find_weights
from gradloom.models.language import BUILT_IN, LanguageModel
from gradloom.rtl.formats.tiles import untile_rows
from gradloom.systems.text import task as language
from gradloom.systems.text.reference.llama import Llama

from ..language import config_of, save_model

PRESET = "edge-qlora-genesys2"
MODEL = LanguageModel(
    name="small",
    hidden=128,
    inter=128,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=96,
    context=128,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tied=True,
)
TEXT = "the warp is strung once and stays; the weft is thrown across it, a little at a time."


class Letters:
    """A token a character of ASCII, from the blank on; the last one ends a text."""

    size, control = 96, frozenset({95})

    def encode(self, text):
        return [ord(letter) - 32 for letter in text]

    def decode(self, tokens):
        return "".join(chr(token + 32) for token in tokens)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with ``small``, a model, and ``text.txt``, and the one we are in."""
    monkeypatch.setattr(language, "open_tokenizer", lambda path, **_: Letters())
    save_model(tmp_path / "small", MODEL)
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tuned(run, *options, output="out"):
    code, out, err = run("finetune", "small", "--data", "text.txt", "-o", output, "--json", *options)
    assert (code, err) == (0, ""), err
    return json.loads(out)


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


def test_a_card_has_all_that_a_board_needs(run, here):
    """What the board does with it: ``tests/systems/text/card/test_board_job.py``."""
    options = ("--steps", "3", "--seq", "42", "--rank", "4")
    code, out, err = run("card", "write", "small", "--data", "text.txt", "-o", "out", "--json", *options)
    assert (code, err) == (0, ""), err
    said = json.loads(out)
    assert sorted(path.name for path in (here / "out").iterdir()) == ["card.img", "job.json"]
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
    model = dataclasses.replace(BUILT_IN["smollm2-135m"], layers=6)
    monkeypatch.setitem(BUILT_IN, "smollm2-135m", model)
    code, out, err = run("plan", "smollm2-135m", "--method", method, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "") and told["fits"] and told["method"] == method and told["rank"] is None
    known = METHODS[method]
    assert told["adapter_parameters"] == known.parameters(model, known.usual, range(6))
    assert told["memory"]["optimizer"] == 8 * told["adapter_parameters"]
    less = json.loads(run("plan", "smollm2-135m", "--method", method, "--from-layer", "5", "--json")[1])
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


TUNE = ("finetune", "small", "--data", "text.txt", "-o", "out")
SAY = ("infer", "small", "--prompt", "the")
BAD = {
    "an option of images": ((*TUNE, "--angle", "90"), "angle=90.0: must be left out, edge-qlora-genesys2"),
    "epochs": ((*TUNE, "--epochs", "3", "--steps", "2"), "epochs=3: must be left out with --steps 2"),
    "an option of language models": (
        ("finetune", "instantft-kv260", "--data", "text.txt"),
        "text.txt: not a readable .npz file",
    ),
    "steps on images": (("finetune", "instantft-kv260", "--steps", "3"), "steps=3: must be left out"),
    "no text": (TUNE[:2], "data: is needed"),
    "a text that is not there": ((*TUNE[:2], "--data", "no.txt"), "data=no.txt: no such file"),
    "a model that is not there": (("finetune", "no", "--data", "text.txt"), "model=no: is no file"),
    "a model by its shapes": (("finetune", "tinyllama-1.1b", "--data", "text.txt"), "known by its shapes only"),
    "a rate of nothing": ((*TUNE, "--lr", "0"), "lr=0"),
    "a rate that is no number": ((*TUNE, "--lr", "nan"), "lr=nan"),
    "an unknown optimiser": ((*TUNE, "--optimizer", "lion"), "optimizer=lion: must be one of adamw, sgd"),
    "an unknown method": ((*TUNE, "--method", "bitfit"), "method=bitfit: must be one of lora, lora-xs, layernorm, ia3"),
    "a rank of norms": (
        (*TUNE, "--method", "layernorm", "--rank", "4"),
        "rank=4: must be left out with --method layernorm; or give --method lora",
    ),
    "norms as codes": ((*TUNE, "--method", "layernorm", "--store", "int8"), "store=int8: must be left out"),
    "targets of another method": (
        (*TUNE, "--method", "ia3", "--targets", "q"),
        "targets=q: must be all, or some of k, v, down between commas for ia3",
    ),
    "a plan of a rank of norms": (
        ("plan", "smollm2-135m", "--method", "layernorm", "--rank", "4"),
        "rank=4: must be left out with --method layernorm; or give --method lora",
    ),
    "a plan of factors as codes": (
        ("plan", "smollm2-135m", "--method", "ia3", "--store", "int8"),
        "store=int8: must be left out with --method ia3; or give --method lora",
    ),
    "no steps": ((*TUNE, "--steps", "0"), "steps=0: must be from 1 to"),
    "an update of no texts": ((*TUNE, "--accumulate", "0"), "accumulate=0: must be from 1 to 256"),
    "texts of images": (("finetune", "instantft-kv260", "--accumulate", "2"), "accumulate=2: must be left out"),
    "a card of too many steps": (
        ("card", "write", *TUNE[1:], "--steps", "100001"),
        "steps=100001: must be from 1 to 100000",
    ),
    "a card for a network": (("card", "write", "instantft-kv260", "--data", "d"), "nothing there writes a memory card"),
    "windows too short": ((*TUNE, "--seq", "1"), "seq=1: must be from 2 to 64"),
    "windows longer than the machine's": ((*TUNE, "--seq", "65"), "seq=65: must be from 2 to 64 (tokens of the"),
    "windows longer than the context": (
        (*TUNE, "--engine", "float", "--seq", "129"),
        "seq=129: must be from 2 to 128 (the model's context)",
    ),
    "a rank beyond the machine's": ((*TUNE, "--rank", "10"), "rank=10: must be even, 2 to 8"),
    "an odd rank": ((*TUNE, "--rank", "3"), "rank=3: must be even, 2 to 8"),
    "a rank beyond all": ((*TUNE, "--rank", "65"), "rank=65: must be from 1 to 64"),
    "unknown targets": ((*TUNE, "--targets", "q,x"), "targets=q,x"),
    "more layers than there are": ((*TUNE, "--layers", "3"), "layers=3: must be from 1 to 2"),
    "a layer that is not there": (
        (*TUNE, "--from-layer", "2"),
        "from_layer=2: must be an integer from 0 to 1, a layer of the model",
    ),
    "a layer before all": ((*TUNE, "--from-layer", "-1"), "from_layer=-1: must be an integer from 0 to 1"),
    "a layer beyond those in use": (
        (*TUNE, "--layers", "1", "--from-layer", "1"),
        "from_layer=1: must be an integer from 0 to 0",
    ),
    "a layer that is no number": ((*TUNE, "--from-layer", "last"), "from_layer=last: must be an integer"),
    "a layer of InstantFT": (
        ("finetune", "small", "--method", "instantft", "--data", "text.txt", "--from-layer", "1"),
        "must be left out",
    ),
    "a plan of a layer that is not there": (
        ("plan", "smollm2-135m", "--from-layer", "30"),
        "from_layer=30: must be an integer from 0 to 29, a layer of the model",
    ),
    "an adapter that is not there": ((*TUNE, "--adapter", "nowhere"), "no such file"),
    "results to a file": ((*TUNE[:-1], "text.txt"), "output=text.txt: is a file"),
    "an angle of a language model": ((*SAY, "--angle", "3"), "angle=3.0: must be left out, infer of edge-qlora"),
    "text of a network": (
        ("infer", "instantft-kv260", "--prompt", "a"),
        "prompt=a: must be left out, infer of instantft-kv260 takes data",
    ),
    "no prompt": (SAY[:2], "prompt: is needed: the text to continue"),
    "an empty prompt": ((*SAY[:-1], ""), "prompt: has no tokens"),
    "no tokens": ((*SAY, "--tokens", "0"), "tokens=0: must be at least 1"),
    "more tokens than the context": ((*SAY, "--tokens", "126"), "tokens=126: with the prompt's 3 there are more"),
    "an adapter of nothing": ((*SAY, "--adapter", "small"), "no such file"),
    "a clock that stands": (("generate", PRESET, "-o", "out", "--set", "clock_mhz=0"), "clock_mhz=0"),
    "a design beyond the board": (("generate", PRESET, "-o", "out", "--set", "depth=65536"), "genesys2 has"),
    "a key of the other kind": (("generate", PRESET, "-o", "out", "--set", "panels=4"), "panels: no such parameter"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_wrong_request_is_one_message_and_leaves_nothing(run, here, case):
    arguments, named = BAD[case]
    code, out, err = run(*arguments)
    assert code == 2 and out == ""
    assert named in " ".join(err.split()) and "Traceback" not in err and "internal" not in err
    assert sorted(path.name for path in here.iterdir()) == ["small", "text.txt"]


def test_an_adapter_that_does_not_fit_is_refused(run, here):
    tuned(run, "--steps", "1", "--engine", "float", "--rank", "12", output="wide")
    for options, named in (
        (("--rank", "8"), "r=12: rank 8 is needed"),
        (("--targets", "q"), "targets=q: wide has adapters on q_proj"),
        (("--layers", "1"), "layers=1: wide has an adapter on model.layers.1."),
        (("--from-layer", "1"), "from_layer=1: wide has adapters from layer 0 on"),
        ((), "rank=12: must be even, 2 to 8"),
    ):
        code, out, err = run(*TUNE, "--adapter", "wide", *options)
        assert code == 2 and out == "" and named in err and not (here / "out").exists()


@pytest.mark.parametrize(
    "content, named",
    [
        (b"a", "has 1 token, a window of seq=64 needs at least 64; give a longer text\n"),
        (b"", "has 0 tokens"),
        (b"a\xff", "not UTF-8"),
    ],
)
def test_a_text_that_teaches_nothing_is_refused(run, here, content, named):
    (here / "text.txt").write_bytes(content)
    code, _, err = run(*TUNE)
    assert code == 2 and f"data=text.txt: {named}" in err.replace("is not", "not") and not (here / "out").exists()


def test_shapes_that_the_machine_cannot_take_are_named(run, here):
    odd = config_of(MODEL) | {"num_attention_heads": 4, "num_key_value_heads": 2}
    (here / "small" / "config.json").write_text(json.dumps(odd))
    random = np.random.default_rng(5)
    shapes = dataclasses.replace(MODEL, heads=4, kv_heads=2, head_dim=32).tensors
    save_file(
        {name: random.normal(1, 0.1, shape).astype(np.float32) for name, shape in shapes.items()},
        here / "small" / "model.safetensors",
    )
    code, _, err = run(*TUNE)
    assert code == 2 and "head_dim=32: must be 64" in err
    assert tuned(run, "--engine", "float", "--steps", "1", "--seq", "42")["loss"]


def test_a_fine_tune_refuses_what_a_plan_says_does_not_fit(run, here, monkeypatch):
    """Each failed bound is a line, the same of both verbs, memory included."""
    board = boards.find("genesys2")
    monkeypatch.setattr(boards, "find", lambda name: dataclasses.replace(board, memory_bytes=1 << 20))
    monkeypatch.setattr(language.boards, "find", boards.find)
    wrong = ("--rank", "10", "--seq", "65")
    code, out, err = run(*TUNE, *wrong)
    assert code == 2 and out == "" and not (here / "out").exists()
    assert [line.split(": ")[1].split("=")[0] for line in err.splitlines()] == ["seq", "rank", "memory"]
    planned = run("plan", "small", *wrong)
    assert (planned[0], planned[2]) == (2, err)
    assert "memory=" in err and "genesys2 has 1048576 bytes; use another model" in err
    # Floating point needs neither machine nor board.
    assert tuned(run, "--engine", "float", "--steps", "1", *wrong)["rank"] == 10


def test_a_loss_that_is_no_number_ends_a_fine_tune(run, here, monkeypatch):
    monkeypatch.setattr(Llama, "gradients", lambda *_: (float("nan"), {}))
    code, _, err = run(*TUNE, "--engine", "float", "--lr", "16")
    assert code == 2 and "lr: the first step is not finite" in err and not (here / "out").exists()


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


def test_weights_are_found_by_a_models_name(tmp_path, monkeypatch):
    assert find_weights(tmp_path / "x") == tmp_path / "x"
    with pytest.raises(ValueError, match="tinyllama-1.1b: is known by its shapes only"):
        find_weights("tinyllama-1.1b")
    monkeypatch.setattr("gradloom.models.files.checkpoint._PACKAGES", {"smollm2-135m": "no_such_package"})
    with pytest.raises(ValueError, match="smollm2-135m: its weights are not installed; make llm"):
        find_weights("smollm2-135m")
    assert "smollm2-135m" in BUILT_IN


def test_a_card_has_as_many_steps_as_the_firmware_has_room_for():
    from gradloom.firmware.soc import MAX_PROGRAMS, MAX_STEP_PROGRAMS
    from gradloom.firmware.steps import MAX_PROGRAMS as OF_A_TABLE
    from gradloom.firmware.steps import MAX_STEPS
    from gradloom.systems.text.workload import QLoraOptions

    folder = files("gradloom.firmware")
    main, steps, header = (
        (folder / name).read_text(encoding="utf-8") for name in ("soc_job.h", "gradloom_steps.c", "gradloom_steps.h")
    )
    bounds = QLoraOptions.known()["steps"].bounds
    assert bounds.high == MAX_STEPS and f"#define MAX_STEPS {MAX_STEPS}u\n" in steps
    assert MAX_STEP_PROGRAMS == OF_A_TABLE and f"#define GL_STEPS_PROGRAMS {OF_A_TABLE}u\n" in header
    assert f"#define MAX_PROGRAMS {MAX_PROGRAMS}u\n" in main
