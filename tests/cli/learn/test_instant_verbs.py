"""InstantFT of a language model on the command line, beside QLoRA on the same text."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

import gradloom
from gradloom.models.adapters.language.instant import load_instant
from gradloom.models.adapters.lora import load_lora
from gradloom.systems.text.operations.instant import InstantStep

from ..small import MODEL, TEXT, tuned
from .test_resume import files, interrupt_after

PRESET = "instantft-llm-genesys2"


def learnt(run, *options, output="out"):
    code, out, err = run(
        "finetune", "small", "--method", "instantft", "--data", "text.txt", "-o", output, "--json", *options
    )
    assert (code, err) == (0, ""), err
    return json.loads(out)


def test_a_fine_tune_reads_blocks_once(run, here):  # noqa: F811
    """Two windows of a text, six steps: blocks are read in the first two only; QLoRA's reads are beside them."""
    said = learnt(run, "--steps", "6", "--lr", "0.01", "--seq", "42")
    assert said == json.loads((here / "out" / "metrics.json").read_text())
    assert (said["method"], said["engine"], said["layers"], said["rank"]) == ("instantft", "reference", 2, 8)
    head = 2 * 2 * 128 * 128
    assert said["base_bytes"][2:] == [head] * 4 and said["base_bytes"][0] == said["base_bytes"][1] > head
    assert said["cached_texts"] == 2 and said["cache_bytes_per_text"] == 4 * 42 * 128 * 3
    assert said["adapter_parameters"] == 2 * 2 * 8 * 128 and said["saturated"] == 0
    assert said["loss_after"] < said["loss"][4] < said["loss"][0]
    qlora = tuned(run, "--steps", "2", "--seq", "42", output="qlora")
    assert qlora["method"] == "qlora" and qlora["base_bytes"][0] == qlora["base_bytes"][1] > said["base_bytes"][0]
    assert set(said) - set(qlora) == {"cached_texts", "cache_bytes_per_text"} and not set(qlora) - set(said)
    exact = learnt(run, "--engine", "float", "--steps", "6", "--lr", "0.01", "--seq", "42", output="float")
    np.testing.assert_allclose(said["loss"], exact["loss"], rtol=2e-3)
    assert exact["saturated"] is None and exact["base_bytes"] == said["base_bytes"]


def test_its_adapter_says_what_it_is(run, here):  # noqa: F811
    first = learnt(run, "--engine", "float", "--steps", "3", "--lr", "0.01", "--rank", "3")
    names = load_file(here / "out" / "adapter_model.safetensors")
    assert set(names) == {f"instantft.layers.{layer}.{which}" for layer in (0, 1) for which in "AB"}
    adapters = load_instant(here / "out", MODEL, rank=3)
    assert all(each.scale == 2 and each.b.any() for each in adapters.values())
    with pytest.raises(ValueError, match='peft_type="GRADLOOM_INSTANTFT": must be "LORA"'):
        load_lora(here / "out", MODEL)
    second = learnt(run, "--engine", "float", "--steps", "2", "--adapter", "out", output="further")
    assert second["loss_before"] == pytest.approx(first["loss_after"], rel=1e-6) and second["rank"] == 3


def test_text_with_its_adapter(run, here):  # noqa: F811
    learnt(run, "--engine", "float", "--steps", "150", "--lr", "0.01", "--rank", "16")
    said = gradloom.infer(str(here / "small"), prompt=TEXT[:20], tokens=12, adapter=here / "out")
    assert TEXT[20:].startswith(said["text"]) and len(said["tokens"]) == 12
    assert said["text"] != gradloom.infer(str(here / "small"), prompt=TEXT[:20], tokens=12)["text"]


def test_a_card_has_its_fine_tune(run, here):  # noqa: F811
    """What the board does with it: ``tests/systems/text/card/test_instant_job.py``."""
    options = ("--data", "text.txt", "--steps", "5", "--seq", "42", "--rank", "4", "-o", "out", "--json")
    code, out, err = run("card", "write", "small", "--method", "instantft", *options)
    assert (code, err) == (0, ""), err
    said = json.loads(out)
    assert (said["method"], said["rows"], said["texts"], len(said["commands"])) == ("instantft", 64, 2, 2)
    assert said["commands"][1] < said["commands"][0] and said["memory"]["forward_cache"] == 2 * 4 * 42 * 128 * 3
    assert [*said["adapters"], *said["moments"]] == ["instant.a", "instant.b", "instant.ma", "instant.mb"]
    assert sum(each["bytes"] for each in (*said["adapters"].values(), *said["moments"].values())) == 3 * said["words"]
    assert said["memory"]["adapters"] == said["words"] and said["memory"]["optimizer"] == 2 * said["words"]
    code, _, err = run("card", "collect", "--card", here / "out" / "card.img", "-o", here / "adapter")
    assert code == 2 and "the board has stored nothing yet" in err


TUNE = ("finetune", "small", "--method", "instantft", "--data", "text.txt", "-o", "out")
BAD = {
    "targets": ((*TUNE, "--targets", "q"), "targets=q: must be left out, instantft-llm-genesys2"),
    "several texts an update": ((*TUNE, "--accumulate", "2"), "accumulate=2: must be left out, instantft-llm"),
    "a rank beyond a tile": ((*TUNE, "--rank", "65"), "rank=65: must be from 1 to 64"),
    "windows longer than the machine's": ((*TUNE, "--seq", "65"), "seq=65: must be from 2 to 64 (tokens of the"),
    "in float, too": ((*TUNE, "--seq", "65", "--engine", "float"), "2 to 64 (tokens of the preset's machine)"),
    "an adapter that is not there": ((*TUNE, "--adapter", "nowhere"), "no such file"),
    "a card of sgd": (
        ("card", "write", *TUNE[1:], "--optimizer", "sgd"),
        "optimizer=sgd: must be adamw for InstantFT on a card",
    ),
    "no text": (TUNE[:4], "data: is needed"),
    "epochs": ((*TUNE, "--epochs", "3", "--steps", "2"), "epochs=3: must be left out with --steps 2"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_wrong_request_is_one_message_and_leaves_nothing(run, here, case):  # noqa: F811
    arguments, named = BAD[case]
    code, out, err = run(*arguments)
    assert code == 2 and out == ""
    assert named in " ".join(err.split()) and "Traceback" not in err
    assert sorted(path.name for path in here.iterdir()) == ["small", "text.txt"]


def test_windows_beyond_the_boards_cache_are_refused(run, here, monkeypatch):  # noqa: F811
    """A board whose memory holds the model and two texts: three windows do not fit, two steps do."""
    from gradloom import boards
    from gradloom.systems.text.costs.instant_budget import instant_memory
    from gradloom.systems.text.costs.request import BudgetRequest

    held = instant_memory(BudgetRequest(model=MODEL, seq=28))
    small = dataclasses.replace(boards.find("genesys2"), memory_bytes=sum(held.values()) + held["forward_cache"])
    monkeypatch.setattr(boards, "find", lambda name: small)
    code, out, err = run(*TUNE, "--seq", "28")
    assert code == 2 and out == "" and not (here / "out").exists()
    assert (
        "data=text.txt: 8 steps learn from 3 windows, the forward cache has room for 2" in err
        and "give --steps 2" in err
    )
    assert learnt(run, "--seq", "28", "--steps", "2")["cached_texts"] == 2


def test_adapters_of_another_kind_are_refused(run, here):  # noqa: F811
    tuned(run, "--steps", "1", "--engine", "float", output="lora")
    learnt(run, "--steps", "1", "--engine", "float", "--layers", "1", output="one")
    for options, named in (
        (("--adapter", "lora"), 'peft_type="LORA": must be "GRADLOOM_INSTANTFT"'),
        (("--adapter", "one"), "layers=2: one has adapters from 1 blocks"),
        (("--adapter", "one", "--layers", "1", "--rank", "4"), "r=8: rank 4 is needed"),
    ):
        code, out, err = run(*TUNE, *options)
        assert code == 2 and out == "" and named in " ".join(err.split()), err
    code, _, err = run("infer", "small", "--prompt", "the", "--adapter", "one")
    assert code == 2 and "is from 1 of 2 blocks" in err


def test_the_preset_is_the_same_machine(run):
    """And its cache is what a step of its size says."""
    from gradloom.preset import PRESETS

    listed = {each["name"]: each for each in json.loads(run("list", "presets", "--json")[1])}
    assert listed[PRESET]["board"] == "genesys2" and "forward cache" in listed[PRESET]["summary"]
    assert PRESETS[PRESET].config == PRESETS["edge-qlora-genesys2"].config
    assert InstantStep(MODEL, 64, 8, range(2)).cache_bytes == 3 * 4 * 64 * 128


#: Small parameters for both presets: Verilog that the tests of workloads build, too.
SMALL = ("columns=4", "rank=2", "tokens=16", "depth=256", "lane_depth=128", "features=256", "packing=1", "gelu=1")


@pytest.fixture(scope="module")
def small_design(tmp_path_factory):
    """``small_design(preset, folder)`` puts a generated design there.

    It is generated once: both presets have the same parameters, and a design names the preset.
    """
    made = tmp_path_factory.mktemp("small") / "design"
    gradloom.generate(PRESET, made, settings=dict(each.split("=") for each in SMALL))

    def put(preset, folder):
        shutil.copytree(made, folder)
        report = folder / "report.json"
        report.write_text(json.dumps(json.loads(report.read_text()) | {"preset": preset}))

    return put


@pytest.mark.xdist_group("text in rtl")
@pytest.mark.parametrize(
    "preset, options", [(PRESET, ("--rank", "4")), ("edge-qlora-genesys2", ("--rank", "2", "--accumulate", "2"))]
)
def test_rtl_learns_what_the_reference_learns(run, here, monkeypatch, small_design, preset, options):  # noqa: F811
    """On a generated small design: losses, clipped words, adapters and base bytes are those of the reference, and a run
    that was interrupted ends as one that was not."""
    small_design(preset, here / "design")
    (here / "text.txt").write_text(TEXT[:24])

    def asked(engine, folder):
        return (
            "finetune",
            "small",
            "--method",
            "instantft" if preset == PRESET else "lora",
            "--data",
            "text.txt",
            "--design",
            "design",
            "--engine",
            engine,
            "-o",
            folder,
            "--json",
            "--seq",
            "12",
            "--steps",
            "3",
            "--layers",
            "1",
            *options,
        )

    said = {}
    for engine in ("rtl", "reference"):
        code, out, err = run(*asked(engine, engine))
        assert (code, err) == (0, ""), err
        said[engine] = json.loads(out)
    for figure in ("loss", "saturated", "base_bytes"):
        assert said["rtl"][figure] == said["reference"][figure]
    rtl = said["rtl"]
    assert len(rtl["cycles_by_step"]) == 3 and min(rtl["cycles_by_step"]) > 1000
    assert rtl["cycles"] == rtl["forecast"] and rtl["cycles"]["total"] == sum(rtl["cycles_by_step"])
    weights = [load_file(here / engine / "adapter_model.safetensors") for engine in said]
    for name, words in weights[0].items():
        np.testing.assert_array_equal(words, weights[1][name], err_msg=name)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        assert run(*asked("rtl", "parts"))[0] == 130
    code, _, err = run(*asked("rtl", "parts"), "--resume")
    assert code == 0, err
    assert files(here / "parts") == files(here / "rtl")
