"""Verbs whose options follow from the model that is named."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.preset import KNOWN, PRESETS, Preset
from gradloom.systems.asked import asked_for, learnt_by
from gradloom.systems.request import by_option
from gradloom.workload import Workload

from .arguments import Json

__all__ = ["FOLDER", "face", "more", "take"]

Presets = Mapping[str, Preset]
Verb = Callable[..., None]

_MODEL = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A preset, a shipped model, a file or a folder; see gradloom list presets."),
]
_BOARD = Annotated[str | None, typer.Option(metavar="BOARD", help="Board, where several have a preset for the model.")]
#: Folder of results.
FOLDER = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")]

#: What is said of an option of all systems, of which each says more.
_COMMON = {"data": "What to learn from.", "adapter": "Output folder of a fine-tune."}


class _Face:
    """A verb, and what makes its options.

    Parameters
    ----------
    words : sequence of str
        The verb on the command line, its group first.
    verb : str
        Its name among those of workloads.
    function : callable
        Gets ``model_name``, ``board``, ``as_json`` and all options by keyword.
    own : mapping
        Annotation and default of options that no workload has.
    """

    def __init__(self, words: Sequence[str], verb: str, function: Verb, own: Mapping[str, tuple[Any, Any]]) -> None:
        self.words, self.verb, self.function, self.own = list(words), verb, function, own
        self.sign([])

    def sign(self, options: Sequence[inspect.Parameter]) -> None:
        """Gives the function a signature with ``options``."""
        keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        self.function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("model_name", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=_MODEL),
                keyword("board", default=None, annotation=_BOARD),
                *(keyword(name, default=usual, annotation=kind) for name, (kind, usual) in self.own.items()),
                *(each for each in options if each.name not in self.own),
                keyword("as_json", default=False, annotation=Json),
            ]
        )

    def take(self, arguments: Sequence[str]) -> None:
        """Gives the verb the options that a command line may have.

        Its help has those of the system whose model is named, and without one those of all systems. Plug-ins are
        imported where ``arguments`` name them, or for help without a model.
        """
        helps = "--help" in arguments
        asked = self._asked(arguments) if helps else None
        if asked is not None:
            self.sign(list(_parameters({asked.name: asked}, self.verb)))
            return
        named = {name: KNOWN[name] for name in KNOWN if name not in PRESETS and (helps or name in arguments)}
        presets = {name: preset for name, preset in {**PRESETS, **named}.items() if preset.workload.can(self.verb)}
        self.sign(list(_parameters(presets, self.verb, common=helps)))

    def _asked(self, arguments: Sequence[str]) -> Preset | None:
        """The preset that a command line names, if it names one."""
        if not arguments or arguments[0].startswith("-"):
            return None
        given = dict(zip(arguments, arguments[1:]))
        method = given.get("--method") or learnt_by(given.get("--adapter"))
        try:
            return asked_for(
                arguments[0], board=given.get("--board"), method=method, verb=self.verb, any_board=True
            ).preset
        except ValueError:
            return None


_FACES: list[_Face] = []


def face(*words: str, verb: str | None = None, **own: tuple[Any, Any]) -> Callable[[Verb], Verb]:
    """Makes a function a verb whose options are those of workloads.

    It has ``model_name``, ``board``, ``as_json``, ``own`` options as annotation and default, and further keywords.
    """

    def made(function: Verb) -> Verb:
        _FACES.append(_Face(words, verb or words[-1], function, own))
        return function

    return made


def take(arguments: Sequence[str]) -> None:
    """Gives the verb that a command line begins with its options."""
    for each in _FACES:
        count = len(each.words)
        if list(arguments[:count]) == each.words:
            each.take(arguments[count:])


def more(*words: str) -> str:
    """The last line of the help of such a verb."""
    return f"gradloom {' '.join(words)} MODEL --help shows the options of the model's system."


def _parameters(presets: Presets, verb: str, *, common: bool = False) -> Iterator[inspect.Parameter]:
    """Options as parameters by keyword, None unless given.

    ``common``: those alone that all kinds of the presets' workloads have.
    """
    kinds = list(dict.fromkeys(type(preset.workload) for preset in presets.values()))
    for name, having in by_option(kinds, verb).items():
        if common and len(having) < len(kinds):
            continue
        types = having[0].takes[verb].types()[name]
        flag = types[0] is bool
        plain: Any = bool if flag else types[0] | None
        annotation: Any = Annotated[plain, _option(presets, name, having, verb, flag)]
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if flag else None, annotation=annotation
        )


def _option(presets: Presets, name: str, kinds: list[type[Workload]], verb: str, flag: bool) -> Any:
    known = [kind.takes[verb].known()[name] for kind in kinds]
    first, alike = known[0], len({each.help for each in known}) == 1
    metavar = first.metavar if len({each.metavar for each in known}) == 1 else None
    metavar = metavar or ("|".join(map(str, first.choices)) or None)
    text = first.help if alike else _COMMON.get(name, first.help)
    bounds = {f"{each.bounds}" if each.bounds is not None else "" for each in known}
    if len(bounds) == 1 and (limits := bounds.pop()) and first.bounds is not None and first.bounds.low is not None:
        text += "" if first.bounds.high == 1 << 63 else f" ({limits})"
    usual = {
        preset.workload.usual(name, verb) for preset in presets.values() if name in preset.workload.takes[verb].known()
    }
    flags = ["-o", "--output"] if name == "output" else [f"--{name.replace('_', '-')}"] if flag else []
    return typer.Option(
        *flags,
        metavar=None if flag else metavar,
        help=text,
        show_default=False if flag else (usual.pop() if len(usual) == 1 else None) or False,
    )
