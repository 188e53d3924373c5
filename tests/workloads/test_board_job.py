"""A processor fine-tunes a model by itself from what a card brings; every loss and word is the reference's."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.adapter_store import AdapterStore
from gradloom.firmware.soc import parse_losses, parse_run
from gradloom.rtl.formats.tiles import untile_rows
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.operations import SPARE
from gradloom.sim.run.soc import SimulatedSoC, build_soc
from gradloom.sim.workloads.board_job import board_job
from gradloom.sim.workloads.step import Training

from .conftest import CONFIG, TOKENS

TEXTS = TOKENS, TOKENS[::-1]
MEMORY = 1 << 24


def reference(made, frozen, adapters, layers, rule, steps):
    """Loss, clipped words and adapters after each step."""
    now, moments = dict(adapters), {}
    for number in range(1, steps + 1):
        step = Training(
            frozen, TEXTS[(number - 1) % 2], now, layers, rule=rule, number=number, moments=moments
        ).integers(made.frac)
        words = {name: step.values[name] for name in step.values if name.endswith((".a", ".b"))}
        moments = {name: step.values[name] for name in step.values if name.endswith((".ma", ".mb"))}
        for name, each in now.items():
            a, b = (words[f"{name}.{which}"] * 2.0 ** -(made.frac[f"{name}.{which}"] + SPARE) for which in "ab")
            now[name] = replace(each, a=a, b=b.T / each.scale)
        yield step.mean_loss, step.saturated, words


@pytest.mark.parametrize("layers", [[0], [0, 1]], ids=["one layer", "the last of two"])
def test_a_board_fine_tunes_by_itself(frozen, adapters, layers):
    """From a fresh adapter, whose second step has gradients that the first had not. The third step is on a text that
    the first was on: of two layers it runs the last alone."""
    used = {
        name: replace(each, b=np.zeros_like(each.b))
        for name, each in adapters.items()
        if f".layers.{layers[-1]}." in name
    }
    rule = AdamW(lr=1e-2)
    made = board_job(frozen, TEXTS, used, layers, rule, 3, CONFIG)
    expected = list(reference(made, frozen, used, layers, rule, 3))
    sizes = [len(program.code) for program in made.job.programs]
    assert sizes[0] == sizes[1] and (sizes[2] < sizes[0]) == (len(layers) == 2)
    soc = SimulatedSoC(build_soc(CONFIG, memory_bytes=MEMORY), memory_bytes=MEMORY)
    try:
        for section in made.sections[:-1]:
            soc.write_memory(section.offset, b"".join(section.parts))
        assert [program.offset % 32 for program in made.job.programs] == [0, 0, 0]
        lines = soc.run(made.job)
        kept = AdapterStore(Shared(soc), made.job.kept.store, made.job.kept.bytes).find()
    finally:
        soc.close()
    assert lines[-1] == "done"
    for told, (loss, _, _) in zip(parse_losses(lines), expected, strict=True):
        assert told == pytest.approx(loss, rel=2e-5)
    assert [run.saturated for run in parse_run(lines)] == [saturated for _, saturated, _ in expected] == [0, 0, 0]
    assert kept.sequence == 1
    for name, words in expected[-1][2].items():
        data = kept.data[made.layout[name] :][: 4 * words.size]
        np.testing.assert_array_equal(untile_rows(data, *words.shape, 64), words, err_msg=name)


class Shared:
    """The shared memory, from its first byte on."""

    def __init__(self, soc):
        self.store, self.fetch = soc.write_memory, soc.read_memory


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps=0: a job has from 1 to 180"),
        ({"steps": 181}, "steps=181"),
        ({"texts": (TOKENS, TOKENS[:4])}, "same number of tokens"),
    ],
)
def test_what_a_job_cannot_have_is_refused(frozen, adapters, options, message):
    asked = {"texts": TEXTS, "steps": 1} | options
    with pytest.raises(ValueError, match=message):
        board_job(frozen, asked["texts"], adapters, [0, 1], 0.1, asked["steps"], CONFIG)
