"""What Python asks of a model and a board."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gradloom.options import Options, given
from gradloom.preset import KINDS
from gradloom.workload import Progress, Workload, silent

from .asked import Asked, asked_for
from .results import Callback, Tuned

__all__ = ["answered", "by_option", "finetune", "keyworded", "keywords", "options_of", "tuned"]


def by_option(kinds: Sequence[type[Workload]], verb: str) -> dict[str, list[type[Workload]]]:
    """Kinds that have an option, by its name; those of all kinds first.

    All but ``model``, which the request itself names.
    """
    found: dict[str, list[type[Workload]]] = {}
    able = [kind for kind in kinds if kind.can(verb)]
    for kind in able:
        for name in kind.takes[verb].known():
            if name != "model":
                found.setdefault(name, []).append(kind)
    return dict(sorted(found.items(), key=lambda each: len(each[1]) < len(able)))


def keywords(verb: str) -> Iterator[inspect.Parameter]:
    """A verb's parameters by keyword, with types, None unless given."""
    for name, kinds in by_option(list(KINDS.values()), verb).items():
        types = list(dict.fromkeys(each for kind in kinds for each in kind.takes[verb].types()[name]))
        union = functools.reduce(operator.or_, (*types[1:], type(None)), types[0])
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=union)


def keyworded(verb: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a function that ends in keywords a full signature.

    It is the one that the kinds of workloads have.
    """

    def full(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function)
        kept = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*kept, *keywords(verb)])  # type: ignore[attr-defined]
        return function

    return full


@keyworded("finetune")
def finetune(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    output: Path | str = "finetune",
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Tuned:
    """Fine-tunes adapters and writes the results to ``output``.

    They are ``metrics.json``, the adapter, ``loss.png`` and ``report.html``.

    Parameters
    ----------
    model : str
        A preset's name; or a shipped model's, a file or a folder, whose preset is found:
        :func:`~gradloom.systems.asked.asked_for`.
    request : Options, optional
        Options as the dataclass of the preset's workload (:class:`gradloom.ImageOptions`, ...), or, in place of it,
        each by its name.
    board : str, optional
        Board of the preset, where several have one for the model.
    output : path
        Folder of the results.
    progress : callable, optional
        ``progress(done, total, text)``; a ``total`` of 0 is not known.
    callbacks : sequence of callable
        Each gets a :class:`gradloom.Step` for each step and for each score of what is held out, as they come; those of
        an image machine's program, which makes all steps, when the reference makes them.

    Returns
    -------
    Tuned
        Losses, scores, cycles; as a mapping what ``metrics.json`` holds. ``diverged`` has the reasons if it did.

    Raises
    ------
    ValueError
        The request: field, value, bound. Nothing is written.
    gradloom.sim.run.counted.MismatchError
        Simulated RTL differs from its reference.
    """
    given = options if request is None else vars(request)
    asked = asked_for(model, board=board, method=given.get("method"), given=given)
    return Tuned.of(
        Path(output), tuned(asked, request, output=output, progress=progress, callbacks=callbacks, **options)
    )


def answered(
    verb: str, asked: Asked, request: Options | None = None, *, progress: Progress | None = None, **options: Any
) -> Any:
    """What a kind of workload answers to a verb, of a preset that is found.

    Its type is that of the verb: see :mod:`gradloom.systems.results`.
    """
    made = options_of(verb, asked, request, options)
    preset = asked.preset
    if asked.elsewhere and not preset.workload.anywhere:
        what = preset.workload.title.partition(" by ")[0]
        raise ValueError(f"board={asked.board}: no preset fine-tunes {what} on it; must be {preset.board}")
    made.check()
    return preset.workload.function(verb)(asked, made, progress or silent)


def tuned(
    asked: Asked,
    request: Options | None = None,
    *,
    output: Path | str,
    verb: str = "finetune",
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> dict[str, Any]:
    """As :func:`finetune`, with a preset that is found; returns what ``metrics.json`` holds.

    The verb ``card`` writes a memory card.
    """
    made = options_of(verb, asked, request, options)
    from .driver import finetune as run

    result: dict[str, Any] = run(asked.preset, made, output=output, verb=verb, progress=progress, callbacks=callbacks)
    return result


def options_of(verb: str, asked: Asked, request: Options | None, options: dict[str, Any]) -> Options:
    """The options of a request, with the model that is asked for."""
    known, name, workload = given(options), asked.preset.name, asked.preset.workload
    takes = workload.takes[verb]
    if asked.why is not None:
        # It has told the preset and is no option of it.
        if "method" not in takes.known() and known.get("method") in workload.methods:
            del known["method"]
        if asked.model is not None:
            if "model" not in takes.known():
                raise ValueError(f"model={asked.name}: must be {workload.ships}, {name} fine-tunes no other")
            known["model"] = asked.model
    if request is None:
        return workload.options(name, known, verb)
    if not isinstance(request, takes):
        raise ValueError(f"request={type(request).__name__}: must be {takes.__name__} for {name}")
    if known:
        raise ValueError(f"{next(iter(known))}: must be within request, which is given")
    return request
