"""Decoding of a language model, in floating point or in the machine's integers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradloom import boards
from gradloom.firmware.jobs.job import AnswerPlan
from gradloom.models.adapters.language.gguf_lora import is_gguf_adapter, load_linears
from gradloom.models.adapters.language.instant import holds_instant, load_instant
from gradloom.models.adapters.language.learnt import load_learnt
from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.language.methods import LORA, LORA_XS
from gradloom.models.adapters.language.vectors import peft_method
from gradloom.models.adapters.lora import Adapter, LearntModule
from gradloom.models.adapters.peft import read_config
from gradloom.models.files.keys import shown
from gradloom.models.files.language.tokenizer import Tokenizer
from gradloom.models.filled import Filled, cut
from gradloom.models.language import BUILT_IN, LanguageModel
from gradloom.models.texts.template import open_texts
from gradloom.options import check_request
from gradloom.preset import Preset
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.builds.designs import Design
from gradloom.sim.run.machine import MachineHost
from gradloom.systems.asked import Asked
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from . import task as language
from .base import check_base, model_of, opened
from .card.linux import AnswerHost, recorded
from .coded_head import coded_head
from .costs.fit import MIN_SEQ, board_misfits, lacks, machine_for, machine_misfits, refuse
from .data import read_data
from .instant_text import InstantLlama
from .operations.shapes import larger
from .quantized import Quantized
from .reference.drawn import Draw
from .reference.llama import Llama, greedy
from .requests import TextAnswers
from .run.answers import AnswerMachine, TokenReply, prompt_of
from .run.frozen import Frozen

__all__ = ["asking", "infer", "judge", "learnt_of", "plain_lora", "record"]


def learnt_of(folder: Path, checkpoint: Quantized) -> Mapping[str, LearntModule]:
    """Adapters or vectors of a folder; :class:`ValueError` if they are of another model."""
    check_base(folder, checkpoint)
    return load_learnt(folder, checkpoint.model, checkpoint.tensor)


def plain_lora(source: Path, model: Path | str | None) -> tuple[LanguageModel, dict[str, Adapter]]:
    """A model's shapes, and LoRA adapters by linear.

    ``model`` is that of the run whose folder ``source`` is, or SmolLM2-135M, if left out. LoRA-XS becomes plain LoRA.
    :class:`ValueError` of what is no product of A and B.
    """
    method = LORA if is_gguf_adapter(source) else peft_method(source)
    if method not in (LORA, LORA_XS):
        kind = read_config(source)["peft_type"] if method is None else method.peft_type
        remedy = "infer takes it as --adapter" if method is None else "merge it"
        raise ValueError(f"{source}: peft_type={shown(kind)}: has no A and B, which this format is made of; {remedy}")
    named = str(model or model_of(source) or "smollm2-135m")
    if method is LORA and named in BUILT_IN and not Path(named).exists():
        # Known by its shapes, without weights.
        return BUILT_IN[named], load_linears(source, BUILT_IN[named])
    checkpoint = opened(source, model)
    learnt = learnt_of(source, checkpoint)
    return checkpoint.model, {
        name: each.plain if isinstance(each, CoreAdapter) else each
        for name, each in learnt.items()
        if isinstance(each, CoreAdapter | Adapter)
    }


def judge(
    preset: Preset, adapter: Path, run: Path, held_out: Path, metrics: Mapping[str, Any], model: Path | str | None
) -> dict[str, float]:
    """Mean score of an adapter by windows of what is held out, in floating point.

    Windows and layers are those of the fine-tune in ``run``; ``model`` is its own, if left out.
    """
    try:
        seq, layers = int(metrics["seq"]), int(metrics["layers"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{run}/metrics.json: lacks the seq or layers of a fine-tune on text") from None
    checkpoint = opened(run, model)
    # The average of several runs has no run of its own.
    check_base(run, checkpoint)
    shapes = checkpoint.model
    windows = read_data(
        held_out, checkpoint.path, lambda: language.open_tokenizer(checkpoint.path, model_size=shapes.vocab), seq
    ).learnt
    blocks = load_instant(adapter, shapes) if holds_instant(adapter) else None
    llama = (
        Llama(shapes, checkpoint.tensor, layers=layers)
        if blocks is None
        else InstantLlama(shapes, checkpoint.tensor, blocks=blocks, layers=layers)
    )
    learnt = learnt_of(adapter, checkpoint) if blocks is None else {}
    scores = [llama.score(tokens, learnt) for tokens in windows]
    return {name: sum(each[name] for each in scores) / len(scores) for name in scores[0]}


def infer(asked: Asked, options: TextAnswers, tell: Progress, host: MachineHost | None = None) -> Inferred:
    """Continues a prompt with a model and an adapter, or asks a board.

    Decoding on the same NF4 weights as the preset's, in floating point, in the machine's integers, or in these
    by simulated RTL or a machine behind ``host``. Returns ``text``, ``tokens`` (their numbers) and what was asked; in
    integers ``clipped`` words, ``programs`` and ``tokens_a_program``, of a machine ``cycles`` and their ``forecast``;
    of a board with a card as :func:`~.card.prompts.ask_board` does.
    """
    prompt, tokens = str(options.prompt), options.tokens
    if options.port is not None:
        from gradloom.boards.links.monitor import BAUD

        from .card.prompts import ask_board

        adapter = str(options.adapter or "kept")
        return ask_board(
            options.port,
            prompt,
            adapter=adapter,
            model=options.model,
            tokens=tokens,
            chat=options.chat,
            progress=tell,
            baud=options.baud or BAUD,
        )
    engine, figures = options.engine or "float", Inferred()
    asks, tokenizer = asking(options, tell)
    following = asks.in_float() if engine == "float" else asks.in_integers(asked.preset, tell, host, figures)
    said: list[int] = []
    for token in following:
        said.append(token)
        tell(len(said), tokens, "decoding")
    answer: Inferred = {
        "preset": asked.preset.name,
        "engine": engine,
        "model": asks.checkpoint.model.name,
        "prompt": prompt,
        "text": tokenizer.decode(said),
        "tokens": said,
    }
    return answer | figures


def record(asked: Asked, options: TextAnswers, tell: Progress, host: AnswerHost) -> AnswerPlan:
    """Writes a model for a board that answers by itself, with exponents that follow from the prompt."""
    drawn = options.top_k if options.top_k > 1 else None
    check_request("with --job, whose board takes the likeliest", needless={"top_k": drawn, "port": options.port})
    asks, _ = asking(options, tell)
    reply, config = asks.reply(asked.preset, tell, made=True)
    return recorded(reply, asks.given, options.tokens, sorted(asks.ends), config, host, tell)


def asking(options: TextAnswers, tell: Progress) -> tuple["_Prompt", Tokenizer]:
    """What options ask of a model, with the tokenizer of it."""
    prompt, tokens = str(options.prompt), options.tokens
    learnt = None if options.adapter is None else Path(options.adapter)
    checkpoint = opened(learnt, options.model)
    if learnt is not None:
        check_base(learnt, checkpoint)
    blocks = load_instant(learnt, checkpoint.model) if learnt is not None and holds_instant(learnt) else None
    adapters = None if learnt is None or blocks is not None else learnt_of(learnt, checkpoint)
    tokenizer = language.open_tokenizer(checkpoint.path, model_size=checkpoint.model.vocab)
    given = open_texts(checkpoint.path).question(tokenizer, prompt) if options.chat else tokenizer.encode(prompt)
    if not given:
        raise ValueError("prompt: has no tokens, at least 1 is needed")
    if len(given) + tokens > checkpoint.model.context:
        left = checkpoint.model.context - len(given)
        raise ValueError(
            f"tokens={tokens}: with the prompt's {len(given)} there are more than "
            f"{checkpoint.model.context} (the model's context); give "
            + (f"--tokens {left}" if left > 0 else "a shorter prompt")
        )
    if blocks is not None and len(blocks) != checkpoint.model.layers:
        raise ValueError(f"adapter={learnt}: is from {len(blocks)} of {checkpoint.model.layers} blocks")
    tell(0, 0, "reading the weights")
    return _Prompt(options, checkpoint, adapters, blocks, given, tokenizer.control), tokenizer


@dataclass(frozen=True)
class _Prompt:
    """A prompt's tokens, and what continues them: a model with adapters by linear, or by block; ``ends`` end it."""

    options: TextAnswers
    checkpoint: Quantized
    adapters: Mapping[str, LearntModule] | None
    blocks: Mapping[int, Adapter] | None
    given: Sequence[int]
    ends: frozenset[int]

    def in_float(self) -> Iterator[int]:
        """Tokens as they come."""
        model, tensor = self.checkpoint.model, self.checkpoint.tensor
        llama = Llama(model, tensor) if self.blocks is None else InstantLlama(model, tensor, blocks=self.blocks)
        if self.options.head == "nf":
            # Codes follow from a float32 model of the machine's shapes.
            whole = Filled(self.checkpoint)
            held = llama if whole.model is model else Llama(whole.model, whole.tensor)
            llama.head = cut(whole.model, coded_head(held).weight(), None, "hidden")
        options = self.options
        return greedy(llama, self.given, options.tokens, adapters=self.adapters, ends=self.ends, draw=self.draw)

    @property
    def draw(self) -> Draw:
        """Chooses tokens, from the first one on."""
        options = self.options
        return Draw(options.top_k, 1.0 if options.temperature is None else options.temperature, options.seed or 0)

    def reply(self, preset: Preset, tell: Progress, *, made: bool) -> tuple[TokenReply, LanguageConfig]:
        """The answer in integers, and the machine; ``made``: there is one, whose configuration cannot be another."""
        options, checkpoint = self.options, self.checkpoint
        model, design = checkpoint.model, Design(preset, options.design)
        own = design.preset.config
        loras, blocks = _loras(self.adapters or {}, options), self.blocks or {}
        told: dict[str, Any] = {
            "rank": max((each.rank for each in [*loras.values(), *blocks.values()]), default=2),
            "targets": sorted({name.rpartition(".")[2] for name in loras}),
            "method": "qlora" if self.blocks is None else "instantft",
        }
        config = machine_for(own, model, **told)
        # A token has one row; a machine takes no text of fewer than these.
        failed = machine_misfits(config, model, seq=MIN_SEQ, **told)
        refuse([*failed, *board_misfits(own, model, boards.find(preset.board), **told)])
        if config != own and (made or design.directory is not None):
            raise ValueError(lacks(preset.name, own, larger(config, own), model.name, design.directory))
        frozen = Frozen.of(checkpoint)
        prompt = prompt_of(frozen, self.given, loras, blocks, config, coded=options.head == "nf")
        tell(0, 0, "choosing exponents")
        return TokenReply(prompt, self.draw), config

    def in_integers(self, preset: Preset, tell: Progress, host: MachineHost | None, figures: Inferred) -> Iterator[int]:
        """Tokens as they come; ``figures`` are whole behind the last one."""
        options, machine = self.options, None
        reply, config = self.reply(preset, tell, made=host is not None)
        if options.engine == "rtl":
            machine = AnswerMachine(
                reply,
                len(self.given) + options.tokens - 1,
                config,
                tell=lambda text: tell(0, 0, text),
                host=host,
                files=Design(preset, options.design).chosen() if host is None else (),
            )
        try:
            yield from reply.tokens(self.given, options.tokens, machine, ends=self.ends)
        finally:
            if machine is not None:
                machine.close()
        figures |= {
            "clipped": reply.saturated,
            "programs": reply.loop.programs,
            "tokens_a_program": reply.loop.answered,
        }
        if machine is not None:
            figures |= {"cycles": machine.cycles, "forecast": machine.told or None}


def _loras(learnt: Mapping[str, LearntModule], options: TextAnswers) -> dict[str, Adapter]:
    """Adapters beside linears, which a token has: R of LoRA-XS becomes a part of B."""
    found = {name: each.plain if isinstance(each, CoreAdapter) else each for name, each in learnt.items()}
    if not all(isinstance(each, Adapter) for each in found.values()):
        raise ValueError(
            f"adapter={options.adapter}: norms or factors have learnt, which an answer in integers does not take; it "
            "is given in floating point, without --engine and --host"
        )
    return {name: each for name, each in found.items() if isinstance(each, Adapter)}
