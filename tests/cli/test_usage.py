"""What is wrong with the words of a command line, as typer and pydantic tell it by attributes of their errors."""

from types import SimpleNamespace

import pytest

from gradloom.cli.usage import one_line


class Told(Exception):
    """An error with attributes, and what caused it."""

    def __init__(self, cause=None, **told):
        super().__init__()
        self.__dict__.update(told)
        if cause is not None:
            self.__cause__ = ValueError()
            self.__cause__.errors = lambda: [cause]


#: A verb ``gradloom tune``, whose program has the verbs ``tune`` and ``plan``.
CONTEXT = SimpleNamespace(
    command_path="gradloom tune",
    find_root=lambda: SimpleNamespace(command=SimpleNamespace(commands={"tune": None, "plan": None})),
)


def option(*names, metavar=None, name="x"):
    return SimpleNamespace(opts=list(names), metavar=metavar, name=name)


def pydantic(kind="greater_than", given="7", **bound):
    return {"type": kind, "input": given, "ctx": bound}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Told(), None),
        (Told(message=""), None),
        (Told(message="Missing command."), "missing command"),
        (Told(message="A\n  b c.", ctx=CONTEXT), "a b c"),
        (Told(param=option("-l", "--low-rate"), message=""), "low_rate: must be given"),
        (Told(param=option("MODEL", metavar="MODEL"), message=""), "MODEL: must be given"),
        (Told(param=option("model", name="model"), message="No."), "model: No."),
        *(
            (Told(pydantic(**{key: 3}), param=option("--rank"), message="m"), f"rank=7: must be {words} 3")
            for key, words in (("ge", "at least"), ("le", "at most"), ("gt", "above"), ("lt", "below"))
        ),
        (Told(pydantic("int_parsing", "x"), param=option("--rank"), message="m"), "rank=x: must be an integer"),
        (Told(pydantic("float_parsing", "x"), param=option("--lr"), message="m"), "lr=x: must be a number"),
        (
            Told(pydantic("enum", "x"), param=option("--kind"), message="'x' is not one of 'a', 'b'."),
            "kind=x: must be one of a, b",
        ),
        (Told(pydantic("odd", "x"), param=option("--kind"), message="Odd."), "kind=x: must be Odd."),
        (Told(option_name="--lr", message="Option requires an argument.", ctx=CONTEXT), "--lr: needs a value"),
        (Told(option_name="--lr", message="It does not take a value.", ctx=CONTEXT), "--lr: takes no value"),
        (Told(option_name="--x", message="No", ctx=CONTEXT), "--x: no such option of gradloom tune"),
        (
            Told(option_name="--x", message="No", ctx=CONTEXT, possibilities=["--y", "--a"]),
            "--x: no such option of gradloom tune, there is --a, --y",
        ),
        (
            Told(option_name="--plan", message="No", ctx=CONTEXT),
            "--plan: no such option of gradloom tune, but a verb: gradloom plan --help",
        ),
    ],
)
def test_an_error_is_one_line_and_says_where_to_look(error, said):
    path = "gradloom tune" if hasattr(error, "ctx") else "gradloom"
    assert one_line(error) == (None if said is None else f"{said}; see {path} --help")
