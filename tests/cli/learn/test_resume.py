"""A fine-tune that was interrupted goes on as if it had not been."""

import json

import pytest

from gradloom.output import marked
from gradloom.systems.text.run.checkpoint import ResumePoint

QLORA, INSTANT = "edge-qlora-genesys2", "instantft-llm-genesys2"
#: The method that asks for each preset.
METHOD = {QLORA: "lora", INSTANT: "instantft"}


def asked(preset, engine, *more):
    return (
        "finetune",
        "small",
        "--method",
        METHOD[preset],
        "--data",
        "text.txt",
        "--engine",
        engine,
        "--steps",
        "5",
        "--seq",
        "28",
        *more,
    )


def interrupt_after(monkeypatch, steps):
    """An interrupt behind the checkpoint of a step."""
    keep = ResumePoint.keep

    def kept(self, step, state):
        keep(self, step, state)
        if step == steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(ResumePoint, "keep", kept)


def files(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize(
    "preset, engine, more",
    [
        (QLORA, "reference", ("--accumulate", "2")),
        (QLORA, "reference", ("--store", "int8")),
        (QLORA, "float", ()),
        (INSTANT, "reference", ()),
        (INSTANT, "float", ("--optimizer", "sgd")),
    ],
    ids=str,
)
def test_results_are_those_without_the_interrupt(run, here, monkeypatch, preset, engine, more):  # noqa: F811
    whole, parts = (asked(preset, engine, *more, "-o", name) for name in ("whole", "parts"))
    assert run(*whole)[0] in (0, 4)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        assert run(*parts)[0] == 130
    assert set(files(here / "parts")) == {".gradloom", "checkpoint.npz"}
    code, _, err = run(*parts, "--resume")
    assert code in (0, 4), err
    assert "fine-tuning: 3 of 5" in err and "fine-tuning: 2 of 5" not in err
    assert files(here / "parts") == files(here / "whole")


def test_checkpoints_come_every_few_steps(run, here, monkeypatch):  # noqa: F811
    seen = []
    keep = ResumePoint.keep

    def kept(self, step, state):
        keep(self, step, state)
        seen.append(self.path.exists())

    monkeypatch.setattr(ResumePoint, "keep", kept)
    assert run(*asked(QLORA, "float", "--keep", "3", "-o", "out"))[0] == 0
    assert seen == [False, False, True, True, True] and not (here / "out" / "checkpoint.npz").exists()


@pytest.mark.parametrize(
    "change, named",
    [
        (("--seed", "1"), "seed=1: must be 0"),
        (("--lr", "0.5"), "lr=0.5: must be 0.001"),
        (("--rank", "4"), "rank=4: must be 8"),
        (("--engine", "reference"), "engine=reference: must be float"),
    ],
)
def test_another_request_is_refused_by_its_field(run, here, monkeypatch, change, named):  # noqa: F811
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        assert run(*asked(QLORA, "float", "-o", "out"))[0] == 130
    before = files(here / "out")
    code, out, err = run(*asked(QLORA, "float", "-o", "out"), "--resume", *change)
    assert (code, out) == (2, "") and named in err and err.count("\n") == 1
    (here / "text.txt").write_text((here / "text.txt").read_text() + "more")
    code, _, err = run(*asked(QLORA, "float", "-o", "out"), "--resume")
    assert code == 2 and "sha256 of data" in err and files(here / "out") == before


def test_what_cannot_be_resumed_is_refused(run, here):  # noqa: F811
    code, _, err = run(*asked(QLORA, "float", "-o", "out"), "--resume")
    assert code == 2 and "resume: out has no checkpoint.npz" in err and not (here / "out").exists()
    (marked(here / "out", verb="finetune") / "checkpoint.npz").write_bytes(b"nothing")
    code, _, err = run(*asked(QLORA, "float", "-o", "out"), "--resume")
    assert code == 2 and "is no checkpoint" in err
    code, _, err = run("finetune", "instantft-kv260", "--resume")
    assert code == 2 and "resume=True: must be left out, instantft-kv260 fine-tunes images" in err


def test_metrics_say_what_repeats_the_run(run, here):  # noqa: F811
    code, out, _ = run(*asked(QLORA, "float", "-o", "one"), "--json")
    told = json.loads(out)
    request = {name: value for name, value in told["request"].items() if value not in (None, False)}
    assert request["rank"] == 8 and request["lr"] == 0.001 and request["targets"] == "q_proj,v_proj"
    assert set(told["files"]) == {"model", "data"} and len(told["files"]["data"]["text.txt"]) == 64
    assert "/" not in json.dumps(told["request"]) and told["parameters"]["edge"] == 64 and told["gradloom"]
    model = request.pop("model")
    words = [word for name, value in request.items() for word in ("--" + name.replace("_", "-"), value)]
    code, out, err = run("finetune", model, *words, "-o", "two", "--json")
    assert code == 0, err
    assert json.loads(out) == told


def test_an_interrupt_says_how_a_fine_tune_goes_on(run, here, monkeypatch):
    """Once a checkpoint is there, and not before."""
    interrupt_after(monkeypatch, 3)
    kept = "out/checkpoint.npz has 3 steps; the same command with --resume continues"
    for preset, engine in ((QLORA, "float"), (QLORA, "reference"), (INSTANT, "reference")):
        _, _, err = run(*asked(preset, engine, "-o", "out"))
        assert err.splitlines()[-1] == f"interrupted; {kept}"
    interrupt_after(monkeypatch, 1)
    _, _, err = run(*asked(QLORA, "float", "--keep", "2", "-o", "none"))
    assert err.splitlines()[-1] == "interrupted"
