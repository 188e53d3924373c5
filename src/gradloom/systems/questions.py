"""What Python asks beside a fine-tune: answers, plans, choices."""

from typing import Any

from gradloom.options import Options
from gradloom.workload import Progress

from .asked import asked_for, learnt_by
from .request import answered, keyworded
from .results import Chosen, Inferred, Planned

__all__ = ["choose", "infer", "plan"]


@keyworded("infer")
def infer(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Inferred:
    """Answers of a model: labels, a text, or pictures.

    ``model``, ``request``, ``board`` and ``progress`` are as in :func:`gradloom.finetune`; a model that several boards
    have a preset for is answered by the first.

    Returns
    -------
    Inferred
        Of images and sequences ``labels``, and ``accuracy`` (a share) where labels are given; of a recurrent network
        also what :func:`gradloom.systems.sequences.answers.infer` tells. Of a language model ``text`` and ``tokens``
        (their numbers); of a board that answers also ``waited`` and ``cycles``, the most cycles of a token. Of a
        diffusion model what was asked, its pictures are in ``output``.
    """
    asked = asked_for(model, board=board, method=learnt_by(options.get("adapter")), verb="infer", given=options)
    found: Inferred = answered("infer", asked, request, progress=progress, **options)
    return found


@keyworded("plan")
def plan(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Planned:
    """Memory, traffic and time of a fine-tune on a board.

    ``model``, ``request`` and ``board`` are as in :func:`gradloom.finetune`; a language model is planned for a board
    without a preset, too. What :class:`gradloom.Planned` holds is told where it is made:
    :func:`gradloom.systems.text.costs.plan.plan`, :func:`gradloom.systems.diffusion.plan.plan`,
    :func:`gradloom.systems.images.expectation.plan`.
    """
    asked = asked_for(model, board=board, method=options.get("method"), verb="plan", any_board=True, given=options)
    found: Planned = answered("plan", asked, request, progress=progress, **options)
    return found


@keyworded("choose")
def choose(
    model: str,
    request: Options | None = None,
    *,
    board: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Chosen:
    """Chooses what learns, within budgets of time, memory and update.

    A candidate on text has layers, targets, rank, stored format, windows and accumulation, and costs of all candidates
    are composed of forecasts of small programs. One on images has a rank, a forward cache and epochs, one on a network
    a method, layers, rank and epochs, and costs are forecasts of whole programs. What at most five of them learn comes
    from short runs in floating point on the user's own data, of which a fifth is held out. ``model``, ``request`` and
    ``board`` are as in :func:`gradloom.finetune`.

    Returns
    -------
    Chosen
        ``command``, ``finalists`` (the chosen one first; ``held_out``: loss after ``short_steps``, nats a token, or
        after ``short_epochs``, of a sample), ``held_out_before``, and ``offers``: what each candidate costs.

    Raises
    ------
    ValueError
        The request: field, value, bound; or a budget that no candidate meets, with the nearest that does.
    """
    asked = asked_for(model, board=board, verb="choose", given=options)
    found: Chosen = answered("choose", asked, request, progress=progress, **options)
    return found
