"""Answers in blocks of memory, which the accelerator runs in simulated RTL as a board's firmware has it do."""

import numpy as np
import pytest

import gradloom
from gradloom.models.datasets import digits_split
from gradloom.preset import find_preset
from gradloom.program.memory import BLOCK
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.alone import identity
from gradloom.systems.asked import asked_for
from gradloom.systems.driver import prepared
from gradloom.systems.images import alone
from gradloom.systems.images.answer import infer
from gradloom.systems.images.program.onchip import fitting, plan_answers_onchip
from gradloom.systems.images.requests import ImageAnswers
from gradloom.systems.images.workload import ImageOptions
from gradloom.workload import silent

PRESET = find_preset("digits-ulx3s")


class Bare:
    """A board without a processor: what ``firmware/chip/runs/tuner_main.c`` does with a memory is done from here."""

    sent = 0

    def __init__(self, machine, plans):
        self.machine, self.plans = machine, plans

    def finished(self):
        pass

    def told(self):
        return [identity(PRESET.config)]

    def run(self, image, changed, *, epochs):
        host, plan, cycles = self.machine.host, self.plans[-1], 0
        host.store(0, image)
        base = host.transport.window_base
        for stage in plan.stages:
            at, program = plan.programs[stage.program]
            for block in range(stage.block, stage.block + stage.blocks):
                host.set_window(base + BLOCK * block, len(image) - BLOCK * block)
                cycles += host.run(at - BLOCK * block, len(program)).cycles
        return [*self.told(), f"cycles: {cycles}", "done"]

    def fetch(self, offset, length):
        return self.machine.host.fetch(offset, length)


@pytest.mark.parametrize(("train", "judged"), [(8, 8), (15, 9), (16, 23)])
def test_a_board_learns_and_judges_whole_blocks(train, judged, tmp_path):
    data = digits_split(train, judged, degrees=90)
    parts = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    np.savez(tmp_path / "d.npz", **parts)
    options = ImageOptions(data=tmp_path / "d.npz", engine="rtl")
    task, _ = prepared(PRESET, options, tmp_path / "run", silent, Bare(None, None))
    sizes = {name: len(getattr(task.dataset, name)) for name in parts}
    assert sizes == {name: len(each) // 8 * 8 for name, each in parts.items()}
    assert (task.chip.train_blocks, task.settings.samples) == (train // 8, train // 8 * 8)


def test_images_of_several_blocks_and_memories_are_the_references(tmp_path, monkeypatch):
    """Two memories, of two blocks and of one that is not full; with what a fine-tune has learnt, and without."""
    data, plans = digits_split(40, 40, degrees=90), []
    np.savez(tmp_path / "d.npz", x=data.x_test[:10], y=data.y_test[:10])

    def planned(*given, memory, pause):
        plans.append(plan_answers_onchip(*given, memory=memory, pause=pause))
        return plans[-1]

    monkeypatch.setattr(alone, "plan_answers_onchip", planned)
    # A memory with room for a second block.
    monkeypatch.setattr(alone, "fitting", lambda plan, _: fitting(plan, len(plan.image) + BLOCK))
    gradloom.finetune(PRESET.name, engine="reference", epochs=2, output=tmp_path / "run")
    found = []
    with MachineRunner.simulated(PRESET.config) as machine:
        for adapter in (tmp_path / "run", None):
            asked = {"data": tmp_path / "d.npz", "adapter": adapter}
            port, before = Bare(machine, plans), len(plans)
            answers = infer(asked_for(PRESET.name, verb="infer"), ImageAnswers(**asked, engine="rtl"), silent, port)
            assert [plan.blocks for plan in plans[before:]] == [1, 2, 1]
            wanted = gradloom.infer(PRESET.name, **asked)
            assert (answers["labels"], answers["accuracy"]) == (wanted["labels"], wanted["accuracy"])
            assert answers["cycles"] > 0 and answers["forecast"] is None
            found.append(answers["labels"])
    assert found[0] != found[1]
