"""Common parts of fine-tunes of language models."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom import __version__, boards
from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.language.methods import LORA, LORA_XS, Method
from gradloom.models.adapters.lora import Adapter, LearntModule, single
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import Tokenizer, open_tokenizer
from gradloom.models.texts.example import targets_of
from gradloom.output import some
from gradloom.program.descent import AdamW as MachineAdamW
from gradloom.program.descent import Lion as MachineLion
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.driver import repeatable
from gradloom.systems.held_out import Judging, Score
from gradloom.systems.job import Job
from gradloom.systems.task import Judged, Outcome, Task

from ..rates import Schedule
from .base import check_base, digest
from .card.layout import planner
from .costs.budget import cached_texts
from .costs.fit import MIN_SEQ, board_misfits, lacks, machine_for, machine_misfits, memory_misfits, refuse
from .costs.request import BudgetRequest
from .data import Data, Turns, read_data
from .operations.shapes import larger
from .program.packed import STORES
from .quantized import Quantized
from .reference.descent import OPTIMIZERS
from .reference.optimizers import FloatAdamW, FloatLion, Optimizer, Sgd
from .run.checkpoint import ResumePoint
from .run.frozen import Frozen
from .run.instant import InstantTrainer
from .run.trainer import StepResult, Trainer, added, as_far_as_formats
from .workload import TextRequest, TextWorkload

__all__ = ["TextTask"]

#: Updates where neither steps nor epochs are given.
STEPS = 8
#: Texts that are continued before and after.
_SHOWN = 2


class TextTask(Task):
    """A fine-tune of a language model.

    Each step has its own program and forecast, and is compared when it ends: its words, counters and cycles.

    Attributes
    ----------
    checkpoint : Quantized
        The model, its linears as codes.
    data : Data
        Windows to learn from, and to judge by, ``seq`` tokens each.
    turns : Turns
        Which windows each step learns from.
    """

    options: Any
    loss_unit = "cross-entropy, nats a token"
    config: LanguageConfig
    data: Data
    turns: Turns
    schedule: Schedule

    def __init__(self, job: Job) -> None:
        asked: TextRequest = job.options
        assert isinstance(job.preset.workload, TextWorkload) and asked.data is not None
        #: Until the texts are read, of a number of epochs the fewest there can be.
        steps = asked.steps or (STEPS if asked.epochs is None else 1)
        super().__init__(job, asked, steps=steps, epoch=1)
        #: The planner's name of the workload, and what it does.
        self.kind = self.method = job.preset.workload.method
        weights = find_weights(asked.model)
        self.checkpoint = Quantized(open_checkpoint(weights))
        self.text = Path(asked.data)
        self.files = {**self.files, "model": weights}
        self.shapes = self.checkpoint.model
        if asked.adapter is not None:
            check_base(Path(asked.adapter), self.checkpoint)
        if asked.layers is not None and asked.layers > self.shapes.layers:
            raise ValueError(f"layers={asked.layers}: must be from 1 to {self.shapes.layers}")
        self.layers = self.shapes.layers if asked.layers is None else asked.layers
        self.rank = job.preset.workload.rank if asked.rank is None else asked.rank
        self.lr = OPTIMIZERS[asked.optimizer][1] if asked.lr is None else asked.lr

    @property
    def windows(self) -> Sequence[Sequence[int]]:
        """Windows to learn from."""
        return self.data.learnt

    texts_a_step = 1
    store = "words"
    #: Samples of what it starts from.
    before: list[tuple[str, str]]

    # ---- what is prepared

    @property
    def rule(self) -> float | MachineAdamW:
        """Of the machine's updates."""
        asked: TextRequest = self.job.options
        kinds = {"adamw": MachineAdamW, "lion": MachineLion}
        return self.lr if asked.optimizer == "sgd" else kinds[asked.optimizer](lr=self.lr, weight_decay=asked.decay)

    def in_float(self) -> Optimizer:
        """The same in floating point."""
        asked: TextRequest = self.job.options
        if asked.optimizer == "sgd":
            return Sgd(lr=self.lr)
        return {"adamw": FloatAdamW, "lion": FloatLion}[asked.optimizer](lr=self.lr, weight_decay=asked.decay)

    def frozen(self) -> Frozen:
        """The parts of the model that never change."""
        return Frozen.of(self.checkpoint, self.config.head_part)

    def fitting(
        self, *, rank: int, targets: Sequence[str], machine: bool = True, from_layer: int = 0, learnt: Method = LORA
    ) -> BudgetRequest:
        """Checks texts and request, and returns the request.

        Refuses texts that the model, and requests that the machine or its board's memory, cannot take. ``machine``:
        whether the machine bounds sizes, as it does in floating point where its tiles are used. ``from_layer``: the
        lowest with an adapter.
        """
        asked, model = self.job.options, replace(self.shapes, layers=self.layers)
        kind = self.kind
        if not machine:
            if not MIN_SEQ <= asked.seq <= model.context:
                raise ValueError(
                    f"seq={asked.seq}: must be from {MIN_SEQ} to {model.context} (the model's context); "
                    f"give --seq {min(max(asked.seq, MIN_SEQ), model.context)}"
                )
            return BudgetRequest(
                model=model,
                rank=rank,
                targets=tuple(targets),
                seq=asked.seq,
                optimizer=asked.optimizer,
                from_layer=from_layer,
                method=learnt.name,
            )
        ranked = targets if learnt.ranked else ()
        board = boards.find(self.job.preset.board)
        told: dict[str, Any] = {"rank": rank, "targets": ranked, "method": kind}
        packing = int(STORES[self.store] is not None)
        self.config = machine_for(self.job.config, model, packing=packing, **told)
        failed = machine_misfits(self.config, model, seq=asked.seq, **told)
        failed += board_misfits(self.job.config, model, board, **told)
        # A request has a text that is within the context.
        request = BudgetRequest(
            model=model,
            rank=rank,
            targets=tuple(targets),
            seq=min(max(asked.seq, 1), model.context),
            optimizer=asked.optimizer,
            store=self.store,
            from_layer=from_layer,
            method=learnt.name,
        )
        if not self.exact:
            # Without a machine that takes it there is no job to lay out.
            counts = {"accumulate": self.texts_a_step, "steps": self.steps}
            lay = None if failed else planner(self.job.config, **counts)
            failed += memory_misfits(request, board, self.job.config, method=kind, laid_out=lay)
        refuse(failed)
        self._check_made()
        return request

    def _check_made(self) -> None:
        """Refuses a machine that is made, and lacks what the request needs: in a folder, or a board's own."""
        job, lacking = self.job, larger(self.config, self.job.config)
        folder = None if job.design is None else job.design.directory
        made = job.host is not None or self.alone or folder is not None and job.options.engine == "rtl"
        if lacking and made:
            raise ValueError(lacks(job.preset.name, job.config, lacking, self.shapes.name, folder))

    #: Whether a board does it by itself.
    alone = False

    def check_cache(self, held: Mapping[str, int], laid_out: Callable[[], Mapping[str, int]] | None = None) -> None:
        """Refuses more texts than the forward cache has room for.

        ``held`` plans the memory of the board with one text, counted by shapes, ``laid_out`` as the job is laid out.
        """
        board, each = boards.find(self.job.preset.board), self.texts_a_step
        room, used = cached_texts(held, board), min(len(self.windows), self.steps * each)
        if laid_out is not None and 2 * used > room:
            room = cached_texts(laid_out(), board)
        if not self.exact and used > room:
            raise ValueError(
                f"data={self.text}: {some(self.steps, 'step')} learn from {some(used, 'window')}, the forward "
                f"cache has "
                f"room for {room} in the {board.memory_bytes} bytes of {board.name}; give a shorter "
                f"text" + (f", or give --steps {room // each}" if room >= each else "")
            )

    def read_texts(self) -> None:
        """Reads what to learn from, and with it how many steps there are.

        Refuses fewer windows than a step learns from.
        """
        asked: TextRequest = self.job.options
        self.data = read_data(
            self.text,
            self.checkpoint.path,
            lambda: self.tokenizer,
            asked.seq,
            held_out=getattr(asked, "held_out", None),
            seed=asked.seed,
            skip_bad=asked.skip_bad,
            tell=self.job.tell,
        )
        count, each = len(self.windows), self.texts_a_step
        if self.data.counts is not None and count < each:
            raise ValueError(
                f"data={self.text}: has {some(count, 'window')} to learn from, a step learns from {each}; give more "
                f"examples, or give --accumulate {count}"
            )
        if asked.epochs is not None:
            self.steps = max(1, math.ceil(asked.epochs * count / each))
        #: As many as take every window of the text equally often.
        self.epoch = math.lcm(count, each) // each
        self.turns = Turns(self.windows, each, asked.seed if asked.shuffle else None)
        self.schedule = Schedule.of(asked.schedule, self.steps, asked.warmup)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return open_tokenizer(self.checkpoint.path, model_size=self.shapes.vocab)

    def following(self, prompt: Sequence[int], count: int, adapters: Mapping[Any, LearntModule]) -> Iterator[int]:
        """At most ``count`` tokens after a prompt, in floating point, each the likeliest."""
        raise NotImplementedError

    def continued(self, adapters: Mapping[Any, LearntModule]) -> list[tuple[str, str]]:
        """Beginnings of texts that are held out, and how the model goes on."""
        count, told = self.job.options.generate, []
        for text in self.data.judged[:_SHOWN] if count else ():
            learnt = np.flatnonzero(targets_of(text) >= 0)
            # The question before an answer; of a text of which all is learnt, its first half.
            prompt = list(text[: int(learnt[0]) + 1 if learnt[0] else max(1, len(learnt) // 2)])
            self.job.tell(0, 0, "a sample")
            said = list(self.following(prompt, min(count, self.shapes.context - len(prompt)), single(adapters)))
            told.append((self.tokenizer.decode(prompt), self.tokenizer.decode(said)))
        return told

    def judging_texts(self, score: Callable[[Mapping[Any, LearntModule], Sequence[int]], Score]) -> Judging:
        """What judges by the texts that are held out.

        ``score``: of adapters and a text.
        """
        texts = self.data.judged

        def mean(adapters: Mapping[Any, LearntModule]) -> Score:
            found: dict[str, float] = {}
            for number, tokens in enumerate(texts):
                self.job.tell(number, len(texts), "judging")
                for name, value in score(adapters, tokens).items():
                    found[name] = found.get(name, 0.0) + value / len(texts)
            return found

        return self.judging(mean if texts else None, epoch=math.ceil(len(self.windows) / self.texts_a_step))

    def read(self, *, rank: int | None, **more: Any) -> None:
        """Notes the effective options of a request whose texts were read."""
        steps = {"steps": self.steps, "epochs": None}
        self.options = replace(self.job.options, rank=rank, lr=self.lr, layers=self.layers, **steps, **more)
        told = repeatable(self, self.job)
        request = {
            "gradloom": __version__,
            "preset": self.job.preset.name,
            **told["request"],
            **{f"sha256 of {name}": sums for name, sums in told["files"].items()},
            "parameters": told["parameters"],
        }
        self.point = ResumePoint(self.job.output, request, every=self.job.options.keep)
        self.begun = self.point.load() if self.job.options.resume else None

    def kept(self) -> str:
        """See :class:`~..task.Task`."""
        return self.point.kept

    def finish(self) -> None:
        """See :class:`~..task.Task`."""
        self.point.remove()

    def in_steps(self, trainer: Trainer | InstantTrainer, judging: Judging) -> Outcome:
        """Steps of a trainer, from the checkpoint on if there is one, as far as its formats reach.

        A fine-tune that patience ended is complete.
        """
        begun, first = results_of(self.begun), self.turns.of(0)[0]
        self.before = self.continued(trainer.adapters)
        if self.begun is not None:
            trainer.restore(self.begun["trainer"])
            judging.restore(self.begun["judging"])
        judging.start(trainer.adapters)

        def keep(found: list[StepResult]) -> bool:
            self.job.made(len(found), self.steps, found[-1].loss)
            ended = judging.after(len(found), trainer.adapters)
            if self.job.host is None:
                state = {"results": plain_results(found), "trainer": trainer.state(), "judging": judging.state()}
                self.point.keep(len(found), state)
            return ended

        try:
            found, stopped = as_far_as_formats(
                lambda step: trainer.update(self.turns.of(step)),
                len(begun) if judging.ended else self.steps,
                self.job.tell,
                begun,
                keep,
            )
        finally:
            if trainer.machine is not None:
                trainer.machine.close()
        trainer.adapters = judging.finish(len(found), trainer.adapters)
        size = trainer.cache_bytes(first)
        cached = {"cached_texts": len(trainer.cache), "cache_bytes_per_text": size} if size else {}
        learnt: Mapping[Any, LearntModule] = trainer.adapters
        return Outcome(
            losses=[each.loss for each in found],
            stopped=stopped,
            steps=len(found) if judging.ended else None,
            after=trainer.loss(first),
            clipped=None if self.exact else [each.saturated for each in found],
            words=None if self.exact else [each.words for each in found],
            judged=judging.figures(),
            figures={**_counted(found), "base_bytes": [each.base_bytes for each in found], **cached},
            learnt=single(learnt),
        )

    def judge(self, outcome: Outcome) -> Judged:
        """See :class:`~..task.Task`."""
        self.job.tell(self.steps, self.steps, "fine-tuning")
        after = math.nan if outcome.after is None else outcome.after
        told: dict[str, Any] = {
            "loss_before": outcome.losses[0] if outcome.losses else None,
            "loss_after": after if math.isfinite(after) else None,
        }
        if self.before:
            told["samples_of_text"] = [
                {"prompt": prompt, "before": before, "after": after}
                for (prompt, before), (_, after) in zip(self.before, self.continued(outcome.learnt))
            ]
        # The first step's loss is the mean of its texts', and this is that of the first text.
        one = min(self.texts_a_step, len(self.windows)) == 1
        return Judged(figures=told | dict(outcome.judged), after=after if one else None)

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        asked, first = self.options, next(iter(outcome.learnt.values()))
        return {
            "method": self.method,
            "model": self.shapes.name,
            "base": digest(self.checkpoint),
            "layers": self.layers,
            "text": self.text.name,
            "tokens": self.data.tokens,
            "seq": asked.seq,
            "windows": len(self.windows),
            "tokens_left_out": self.data.left_out,
            **({} if self.data.counts is None else {"examples": asdict(self.data.counts)}),
            **({} if not self.data.judged else {"held_out_windows": len(self.data.judged)}),
            "rank": first.rank if isinstance(first, Adapter | CoreAdapter) else None,
            "alpha": first.scale * first.rank if isinstance(first, Adapter | CoreAdapter) else None,
            "adapter_parameters": sum(
                values.size
                for each in outcome.learnt.values()
                for which, values in each.parts.items()
                if not (which == "a" and getattr(asked, "lora_fa", False))
            ),
            "targets": self.named,
            "optimizer": asked.optimizer,
            "lr": self.lr,
            "steps": self.steps if outcome.steps is None else outcome.steps,
            "accumulate": self.texts_a_step,
            "seed": asked.seed,
            "clock_mhz": self.config.clock_mhz,
            "saturated": None if outcome.clipped is None else sum(outcome.clipped),
            "store": self.store,
        }

    named: Sequence[str] = ()

    def title(self, metrics: Mapping[str, Any]) -> str:
        """See :class:`~..task.Task`."""
        learns = metrics["method"] if metrics["rank"] is None else f"rank {metrics['rank']}"
        if metrics["method"] == LORA_XS.name:
            learns = f"{LORA_XS.title}, {learns}"
        return f"{metrics['model']}, {learns} on {', '.join(metrics['targets'])}, {metrics['tokens']:,} tokens"


def results_of(begun: Mapping[str, Any] | None) -> list[StepResult]:
    """Results of the steps of a checkpoint."""
    return [] if begun is None else [StepResult(values={}, frac={}, **each) for each in begun["results"]]


def plain_results(found: Sequence[StepResult]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "loss": each.loss,
            "saturated": each.saturated,
            "words": each.words,
            "base_bytes": each.base_bytes,
            "cycles": each.cycles,
            "forecast": each.forecast,
            "equal": each.equal,
        }
        for each in found
    ]


def _counted(found: Sequence[StepResult]) -> dict[str, Any]:
    """Counters and forecast of all steps, where they ran on a machine."""
    if not any(each.cycles for each in found):
        return {"cycles": None}
    return {
        "cycles": added(each.cycles for each in found),
        "cycles_by_step": [each.cycles["total"] for each in found],
        "forecast": added(each.forecast for each in found),
        "equal_to_reference": added(each.equal for each in found),
    }
