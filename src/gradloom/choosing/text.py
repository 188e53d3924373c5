"""Chooses a fine-tune by costs of all candidates and runs of a few.

Nothing is known beforehand of what a candidate learns: no table is stored, the user's own text decides.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from gradloom import __version__
from gradloom.firmware.steps import MAX_STEPS
from gradloom.models.files.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.tokenizer import open_tokenizer
from gradloom.models.language import LanguageModel
from gradloom.output import claimed
from gradloom.preset import Preset
from gradloom.sim.run.threads import threads
from gradloom.sim.run.workers import processes
from gradloom.sweeping.run import cores
from gradloom.systems.asked import Asked
from gradloom.systems.text.card.layout import laid_out
from gradloom.systems.text.fit import DoesNotFit, machine_misfits, refuse
from gradloom.systems.text.mathematics import FloatModel
from gradloom.systems.text.requests import TextChoice
from gradloom.systems.text.task import Quantized, build_quickest
from gradloom.words import some
from gradloom.workload import Progress

from .budgets import Budget, refusal, shortfalls
from .candidates import Candidate, candidates
from .costs import Costs
from .finalists import Offer, fewest, finalists, nearest, offer, ranked, told, wanted_updates
from .quality import Slopes, Tensors
from .runs import short_runs
from .state import ChoiceState
from .texts import Split, split

__all__ = ["choose_text"]

#: Tokens of a window to choose from, unless they are given.
_SEQS = (64, 32)
#: Times that the text is gone through, and updates at most, unless they are given.
_PASSES, _STEPS = 3, 100
#: Cycles that all short runs together have on the board: about three minutes in floating point.
_EFFORT = 7_500_000_000
#: Updates of a short run at least.
_SHORT = 8


@dataclass(frozen=True, kw_only=True)
class ChoiceRequest:
    """What is asked, checked."""

    model: str
    data: Path
    preset: Preset
    budget: Budget
    steps: int | None
    seqs: tuple[int, ...]
    seed: int
    output: Path


def choose_text(asked: Asked, options: TextChoice, tell: Progress) -> dict[str, Any]:
    """Chooses, and writes ``choose.json`` and ``pareto.png`` to ``output``.

    Returns what ``choose.json`` holds. What an interrupted choice left there is gone on from.
    """
    with claimed(str(options.output), verb="choose"):
        return _choose(_request(asked, options), options.jobs or cores(), tell)


def _choose(asked: ChoiceRequest, jobs: int, tell: Progress) -> dict[str, Any]:
    weights = find_weights(asked.model)
    checkpoint = Quantized(open_checkpoint(weights))
    shapes = checkpoint.model
    seqs = _seqs(asked, shapes)
    parts = split(asked.data, open_tokenizer(weights, model_size=checkpoint.model.vocab), seqs[0])
    found, left = candidates(shapes, asked.preset.config, seqs)
    if not found:
        raise DoesNotFit(list(dict.fromkeys(map(str, left))))
    _refuse_early(asked, shapes, found, parts, seqs[0])
    state = ChoiceState(asked.output, _identity(asked, weights, seqs))
    costs = Costs(
        shapes, asked.preset.config, found, jobs=jobs, progress=tell, known=state.points, keep=state.keep_points
    )
    offers = _offers(asked, costs, found, parts, seqs[0])
    within = [each for each in offers if not shortfalls(each, asked.budget)]
    if not within:
        raise ValueError(_nothing(asked, offers))
    llama, by = build_quickest(checkpoint, progress=tell)
    short = _short_runs(asked, llama, checkpoint.tensor, parts, within, found, state, tell, jobs) | {"by": by}
    result = _result(asked, shapes, parts, offers, within, short)
    state.complete(result)
    return result


def _request(asked: Asked, options: TextChoice) -> ChoiceRequest:
    """Refuses what can be refused at once."""
    budget = Budget.of(options.time, options.memory, options.update)
    if options.steps is not None and not 1 <= options.steps <= MAX_STEPS:
        raise ValueError(f"steps={options.steps}: must be from 1 to {MAX_STEPS}")
    return ChoiceRequest(
        model=str(options.model or asked.preset.workload.ships),
        data=Path(str(options.data)),
        preset=asked.preset,
        budget=budget,
        steps=options.steps,
        seqs=_numbers(options.seq),
        seed=options.seed,
        output=Path(options.output),
    )


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(int(each) for each in text.split(","))
    except ValueError:
        raise ValueError(f"seq={text}: must be integers between commas") from None


def _seqs(asked: ChoiceRequest, model: LanguageModel) -> list[int]:
    """Lengths of windows, the longest first."""
    most = min(asked.preset.config.tokens, model.context)
    if not asked.seqs:
        return sorted({min(each, most) for each in _SEQS}, reverse=True)
    for each in asked.seqs:
        failed = machine_misfits(asked.preset.config, model, seq=each, rank=2, targets=())
        refuse([one for one in failed if one.field == "seq"])
    return sorted(set(asked.seqs), reverse=True)


def _identity(asked: ChoiceRequest, weights: Path, seqs: Sequence[int]) -> dict[str, Any]:
    """What the results of an interrupted choice depend on."""
    file = weights if weights.is_file() else next(iter(sorted(weights.glob("*.safetensors"))), weights)
    return {
        "gradloom": __version__,
        "preset": asked.preset.name,
        "model": [file.name, file.stat().st_size],
        "data": sha256(asked.data.read_bytes()).hexdigest(),
        "budget": asdict(asked.budget),
        "steps": asked.steps,
        "seqs": list(seqs),
        "seed": asked.seed,
    }


def _refuse_early(
    asked: ChoiceRequest, model: LanguageModel, found: Sequence[Candidate], parts: Split, longest: int
) -> None:
    """Refuses by arithmetic what no candidate can meet.

    No cost is measured yet.

    Of the time: each text goes once through all linear layers, and each update's texts through the head and back, with
    all multipliers busy in each cycle.
    """
    tokens, config = len(parts.learnt), asked.preset.config
    if asked.budget.update is not None:
        least = min(found, key=lambda each: each.parameters(model))
        size = 4 * least.parameters(model)
        if size > asked.budget.update:
            raise ValueError(
                f"update={asked.budget.update:g} B: no candidate of {len(found)} meets it; the smallest ({least}) "
                f"ships {size:,} bytes; give --update {math.ceil(size / 1e3)}kB"
            )
    if asked.budget.seconds is not None:
        macs = math.inf
        for each in found:
            wanted = wanted_updates(each, _steps(asked, tokens, longest), longest)
            texts = fewest(wanted) * each.accumulate
            new = min(max(tokens // each.seq, 1), texts)
            macs = min(macs, each.seq * (2 * texts * model.vocab * model.hidden + new * model.linear_parameters))
        seconds = macs / (config.edge * config.columns) / (1e6 * config.clock_mhz)
        if seconds > asked.budget.seconds:
            raise ValueError(
                f"time={asked.budget.seconds:g} s: no candidate of {len(found)} can meet it; the products of the "
                f"fewest updates take {math.ceil(1e3 * seconds)} ms with all multipliers busy; give --time "
                f"{math.ceil(2e3 * seconds)}ms or more, or a shorter --seq"
            )


def _steps(asked: ChoiceRequest, tokens: int, longest: int) -> int:
    """Updates of a longest window each that are asked for."""
    return asked.steps or min(_PASSES * (tokens // longest), _STEPS)


def _offers(asked: ChoiceRequest, costs: Costs, found: Sequence[Candidate], parts: Split, longest: int) -> list[Offer]:
    steps = _steps(asked, len(parts.learnt), longest)
    return [
        offer(
            each,
            costs.of(each),
            tokens=len(parts.learnt),
            steps=steps,
            longest=longest,
            clock_hz=asked.preset.config.clock_mhz * 1e6,
            seconds=asked.budget.seconds,
        )
        for each in found
    ]


def _nothing(asked: ChoiceRequest, offers: Sequence[Offer]) -> str:
    """Why no candidate is left, and the nearest one."""
    near = nearest(offers, asked.budget)
    what = f"{near.candidate}, {some(near.steps, 'step')}"
    return refusal(near, what, len(offers), asked.budget, time="ms", memory="MB")


def _short_runs(
    asked: ChoiceRequest,
    llama: FloatModel,
    tensor: Tensors,
    parts: Split,
    within: Sequence[Offer],
    found: Sequence[Candidate],
    state: ChoiceState,
    tell: Progress,
    jobs: int,
) -> dict[str, Any]:
    """The finalists, and the held-out loss after each one's short run."""
    everywhere: dict[str, Candidate] = {}
    for one in found:
        most = everywhere.get(one.method)
        if most is None or one.parameters(llama.model) > most.parameters(llama.model):
            everywhere[one.method] = one
    with threads(jobs) as cores:
        slopes = Slopes(llama, tensor, parts, everywhere, asked.seed, tell, cores)
        chosen = _laid_out(asked, llama.model, finalists(within, slopes.of), jobs, tell)
        work = sum(each.cost.cycles(each.steps, 0) for each in chosen)
        share = min(1.0, _EFFORT / work)
        planned = [(each, min(each.steps, max(round(share * each.steps), _SHORT))) for each in chosen]
        before, losses = short_runs(
            llama, tensor, parts, planned, seed=asked.seed, state=state, tell=tell, threads=cores
        )
    runs = [(each, count, loss, slopes.of(each.candidate)) for (each, count), loss in zip(planned, losses, strict=True)]
    return {"before": before, "runs": runs}


def _laid_out(
    asked: ChoiceRequest, model: LanguageModel, chosen: Sequence[Offer], jobs: int, tell: Progress
) -> list[Offer]:
    """The finalists with the memory of their whole jobs.

    A sum of small programs misses it by some commands.
    """
    config = replace(asked.preset.config, packing=1)
    shapes = [each.candidate.shape(model, texts=each.texts, steps=each.steps) for each in chosen]
    tell(0, len(shapes), "memory of finalists")
    if jobs == 1 or len(shapes) == 1:
        classes = {shape: laid_out(shape, config) for shape in shapes}
    else:
        with processes(min(jobs, len(shapes))) as run:
            classes = dict(run(partial(laid_out, config=config), shapes))
    made = [replace(each, classes=classes[shape]) for each, shape in zip(chosen, shapes, strict=True)]
    # A page more may be one too many.
    return [each for each in made if not shortfalls(each, asked.budget)] or made


def _result(
    asked: ChoiceRequest,
    model: LanguageModel,
    parts: Split,
    offers: Sequence[Offer],
    within: Sequence[Offer],
    short: Mapping[str, Any],
) -> dict[str, Any]:
    before, runs = short["before"], short["runs"]
    order = ranked(runs, before, lambda run: run[2], lambda run: run[0].seconds)
    rows = [
        {
            **told(each),
            "memory": dict(each.classes),
            "short_steps": count,
            "held_out": loss if math.isfinite(loss) else None,
            "first_step": first,
        }
        for each, count, loss, first in order
    ]
    first = order[0][0]
    return {
        "gradloom": __version__,
        "preset": asked.preset.name,
        "board": asked.preset.board,
        "model": model.name,
        "data": asked.data.name,
        "tokens": {"learnt": len(parts.learnt), "judged": sum(map(len, parts.judged))},
        "budget": asdict(asked.budget),
        "candidates": len(offers),
        "within": len(within),
        "float": short["by"],
        "held_out_before": before,
        "command": _command(asked, first),
        "finalists": rows,
        "offers": [{**told(each), "within": not shortfalls(each, asked.budget)} for each in offers],
    }


def _command(asked: ChoiceRequest, each: Offer) -> str:
    """The line that runs it."""
    usual = {"method": "lora", "store": "words", "accumulate": 1, "from-layer": 0}
    options = {name: value for name, value in each.candidate.options().items() if usual.get(name) != value}
    words = [
        "gradloom finetune",
        asked.model,
        f"--board {asked.preset.board}",
        f"--data {asked.data}",
        *(f"--{name} {value}" for name, value in options.items()),
        f"--steps {each.steps}",
    ]
    return " ".join(words)
