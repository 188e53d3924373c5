"""Fine-tunes a language model's adapters on a text, and says what the model says, as a user asks for them."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.boards import find
from gradloom.firmware.soc import MAX_PROGRAMS
from gradloom.rtl.config import LinearConfig
from gradloom.rtl.models.checkpoint import find_weights, open_checkpoint
from gradloom.rtl.models.instant import holds_instant, load_instant, save_instant
from gradloom.rtl.models.language import Checkpoint, LanguageModel
from gradloom.rtl.models.lora import Adapter, finite, fresh_lora, load_lora, save_lora
from gradloom.rtl.models.pack import QuantizedLinear, quantize_linear
from gradloom.rtl.models.tokenizer import open_tokenizer
from gradloom.rtl.output import check_folder, grouped
from gradloom.rtl.plan.language.budget import MAX_RANK, Request, parse_targets
from gradloom.rtl.plan.language.descent import AdamW as MachineAdamW
from gradloom.rtl.plan.language.fit import MIN_SEQ, machine_misfits, memory_misfits, refuse
from gradloom.rtl.plan.language.instant_budget import cached_texts
from gradloom.rtl.plan.language.packed import STORES
from gradloom.rtl.presets import Preset

from ..reference.descent import AdamW, Optimizer, Sgd
from ..reference.llama import Cache, Llama
from . import instant_language
from .board_job import board_job, write_card_image
from .divergence import verdict
from .metrics import units
from .step import Frozen, StepMachine, memory_needed
from .trainer import StepResult, Trainer, as_far_as_formats

__all__ = ["Quantized", "build", "fine_tune", "finetune", "generate_text", "greedy"]

Progress = Callable[[int, int, str], None]
#: Optimisers, each with the rate that it has unless another is given.
OPTIMIZERS: Mapping[str, tuple[type[AdamW] | type[Sgd], float]] = {"adamw": (AdamW, 1e-3), "sgd": (Sgd, 0.1)}
MAX_STEPS = 100_000
#: Of an update. A sum has a fraction bit less than a gradient each time they double.
MAX_TEXTS = 256
ENGINES = ("rtl", "reference", "float")


class Quantized:
    """A checkpoint whose linears have gone through codes and back, as a board holds them; head and embedding stay."""

    def __init__(self, checkpoint: Checkpoint, *, bits: int = 4) -> None:
        self.path, self.bits = checkpoint.path, bits
        self.source = checkpoint
        self._linears = {f"{linear.name}.weight" for linear in checkpoint.model.linears}

    @property
    def model(self) -> LanguageModel:
        """What the checkpoint says of itself."""
        return self.source.model

    def linear(self, name: str) -> QuantizedLinear:
        """A linear by its name without ``.weight``."""
        return quantize_linear(self.source.tensor(f"{name}.weight"), self.bits)

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.rtl.models.language.Checkpoint`."""
        if name in self._linears:
            return self.linear(name.removesuffix(".weight")).weight()
        return self.source.tensor(name)


def _silent(done: int, total: int, text: str) -> None:
    pass


def build(checkpoint: Quantized, *, layers: int | None = None, progress: Progress | None = None) -> Llama:
    """The model in floating point."""
    (progress or _silent)(0, 0, "reading the weights")
    return Llama(checkpoint.model, checkpoint.tensor, layers=layers)


def turns(texts: Sequence[Sequence[int]], step: int, count: int) -> list[Sequence[int]]:
    """The texts of an update made of ``count`` of them: all take turns."""
    return [texts[(step * count + each) % len(texts)] for each in range(count)]


def on_machine(trainer: Trainer, texts: Sequence[Sequence[int]], steps: int, config: LinearConfig | None,
               progress: Progress) -> tuple[list[StepResult], str | None]:
    """``steps`` updates, from ``texts`` in turn, by the reference or, with a ``config``, in RTL; see
    :func:`~.trainer.as_far_as_formats`."""
    if config is not None:
        training, frac = trainer.prepared(texts[0], lambda text: progress(0, steps, text))
        needed = memory_needed(replace(training, rule=trainer.rule), frac, config)
        trainer.machine = StepMachine(config, memory_bytes=needed, tell=lambda text: progress(0, steps, text))
    try:
        return as_far_as_formats(lambda step: trainer.update(turns(texts, step, trainer.texts)), steps, progress)
    finally:
        if trainer.machine is not None:
            trainer.machine.close()


def fine_tune(llama: Llama, texts: Sequence[Sequence[int]], adapters: Mapping[str, Adapter], optimizer: Optimizer,
              steps: int, progress: Progress | None = None, *, accumulate: int = 1) -> list[float]:
    """``steps`` updates of the adapters, in place, each by the mean gradient of ``accumulate`` of ``texts`` in turn;
    returns the mean loss before each. A loss or an adapter that is not finite ends it early, without the update that
    led there."""
    parameters = {f"{name}.{which}": getattr(adapter, which) for name, adapter in adapters.items() for which in "ab"}
    losses: list[float] = []
    kept: Mapping[str, np.ndarray] = {}
    for step in range(steps):
        if progress is not None:
            progress(step, steps, "fine-tuning")
        found = [llama.gradients(tokens, adapters) for tokens in turns(texts, step, accumulate)]
        loss = sum(each for each, _ in found) / accumulate
        if not math.isfinite(loss):
            _restore(parameters, kept)
            break
        kept = {name: each.copy() for name, each in parameters.items()}
        gradients = {f"{name}.{which}": np.sum([pairs[name][place] for _, pairs in found], axis=0) / accumulate
                     for name in adapters for place, which in enumerate("ab")}
        optimizer.step(parameters, gradients)
        if not finite(adapters):
            _restore(parameters, kept)
            break
        losses.append(loss)
    return losses


def _restore(parameters: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
    for name, values in kept.items():
        parameters[name][...] = values


def finetune(preset: Preset, *, text: Path | str | None = None, output: Path, progress: Progress | None = None,
             model: Path | str = "smollm2-135m", adapter: Path | None = None, optimizer: str = "adamw",
             lr: float | None = None, steps: int = 8, seq: int = 64, rank: int | None = None,
             targets: str | None = None, layers: int | None = None, accumulate: int = 1, seed: int = 0,
             engine: str = "reference", store: str = "words", card: bool = False) -> dict[str, Any]:
    """Fine-tunes and writes ``metrics.json``, the adapter and ``loss.png`` to ``output``; returns the metrics.

    ``text`` is cut into windows of ``seq`` tokens, of which ``accumulate`` a step are learnt from, in turn; tokens
    behind the last whole window are left out. ``adapter``: start from this one, else from a fresh one of ``rank`` (8)
    on ``targets`` ("q,v"). ``layers``: use the first ones only. ``engine="reference"`` computes the whole step,
    optimiser included, in the machine's integers, ``"rtl"`` runs it on the simulated machine; both take only what the
    preset's machine can hold. ``"float"`` is float32. ``store``: adapters and moments lie in memory from step to step
    as words, or as codes, for which the machine has ``packing``. ``card``: writes ``card.img`` and ``job.json``
    instead, with which a board fine-tunes by itself; returns the latter.
    """
    tell = progress or _silent
    if store not in STORES or (store != "words" and (engine == "float" or accumulate > 1 or preset.method != "qlora")):
        raise ValueError(f"store={store}: must be one of {', '.join(STORES)}; words with --engine float, with "
                         f"--accumulate, and for InstantFT")
    if card:
        _check_card(preset, steps, accumulate, store)
    text_path = _check(preset, text, Path(output), optimizer, lr, steps, rank, accumulate, targets, seed, engine)
    checkpoint = Quantized(open_checkpoint(find_weights(model)))
    shapes = checkpoint.model
    if layers is not None and not 1 <= layers <= shapes.layers:
        raise ValueError(f"layers={layers}: must be from 1 to {shapes.layers}")
    count = shapes.layers if layers is None else layers
    asked = _Asked(preset=preset, checkpoint=checkpoint, layers=count, optimizer=optimizer,
                   lr=OPTIMIZERS[optimizer][1] if lr is None else lr, steps=steps, accumulate=accumulate,
                   engine=engine, store=store, tell=tell)
    if preset.method == "instantft":
        blocks = instant_language.begin(shapes, adapter, rank=rank, layers=count, seed=seed)
        request = _check_sizes(asked, seq, blocks[0].rank, parse_targets("q,v"))
        rows = instant_language.bound(preset.config, engine)
        windows, tokens = _windows(checkpoint, text_path, seq)
        _check_cache(asked, request, len(windows), text_path)
        tuned = _tune_instant(asked, windows, blocks, rows)
        save: Callable[..., Any] = save_instant
        named = ["head"]
    else:
        adapters = _adapters(shapes, adapter, rank, targets, layers, seed)
        named = sorted({name.rsplit(".", 1)[-1] for name in adapters})
        _check_sizes(asked, seq, next(iter(adapters.values())).rank, named)
        windows, tokens = _windows(checkpoint, text_path, seq)
        if card:
            return _write_card(asked, windows, adapters, Path(output), text_path.name)
        tuned = _tune(asked, windows, adapters)
        save = save_lora
    tell(steps, steps, "fine-tuning")
    first = next(iter(tuned.adapters.values()))
    # As many steps as take every window of the text equally often.
    told = verdict(tuned.losses, math.lcm(len(windows), accumulate) // accumulate, clipped=tuned.clipped,
                   words=tuned.words, steps=steps, stopped=tuned.stopped,
                   # The first step's loss is the mean of its texts', and this is that of the first text.
                   after=tuned.after if min(accumulate, len(windows)) == 1 else None)
    after = tuned.after if math.isfinite(tuned.after) else None
    metrics = {
        "preset": preset.name, "method": preset.method, "engine": engine, "model": shapes.name, "layers": count,
        "text": text_path.name, "tokens": tokens, "seq": seq, "windows": len(windows),
        "tokens_left_out": tokens - seq * len(windows), "rank": first.rank, "alpha": first.scale * first.rank,
        "adapter_parameters": sum(each.a.size + each.b.size for each in tuned.adapters.values()), "targets": named,
        "optimizer": optimizer, "lr": asked.lr, "store": store, "steps": steps, "accumulate": accumulate, "seed": seed,
        "loss": tuned.losses, "loss_before": tuned.losses[0], "loss_after": after, "saturated": tuned.saturated,
        "cycles": tuned.cycles, "base_bytes": tuned.base_bytes, **told, **tuned.more,
    }
    metrics["units"] = units(metrics)
    _write(Path(output), metrics, lambda folder: save(folder, shapes, tuned.adapters))
    return metrics


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a fine-tune is asked for, whichever way its adapters go."""

    preset: Preset
    checkpoint: Quantized
    layers: int
    optimizer: str
    lr: float
    steps: int
    accumulate: int
    engine: str
    store: str
    tell: Progress

    @property
    def config(self) -> LinearConfig | None:
        """Of the machine, if it is to run: the preset's, with what it takes to write codes."""
        config = self.preset.config
        if self.engine != "rtl":
            return None
        return dataclasses.replace(config, packing=int(config.packing or STORES[self.store] is not None))

    @property
    def rule(self) -> float | MachineAdamW:
        return MachineAdamW(lr=self.lr) if self.optimizer == "adamw" else self.lr

    def in_float(self) -> Optimizer:
        """The same in floating point."""
        return OPTIMIZERS[self.optimizer][0](lr=self.lr)

    def frozen(self) -> Frozen:
        return Frozen(self.checkpoint.model, self.checkpoint.tensor, self.checkpoint.linear)


@dataclass(frozen=True, kw_only=True)
class _Tuned:
    """What came of it, by step: losses, ``base_bytes`` of frozen matrices read, ``clipped`` of so many ``words``,
    cycles; why it ended early, if it did; and ``more`` figures."""

    losses: list[float]
    after: float
    adapters: Mapping[Any, Adapter]
    base_bytes: list[int] | None = None
    clipped: list[int] | None = None
    words: list[int] | None = None
    stopped: str | None = None
    cycles: list[int] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def saturated(self) -> int | None:
        """Words that were clipped in all; None in floating point."""
        return None if self.clipped is None else sum(self.clipped)


def _of_machine(found: Sequence[StepResult], stopped: str | None, after: float, adapters: Mapping[Any, Adapter],
                **more: Any) -> _Tuned:
    return _Tuned(losses=[each.loss for each in found], stopped=stopped, after=after,
                  clipped=[each.saturated for each in found],
                  words=[each.words for each in found],
                  cycles=[each.cycles for each in found if each.cycles is not None] or None,
                  base_bytes=[each.base_bytes for each in found], more=more,
                  adapters={name: Adapter(each.a.astype(np.float32), each.b.astype(np.float32), each.scale)
                            for name, each in adapters.items()})


def _tune(asked: _Asked, texts: Sequence[Sequence[int]], adapters: dict[str, Adapter]) -> _Tuned:
    if asked.engine == "float":
        llama = build(asked.checkpoint, layers=asked.layers, progress=asked.tell)
        losses = fine_tune(llama, texts, adapters, asked.in_float(), asked.steps, asked.tell,
                           accumulate=asked.accumulate)
        return _Tuned(losses=losses, after=llama.loss(texts[0], adapters), adapters=adapters)
    trainer = Trainer(asked.frozen(), adapters, range(asked.layers), asked.rule, texts=asked.accumulate,
                      wide=STORES[asked.store])
    found, stopped = on_machine(trainer, texts, asked.steps, asked.config, asked.tell)
    return _of_machine(found, stopped, trainer.loss(texts[0]), trainer.adapters)


def _check_card(preset: Preset, steps: int, accumulate: int, store: str) -> None:
    """Refuses what a card cannot bring."""
    if preset.method != "qlora":
        raise ValueError(f"card: {preset.name} has no firmware that fine-tunes from a card")
    if accumulate != 1:
        raise ValueError(f"accumulate={accumulate}: must be 1 with --card")
    if store != "words":
        raise ValueError(f"store={store}: must be words with --card")
    if steps > MAX_PROGRAMS:
        raise ValueError(f"steps={steps}: a card brings from 1 to {MAX_PROGRAMS}")


def _write_card(asked: _Asked, texts: Sequence[Sequence[int]], adapters: Mapping[str, Adapter], output: Path,
                text: str) -> dict[str, Any]:
    job = board_job(asked.frozen(), texts, adapters, range(asked.layers), asked.rule, asked.steps,
                    asked.preset.config, asked.tell)
    first = next(iter(adapters.values()))
    facts = {"preset": asked.preset.name, "model": asked.checkpoint.model.name, "layers": asked.layers, "text": text,
             "texts": len(texts), "tokens": len(texts[0]), "rank": first.rank, "alpha": first.scale * first.rank,
             "optimizer": asked.optimizer, "lr": asked.lr, "steps": asked.steps}
    board = find(asked.preset.board)
    return write_card_image(job, output, facts, memory_bytes=board.memory_bytes)


def _tune_instant(asked: _Asked, texts: Sequence[Sequence[int]], blocks: dict[int, Adapter], rows: int) -> _Tuned:
    rule = asked.in_float() if asked.engine == "float" else asked.rule
    trainer, found, stopped = instant_language.tune(asked.frozen(), blocks, texts, asked.steps, rule, rows=rows,
                                           config=asked.config, progress=asked.tell)
    made = _of_machine(found, stopped, trainer.loss(texts[0]), trainer.adapters,
                       **instant_language.report(asked.checkpoint.model, len(texts[0]), trainer))
    return replace(made, clipped=None, words=None) if asked.engine == "float" else made


def _check(preset: Preset, text: Path | str | None, output: Path, optimizer: str, lr: float | None, steps: int,
           rank: int | None, accumulate: int, targets: str | None, seed: int, engine: str) -> Path:
    """Refuses what can be refused before anything is read; the text's path."""
    if preset.method == "instantft" and targets is not None:
        raise ValueError(f"targets={targets}: adapters of {preset.name} go from every block to the head")
    if preset.method == "instantft" and accumulate != 1:
        raise ValueError(f"accumulate={accumulate}: must be 1 for {preset.name}")
    if engine not in ENGINES:
        raise ValueError(f"engine={engine}: must be one of {', '.join(ENGINES)}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer}: must be one of {', '.join(OPTIMIZERS)}")
    if lr is not None and not (math.isfinite(lr) and 0 < lr <= 16):
        raise ValueError(f"lr={lr}: must be above 0 and at most 16")
    for name, value, low, high in (("steps", steps, 1, MAX_STEPS), ("rank", rank, 1, MAX_RANK),
                                   ("accumulate", accumulate, 1, MAX_TEXTS), ("seed", seed, 0, 1 << 63)):
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name}={value}: must be from {low} to {high}")
    check_folder(output)
    if text is None:
        raise ValueError(f"text: is needed, {preset.name} learns from a text file")
    if not Path(text).is_file():
        raise ValueError(f"text={text}: no such file")
    return Path(text)


def _adapters(model: LanguageModel, folder: Path | str | None, rank: int | None, targets: str | None,
              layers: int | None, seed: int) -> dict[str, Adapter]:
    wanted = None if targets is None else parse_targets(targets)
    if folder is None:
        return fresh_lora(model, rank=8 if rank is None else rank, targets=wanted or parse_targets("q,v"),
                          layers=layers, seed=seed)
    found = load_lora(folder, model, rank=rank)
    has = {name.rsplit(".", 1)[-1] for name in found}
    if wanted is not None and set(wanted) != has:
        raise ValueError(f"targets={targets}: {folder} has adapters on {', '.join(sorted(has))}")
    beyond = [name for name in found if layers is not None and int(name.split(".")[2]) >= layers]
    if beyond:
        raise ValueError(f"layers={layers}: {folder} has an adapter on {beyond[0]}")
    return found


def _check_sizes(asked: _Asked, seq: int, rank: int, targets: Sequence[str]) -> Request:
    """Refuses texts that the model, and requests that the preset's machine or its board's memory, cannot take.

    Floating point has no machine, but that InstantFT's tiles are the machine's in every engine.
    """
    preset, model = asked.preset, replace(asked.checkpoint.model, layers=asked.layers)
    exact = asked.engine == "float"
    if exact and preset.method == "qlora":
        if not MIN_SEQ <= seq <= model.context:
            raise ValueError(f"seq={seq}: must be from {MIN_SEQ} to {model.context} (the model's context); "
                             f"give --seq {min(max(seq, MIN_SEQ), model.context)}")
        return Request(model=model, rank=rank, targets=tuple(targets), seq=seq, optimizer=asked.optimizer)
    failed = machine_misfits(preset.config, model, seq=seq, rank=rank, targets=targets, method=preset.method)
    # A request has a text that is within the context.
    request = Request(model=model, rank=rank, targets=tuple(targets), seq=min(max(seq, 1), model.context),
                      optimizer=asked.optimizer, store=asked.store)
    if not exact:
        failed += memory_misfits(request, find(preset.board), preset.config, method=preset.method)
    refuse(failed)
    return request


def _check_cache(asked: _Asked, request: Request, windows: int, text: Path) -> None:
    """Refuses more texts than InstantFT's forward cache has room for on the board."""
    board = find(asked.preset.board)
    room, used = cached_texts(request, board), min(windows, asked.steps)
    if asked.engine != "float" and used > room:
        raise ValueError(f"text={text}: {asked.steps} steps learn from {used} windows, the forward cache has room for "
                         f"{room} in the {board.memory_bytes} bytes of {board.name}; give a shorter text, or give "
                         f"--steps {room}")


def _windows(checkpoint: Quantized, text: Path, seq: int) -> tuple[list[list[int]], int]:
    """The text's tokens in windows of ``seq`` each, and how many tokens the whole text has.

    Tokens behind the last whole window are left out; a text shorter than one window is refused.
    """
    try:
        words = text.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text={text}: is not UTF-8 ({error.reason} at byte {error.start})") from None
    tokens = open_tokenizer(checkpoint.path).encode(words)
    if len(tokens) < seq:
        shorter = f", or give --seq {len(tokens)}" if len(tokens) >= MIN_SEQ else ""
        raise ValueError(f"text={text}: has {len(tokens)} tokens, a window of seq={seq} needs at least {seq}; "
                         f"give a longer text{shorter}")
    return [tokens[at:at + seq] for at in range(0, len(tokens) - seq + 1, seq)], len(tokens)


def _write(output: Path, metrics: dict[str, Any], save: Callable[[Path], Any]) -> None:
    from .plots import plot_steps

    with grouped(output, last="metrics.json") as stage:
        save(stage)
        plot_steps(stage / "loss.png", metrics)
        (stage / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def greedy(llama: Llama, prompt: Sequence[int], count: int, *, adapters: Mapping[str, Adapter] | None = None,
           ends: frozenset[int] = frozenset()) -> Iterator[int]:
    """At most ``count`` tokens that follow ``prompt``, each the likeliest; the lowest of equals. One of ``ends`` is
    the last and is not given."""
    cache, fresh = Cache(), list(prompt)
    for _ in range(count):
        token = int(np.argmax(llama.expect(fresh, cache, adapters)))
        if token in ends:
            return
        yield token
        fresh = [token]


def generate_text(preset: Preset, *, prompt: str, model: Path | str = "smollm2-135m", adapter: Path | None = None,
                  tokens: int = 40, progress: Progress | None = None) -> dict[str, Any]:
    """What the model with an adapter says after ``prompt``: greedy decoding, in floating point, on the same NF4
    weights as the preset's. Returns ``text`` and ``tokens``."""
    tell = progress or _silent
    if tokens < 1:
        raise ValueError(f"tokens={tokens}: must be at least 1")
    checkpoint = Quantized(open_checkpoint(find_weights(model)))
    blocks = load_instant(adapter, checkpoint.model) if adapter is not None and holds_instant(adapter) else None
    adapters = None if adapter is None or blocks is not None else load_lora(adapter, checkpoint.model)
    tokenizer = open_tokenizer(checkpoint.path)
    given = tokenizer.encode(prompt)
    if not given:
        raise ValueError("prompt: has no tokens, at least 1 is needed")
    if len(given) + tokens > checkpoint.model.context:
        raise ValueError(f"tokens={tokens}: with the prompt's {len(given)} there are more than "
                         f"{checkpoint.model.context} (the model's context)")
    if blocks is not None and len(blocks) != checkpoint.model.layers:
        raise ValueError(f"adapter={adapter}: is from {len(blocks)} of {checkpoint.model.layers} blocks")
    tell(0, 0, "reading the weights")
    llama = Llama(checkpoint.model, checkpoint.tensor) if blocks is None else instant_language.InstantLlama(
        checkpoint.model, checkpoint.tensor, blocks=blocks)
    said: list[int] = []
    for token in greedy(llama, given, tokens, adapters=adapters, ends=tokenizer.control):
        said.append(token)
        tell(len(said), tokens, "decoding")
    return {"preset": preset.name, "engine": "float", "model": checkpoint.model.name, "prompt": prompt,
            "text": tokenizer.decode(said), "tokens": said}
