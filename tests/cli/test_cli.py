"""The command line: figures where asked for, one message where something is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gradloom.cli.main import main


@pytest.mark.parametrize("verb", ["list presets", "list boards", "list units", "doctor"])
def test_lists_are_json(run, verb):
    code, out, _ = run(*verb.split(), "--json")
    listed = json.loads(out)
    assert code == 0 and isinstance(listed, list) and listed


def test_presets_have_name_board_and_summary(run):
    _, out, _ = run("list", "presets", "--json")
    assert all(set(each) == {"name", "board", "summary", "origin"} for each in json.loads(out))


def test_tables_show_what_json_says(run):
    assert "kv260" in run("list", "boards")[1]
    assert "instantft-kv260" in run("list", "presets")[1]


def test_doctor_says_how_to_get_what_is_missing(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, out, _ = run("doctor", "--json")
    tools = {tool["tool"]: tool for tool in json.loads(out)}
    assert code == 0
    assert tools["vivado"]["version"] == "missing" and tools["vivado"]["get"]
    assert tools["python"]["found"]


BAD = {
    "an unknown verb": (("dance",), "dance"),
    "an unknown option": (("list", "presets", "--colour"), "--colour"),
    "an unknown preset": (("generate", "instantft-moon", "-o", "out"), "instantft-moon"),
    "a model that is no file": (("generate", "nowhere.onnx", "-o", "out"), "nowhere.onnx: is no file, no preset"),
    "a key that is no file": (
        ("generate", "lenet5", "-o", "out", "--trust", "nowhere"),
        "trust=nowhere: cannot be read",
    ),
    "an unknown key of a preset": (("generate", "instantft-kv260", "-o", "out", "--set", "rowz=3"), "rowz"),
    "a word for a number": (("generate", "instantft-kv260", "-o", "out", "--set", "rows=x"), "rows=x"),
    "a value out of bounds": (("generate", "instantft-kv260", "-o", "out", "--set", "rank=900"), "rank=900"),
    "forwards where no port takes them": (
        ("generate", "instantft-kv260", "-o", "out", "--set", "forwards=2"),
        "forwards=2: must be 0",
    ),
    "a setting that is none": (("generate", "mesh", "-o", "out", "--set", "rows"), "KEY=VALUE"),
    "a setting made twice": (("generate", "mesh", "-o", "out", "--set", "rows=2", "--set", "rows=3"), "rows"),
    "an unknown key of a unit": (("generate", "optimizer", "-o", "out", "--set", "size=3"), "size"),
    "a unit's value out of bounds": (("generate", "optimizer", "-o", "out", "--set", "lanes=0"), "lanes=0"),
    "an unknown word": (("generate", "optimizer", "-o", "out", "--set", "rounding=up"), "nearest-even"),
    "an unknown unit": (("run", "toaster", "--describe"), "toaster"),
    "a unit without input": (("run", "optimizer"), "--input"),
    "an input that is not there": (("run", "optimizer", "--input", "a", "--output", "b"), "no such file"),
    "an unknown simulator": (("run", "optimizer", "--simulator", "slate"), "slate"),
    "an unknown preset to tune": (("finetune", "nope"), "nope"),
    "a rate of nothing": (("finetune", "instantft-kv260", "--lr", "0"), "lr=0"),
    "a rate that is no number": (("finetune", "instantft-kv260", "--lr", "nan"), "lr=nan"),
    "a rank above the array's": (("finetune", "instantft-kv260", "--rank", "17"), "rank=17: must be from 1 to 16"),
    "an angle without end": (("finetune", "instantft-kv260", "--angle", "inf"), "angle=inf"),
    "no epochs": (("finetune", "instantft-kv260", "--epochs", "0"), "epochs=0: must be from 1 to 10000"),
    "a rank above all": (("finetune", "instantft-kv260", "--rank", "99"), "rank=99: must be from 1 to 16"),
    "a model that is not there": (("finetune", "m.onnx", "--board", "kv260"), "m.onnx"),
    "a design that is not there": (
        ("finetune", "instantft-kv260", "--engine", "float", "--design", "d"),
        "design=d: has no report.json",
    ),
    "labels of a design that is not there": (
        ("infer", "instantft-kv260", "--design", "d"),
        "design=d: has no report.json",
    ),
    "Verilog that is not there": (("finetune", "instantft-kv260", "--design", "d"), "design=d: has no report.json"),
    "a clock that stands": (("generate", "instantft-kv260", "-o", "out", "--set", "clock_mhz=0"), "clock_mhz=0"),
    "labels to no .npz": (("infer", "instantft-kv260", "-o", "labels"), "ends in .npz"),
    "labels to a directory": (("infer", "instantft-kv260", "-o", "."), "ends in .npz"),
    "a self-test of nothing": (("selftest", "instantft-kv260", "--design", "d"), "d: has no rtl"),
    "MNIST to a directory": (("fetch", "-o", "."), "ends in .npz"),
    "MNIST to another kind of file": (("fetch", "-o", "mnist.csv"), "output=mnist.csv: must name a file that ends in"),
    "an option's value that is no number": (("monitor", "--baud", "x"), "baud=x: must be an integer"),
    "an option's value out of bounds": (("compare", "--rank", "17"), "rank=17: must be at most 16"),
    "an option below its bound": (("sweep", "p", "-o", "out", "--limit", "0"), "limit=0: must be at least 1"),
    "an option among others": (("run", "mesh", "--simulator", "q"), "q: must be one of verilator, icarus, amaranth"),
    "an option without a value": (("finetune", "digits-ulx3s", "--lr"), "--lr: needs a value"),
    "an option that takes no value": (("list", "presets", "--json=3"), "--json: takes no value"),
    "an option that must be given": (("generate", "mesh"), "output: must be given; see gradloom generate --help"),
    "an argument that must be given": (("report",), "DIR: must be given; see gradloom report --help"),
    "an option that is almost right": (
        ("list", "presets", "--jsn"),
        "no such option of gradloom list presets, there is --json",
    ),
    "an option that is a verb": (("list", "presets", "--card"), "list presets, but a verb: gradloom card --help"),
    "a memory port of 3 bits": (("plan", "smollm2-135m", "--axi-bits", "3"), "axi_bits=3: must be one of 32, 64"),
    "a report of nothing": (("report", "nowhere"), "report.json"),
    "a share of nothing": (("report", "nowhere", "--max-share", "slices=3"), "RESOURCE=PERCENT"),
    "a share that is none": (("report", "nowhere", "--max-share", "dsp=most"), "RESOURCE=PERCENT"),
    "an unknown board": (("build", "zx81", "."), "zx81"),
    "a build of nothing": (("build", "kv260", "nowhere"), "nowhere"),
    "a card of nothing": (("card", "write", "nowhere", "-o", "card.img"), "model=nowhere: is no file"),
    "a port that is not there": (("monitor", "--port", "no-port"), "port=no-port: no such port"),
    "a port that is a directory": (("monitor", "--port", "."), "port=.: "),
    "a monitor at no rate": (("monitor", "--port", "p", "--baud", "0"), "baud=0: must be from 300 to 4000000"),
    "repeats without a board": (("energy", "instantft-kv260", "--repeats", "100"), "repeats=100: must be left out"),
    "a rate without a port": (("card", "rollback", "--card", "c.img", "--baud", "9600"), "baud=9600: must be left out"),
    "a rate of a file": (
        ("card", "collect", "--card", "c", "--baud", "115200", "-o", "d"),
        "baud=115200: must be left out",
    ),
    "a run that only describes": (
        ("run", "mesh", "--describe", "--simulator", "verilator"),
        "simulator=verilator: must be left out with --describe",
    ),
    "a flash of nothing": (("flash", "kv260", "nowhere"), "nowhere"),
    "a file to quantise that is not there": (("quantize", "no.npz", "-o", "out.safetensors"), "no.npz"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_wrong_request_is_one_message_and_leaves_nothing(run, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, named = BAD[case]
    code, out, err = run(*arguments)
    assert code == 2
    assert named in err and err.startswith("gradloom: ") and err.count("\n") == 1 and "internal" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_results_go_is_refused_before_the_long_part(run, tmp_path):
    (tmp_path / "out").write_text("mine")
    code, _, err = run("finetune", "instantft-kv260", "--engine", "reference", "-o", tmp_path / "out")
    assert code == 2 and "is a file" in err and (tmp_path / "out").read_text() == "mine"


def test_a_layer_without_a_name_is_named_as_its_adapter_is():
    from gradloom.models.network import DenseLayer, LayerNetwork
    from gradloom.rtl.machines.configs.images import ImageConfig
    from gradloom.systems.images.program.lowering import lower

    layer = DenseLayer(weight=np.full((10, 784), 100.0), bias=np.zeros(10))
    with pytest.raises(ValueError, match="^fc1: weight of 100"):
        lower(LayerNetwork(name="mine", input_shape=(1, 28, 28), layers=(layer,)), ImageConfig(), 4)


def test_a_fault_of_ours_is_a_line_and_a_trace_on_request(run, monkeypatch):
    import gradloom.cli.lists as verbs

    monkeypatch.setattr(verbs, "presets", lambda: 1 / 0)
    code, _, err = run("list", "presets")
    assert code == 1 and "internal error: ZeroDivisionError" in err and err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        main(["list", "presets", "--traceback"])


def test_an_interrupt_is_no_fault(run, monkeypatch):
    import gradloom.cli.lists as verbs

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs, "presets", interrupted)
    code, out, err = run("list", "presets")
    assert (code, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize("bounds, code", [(("dsp=85", "lut=25"), 0), (("dsp=84.9",), 3), (("lut=25", "bits=30"), 3)])
def test_a_report_fails_where_more_is_taken_than_is_allowed(run, monkeypatch, bounds, code):
    share = {"lut": 24.5, "ff": 20.0, "dsp": 85.0, "bram36": 39.9, "uram": 0.0, "bits": 39.9}
    monkeypatch.setattr(
        "gradloom.cli.design.designs.report", lambda directory, *, board, unit: {"share": share, "levels": 13}
    )
    found, out, _ = run("report", "design", "--json", *(part for each in bounds for part in ("--max-share", each)))
    assert found == code and json.loads(out)["share"] == share


def test_without_a_verb_the_verbs_are_shown(run):
    code, out, err = run()
    assert code == 2 and "Usage: gradloom" in out and "finetune" in out and not err.strip()


def test_the_installed_command_answers():
    done = subprocess.run(
        [sys.executable, "-m", "gradloom", "list", "boards", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)[0]["name"]


def test_a_reader_that_leaves_is_no_fault():
    done = subprocess.run(
        f"{sys.executable} -m gradloom list units --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize(
    "verb", [("list", "presets"), ("list", "boards"), ("doctor",), ("run", "mesh", "--describe")], ids=" ".join
)
def test_tables_break_no_word(run, monkeypatch, verb, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(*verb)
    assert max(map(len, out.splitlines())) <= width
    told = json.loads(run(*verb, "--json")[1])
    rows = told if isinstance(told, list) else told["inputs"] + told["outputs"] + told["parameters"]
    shown = set(out.split())
    words = {
        word
        for row in rows
        for name, value in row.items()
        if name in shown and isinstance(value, str)
        for word in value.split()
    }
    assert len(words) > 20 and not words - shown


def test_many_columns_go_into_several_tables(monkeypatch, capsys):
    """The first column leads each; only what is wider than the terminal is broken."""
    from gradloom.cli.output import table

    monkeypatch.setenv("COLUMNS", "40")
    table(
        [{"name": "abc", **{f"column{n}": 10**9 + n for n in range(6)}, "text": "y" * 60}],
        ("name", *(f"column{n}" for n in range(6)), "text"),
        False,
        title="a title",
    )
    out = capsys.readouterr().out
    assert out.startswith("a title\n") and max(map(len, out.splitlines())) <= 40
    assert out.count("abc") == 4 and all(f"1,000,000,00{n}" in out for n in range(6)) and out.count("y") == 60


def test_no_silence_is_long(monkeypatch, capsys):
    """A dot after each silence, and the text of a verb that had said nothing; nothing of what is quick, nor of JSON."""
    import time

    from gradloom.cli import output as cli_output

    monkeypatch.setattr(cli_output._Pulse, "seconds", 0.2)
    with cli_output.progress_bar(quiet=False) as progress:
        progress(0, 0, "first")
        time.sleep(0.7)
        progress(1, 2, "second")
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[2:]) == ("first", ["second: 1 of 2"]) and 2 <= len(lines[1]) == lines[1].count(".")
    clock = iter([0.0, 60.0, 90.0])
    monkeypatch.setattr(cli_output.time, "monotonic", lambda: next(clock))
    with cli_output.progress_bar(quiet=False) as progress:
        for done in (0, 2, 9):
            progress(done, 10, "costs")
    monkeypatch.undo()
    monkeypatch.setattr(cli_output._Pulse, "seconds", 0.2)
    assert capsys.readouterr().err.splitlines() == [
        "costs: 0 of 10",
        "costs: 2 of 10, about 4 min left",
        "costs: 9 of 10, about 10 s left",
    ]
    with cli_output.working("weaving", quiet=False):
        time.sleep(0.5)
    assert capsys.readouterr().err.startswith("weaving")
    with cli_output.working("weaving", quiet=False):
        pass
    with cli_output.working("weaving", quiet=True):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "verb",
    [
        ("generate", "mesh", "-o", "d"),
        ("report", "d"),
        ("compare", "--limit", "20"),
        ("run", "mesh", "--input", "i.npz", "--output", "o.npz"),
        ("plan", "smollm2-135m"),
    ],
    ids=lambda verb: verb[0],
)
def test_verbs_that_may_take_long_say_that_they_work(run, monkeypatch, tmp_path, verb):
    """Whatever the verb then says: its part of the work is inside."""
    import contextlib

    from gradloom.cli.main import _VERBS as MODULES

    class Entered(ValueError):
        pass

    @contextlib.contextmanager
    def working(text, quiet):
        raise Entered(f"entered: {text}")
        yield

    monkeypatch.chdir(tmp_path)
    for module in MODULES:
        monkeypatch.setattr(module, "working", working, raising=False)
    code, _, err = run(*verb)
    assert code == 2 and "entered: " in err


def test_the_first_line_stands_alone_behind_a_silence(capsys, monkeypatch):
    import time

    from gradloom.cli import output as cli_output

    monkeypatch.setattr(cli_output._Pulse, "seconds", 0.05)
    with cli_output.progress_bar(False, "a preset was found") as tell:
        time.sleep(0.2)
        tell(0, 1, "steps")
    first, second, third, *_ = capsys.readouterr().err.splitlines()
    assert (first.strip("."), second, third) == ("", "a preset was found", "steps: 0 of 1")
