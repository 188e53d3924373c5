"""Every verb: its panel, help and options, and the function that it is from Python."""

import inspect
import subprocess
import sys

import pytest
import typer

from gradloom.cli.app import PANELS
from gradloom.cli.arguments import usual_option
from gradloom.cli.main import app
from gradloom.cli.on_board import TUNING
from gradloom.preset import KINDS

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
def test_a_flag_is_off_unless_it_is_given(verb):
    flags = [each for each in command(verb).params if getattr(each, "is_flag", False)]
    assert not [each.name for each in flags if each.default], verb


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
    there = {"finetune": set(TUNING), "infer": {"host", "job"}}.get(verb, set())
    heard = {"callbacks"} if verb == "finetune" else set()
    assert set(inspect.signature(getattr(gradloom, verb)).parameters) == (
        takes | own | heard | {"model", "request", "board", "progress"}
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


def test_types_for_checkers_are_those_of_the_functions():
    from gradloom.cli.stub import PATH, stub

    assert PATH.read_text(encoding="utf-8") == stub(), "python -m gradloom.cli.stub"
    assert "Any" not in stub(), "a verb's result has a type of its own"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_what_is_said_by_a_word_alone_is_off_unless_it_is_said(verb):
    """``--json`` above all: people read a table unless they ask for JSON."""
    flags = [each for each in command(verb).params if getattr(each, "is_flag", False) and each.name != "help"]
    assert all(each.default is not True or each.secondary_opts for each in flags)
    assert all(not each.default for each in flags if "--json" in each.opts)


def test_an_option_tells_its_usual_value():
    assert usual_option("--x", usual="the run's").show_default == "the run's"
