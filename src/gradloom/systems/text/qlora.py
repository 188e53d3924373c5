"""QLoRA: adapters beside a language model's linear layers, or vectors.

It runs in floating point, in integers, and in RTL.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.language.gguf_lora import load_linears
from gradloom.models.adapters.language.lora_xs import (
    CORE,
    CoreAdapter,
    fresh_cores,
    load_cores,
    plain_adapters,
    save_cores,
)
from gradloom.models.adapters.language.methods import LORA, LORA_XS, METHODS, Method
from gradloom.models.adapters.language.vectors import check_alike, fresh_vectors, load_vectors, save_vectors
from gradloom.models.adapters.lora import (
    Adapter,
    LearntModule,
    check_uniform,
    fresh_lora,
    layer_of,
    lowest_layer,
    save_lora,
    single,
)
from gradloom.models.adapters.peft import about
from gradloom.models.adapters.starts import largest_part, relative
from gradloom.models.language import LanguageModel
from gradloom.systems.held_out import Score
from gradloom.systems.job import Job
from gradloom.systems.task import Judged, Outcome
from gradloom.workload import Progress

from .card.deployed import MergedLinears, rounded
from .card.layout import planner
from .costs.budget import memory
from .costs.request import check_from_layer, parse_targets
from .program.packed import STORES
from .quantized import Quantized
from .reference.descent import build, fine_tune
from .reference.llama import Llama, greedy
from .reference.optimizers import optimizer_state, restore_optimizer
from .run.trainer import Trainer, trainer_machine
from .task import TextTask
from .workload import CardOptions, QLoraOptions

__all__ = ["QLoraTask", "prepare"]


class QLoraTask(TextTask):
    """A fine-tune by QLoRA.

    The integers are those of the whole step, optimiser included.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.asked: QLoraOptions | CardOptions = job.options
        self.texts_a_step, self.store = self.asked.accumulate, self.asked.store
        if self.asked.from_layer is not None:
            check_from_layer(self.asked.from_layer, self.layers)
        self.learnt = METHODS[self.asked.method]
        self.adapters: dict[str, LearntModule] = {}
        #: What the frozen weights lack.
        self.principal: dict[str, Adapter] = {}
        if self.learnt is not LORA:
            self.method = self.learnt.name
        if self.learnt is LORA:
            fresh = _adapters(self.shapes, self.asked, self.rank, self.layers)
            if self.asked.init != "random":
                fresh = self._started(fresh)
            self.adapters |= fresh
        elif self.learnt is LORA_XS:
            self.adapters |= _cores(self.checkpoint, self.asked, self.rank, self.layers, job.tell)
        else:
            self.adapters |= _vectors(self.checkpoint, self.asked, self.learnt, self.layers)
        self.from_layer = lowest_layer(self.adapters)
        self.named = sorted({name.rsplit(".", 1)[-1] for name in self.adapters})
        rank = next((each.rank for each in self.adapters.values() if isinstance(each, Adapter | CoreAdapter)), None)
        fits: dict[str, Any] = {"machine": not self.exact, "from_layer": self.from_layer, "learnt": self.learnt}
        request = self.fitting(rank=rank or 1, targets=self.named, **fits)
        self.read_texts()
        if self.asked.epochs is not None:
            request = self.fitting(rank=rank or 1, targets=self.named, **fits)
        self.read(rank=rank, targets=",".join(self.named), from_layer=self.from_layer)
        if self.from_layer:
            lay = planner(self.job.config, accumulate=self.texts_a_step, steps=self.steps)
            self.check_cache(memory(request), lambda: lay(request))

    def _started(self, fresh: Mapping[str, Adapter]) -> dict[str, Adapter]:
        """Adapters that begin with a part of their linears, or of what the quantiser loses of them."""
        asked, source, made = self.asked, self.checkpoint.source, dict[str, Adapter]()
        for number, (name, each) in enumerate(fresh.items()):
            self.job.tell(number, len(fresh), f"start by {asked.init}")
            weight = np.asarray(source.tensor(f"{name}.weight"), np.float32)
            if asked.init == "loftq":
                weight = weight - self.checkpoint.tensor(f"{name}.weight")
                if not weight.any():
                    raise ValueError(f"init=loftq: {name} loses nothing, its weights are codes of NF4; give pissa")
            made[name] = largest_part(weight, each.rank, each.scale)
        if asked.init == "pissa":
            self.principal = {name: Adapter(each.a.copy(), each.b.copy(), each.scale) for name, each in made.items()}
            self.checkpoint = Quantized(source, without=self.principal)
        return made

    def simulated(self) -> Outcome:
        """See :class:`~..task.Task`."""
        return self._in_integers(rtl=True)

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        return self._in_integers()

    def _in_integers(self, *, rtl: bool = False) -> Outcome:
        trainer = Trainer(
            self.frozen(),
            self.adapters,
            range(self.layers),
            self.rule,
            texts=self.texts_a_step,
            wide=STORES[self.store],
            schedule=self.schedule,
            plus=self.asked.plus,
            held=self.asked.lora_fa,
        )
        if rtl:
            tell, first = self.job.tell, self.windows[0]
            texts = self.turns.used(self.steps) if trainer.cached(first) else [first]
            trainer_machine(
                trainer, texts, self.config, lambda text: tell(0, self.steps, text), self.job.chosen(), self.job.board()
            )
        return self.in_steps(
            trainer, self.judging_texts(lambda adapters, tokens: self.llama.score(tokens, single(adapters)))
        )

    def mathematics(self) -> Outcome:
        """See :class:`~..task.Task`."""
        llama = self.llama
        self.before = self.continued(self.adapters)
        grid, plain = self.asked.deploy, llama.linears
        learning = MergedLinears(plain.weights) if grid == "q8_0" else plain

        def held_out(adapters: Mapping[str, LearntModule], tokens: Sequence[int]) -> Score:
            llama.linears = plain
            try:
                return llama.score(tokens, adapters)
            finally:
                llama.linears = learning

        judging = self.judging_texts(held_out)
        llama.linears = learning
        rule, begun = self.in_float(), self.begun or {"losses": (), "kept": {}, "rule": {}, "adapters": {}}
        restore_optimizer(rule, begun["rule"])
        for name, parts in begun["adapters"].items():
            self.adapters[name] = self.adapters[name].taking(parts)
        if self.begun is not None:
            judging.restore(self.begun["judging"])
        judging.start(self.adapters)

        def keep(losses: list[float], kept: Mapping[str, np.ndarray]) -> bool:
            self.job.made(len(losses), self.steps, losses[-1])
            ended = judging.after(len(losses), self.adapters)
            self.point.keep(
                len(losses),
                {
                    "losses": losses,
                    "kept": kept,
                    "rule": optimizer_state(rule),
                    "adapters": {name: each.parts for name, each in self.adapters.items()},
                    "judging": judging.state(),
                },
            )
            return ended

        losses = fine_tune(
            llama,
            self.windows,
            self.adapters,
            rule,
            len(begun["losses"]) if judging.ended else self.steps,
            self.job.tell,
            accumulate=self.texts_a_step,
            losses=begun["losses"],
            kept=begun["kept"],
            after=keep,
            seen=lambda adapters: rounded(adapters, grid),
            schedule=self.schedule,
            seed=self.turns.seed,
            plus=self.asked.plus,
            held=self.asked.lora_fa,
        )
        learnt, judged = judging.finish(len(losses), self.adapters), judging.figures()
        if grid != "none":
            deployed = rounded(learnt, grid)
            judged["loss_deployed"] = self._mean(llama, self.turns.of(0)[:1], deployed)
            if self.data.judged:
                judged["held_out_deployed"] = self._mean(llama, self.data.judged, deployed)
        llama.linears = plain
        return Outcome(
            losses=losses,
            learnt=learnt,
            steps=len(losses) if judging.ended else None,
            after=llama.loss(self.turns.of(0)[0], learnt),
            judged=judged,
            figures={"cycles": None, "base_bytes": None},
        )

    @cached_property
    def llama(self) -> Llama:
        """The model in floating point, read when something is first asked of it."""
        return build(self.checkpoint, layers=self.layers, progress=self.job.tell)

    def following(self, prompt: Sequence[int], count: int, adapters: Mapping[Any, LearntModule]) -> Iterator[int]:
        """See :class:`~.task.TextTask`."""
        return greedy(self.llama, prompt, count, adapters=adapters, ends=self.tokenizer.control)

    def judge(self, outcome: Outcome) -> Judged:
        """See :class:`~..task.Task`; also the adapter as it is saved, beside weights that lack nothing."""
        judged = super().judge(outcome)
        if not self.principal:
            return judged
        llama = build(Quantized(self.checkpoint.source), layers=self.layers, progress=self.job.tell)
        saved = relative(outcome.learnt, self.principal)
        told = {"loss_deployed": self._mean(llama, self.turns.of(0)[:1], saved)}
        if self.data.judged:
            told["held_out_deployed"] = self._mean(llama, self.data.judged, saved)
        return dataclasses.replace(judged, figures={**judged.figures, **told})

    def _mean(self, llama: Llama, texts: Sequence[Sequence[int]], adapters: Mapping[str, LearntModule]) -> float | None:
        """Mean loss of texts; None where it is not finite."""
        found = 0.0
        for number, tokens in enumerate(texts):
            self.job.tell(number, len(texts), "judging")
            found += llama.loss(tokens, adapters) / len(texts)
        return found if math.isfinite(found) else None

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
        if self.learnt is LORA:
            save_lora(folder, self.shapes, relative(learnt, self.principal) if self.principal else learnt)
        elif self.learnt is LORA_XS:
            save_lora(folder, self.shapes, plain_adapters(learnt))
            save_cores(folder / CORE, self.shapes, learnt)
        else:
            save_vectors(folder, self.shapes, self.learnt, learnt)


prepare = QLoraTask


def _vectors(checkpoint: Quantized, asked: QLoraOptions, method: Method, layers: int) -> dict[str, LearntModule]:
    """Vectors to start from, of a folder or as the model has them."""
    model, wanted = checkpoint.model, method.parse(asked.targets)
    if asked.adapter is None:
        inner = range(asked.from_layer or 0, layers)
        return dict(fresh_vectors(model, method, checkpoint.tensor, targets=wanted, layers=inner))
    found = load_vectors(asked.adapter, model, method)
    with about(asked.adapter):
        check_alike(model, method, found)
    has = {name.rsplit(".", 1)[-1] for name in found}
    if asked.targets is not None and set(wanted) != has:
        raise ValueError(f"targets={asked.targets}: {asked.adapter} has {', '.join(sorted(has))}")
    _check_layers(asked, found, layers)
    return dict(found)


def _adapters(model: LanguageModel, asked: QLoraOptions, rank: int, layers: int) -> dict[str, Adapter]:
    """Adapters to start from, of a folder or fresh."""
    wanted = None if asked.targets is None else parse_targets(asked.targets)
    folder = asked.adapter
    if folder is None:
        return fresh_lora(
            model,
            rank=rank,
            targets=wanted or parse_targets("q,v"),
            layers=range(asked.from_layer or 0, layers),
            seed=asked.seed,
            rslora=asked.rslora,
        )
    found = load_linears(folder, model, rank=asked.rank)
    with about(folder):
        check_uniform(model, found)
    has = {name.rsplit(".", 1)[-1] for name in found}
    if wanted is not None and set(wanted) != has:
        raise ValueError(f"targets={asked.targets}: {folder} has adapters on {', '.join(sorted(has))}")
    _check_layers(asked, found, layers)
    return found


def _cores(
    checkpoint: Quantized, asked: QLoraOptions, rank: int, layers: int, tell: Progress
) -> dict[str, CoreAdapter]:
    """LoRA-XS to start from, of a folder or fresh.

    A and B are those of the quantised base.
    """
    model, wanted = checkpoint.model, LORA_XS.parse(asked.targets)
    if asked.adapter is None:
        inner = range(asked.from_layer or 0, layers)
        return fresh_cores(model, checkpoint.tensor, rank=rank, targets=wanted, layers=inner, tell=tell)
    beside = Path(asked.adapter) / CORE
    found = load_cores(
        beside if beside.is_dir() else asked.adapter, model, checkpoint.tensor, rank=asked.rank, tell=tell
    )
    with about(asked.adapter):
        check_uniform(model, found)
    has = {name.rsplit(".", 1)[-1] for name in found}
    if asked.targets is not None and set(wanted) != has:
        raise ValueError(f"targets={asked.targets}: {asked.adapter} has adapters on {', '.join(sorted(has))}")
    _check_layers(asked, found, layers)
    return found


def _check_layers(asked: QLoraOptions, found: Mapping[str, LearntModule], layers: int) -> None:
    """Refuses a folder's adapters in other layers than the request's."""
    lowest = lowest_layer(found)
    if asked.from_layer not in (None, lowest):
        raise ValueError(f"from_layer={asked.from_layer}: {asked.adapter} has adapters from layer {lowest} on")
    beyond = [name for name in found if name.startswith("model.layers.") and layer_of(name) >= layers]
    if beyond:
        raise ValueError(f"layers={layers}: {asked.adapter} has an adapter on {beyond[0]}")
