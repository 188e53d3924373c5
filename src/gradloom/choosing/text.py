"""Chooses a fine-tune by costs of all candidates and runs of a few.

Nothing is known beforehand of what a candidate learns: no table is stored, the user's own text decides.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gradloom import boards
from gradloom.firmware.chip.steps import MAX_STEPS
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.output import some
from gradloom.sim.run.threads import threads
from gradloom.sim.run.workers import processes
from gradloom.sweeping.run import cores
from gradloom.systems.asked import Asked
from gradloom.systems.results import ChosenFacts
from gradloom.systems.text.card.layout import laid_out
from gradloom.systems.text.costs.fit import DoesNotFit, board_misfits, machine_misfits, refuse
from gradloom.systems.text.operations.shapes import suited
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build_quickest
from gradloom.systems.text.requests import TextChoice
from gradloom.workload import Progress

from .budgets import shortfalls
from .candidates import Candidate, candidates
from .chooser import Chooser, Short, ShortRuns
from .costs import Costs
from .finalists import Offer, fewest, finalists, offer, preferred, wanted_updates
from .quality import Slopes
from .runs import short_runs
from .state import ChoiceState
from .texts import split

__all__ = ["TextChooser", "choose_text"]

#: Tokens of a window to choose from, unless they are given.
_SEQS = (64, 32)
#: Times that the text is gone through, and updates at most, unless they are given.
_PASSES, _STEPS = 3, 100
#: Cycles that all short runs together have on the board: about three minutes in floating point.
_EFFORT = 7_500_000_000
#: Updates of a short run at least.
_SHORT = 8


class TextChooser(Chooser[Offer]):
    """A choice of what learns, and in which layers, of its format, windows and updates."""

    units = {"time": "ms", "memory": "MB"}

    def __init__(self, asked: Asked, options: TextChoice) -> None:
        super().__init__(asked, options)
        if options.steps is not None and not 1 <= options.steps <= MAX_STEPS:
            raise ValueError(f"steps={options.steps}: must be from 1 to {MAX_STEPS}")
        self.steps, self.jobs = options.steps, options.jobs or cores()
        given = _numbers(options.seq)
        self.model = str(options.model or asked.preset.workload.ships)
        self.weights = find_weights(self.model)
        self.checkpoint = Quantized(open_checkpoint(self.weights))
        self.shapes = self.checkpoint.model
        own, board = self.preset.config, boards.find(self.preset.board)
        refuse(board_misfits(own, self.shapes, board, rank=0, targets=()))
        #: The machine that the model needs.
        self.config = suited(own, self.shapes)
        #: Tokens of windows, the longest first.
        self.seqs = self._lengths(given)
        self.parts = split(self.data, open_tokenizer(self.weights, model_size=self.shapes.vocab), self.seqs[0])
        self.found, left = candidates(self.shapes, self.config, self.seqs)
        if not self.found:
            raise DoesNotFit(list(dict.fromkeys(map(str, left))))
        #: Updates of a longest window each that are asked for.
        self.updates = self.steps or min(_PASSES * (len(self.parts.learnt) // self.seqs[0]), _STEPS)
        self._refuse_early()

    def _lengths(self, given: Sequence[int]) -> list[int]:
        config, model = self.config, self.shapes
        if not given:
            return sorted({min(each, config.tokens, model.context) for each in _SEQS}, reverse=True)
        for each in given:
            failed = machine_misfits(config, model, seq=each, rank=2, targets=())
            refuse([one for one in failed if one.field == "seq"])
        return sorted(set(given), reverse=True)

    def identity(self) -> dict[str, object]:
        """See :class:`Chooser`."""
        weights = self.weights
        file = weights if weights.is_file() else next(iter(sorted(weights.glob("*.safetensors"))), weights)
        return {"model": [file.name, file.stat().st_size], "steps": self.steps, "seqs": self.seqs}

    def facts(self) -> ChosenFacts:
        """See :class:`Chooser`."""
        tokens = {"learnt": len(self.parts.learnt), "judged": sum(map(len, self.parts.judged))}
        return {"model": self.shapes.name, "data": self.data.name, "tokens": tokens}

    def described(self, offer: Offer) -> str:
        """See :class:`Chooser`."""
        return f"{offer.candidate}, {some(offer.steps, 'step')}"

    def last(self, offer: Offer) -> tuple[object, ...]:
        """See :class:`Chooser`."""
        return preferred(offer)

    def command(self, offer: Offer) -> dict[str, object]:
        """See :class:`Chooser`."""
        usual = {"method": "lora", "store": "words", "accumulate": 1, "from-layer": 0}
        asked = {name: value for name, value in offer.candidate.options().items() if usual.get(name) != value}
        return asked | {"steps": offer.steps}

    def _refuse_early(self) -> None:
        """Refuses by arithmetic what no candidate can meet.

        No cost is measured yet.

        Of the time: each text goes once through all linear layers, and each update's texts through the head and back,
        with all multipliers busy in each cycle.
        """
        model, found, config = self.shapes, self.found, self.config
        if self.budget.update is not None:
            least = min(found, key=lambda each: each.parameters(model))
            size = 4 * least.parameters(model)
            if size > self.budget.update:
                raise ValueError(
                    f"update={self.budget.update:g} B: no candidate of {len(found)} meets it; the smallest ({least}) "
                    f"ships {size:,} bytes; give --update {math.ceil(size / 1e3)}kB"
                )
        if self.budget.seconds is not None:
            macs = math.inf
            for each in found:
                wanted = wanted_updates(each, self.updates, self.seqs[0])
                texts = fewest(wanted) * each.accumulate
                new = min(max(len(self.parts.learnt) // each.seq, 1), texts)
                macs = min(macs, each.seq * (2 * texts * model.vocab * model.hidden + new * model.linear_parameters))
            seconds = macs / (config.edge * config.columns) / (1e6 * config.clock_mhz)
            if seconds > self.budget.seconds:
                raise ValueError(
                    f"time={self.budget.seconds:g} s: no candidate of {len(found)} can meet it; the products of the "
                    f"fewest updates take {math.ceil(1e3 * seconds)} ms with all multipliers busy; give --time "
                    f"{math.ceil(2e3 * seconds)}ms or more, or a shorter --seq"
                )

    def offers(self, state: ChoiceState, tell: Progress) -> list[Offer]:
        """See :class:`Chooser`."""
        config = self.config
        costs = Costs(
            self.shapes, config, self.found, jobs=self.jobs, progress=tell, known=state.points, keep=state.keep_points
        )
        return [
            offer(
                each,
                costs.of(each),
                tokens=len(self.parts.learnt),
                steps=self.updates,
                longest=self.seqs[0],
                clock_hz=config.clock_mhz * 1e6,
                seconds=self.budget.seconds,
            )
            for each in self.found
        ]

    def short_runs(self, within: Sequence[Offer], state: ChoiceState, tell: Progress) -> ShortRuns[Offer]:
        """See :class:`Chooser`."""
        llama, by = build_quickest(self.checkpoint, progress=tell)
        tensor, parts = self.checkpoint.tensor, self.parts
        everywhere: dict[str, Candidate] = {}
        for one in self.found:
            most = everywhere.get(one.method)
            if most is None or one.parameters(self.shapes) > most.parameters(self.shapes):
                everywhere[one.method] = one
        with threads(self.jobs) as shared:
            slopes = Slopes(llama, tensor, parts, everywhere, self.seed, tell, shared)
            chosen = self._laid_out(finalists(within, slopes.of), tell)
            work = sum(each.cost.cycles(each.steps, 0) for each in chosen)
            share = min(1.0, _EFFORT / work)
            planned = [(each, min(each.steps, max(round(share * each.steps), _SHORT))) for each in chosen]
            before, losses = short_runs(
                llama, tensor, parts, planned, seed=self.seed, state=state, tell=tell, threads=shared
            )
        runs = [
            Short(
                offer=each,
                loss=loss,
                more={"memory": dict(each.classes), "short_steps": count, "first_step": slopes.of(each.candidate)},
            )
            for (each, count), loss in zip(planned, losses, strict=True)
        ]
        return ShortRuns(before=before, runs=runs, more={"float": by})

    def _laid_out(self, chosen: Sequence[Offer], tell: Progress) -> list[Offer]:
        """The finalists with the memory of their whole jobs.

        A sum of small programs misses it by some commands.
        """
        config = replace(self.config, packing=1)
        shapes = [each.candidate.shape(self.shapes, texts=each.texts, steps=each.steps) for each in chosen]
        tell(0, len(shapes), "memory of finalists")
        if self.jobs == 1 or len(shapes) == 1:
            classes = {shape: laid_out(shape, config) for shape in shapes}
        else:
            with processes(min(self.jobs, len(shapes))) as run:
                classes = dict(run(partial(laid_out, config=config), shapes))
        made = [replace(each, classes=classes[shape]) for each, shape in zip(chosen, shapes, strict=True)]
        # A page more may be one too many.
        return [each for each in made if not shortfalls(each, self.budget)] or made


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(int(each) for each in text.split(","))
    except ValueError:
        raise ValueError(f"seq={text}: must be integers between commas") from None


choose_text = TextChooser.choose
