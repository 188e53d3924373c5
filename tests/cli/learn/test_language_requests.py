"""Requests for language models that are refused, each with one message."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from gradloom import boards
from gradloom.models.adapters.lora import load_lora
from gradloom.models.files.language.checkpoint import find_weights
from gradloom.models.language import BUILT_IN, PROJECTIONS
from gradloom.preset import PRESETS
from gradloom.systems.text import task as language
from gradloom.systems.text.reference.llama import Llama

from ...language import save_model
from ..small import MODEL, PRESET, SAY, TUNE, tuned

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
    "an unknown optimiser": ((*TUNE, "--optimizer", "adagrad"), "optimizer=adagrad: must be one of adamw, lion, sgd"),
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
    "windows too short": ((*TUNE, "--seq", "1"), "seq=1: must be from 2 to 128"),
    "a card of more than a block": (
        ("card", "write", *TUNE[1:], "--seq", "65"),
        "seq=65: must be at most 64 on a card",
    ),
    "windows longer than the context": (
        (*TUNE, "--engine", "float", "--seq", "129"),
        "seq=129: must be from 2 to 128 (the model's context)",
    ),
    "a rank beyond all machines'": (
        (*TUNE, "--rank", "18"),
        "rank=18: must be from 1 to 16, a machine's most; --engine float takes more",
    ),
    "a rank beyond a layer's": ((*TUNE, "--rank", "10"), "rank=10: a layer of 64 x 128 carries at most 8"),
    "an odd rank beyond it": ((*TUNE, "--rank", "9"), "rank=9: a layer of 64 x 128 carries at most 8"),
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
        "prompt=a: must be left out, infer of instantft-kv260 takes port, baud, data",
    ),
    "no prompt": (SAY[:2], "prompt: is needed: the text to continue"),
    "an empty prompt": ((*SAY[:-1], ""), "prompt: has no tokens"),
    "an engine that there is not": ((*SAY, "--engine", "fast"), "engine=fast: must be one of rtl, reference, float"),
    "an engine beside a board": (
        (*SAY, "--engine", "reference", "--port", "nowhere"),
        "engine=reference: must be left out with --port",
    ),
    "a design that is not there": ((*SAY, "--engine", "reference", "--design", "no"), "design=no: has no report.json"),
    "no tokens": ((*SAY, "--tokens", "0"), "tokens=0: must be at least 1"),
    "more tokens than the context": ((*SAY, "--tokens", "126"), "(the model's context); give --tokens 125"),
    "a prompt longer than the context": (
        ("infer", "small", "--prompt", "a" * 128),
        "tokens=32: with the prompt's 128 there are more than 128 (the model's context); give a shorter prompt",
    ),
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


@pytest.fixture
def designs(here):
    """Folders of designs by preset, with parameters and Verilog that nobody reads."""

    def put(preset, **more):
        folder = here / f"design-{preset}"
        (folder / "rtl").mkdir(parents=True)
        (folder / "rtl" / "gradloom.v").write_text("module gradloom; endmodule\n")
        config = dataclasses.asdict(PRESETS[preset].config.replace(**more))
        (folder / "report.json").write_text(json.dumps({"preset": preset, "parameters": config}))
        return folder.name

    return put


def test_a_design_that_lacks_parameters_is_refused_with_all_of_them(run, here, designs):
    """One in a folder, and a board's own; in a fine-tune, a job, a card and an answer."""
    model = dataclasses.replace(MODEL, name="wide", kv_heads=2)
    save_model(here / "wide", model)
    tune = ("finetune", "wide", "--data", "text.txt", "-o", "out", "--steps", "1", "--rank", "16")
    code, _, err = run(*tune, "--engine", "float")
    assert code == 0, err
    (here / "out").rename(here / "run")
    short = designs("edge-qlora-kv260", lane_depth=32)
    folder = f"design={short}: the design has rank=8, lane_depth=32"
    there = "which is too little for wide; generate it with --set rank=16 --set lane_depth=64"
    on = ("--board", "kv260")
    requests = {
        (*tune, *on, "--design", short, "--engine", "rtl"): f"{folder}, {there}",
        (*tune, *on, "--design", short, "--engine", "rtl", "--store", "int8"): (
            f"{folder}, packing=0, {there} --set packing=1"
        ),
        (*tune, *on, "--design", short, "--job", "out"): f"{folder}, {there}",
        ("infer", "wide", "--prompt", "a", "--adapter", "run", *on, "--engine", "rtl", "--design", short): (
            f"{folder}, {there}"
        ),
    }
    for board, request in (
        ("kv260", (*tune, *on, "--job", "out")),
        ("genesys2", ("card", "write", *tune[1:])),
        ("kv260", ("infer", "wide", "--prompt", "a", "--adapter", "run", *on, "--job", "out")),
    ):
        requests[request] = (
            f"preset=edge-qlora-{board}: the preset's design has rank=8, which is too little for wide; gradloom "
            f"generate edge-qlora-{board} makes one by --set rank=16, name its folder by --design"
        )
    for request, says in requests.items():
        code, out, err = run(*request)
        assert (code, out) == (2, "") and says in " ".join(err.split()), (request, err)
        assert not (here / "out").exists()


def test_an_adapter_that_does_not_fit_is_refused(run, here):
    tuned(run, "--steps", "1", "--engine", "float", "--rank", "12", output="wide")
    for options, named in (
        (("--rank", "8"), "r=12: rank 8 is needed"),
        (("--targets", "q"), "targets=q: wide has adapters on q_proj"),
        (("--layers", "1"), "layers=1: wide has an adapter on model.layers.1."),
        (("--from-layer", "1"), "from_layer=1: wide has adapters from layer 0 on"),
        ((), "rank=12: a layer of 64 x 128 carries at most 8"),
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


def test_shapes_and_ranks_of_no_whole_tiles_are_filled(run, here):
    """Files have shapes and rank as they are; what is learnt goes on from them."""
    model = dataclasses.replace(MODEL, hidden=96, inter=84, head_dim=48)
    shutil.rmtree(here / "small")
    save_model(here / "small", model)
    options = ("--seq", "50", "--rank", "3", "--targets", "all", "--optimizer", "sgd", "--lr", "1")
    whole = tuned(run, *options, "--steps", "2")
    exact = tuned(run, *options, "--steps", "2", "--engine", "float", output="float")
    np.testing.assert_allclose(whole["loss"], exact["loss"], rtol=1e-4)
    assert (whole["rank"], whole["alpha"], whole["loss"][1] < whole["loss"][0]) == (3, 6, True)
    first = tuned(run, *options, "--steps", "1", output="first")
    again = tuned(run, *options, "--steps", "1", "--adapter", "first", output="again")
    assert first["adapter_parameters"] == sum(3 * (n + k) for n, k in map(model.shape, PROJECTIONS)) * 2
    np.testing.assert_allclose([*first["loss"], *again["loss"]], whole["loss"], rtol=1e-5)
    found, wanted = (load_lora(name, model, rank=3) for name in ("again", "out"))
    for name, each in wanted.items():
        for which, values in each.parts.items():
            np.testing.assert_allclose(found[name].parts[which], values, atol=2e-3 * np.abs(values).max())
    said = [
        json.loads(run(*SAY, "--tokens", "3", "--adapter", "out", "--json", *engine)[1])["tokens"]
        for engine in ((), ("--engine", "reference"))
    ]
    assert said[0] == said[1]


def test_a_fine_tune_refuses_what_a_plan_says_does_not_fit(run, here, monkeypatch):
    """Each failed bound is a line, the same of both verbs, memory included."""
    board = boards.find("genesys2")
    monkeypatch.setattr(boards, "find", lambda name: dataclasses.replace(board, memory_bytes=1 << 20))
    monkeypatch.setattr(language.boards, "find", boards.find)
    wrong = ("--rank", "10", "--seq", "80")
    code, out, err = run(*TUNE, *wrong)
    assert code == 2 and out == "" and not (here / "out").exists()
    assert [line.split(": ")[1].split("=")[0] for line in err.splitlines()] == ["rank", "memory"]
    planned = run("plan", "small", *wrong)
    assert (planned[0], planned[2]) == (2, err)
    assert "memory=" in err and "genesys2 has 1048576 bytes; use another model" in err
    # Floating point needs neither machine nor board.
    assert tuned(run, "--engine", "float", "--steps", "1", *wrong)["rank"] == 10


def test_a_loss_that_is_no_number_ends_a_fine_tune(run, here, monkeypatch):
    monkeypatch.setattr(Llama, "gradients", lambda *_: (float("nan"), {}))
    code, _, err = run(*TUNE, "--engine", "float", "--lr", "16")
    assert code == 2 and "lr: the first step is not finite" in err and not (here / "out").exists()


def test_weights_are_found_by_a_models_name(tmp_path, monkeypatch):
    assert find_weights(tmp_path / "x") == tmp_path / "x"
    with pytest.raises(ValueError, match="tinyllama-1.1b: is known by its shapes only"):
        find_weights("tinyllama-1.1b")
    monkeypatch.setattr("gradloom.models.files.language.checkpoint._PACKAGES", {"smollm2-135m": "no_such_package"})
    with pytest.raises(ValueError, match="smollm2-135m: its weights are not installed; make llm"):
        find_weights("smollm2-135m")
    assert "smollm2-135m" in BUILT_IN


def test_a_card_has_as_many_steps_as_the_firmware_has_room_for():
    from gradloom.firmware.chip.soc import MAX_PROGRAMS, MAX_STEP_PROGRAMS
    from gradloom.firmware.chip.soc_image import source
    from gradloom.firmware.chip.steps import MAX_PROGRAMS as OF_A_TABLE
    from gradloom.firmware.chip.steps import MAX_STEPS
    from gradloom.systems.text.workload import QLoraOptions

    main, steps, header = (
        source(name).read_text(encoding="utf-8") for name in ("soc_job.h", "gradloom_steps.c", "gradloom_steps.h")
    )
    bounds = QLoraOptions.known()["steps"].bounds
    assert bounds.high == MAX_STEPS and f"#define MAX_STEPS {MAX_STEPS}u\n" in steps
    assert MAX_STEP_PROGRAMS == OF_A_TABLE and f"#define GL_STEPS_PROGRAMS {OF_A_TABLE}u\n" in header
    assert f"#define MAX_PROGRAMS {MAX_PROGRAMS}u\n" in main
