"""A processor fine-tunes by InstantFT from what a card brings; every word is that of the reference."""

import io
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
from safetensors.numpy import load_file

import gradloom
from gradloom.firmware.chip.card import KEPT, read_header, section_of
from gradloom.firmware.chip.kept import newest
from gradloom.firmware.chip.soc import Limits, parse_losses, parse_run
from gradloom.models.adapters.language.instant import load_instant, save_instant
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.weights.linear import ACTIVATION
from gradloom.sim.run.soc import SimulatedSoC, build_soc
from gradloom.systems.rates import Schedule
from gradloom.systems.text.card.answers import Answers
from gradloom.systems.text.card.course import instant_course
from gradloom.systems.text.card.job import board_job, write_card_image
from gradloom.systems.text.card.trainer import InstantJobTrainer
from gradloom.systems.text.card.words import read_board
from gradloom.systems.text.operations.blocks.head import TARGETS
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.training import as_bytes, encoded

from ....deep import DEEP
from ....delivery.test_collect import put
from ..conftest import CONFIG, MODEL, TOKENS
from ..run.test_instant import fresh
from .job_memory import Firmware, Window, compiled, host
from .test_board_job import EMPTY

TEXTS = TOKENS, TOKENS[::-1]
LAYERS, RULE, MEMORY = (0, 1), AdamW(lr=1e-2, weight_decay=0.1), 1 << 24
RATES = Schedule(shape="cosine", steps=5, warmup=1)
FACTS = {
    "model": "small",
    "method": "instantft",
    "shapes": asdict(MODEL),
    "layers": 2,
    "tokens": len(TOKENS),
    "rank": 2,
    "rows": 16,
    "alpha": 4.0,
    "moment_scales": RULE.moment_scales,
}


def blocks(layers=LAYERS):
    """B is zero: what the first step has no gradients of."""
    return {layer: replace(each, b=np.zeros_like(each.b)) for layer, each in fresh(2).items() if layer in layers}


def course(frozen, steps, texts=TEXTS, rule=RULE, rates=RATES, layers=LAYERS):
    return instant_course(frozen, texts, blocks(layers), layers, rule, steps, rates, rows=16)


def reference(frozen, made, layers=LAYERS):
    return InstantJobTrainer(frozen, blocks(layers), layers, RULE, rows=16, schedule=RATES, frac=made.frac)


def words_of(made, trainer):
    """Kept words of a trainer, as memory has them."""
    instant, found = made.course.trainings[0].instant, bytearray(made.job.kept.bytes)
    values = {
        tensor.name: encoded(each, made.frac[tensor.name], tensor.form)
        for tensor, each in instant.stacked(trainer.adapters).items()
    }
    for name, data in as_bytes({name: each.astype(np.int64) for name, each in trainer.moments.items()}).items():
        found[made.layout[name] : made.layout[name] + len(data)] = data
    for name, each in values.items():
        data = b"".join(tile.astype("<i4").tobytes() for tile in np.split(each, each.shape[1] // 64, axis=1))
        found[made.layout[name] : made.layout[name] + len(data)] = data
    return bytes(found)


@pytest.mark.parametrize("driver", ["firmware", "host"])
def test_patched_programs_are_those_lowered_anew(frozen, tmp_path, driver):
    made = board_job(course(frozen, 5), CONFIG)
    window, trainer = Window(made), reference(frozen, made)
    if driver == "firmware" and shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    steps = host(window) if driver == "host" else Firmware(compiled(tmp_path / "libsteps.so"), window)
    for step in range(5):
        text, number = TEXTS[step % 2], step % 2
        training = trainer.learning(text, trainer.cache.get(text, {}))
        layout = made.layout.copy()
        for name in (training.step.input.name, TARGETS, *(each.name for each in made.course.cached)):
            layout.offsets[name] = made.layout[f"{number}:{name}"]
        program = steps.prepare(step)
        assert program == int(step >= 2)
        assert window.code(program) == lower(training.operations, made.frac, layout, CONFIG, share=True).code, step
        trainer.step(text)
        steps.measure(step + 1)


def test_a_board_fine_tunes_from_its_forward_cache(frozen, tmp_path):
    """Power goes in the middle: the caches in memory are lost, and each text's next step makes its own again. Losses,
    words and moments are those of a run without interruption, and so is what comes off the card. Its line takes most
    of the time, so one layer learns where the test is to be short."""
    texts, steps, limit, layers = (TEXTS, 5, 3, LAYERS) if DEEP else (TEXTS[:1], 3, 2, LAYERS[:1])
    made = board_job(course(frozen, steps, texts, layers=layers), CONFIG, limits=Limits(runs=limit))
    trainer = reference(frozen, made, layers)
    expected = [trainer.step(texts[step % len(texts)]) for step in range(steps)]
    big, small = (len(program.code) for program in made.job.programs)
    assert small < big / 2
    card, told, beats = EMPTY.getvalue(), [], []
    harness = build_soc(CONFIG, memory_bytes=MEMORY)
    for end in ("stopped", "done"):
        soc = SimulatedSoC(harness, memory_bytes=MEMORY)
        try:
            for section in made.sections[:-1]:
                soc.write_memory(section.offset, b"".join(section.parts))
            soc.insert(card)
            lines = soc.run(made.job)
            card = soc.content()
        finally:
            soc.close()
        assert lines[-1] == end, lines
        told += parse_losses(lines)
        runs = parse_run(lines)
        beats.append([run.read_beats for run in runs])
        assert [run.saturated for run in runs] == [0] * len(runs)
    assert told == pytest.approx([each.loss for each in expected], rel=2e-5)
    # Of each power-up, the first step on a text makes its cache.
    (*first, last), second = beats
    assert len({*first, *second}) == 1 and last < 0.55 * first[0]
    sections, identity = read_header(card[:512])
    area = section_of(sections, KEPT)
    kept = newest(io.BytesIO(card), area.start, area.size // 2, identity)
    assert kept.runs == steps and kept.words == words_of(made, trainer)
    image = tmp_path / "run" / "card.img"
    facts = FACTS | {"steps": steps, "layers": len(layers)}
    write_card_image(made, tmp_path / "run", facts, memory_bytes=MEMORY)
    put(image, (kept, None))
    found = gradloom.card.collect(tmp_path / "adapter", card=image)
    assert found["steps"] == steps and found["parameters"] == len(layers) * 2 * 2 * MODEL.hidden
    loaded = load_instant(tmp_path / "adapter", MODEL)
    moments = load_file(tmp_path / "adapter" / "optimizer.safetensors")
    for layer, each in trainer.adapters.items():
        np.testing.assert_allclose(loaded[layer].a, each.a, rtol=1e-6)
        np.testing.assert_allclose(loaded[layer].b, each.b, rtol=1e-6)
    size, hidden = MODEL.hidden, moments[f"instantft.layers.{layers[-1]}.B.exp_avg"]
    words = trainer.moments["instant.mb"][0, 2 * layers[-1] : 2 * len(layers)].astype("<u4").view("<f4").T
    np.testing.assert_allclose(hidden, words * RULE.moment_scales[0] * 2, rtol=1e-6)
    assert moments["instantft.layers.0.A.exp_avg_sq"].shape == (2, size)


def test_a_prompt_is_answered_by_the_adapters(frozen):
    """The likeliest token behind each part of a text is that of a step over all of it."""
    made = board_job(course(frozen, 5), CONFIG, answer=True)
    assert made.job.answers and sum(each.name == "prompts" for each in made.sections) == 1
    training = made.course.trainings[0]
    answers = Answers(frozen=frozen, training=training, frac=made.frac)
    found = {}
    for size in (0, 1):
        # B is zero at first.
        held = {layer: replace(each, b=size * each.b) for layer, each in fresh(2).items()}
        words = {
            tensor.name: encoded(values, made.frac[tensor.name], tensor.form)
            for tensor, values in training.instant.stacked(held).items()
        }
        logits = replace(training, blocks=held).integers(made.frac).values["2.logits"][:, : MODEL.vocab]
        found[size] = [answers.reply(TOKENS[: n + 1], 1, words, {})[0] for n in range(len(TOKENS))]
        assert found[size] == logits.argmax(axis=1).tolist()
    assert found[0] != found[1]


def test_words_have_room_for_the_furthest_way(frozen):
    """Gradients that grow by a tenth each step move a word furthest: more than seven rates, which the bound allows. A
    word beyond 24 bits would wrap in an array."""
    first, second = (each / 2**17 for each in RULE.beta_words)
    m = v = most = 0.0
    for number in range(1, 150):
        g = 1.11**number
        m, v = first * m + (1 - first) * g, second * v + (1 - second) * g * g
        most = max(most, m / v**0.5)
    assert 7 < most < RULE.furthest < 7.5
    made = course(frozen, 500, rates=Schedule())
    room = ACTIVATION.hi - 0.01 * RULE.furthest * 500 * 2.0 ** made.frac["instant.a"]
    starts = made.trainings[0].integers(made.frac).values["instant.a"]
    assert np.abs(starts).max() <= made.most["instant.a"] <= room < ACTIVATION.hi
    with pytest.raises(ValueError, match="optimizer=sgd: must be adamw for InstantFT on a card"):
        course(frozen, 5, rule=0.1, rates=Schedule())


def test_a_signed_adapter_brings_the_words_of_its_blocks(frozen, tmp_path):
    made = board_job(course(frozen, 5), CONFIG, held_out=TEXTS[0])
    write_card_image(made, tmp_path / "run", FACTS | {"steps": 5}, memory_bytes=MEMORY)
    with (tmp_path / "run" / "card.img").open("rb") as file:
        board = read_board(file)
    given = {layer: replace(each, a=each.a / 2) for layer, each in blocks().items()}
    save_instant(tmp_path / "mine", MODEL, given)
    trainer = reference(frozen, made)
    trainer.adapters = {layer: replace(each, a=each.a.astype(np.float32)) for layer, each in given.items()}
    assert board.of(tmp_path / "mine").tobytes() == words_of(made, trainer)[: board.about["words"]]
    save_instant(tmp_path / "large", MODEL, {layer: replace(each, a=each.a + 9) for layer, each in given.items()})
    with pytest.raises(ValueError, match="a value of instant.a is beyond the card's exponents"):
        board.of(tmp_path / "large")
    save_instant(tmp_path / "one", MODEL, {0: given[0]})
    with pytest.raises(ValueError, match="has 1 blocks, the card's job 2"):
        board.of(tmp_path / "one")
