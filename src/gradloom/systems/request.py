"""A fine-tune as Python asks for it."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gradloom.options import Options, given
from gradloom.preset import KINDS
from gradloom.workload import Workload

from .asked import Asked, asked_for

__all__ = ["by_option", "finetune", "keywords", "tuned"]

Progress = Callable[[int, int, str], None]


def by_option(kinds: Sequence[type[Workload]]) -> dict[str, list[type[Workload]]]:
    """Kinds that have an option, by its name; those of all kinds first."""
    found: dict[str, list[type[Workload]]] = {}
    for kind in kinds:
        for name in kind.takes.known():
            found.setdefault(name, []).append(kind)
    return dict(sorted(found.items(), key=lambda each: len(each[1]) < len(kinds)))


def keywords() -> Iterator[inspect.Parameter]:
    """Parameters by keyword, with types, None unless given."""
    for name, kinds in by_option(list(KINDS.values())).items():
        types = kinds[0].takes.types()[name]
        union = functools.reduce(operator.or_, (*types[1:], type(None)), types[0])
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=union)


def _keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function that ends in keywords a full signature.

    It is the one that the kinds of workloads have.
    """
    own = inspect.signature(function)
    kept = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*kept, *keywords()])  # type: ignore[attr-defined]
    return function


@_keywords
def finetune(
    preset: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    output: Path | str = "finetune",
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fine-tunes adapters and writes the results to ``output``.

    They are ``metrics.json``, the adapter and ``loss.png``.

    Parameters
    ----------
    preset : str
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

    Returns
    -------
    dict
        What ``metrics.json`` holds; its ``units`` name the unit of each entry. ``diverged`` has the reasons if the
        fine-tune diverged.

    Raises
    ------
    ValueError
        The request: field, value, bound. Nothing is written.
    gradloom.sim.run.counted.MismatchError
        Simulated RTL differs from its reference.
    """
    method = getattr(request, "method", options.get("method"))
    asked = asked_for(preset, board=board, method=method)
    return tuned(asked, request, output=output, progress=progress, **options)


def tuned(
    asked: Asked,
    request: Options | None = None,
    *,
    output: Path | str,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """As :func:`finetune`, with a preset that is found."""
    known = given(options)
    name, workload = asked.preset.name, asked.preset.workload
    if not workload.can("prepare"):
        raise ValueError(f"preset={name}: answers and does not learn; gradloom infer {name} runs it")
    if asked.why is not None:
        if "model" in known:
            raise ValueError(f"model={known['model']}: must be left out, {asked.name} is the model")
        # It has told the preset and is no option of it.
        if "method" not in workload.takes.known() and known.get("method") in workload.methods:
            del known["method"]
        if asked.model is not None:
            known["model"] = asked.model
    if request is None:
        request = workload.options(name, known)
    elif not isinstance(request, workload.takes):
        raise ValueError(f"request={type(request).__name__}: must be {workload.takes.__name__} for {name}")
    elif known:
        raise ValueError(f"{next(iter(known))}: must be within request, which is given")
    from .driver import finetune as run

    result: dict[str, Any] = run(asked.preset, request, output=output, progress=progress)
    return result
