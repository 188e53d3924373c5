"""Outputs are refused before the work, and are whole or not there after it."""

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.cli import output as cli_output
from gradloom.cli.main import _terminable, _Terminated
from gradloom.models.adapters.language.merged import Merged, write_folder
from gradloom.models.datasets import default_split
from gradloom.models.files.tensors import write_safetensors
from gradloom.output import MARKER, OutputError, check_file, check_folder, claimed, grouped, marked, staged, staged_file

from ..models.conftest import TINY

RECURRENT = Path(__file__).parents[1] / "golden" / "recurrent" / "spar_convlstm64_W8A6C8IO6.onnx"
#: Verbs that write a folder or a file, each with something that is found wrong only after the output was looked at.
FOLDERS = {
    "generate": ("generate", "optimizer", "--set", "lanes=0"),
    "generate preset": ("generate", "instantft-kv260", "--set", "rowz=3"),
    "finetune": ("finetune", "instantft-kv260", "--limit", "99999"),
    "finetune text": ("finetune", "edge-qlora-genesys2", "--data", "nowhere.txt"),
    "finetune card": ("card", "write", "smollm2-135m", "--data", "nowhere.txt"),
    "pack": ("pack", "nowhere.gguf"),
    "import": ("import", "nowhere.onnx"),
    "sweep": ("sweep", "digits-ulx3s", "--scheduler", "nowhere:1"),
}
FILES = {
    "infer": ("infer", "instantft-kv260", "--limit", "99999"),
    "infer sequences": ("infer", RECURRENT, "--data", RECURRENT),
    "export": ("export", "nowhere.onnx"),
    "run": ("run", "optimizer", "--input", "nowhere.npz"),
    "quantize": ("quantize", "nowhere.npz"),
    "fetch": ("fetch",),
}
VERBS = FOLDERS | FILES
SUFFIX = {"quantize": ".safetensors", "export": ".onnx"}


@pytest.fixture
def attempt(run, tmp_path, monkeypatch):
    """Runs a verb with an output and returns its message, which must be one line about the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # no npm

    def attempted(verb, output):
        code, out, err = run(*VERBS[verb], "--output", output)
        assert (code, out, err.count("\n")) == (2, "", 1) and f"output={output}: " in err
        return err

    return attempted


def _named(verb, name):
    return name + SUFFIX.get(verb, ".npz") if verb in FILES else name


@pytest.mark.parametrize("verb", VERBS)
def test_something_else_in_the_place_is_refused_before_the_work(attempt, tmp_path, verb):
    place = tmp_path / _named(verb, "there")
    if verb in FOLDERS:
        place.write_text("mine")
        assert "is a file, a directory is needed" in attempt(verb, place) and place.read_text() == "mine"
    else:
        place.mkdir()
        assert "is a directory, a file is needed" in attempt(verb, place) and list(place.iterdir()) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_place_below_a_file_is_refused_before_the_work(attempt, tmp_path, verb):
    (tmp_path / "note").write_text("mine")
    assert f"{tmp_path / 'note'} is no directory" in attempt(verb, tmp_path / "note" / "far" / _named(verb, "out"))
    assert [each.name for each in tmp_path.iterdir()] == ["note"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(attempt, verb):
    # Not even root makes a file there.
    assert "/proc cannot be written" in attempt(verb, "/proc/gradloom-nowhere/" + _named(verb, "out"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_is_refused_before_the_work(attempt, monkeypatch, tmp_path, verb):
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 1 << 40, 4096))
    assert "4,096 bytes are free" in attempt(verb, tmp_path / "new" / _named(verb, "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["finetune", "infer"])
def test_a_name_that_is_too_long_is_refused_before_the_work(attempt, tmp_path, verb):
    assert "no place to write (File name too long)" in attempt(verb, tmp_path / _named(verb, "x" * 300))


def test_a_build_is_refused_where_the_design_cannot_be_written(run, tmp_path):
    (tmp_path / "rtl").mkdir()
    (tmp_path / "board").write_text("mine")
    code, _, err = run("build", "ulx3s", tmp_path)
    assert code == 2 and f"directory={tmp_path / 'board'}: is a file" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(OutputError, match="cannot be written"):
        check_folder(tmp_path / "out")


def test_a_check_leaves_nothing(tmp_path):
    check_folder(tmp_path / "far" / "out")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def contents(folder):
    """Texts of a folder's files, without the mark of its verb."""
    return {each.name: each.read_text() for each in folder.iterdir() if each.name != MARKER}


@pytest.mark.parametrize("there", [True, False])
def test_a_group_is_whole_or_as_it_was(tmp_path, there):
    out = tmp_path / "far" / "out"
    if there:
        marked(out, verb="finetune")
        (out / "mine").write_text("mine")
        (out / "last").write_text("old")
    with pytest.raises(KeyboardInterrupt), grouped(out, verb="finetune", last="last") as stage:
        (stage / "first").write_text("new")
        raise KeyboardInterrupt
    assert contents(out) == {"mine": "mine", "last": "old"} if there else list(tmp_path.iterdir()) == []
    with grouped(out, verb="finetune", last="last") as stage:
        (stage / "first").write_text("new")
        (stage / "last").write_text("new")
    kept = {"mine": "mine"} if there else {}
    assert contents(out) == kept | {"first": "new", "last": "new"}
    assert (out / MARKER).is_file()


def test_the_last_file_of_a_group_is_not_there_before_the_others(tmp_path, monkeypatch):
    marked(tmp_path, verb="finetune")
    (tmp_path / "last").write_text("old")
    replace, moved = os.replace, []

    def stopped(source, target):
        assert not moved
        moved.append(os.path.basename(target))
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt), grouped(tmp_path, verb="finetune", last="last") as stage:
        (stage / "z").write_text("new")
        (stage / "last").write_text("new")
    assert contents(tmp_path) == {"z": "new"}


def test_a_file_that_fails_leaves_nothing_and_makes_no_folder(tmp_path):
    with pytest.raises(RuntimeError), staged_file(tmp_path / "far" / "out") as file:
        file.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    data = default_split(degrees=90).limited(train=40, test=50)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    return path


def test_an_interrupted_fine_tune_leaves_the_results_of_the_one_before(run, digits, tmp_path, monkeypatch):
    asked = "finetune", "instantft-kv260", "--engine", "reference", "--data", digits, "--epochs", 1, "-o", tmp_path
    assert run(*asked)[0] == 0
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    pages = ["loss.png", "metrics.json", "report.html"]
    assert sorted(before) == [".gradloom", "adapter_config.json", "adapter_model.safetensors", *pages]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gradloom.systems.plots.plot_loss", interrupted)
        assert run(*asked, "--seed", 1)[0] == 130
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert run(*asked, "--seed", 1)[0] == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["seed"] == 1
    assert (tmp_path / "adapter_model.safetensors").read_bytes() != before["adapter_model.safetensors"]


def test_what_is_unfinished_is_removed_however_often_the_end_is_asked_for():
    removed = False
    with pytest.raises(_Terminated), _terminable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            removed = True
    assert removed


@pytest.mark.parametrize(
    "number, code, word", [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_leaves_no_folder(digits, tmp_path, number, code, word):
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gradloom",
            "finetune",
            "instantft-kv260",
            "--engine",
            "reference",
            "--data",
            digits,
            "--epochs",
            "400",
            "-o",
            tmp_path / "far" / "out",
        ],
        stderr=subprocess.PIPE,
        text=True,
        # A run in the background of a shell without job control inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        for line in process.stderr:
            if line.startswith("reference steps"):
                break
        process.send_signal(number)
        said = process.stderr.read().splitlines()
    assert said[-1] == word and not any("Traceback" in line for line in said)
    assert process.returncode == code and list(tmp_path.iterdir()) == []


def test_two_runs_do_not_write_one_folder(tmp_path):
    with staged(tmp_path / "out", verb="generate") as stage:
        (stage / "first").write_text("first")
        with pytest.raises(OutputError, match="another run of gradloom writes there now"):
            with claimed(tmp_path / "out", verb="finetune"):
                pass
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    with staged(tmp_path / "out", verb="generate") as stage:
        (stage / "second").write_text("second")
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [".gradloom", "second"]


@pytest.mark.parametrize("made, verb", [("generate", "finetune"), ("import", "generate")])
def test_a_folder_of_another_verb_is_refused(tmp_path, made, verb):
    with staged(tmp_path / "out", verb=made) as stage:
        (stage / "mine").write_text("mine")
    with pytest.raises(OutputError, match=f"out: holds what gradloom {made} made: name another directory"):
        with claimed(tmp_path / "out", verb=verb):
            pass
    assert (tmp_path / "out" / "mine").read_text() == "mine"


@pytest.mark.parametrize("writes", [staged, claimed, grouped])
def test_a_folder_with_content_is_refused_by_the_verb_that_did_not_make_it(tmp_path, writes):
    (tmp_path / "thesis.tex").write_text("mine")
    more = {"last": "metrics.json"} if writes is grouped else {}
    with pytest.raises(OutputError, match="is not empty and was not made by gradloom finetune: name another"):
        with writes(tmp_path, verb="finetune", **more):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "request_",
    [
        ("finetune", "lenet5", "--engine", "reference", "--limit", "20", "--epochs", "1", "-o"),
        ("choose", "lenet5", "--data", "digits.npz", "--time", "1ms", "-o"),
        ("sweep", "instantft-kv260", "--rank", "2", "-o"),
        ("card", "write", "smollm2-135m", "--data", "text.txt", "--steps", "1", "-o"),
        ("generate", "mesh", "-o"),
        ("pack", "small.gguf", "-o"),
    ],
    ids=lambda each: each[0],
)
def test_each_verb_leaves_a_folder_of_others_alone(tmp_path, monkeypatch, run, request_):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("mine")
    for name in ("digits.npz", "text.txt", "small.gguf"):
        (tmp_path / name).write_bytes(b"")
    code, _, err = run(*request_, "thesis")
    said = f"output=thesis: is not empty and was not made by gradloom {request_[0]}: name another directory"
    assert code == 2 and said in " ".join(err.split()), err
    assert [each.name for each in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]


def test_a_folder_that_was_begun_is_the_verbs(tmp_path):
    """An interrupted run goes on there, and ends there."""
    marked(tmp_path / "run", verb="finetune")
    (tmp_path / "run" / "checkpoint.npz").write_text("")
    with claimed(tmp_path / "run", verb="finetune"):
        with grouped(tmp_path / "run", verb="finetune", last="metrics.json") as stage:
            (stage / "metrics.json").write_text("{}")
    with pytest.raises(OutputError, match="run: holds what gradloom finetune made"):
        check_folder(tmp_path / "run", verb="card")


def test_a_folder_that_an_earlier_version_marked_is_a_designs(tmp_path):
    (tmp_path / ".gradloom").write_text('["rtl"]\n')
    with pytest.raises(OutputError, match="holds what gradloom generate made"):
        check_folder(tmp_path, verb="finetune")
    check_folder(tmp_path, verb="generate")
    (tmp_path / ".gradloom").write_text("{")
    with pytest.raises(OutputError, match="is damaged"):
        check_folder(tmp_path, verb="generate")


def test_a_unit_does_not_take_the_place_of_a_preset_s_design(run, tmp_path):
    out = tmp_path / "out"
    for held, target, kind in (("preset", "nf4-decode", "unit"), ("unit", "digits-ulx3s", "preset")):
        name = {"preset": "digits-ulx3s", "unit": "nf4-decode"}[held]
        with staged(out, verb="generate") as stage:
            (stage / "report.json").write_text(json.dumps({held: name}))
        said = run("generate", target, "-o", out)
        line = f"gradloom: output={out}: holds the {held} {name}, not a {kind}: name another folder\n"
        assert said == (2, "", line) and json.loads((out / "report.json").read_text()) == {held: name}
    assert run("generate", "nf4-decode", "-o", out)[0] == 0
    # A unit's folder is no preset's design.
    code, _, err = run("finetune", "digits-ulx3s", "--design", out, "-o", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1) and not (tmp_path / "run").exists()
    assert "it is of the unit nf4-decode, the request is for the preset digits-ulx3s" in err
    assert "gradloom generate digits-ulx3s makes one" in err


def test_a_disk_that_fills_is_one_line_and_leaves_nothing(run, tmp_path, monkeypatch):
    def full(path, *rest, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gradloom.boards.write_project", full)
    code, out, err = run("generate", "digits-ulx3s", "-o", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1) and "Errno" not in err
    assert err.startswith(f"gradloom: output={tmp_path / 'out'}: no room to write") and "make room" in err
    assert list(tmp_path.iterdir()) == []


def _full(*_, **more):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_is_named_by_the_output_that_a_user_gave(tmp_path):
    """Whatever part of the output found no room, and where nothing is staged, too."""
    with pytest.raises(OutputError, match=f"^output={tmp_path / 'out'}: no room to write {tmp_path / 'out'} .*removed"):
        with staged(tmp_path / "out", verb="merge") as stage:
            (stage / "part").write_bytes(b"part")
            with staged_file(stage / "inner.safetensors"):
                _full()
    with pytest.raises(OutputError, match=f"^output={tmp_path / 'out'}: no room to write {tmp_path / 'out'} ") as said:
        with claimed(tmp_path / "out", verb="sweep"):
            _full()
    assert "removed" not in str(said.value) and list(tmp_path.iterdir()) == []


def test_a_key_that_finds_no_room_is_not_there(run, tmp_path, monkeypatch):
    pytest.importorskip("monocypher")
    monkeypatch.setattr("pathlib.Path.write_text", _full)
    code, out, err = run("package", "keys", "-o", tmp_path / "k")
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"gradloom: output={tmp_path / 'k'}: no room")
    assert list(tmp_path.iterdir()) == []


def test_a_merge_that_finds_no_room_is_one_line(run, tmp_path, monkeypatch):
    """Its weights are written by us: another library's error would be no OSError."""
    monkeypatch.setattr("gradloom.models.files.tensors.staged_file", _full)
    with pytest.raises(OutputError, match="no room to write"), staged(tmp_path / "out", verb="merge") as stage:
        write_folder(stage, Merged(TINY, lambda name: np.ones(TINY.tensors[name], np.float32), {}), lambda *_: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spelled", ["{folder}/x.safetensors", "{folder}/../{name}/x.safetensors", "{folder}/link.safetensors"]
)
def test_a_result_does_not_replace_what_it_is_made_of(run, tmp_path, spelled):
    source = tmp_path / "x.safetensors"
    write_safetensors(source, {"w": (np.ones((2, 64), np.float32), "float32")})
    (tmp_path / "link.safetensors").symlink_to(source)
    before, target = source.read_bytes(), spelled.format(folder=tmp_path, name=tmp_path.name)
    code, _, err = run("quantize", source, "-o", target)
    assert (code, err.count("\n")) == (2, 1) and source.read_bytes() == before
    assert "is read by this run" in err


def test_a_result_does_not_replace_a_file_of_a_folder_that_is_read(tmp_path):
    source = tmp_path / "adapter"
    source.mkdir()
    (source / "a.bin").write_bytes(b"a")
    with pytest.raises(OutputError, match="is read by this run"):
        check_file(source / "a.bin", inputs=(None, source))
    check_file(source / "new.bin", inputs=(source,))
    check_file(tmp_path / "a.bin", inputs=(source, tmp_path / "not there"))


def test_a_write_that_finds_no_room_elsewhere_says_where_to_make_some(run, monkeypatch):
    def full(*_, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gradloom.boards.all_boards", full)
    code, _, err = run("list", "boards")
    assert (code, err.count("\n")) == (2, 1) and err.startswith("gradloom: no room to write (No space left on device)")


@pytest.mark.parametrize(
    "verb",
    [("list", "presets"), ("list", "presets", "--json"), ("list", "units"), ("list", "boards"), ("generate", "--help")],
)
def test_a_reader_who_leaves_ends_it_quietly(verb):
    # The reader's end is closed before the first word.
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "gradloom", *verb], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verb_leaves_the_collector_to_its_process(run, tmp_path):
    """Frozen objects outlive the process's modules, and bindings of other libraries print what they call leaks."""
    before = gc.get_freeze_count()
    assert run("generate", "nf4-decode", "-o", tmp_path / "out")[0] == 0
    assert gc.get_freeze_count() <= before


def test_what_begins_again_is_estimated_from_there(capsys, monkeypatch):
    times = iter([0.0, 100.0, 1000.0, 1001.0])
    monkeypatch.setattr(cli_output, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with cli_output.progress_bar(False) as tell:
        for done in (0, 50, 0, 50):
            tell(done, 100, "judging")
    half, again = (line for line in capsys.readouterr().err.splitlines() if "50 of 100" in line)
    assert half == "judging: 50 of 100, about 2 min left" and again == "judging: 50 of 100"
