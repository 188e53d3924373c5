"""The command line: figures where asked for, one message where something is wrong."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import typer

from gradloom.cli.app import PANELS
from gradloom.cli.main import app, main
from gradloom.cli.on_board import TUNING
from gradloom.preset import KINDS
from gradloom.rtl.catalog import UNITS
from gradloom.sim.units.adapters import ADAPTERS

from ..deep import deep

ROOT = typer.main.get_command(app)
#: Every verb, with its group.
VERBS = sorted(
    (name, *rest)
    for name, command in ROOT.commands.items()
    for rest in ([(inner,) for inner in command.commands] if hasattr(command, "commands") else [()])
)


def command(verb):
    found = ROOT
    for word in verb:
        found = found.commands[word]
    return found


def test_the_verbs_are_those_of_the_manual():
    assert [" ".join(verb) for verb in VERBS] == [
        "build",
        "card collect",
        "card install",
        "card rollback",
        "card write",
        "choose",
        "compare",
        "doctor",
        "energy",
        "export",
        "fetch",
        "finetune",
        "flash",
        "generate",
        "import",
        "infer",
        "list boards",
        "list presets",
        "list units",
        "merge",
        "monitor",
        "pack",
        "package apply",
        "package average",
        "package keys",
        "package sign",
        "plan",
        "quantize",
        "report",
        "run",
        "selftest",
        "sweep",
    ]


def test_every_verb_stands_in_a_panel(run):
    """Help has the verbs by what they are for, the most used first."""
    assert {verb[0] for verb in VERBS} == {name for names in PANELS.values() for name in names}
    _, out, _ = run("--help")
    places = [out.index(f"─ {title} ─") for title in PANELS]
    assert places == sorted(places) and out.index(" finetune ") < out.index(" plan ") < out.index(" infer ")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example(run, verb):
    code, out, _ = run(*verb, "--help")
    assert code == 0 and "Example: gradloom " + " ".join(verb) in " ".join(out.split())


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_loses_no_word_to_marks_of_style(verb):
    """rich reads square brackets as marks, and leaves them out."""
    for option in command(verb).params:
        assert not {"[", "]"} & set(option.help or ""), option.name


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_workloads_lose_no_word_either(kind):
    for takes in KINDS[kind].takes.values():
        for name, option in takes.known().items():
            assert not {"[", "]"} & set(option.help), name


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_breaks_its_lines_between_sentences_only(verb):
    """A paragraph of two lines would be broken at the end of the docstring's line, too."""
    for line in inspect.cleandoc(command(verb).help).splitlines():
        assert not line or line.endswith((".", ":")), line


@pytest.mark.parametrize(
    "verb, model, has, lacks",
    [
        ("finetune", None, ("--lr", "--data", "--rank"), ("--momentum", "--seq", "Or:")),
        ("finetune", "lenet5", ("--epochs", "--angle"), ("--seq", "Or:")),
        ("finetune", "smollm2-135m", ("--seq", "--targets"), ("--angle", "--store-steps", "Or:")),
        ("infer", "spar-lstm", ("--stream",), ("--angle",)),
        ("infer", "smollm2-135m", ("--prompt", "--port"), ("--stream",)),
        ("infer", "digits-unet", ("--count",), ("--tokens",)),
        ("plan", "tinyllama-1.1b", ("--axi-bits",), ("--known-prompt",)),
        ("choose", "lenet5", ("--memory",), ("--seq",)),
    ],
)
def test_help_of_a_model_has_the_options_of_its_system(run, verb, model, has, lacks):
    _, out, _ = run(verb, *([model] if model else []), "--help")
    assert all(each in out for each in has) and not any(each in out for each in lacks)


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
    "an unknown key of a preset": (("generate", "instantft-kv260", "-o", "out", "--set", "rowz=3"), "rowz"),
    "a word for a number": (("generate", "instantft-kv260", "-o", "out", "--set", "rows=x"), "rows=x"),
    "a value out of bounds": (("generate", "instantft-kv260", "-o", "out", "--set", "rank=900"), "rank=900"),
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
    from gradloom.models.network import Dense, Network
    from gradloom.rtl.machines.configs.images import ImageConfig
    from gradloom.systems.images.program.lowering import lower

    layer = Dense(weight=np.full((10, 784), 100.0), bias=np.zeros(10))
    with pytest.raises(ValueError, match="^fc1: weight of 100"):
        lower(Network(name="mine", input_shape=(1, 28, 28), layers=(layer,)), ImageConfig(), 4)


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


def test_a_unit_is_generated_with_a_report(run, tmp_path):
    code, out, _ = run("generate", "optimizer", "--set", "lanes=2", "-o", tmp_path / "out", "--json")
    report = json.loads(out)
    assert code == 0 and report["parameters"]["lanes"] == 2 and report["unit"] == "optimizer"
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    ports = {port["name"]: port["width"] for port in report["ports"]}
    assert ports["i_payload"] == 2 * (16 + 27 + 48) and {"clk", "rst", "i_valid", "i_ready"} <= set(ports)


@pytest.mark.parametrize("bounds, code", [(("dsp=85", "lut=25"), 0), (("dsp=84.9",), 3), (("lut=25", "bits=30"), 3)])
def test_a_report_fails_where_more_is_taken_than_is_allowed(run, monkeypatch, bounds, code):
    share = {"lut": 24.5, "ff": 20.0, "dsp": 85.0, "bram36": 39.9, "uram": 0.0, "bits": 39.9}
    monkeypatch.setattr(
        "gradloom.cli.design.designs.report", lambda directory, *, board, unit: {"share": share, "levels": 13}
    )
    found, out, _ = run("report", "design", "--json", *(part for each in bounds for part in ("--max-share", each)))
    assert found == code and json.loads(out)["share"] == share


def test_a_unit_that_is_not_there_yet_is_not_offered():
    for unit in UNITS.values():
        unit.build()


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
def test_bounds_of_a_parameter_hold(unit):
    for parameter in unit.parameters:
        assert parameter.parse(str(parameter.default)) == parameter.default
        if parameter.low is not None:
            with pytest.raises(ValueError, match=f"{parameter.name}={parameter.low - 1}"):
                parameter.parse(str(parameter.low - 1))
        if parameter.high is not None:
            with pytest.raises(ValueError, match=f"{parameter.name}={parameter.high + 1}"):
                parameter.parse(str(parameter.high + 1))


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_unit_equals_its_reference_on_vectors_from_a_file(run, vectors, tmp_path, name, seed):
    arrays = vectors(ADAPTERS[name].inputs(UNITS[name].settings({})), np.random.default_rng(seed))
    np.savez(tmp_path / "in.npz", **arrays)
    code, out, err = run(
        "run",
        name,
        "--input",
        tmp_path / "in.npz",
        "--output",
        tmp_path / "out.npz",
        "--simulator",
        "amaranth",
        "--json",
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["equal"] and result["cycles"] > 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["cycles"] == result["cycles"]
        described = [array.name for array in ADAPTERS[name].outputs(UNITS[name].settings({}))]
        for array in described:
            np.testing.assert_array_equal(found[array], found[f"reference_{array}"])
        figures = {"cycles", "utilisation"} & set(result)
        assert set(found.files) == {*figures, *described, *(f"reference_{each}" for each in described)}


@pytest.mark.parametrize("edge, tiles", [(8, 128), pytest.param(16, 64, marks=deep)])
def test_a_mesh_is_95_percent_busy_in_rtl(run, tmp_path, edge, tiles):
    """As many activation rows in each tile as the mesh has; counted by the simulation, from the first word offered to
    the last result taken."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "in.npz",
        x=rng.integers(-1 << 23, 1 << 23, (tiles, edge, edge)),
        w=rng.integers(-1 << 17, 1 << 17, (tiles, edge, edge)),
    )
    size = ("--set", f"rows={edge}", "--set", f"cols={edge}")
    code, out, _ = run("run", "mesh", *size, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz", "--json")
    result = json.loads(out)
    assert code == 0 and result["equal"] and result["words"] == tiles * edge * edge
    assert result["utilisation"] == tiles * edge / result["cycles"] >= 0.95
    with np.load(tmp_path / "out.npz") as found:
        assert found["utilisation"] == result["utilisation"] and found["cycles"] == result["cycles"]
    assert result["cycles"] == UNITS["mesh"].build(rows=edge, cols=edge).cycles(tiles, edge)


@pytest.mark.parametrize("name", ADAPTERS)
def test_describe_names_every_array(run, name):
    code, out, _ = run("run", name, "--describe", "--json")
    described = json.loads(out)
    assert code == 0 and described["inputs"] and described["outputs"]
    assert all(array["units"] and array["shape"] for array in described["inputs"] + described["outputs"])
    assert run("run", name, "--describe")[0] == 0


@pytest.mark.parametrize(
    ("to", "says"),
    [
        (None, "missing"),
        (np.zeros((2, 4)), "integer"),
        (np.zeros(3, int), "dimensions"),
        (np.zeros((2, 5), int), "must be"),
        (np.zeros((77, 4), int), "beats"),
        (np.full((8, 4), 99999), "-32768 to 32767"),
        (np.zeros((0, 4), int), "empty"),
    ],
    ids=["missing", "float", "dimensions", "lanes", "beats", "bounds", "empty"],
)
def test_an_array_that_does_not_fit_is_named(run, tmp_path, to, says):
    arrays = {"w": to, "v": np.zeros((8, 4), int), "g": np.zeros((8, 4), int)}
    if says == "empty":
        arrays["v"] = arrays["g"] = to
    np.savez(tmp_path / "in.npz", **{name: value for name, value in arrays.items() if value is not None})
    code, _, err = run(
        "run", "optimizer", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz", "--simulator", "amaranth"
    )
    assert code == 2 and says in err and not (tmp_path / "out.npz").exists()


def test_a_truncated_file_is_refused(run, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.arange(1000))
    whole = (tmp_path / "in.npz").read_bytes()
    (tmp_path / "in.npz").write_bytes(whole[: len(whole) // 2])
    code, _, err = run("run", "nf4-encode", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert code == 2 and "is a ZIP archive that is cut short" in err


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


def test_help_imports_nothing_heavy():
    """It is what users wait for first."""
    heavy = ("numpy", "amaranth", "matplotlib", "scipy", "onnx")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['gradloom', '--help']\n"
            "from gradloom.__main__ import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage: gradloom" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_is_a_function_with_types_and_a_contract(verb):
    import operator

    import gradloom

    elsewhere = {("list", "boards"): "boards.all_boards", ("import",): "import_model"}
    words = verb[1:] if verb[0] == "list" else verb
    function = operator.attrgetter(elsewhere.get(verb, ".".join(words)))(gradloom)
    signature = inspect.signature(function)
    assert function.__doc__ and signature.return_annotation is not inspect.Signature.empty
    for name, parameter in signature.parameters.items():
        assert parameter.annotation is not inspect.Parameter.empty, name
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, name
    assert verb in elsewhere or words[0] in gradloom.__all__


@pytest.mark.parametrize("verb", ["finetune", "infer", "plan", "choose"])
def test_options_of_workloads_stand_once(verb):
    """Command line and Python function have those of the kinds of workloads, and nothing beside them."""
    import gradloom
    from gradloom.cli.faces import take

    takes = set().union(*(kind.takes[verb].known() for kind in KINDS.values() if kind.can(verb))) - {"model"}
    own = {"output"} if verb == "finetune" else set()
    there = {"finetune": set(TUNING), "infer": {"host"}}.get(verb, set())
    assert set(inspect.signature(getattr(gradloom, verb)).parameters) == (
        takes | own | {"model", "request", "board", "progress"}
    )
    take([verb, "lenet5"])
    (found,) = (each for each in app.registered_commands if each.name == verb)
    assert set(inspect.signature(found.callback).parameters) == (
        takes | own | there | {"model_name", "board", "as_json"}
    )


def test_options_are_a_dataclass_from_python(tmp_path):
    import gradloom

    request = gradloom.ImageOptions(epochs=1, limit=20, engine="float")
    metrics = gradloom.finetune("digits-ulx3s", request, output=tmp_path / "run")
    assert metrics["request"]["epochs"] == 1 and metrics["request"]["lr"] == 0.07
    for wrong, said in (
        (lambda: gradloom.ImageOptions(epochs="two"), "epochs='two': must be an integer"),
        (lambda: gradloom.finetune("digits-ulx3s", gradloom.QLoraOptions()), "must be ImageOptions for digits"),
        (lambda: gradloom.finetune("digits-ulx3s", request, epochs=2), "epochs: must be within request"),
        (lambda: gradloom.finetune("digits-ulx3s", speed=2), "speed=2: must be left out"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()


@pytest.mark.parametrize(
    "text, bounds",
    [
        ("from 1 to 16", (1, 16)),
        ("from 0 to below 1", (0, 1, False, True)),
        ("above 0 and at most 16", (0, 16, True)),
        ("at least 1", (1,)),
        ("a finite number", ()),
        ("from 0 to 2**63", (0, 1 << 63)),
    ],
)
def test_bounds_are_said_as_they_hold(text, bounds):
    from gradloom.options import Bounds

    made = Bounds(*bounds)
    assert str(made) == text and not made.hold(float("nan")) and not made.hold(float("inf"))
    low, high = (bounds + (None, None))[:2]
    open_low, open_high = (*bounds[2:], False, False)[:2]
    assert low is None or (made.hold(low) != open_low and not made.hold(low - 1))
    assert high is None or (made.hold(high) != open_high and not made.hold(2 * high + 1))


def test_types_for_checkers_are_those_of_the_functions():
    from gradloom.cli.stub import PATH, stub

    assert PATH.read_text(encoding="utf-8") == stub(), "python -m gradloom.cli.stub"
