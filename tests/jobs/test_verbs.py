"""The verbs on a board: what the command line says and leaves, by an agent in front of simulated RTL."""

import json

import pytest

from gradloom.cli.main import main
from gradloom.preset import find_preset

PRESET = find_preset("instantft-kv260")
FEW = ("--limit", "8", "--epochs", "1", "--batch", "4")
HOST = ("--host", "ubuntu@kria")


@pytest.fixture
def said(capsys):
    """``said(*arguments)`` is exit code, standard output and error stream."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        return ended.value.code, *capsys.readouterr()

    return run


def test_a_fine_tune_on_a_board(make_board, said, tmp_path):
    """Started and left, then followed by its name; the losses are those of simulated RTL."""
    make_board(PRESET.config, PRESET.name)
    code, out, err = said("finetune", "lenet5", *FEW, *HOST, "--detach", "--json")
    assert code == 0, err
    job = json.loads(out)
    code, out, err = said("finetune", "lenet5", *HOST, "--attach", job["name"], "-o", tmp_path / "far", "--json")
    assert code == 0, err
    found = json.loads(out)
    code, out, err = said("finetune", "lenet5", *FEW, "-o", tmp_path / "near", "--json")
    assert code == 0 and found["loss"] == json.loads(out)["loss"] and found["cycles"] == json.loads(out)["cycles"]
    weights = "adapter_model.safetensors"
    assert (tmp_path / "far" / weights).read_bytes() == (tmp_path / "near" / weights).read_bytes()
    code, out, err = said("finetune", "lenet5", *HOST, "--attach", job["name"], "-o", tmp_path / "gone")
    assert (code, err.count("\n")) == (2, 1) and f"attach={job['name']}: ubuntu@kria has no such job" in err
    assert not (tmp_path / "gone").exists()


def test_a_job_folder(make_board, said, tmp_path):
    """Written here, run on the board, made into results by the same command."""
    board = make_board(PRESET.config, PRESET.name)
    collect = ("finetune", "lenet5", "--job", tmp_path / "job", "-o", tmp_path / "run")
    code, out, _ = said(*collect, *FEW)
    assert code == 0 and "python3 -m gradloom_host.agent run job" in " ".join(out.split())
    written = (tmp_path / "job/job.json").read_bytes()
    code, out, err = said(*collect)
    assert (code, out, err.count("gradloom: ")) == (2, "", 1) and "job: has no result: " in err
    assert (tmp_path / "job/job.json").read_bytes() == written and not (tmp_path / "run").exists()
    assert board.agent("run", str(tmp_path / "job")).returncode == 0
    code, out, err = said(*collect, *FEW[:2])
    assert (code, out) == (2, "") and "limit=8: must be left out with --job, whose job has run" in err
    assert not (tmp_path / "run").exists()
    code, out, err = said(*collect, "--compare", "--json")
    assert code == 0, err
    assert len(json.loads(out)["loss"]) == 2 and json.loads(out)["equal_to_reference"]["losses"] == 2
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_the_self_test_of_a_board(make_board, said):
    make_board(PRESET.config, PRESET.name)
    code, out, err = said("selftest", "instantft-kv260", *HOST, "--json")
    assert code == 0 and all(each["ok"] for each in json.loads(out)), err


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("finetune", "lenet5", "--detach"), "detach=True: must be left out without --host, the board"),
        (("finetune", "lenet5", "--attach", "j"), "attach=j: must be left out without --host, the board"),
        (("finetune", "lenet5", *HOST, "--attach", "j", "--rank", "2"), "rank=2: must be left out with --attach"),
        (("finetune", "lenet5", *HOST, "--job", "j"), "host=ubuntu@kria: must be left out with --job"),
        (("finetune", "lenet5", "--compare"), "compare=True: must be left out without --host, --job or --port"),
        (("finetune", "lenet5", *FEW, *HOST, "--detach", "--compare"), "compare=True: must be left out until the job"),
        (("finetune", "lenet5", *FEW, "--job", "j", "--compare"), "compare=True: must be left out until the job"),
        (("finetune", "lenet5", "--host", "-x"), "host must be like user@machine, not '-x'"),
        (("finetune", "lenet5", *HOST, "--engine", "float"), "engine=float: must be left out for a board"),
        (("finetune", "lenet5", *HOST, "--engine", "reference"), "engine=reference: must be left out for a board"),
        (("infer", "spar-lstm", *HOST, "--engine", "float"), "engine=float: must be left out for a board"),
        (("finetune", "digits", *HOST), "ulx3s has no Linux that an agent could run on"),
        (("infer", "lenet5", *HOST), "ubuntu@kria does not answer over ssh"),
        (("infer", "digits", *HOST), "ulx3s has no Linux that an agent could run on"),
        (("infer", "smollm2-135m", *HOST, "--prompt", "A"), "genesys2 has no Linux that an agent could run on"),
        (("infer", "edge-qlora-kv260", *HOST, "--prompt", "A"), "ubuntu@kria does not answer over ssh"),
        (("infer", "edge-qlora-kv260", *HOST, "--engine", "rtl"), "engine=rtl: must be left out for a board"),
        (("finetune", "lenet5", *FEW, *HOST), "ubuntu@kria does not answer over ssh"),
        (("selftest", "instantft-kv260", *HOST), "ubuntu@kria does not answer over ssh"),
    ],
    ids=lambda each: " ".join(map(str, each)) if isinstance(each, tuple) else "",
)
def test_refusals(make_board, said, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    make_board(PRESET.config, PRESET.name, before="exit 255")
    code, out, err = said(*arguments)
    assert (code, out, err.count("gradloom: ")) == (2, "", 1) and says in err, err
    assert not (tmp_path / "finetune").exists()
