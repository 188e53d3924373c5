"""What plan, choose, finetune and generate refuse, they refuse in the same words."""

from dataclasses import replace

import pytest

from gradloom.choosing import text as driver

from ...language import save_model
from ..small import MODEL, TEXT, Letters


@pytest.fixture
def asked(run, here, monkeypatch):  # noqa: F811
    """Lines of verbs by name, with a text that is long enough to choose by."""
    monkeypatch.setattr(driver, "open_tokenizer", lambda path, **_: Letters())
    (here / "text.txt").write_text(TEXT * 3)
    (here / "bytes.npz").write_bytes(b"PK")
    save_model(here / "wide", replace(MODEL, hidden=520, head_dim=260))

    def call(verb, *options, model=None):
        model = model or ("lenet5" if "images" in verb else "small")
        lines = {
            "plan": ("plan", model),
            "choose": ("choose", model, "--data", "text.txt", "--jobs", "1", "-o", "out"),
            "finetune": ("finetune", model, "--data", "text.txt", "-o", "out"),
            "choose images": ("choose", model, "--board", "kv260", "--data", "bytes.npz", "-o", "out"),
            "finetune images": ("finetune", model, "--board", "kv260", "--data", "bytes.npz", "-o", "out"),
            "generate": ("generate", model, "--board", "kv260", "-o", "out"),
        }
        return run(*lines[verb], *options)

    return call


LANGUAGE = ("plan", "choose", "finetune")
#: Request, verbs, and the line that each of them refuses it with.
REFUSED = {
    "long windows": (
        ("--seq", "999"),
        LANGUAGE,
        "seq=999: must be from 2 to 128 (the model's context); give --seq 128",
    ),
    "windows of more than a block": (("--seq", "65"), ("choose",), "seq=65: must be from 2 to 64; give --seq 64"),
    "no windows": (("--seq", "1"), LANGUAGE, "seq=1: must be from 2 to 128 (the model's context); give --seq 2"),
    "no steps": (("--steps", "0"), LANGUAGE, "steps=0: must be from 1 to 100000"),
    "many steps": (("--steps", "1000000000"), LANGUAGE, "steps=1000000000: must be from 1 to 100000"),
    "no number": (("--steps", "x"), LANGUAGE, "steps=x: must be an integer; see gradloom VERB --help"),
    "no rank": (("--rank", "0"), ("plan", "finetune"), "rank=0: must be from 1 to 64"),
    "a large rank": (
        ("--rank", "18"),
        ("plan", "finetune"),
        "rank=18: must be from 1 to 16, a machine's most; --engine float takes more (q_proj on the preset's machine); "
        "give --rank 8",
    ),
    "no layer": (
        ("--from-layer", "2"),
        ("plan", "finetune"),
        "from_layer=2: must be an integer from 0 to 1, a layer of the model",
    ),
    "no module": (
        ("--targets", "x"),
        ("plan", "finetune"),
        "targets=x: must be all, or some of q, k, v, o, gate, up, down between commas for lora",
    ),
    "no format": (("--store", "fp8"), ("plan", "finetune"), "store=fp8: must be one of words, int8, nf4"),
    "a rank of factors": (
        ("--method", "ia3", "--rank", "4"),
        ("plan", "finetune"),
        "rank=4: must be left out with --method ia3; or give --method lora",
    ),
    "a format of norms": (
        ("--method", "layernorm", "--store", "int8"),
        ("plan", "finetune"),
        "store=int8: must be left out with --method layernorm; or give --method lora",
    ),
    "no board": (
        ("--board", "vcu118"),
        ("plan", "choose"),
        "board 'vcu118': must be one of genesys2, kr260, kv260, ulx3s, zcu104",
    ),
    "no images": (("--data", "none.npz"), ("finetune images",), "data=none.npz: no such file"),
    "a folder of images": (
        ("--data", "."),
        ("finetune images",),
        "data=.: has no folder train: must have train/CLASS and test/CLASS; or give --held-out SHARE, with train/CLASS "
        "or CLASS alone",
    ),
    "no file of images": ((), ("finetune images",), "bytes.npz: not a readable .npz file; is it truncated?"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_is_refused_in_the_same_words(asked, here, case):  # noqa: F811
    options, verbs, line = REFUSED[case]
    before = sorted(here.iterdir())
    for verb in verbs:
        code, _, err = asked(verb, *options)
        assert (code, err) == (2, f"gradloom: {line.replace('VERB', verb)}\n"), verb
    assert sorted(here.iterdir()) == before


MODELS = {
    "none": "model=none: is no file, none of the presets ",
    "wide": "head_dim=260: must be at most 256; use another model",
}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_refused_in_the_same_words(asked, model):
    for verb in LANGUAGE:
        code, _, err = asked(verb, model=model)
        # A plan knows diffusion models, too.
        assert code == 2 and err.startswith(f"gradloom: {MODELS[model]}") and err.count("\n") == 1, verb


def test_a_network_is_refused_in_the_same_words(asked, here):  # noqa: F811
    """By choose, finetune, and generate, where the option has another name."""
    (here / "broken.onnx").write_bytes(b"no graph")
    for file, line in (("none.onnx", "none.onnx: is n"), ("broken.onnx", "broken.onnx: not a readable ONNX file")):
        said = [asked("choose images", model=file), asked("finetune images", model=file), asked("generate", model=file)]
        assert [code for code, _, _ in said] == [2, 2, 2]
        assert all(line in err and len(err.splitlines()) == 1 for _, _, err in said), said


def test_images_are_refused_in_the_same_words(asked):
    wrong = [asked(f"{verb} images", model="lenet5") for verb in ("choose", "finetune")]
    none = [
        asked("choose images", "--data", "none.npz", model="lenet5"),
        asked("finetune images", "--data", "none.npz"),
    ]
    assert wrong[0] == wrong[1] and none[0] == none[1]
    assert (none[0][0], wrong[0][0]) == (2, 2) and len(wrong[0][2].splitlines()) == 1
