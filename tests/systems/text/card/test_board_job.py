"""A processor fine-tunes a model by itself from what a card brings; every loss and word is the host-driven run's."""

import io
import zlib
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.chip.card import KEPT, Section, read_header, write_card
from gradloom.firmware.chip.kept import newest
from gradloom.firmware.chip.soc import parse_losses, parse_run
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.weights.linear import MASTER
from gradloom.sim.run.soc import SimulatedSoC, build_soc
from gradloom.systems.text.card.answers import RESIDENT, Answers
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import STATE, board_job
from gradloom.systems.text.card.trainer import JobTrainer
from gradloom.systems.text.operations.base import SPARE
from gradloom.systems.text.operations.learnt.rechosen import FRACS
from gradloom.systems.text.run.training import Training, as_bytes, encoded

from ....deep import DEEP, deep
from ..conftest import CONFIG, TOKENS

TEXTS = TOKENS, TOKENS[::-1]
PROMPT = [3, 14]
MEMORY = 1 << 24
#: A card with room for what a job learns: all else is in memory already.
EMPTY = io.BytesIO()
write_card(EMPTY, [Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=1 << 17)], memory_bytes=MEMORY)


def summed(word, *numbers):
    line = " ".join([word, *(f"{number:08x}" for number in numbers)]).encode()
    return f"{zlib.crc32(line):08x}"


def asked(prompt, tokens):
    """A request by UART for the adapter that the job begins with."""
    numbers = (1, RESIDENT.index("start"), tokens, 0xFFFFFFFF, *prompt)
    line = " ".join(["ask", *(f"{number:08x}" for number in numbers)])
    return f"\n{line} {summed('ask', *numbers)}\n".encode()


@deep
@pytest.mark.parametrize("layers", [[0], [0, 1]], ids=["one layer", "the last of two"])
def test_a_board_fine_tunes_by_itself(frozen, adapters, layers):
    """From a fresh adapter, whose second step has gradients that the first had not. On a text that there was a step on
    before it runs the last of two layers alone. Every word is the host-driven run's. Meanwhile it answers a prompt."""
    texts = TEXTS
    used = {
        name: replace(each, b=np.zeros_like(each.b))
        for name, each in adapters.items()
        if f".layers.{layers[-1]}." in name
    }
    rule, steps = AdamW(lr=1e-2), 5 if DEEP else 2
    made = board_job(qlora_course(frozen, texts, used, layers, rule, steps), CONFIG, answer=True)
    trainer = JobTrainer(frozen, dict(used), layers, rule, frac=made.frac, exponents=deepcopy(made.exponents))
    expected = [trainer.step(texts[step % len(texts)]) for step in range(steps)]
    sizes = [len(program.code) for program in made.job.programs]
    assert len(sizes) == len(layers) and sizes == sorted(sizes, reverse=True)
    soc = SimulatedSoC(build_soc(CONFIG, memory_bytes=MEMORY), memory_bytes=MEMORY)
    try:
        for section in made.sections[:-1]:
            soc.write_memory(section.offset, b"".join(section.parts))
        assert [program.offset % 32 for program in made.job.programs] == [0] * len(sizes)
        soc.insert(EMPTY.getvalue())
        soc.say(asked(PROMPT, 1), gap=60)
        lines = soc.run(made.job)
        # Between two steps of the job, or behind its end.
        while not any(line.startswith("answered") for line in soc.lines):
            soc.hear()
        said = soc.lines
        (area,), identity = read_header(soc.content()[:512])
        kept = newest(io.BytesIO(soc.content()), area.start, area.size // 2, identity)
    finally:
        soc.close()
    assert lines[-1] == "done" and f"steps: {steps}" in lines
    for told, result in zip(parse_losses(lines), expected, strict=True):
        assert told == pytest.approx(result.loss, rel=2e-5)
    runs = parse_run(lines)
    assert [run.saturated for run in runs] == [result.saturated for result in expected] == [0] * steps
    beats = [(run.read_beats, run.write_beats) for run in runs]
    whole, alone = beats[: len(texts)], beats[len(texts) :]
    assert len(set(whole)) == len(set(alone)) == 1 and (whole[0] > alone[0]) == (len(layers) == 2)
    assert lines[-2:] == [f"kept: after run {steps}", "done"]
    answers = Answers(frozen=frozen, training=Training(frozen, texts[0], used, layers, rule=rule), frac=made.frac)
    words = answers.training.tables(made.frac)
    own = {f"{name}.{which}": words[f"{name}.{which}"] for name in used for which in "ab"}
    (token,) = (line.split()[3] for line in said if line.startswith("token "))
    assert [int(token, 16)] == answers.reply(PROMPT, 1, own, made.exponents.frac)
    # An adapter's words after the last step have the exponents that were chosen then.
    for name, each in trainer.adapters.items():
        for which, values in (("a", each.a), ("b", each.b * each.scale)):
            key = f"{name}.{which}"
            words = encoded(values, trainer.exponents.frac[key] + SPARE, MASTER)
            data = as_bytes({key: words})[key]
            assert kept.words[made.layout[key] :][: len(data)] == data, key
    state = np.frombuffer(kept.words, "<i4", offset=made.layout[STATE])
    for number, name in enumerate(used):
        assert [trainer.exponents.frac[f"{name}.{which}"] for which in FRACS] == state[12 * number :][:6].tolist()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps=0: a job has from 1 to 100000"),
        ({"steps": 100_001}, "steps=100001"),
        ({"texts": (TOKENS, TOKENS[:4])}, "same number of tokens"),
    ],
)
def test_what_a_job_cannot_have_is_refused(frozen, adapters, options, message):
    asked = {"texts": TEXTS, "steps": 1} | options
    with pytest.raises(ValueError, match=message):
        board_job(qlora_course(frozen, asked["texts"], adapters, [0, 1], 0.1, asked["steps"]), CONFIG)
