"""Steps and scores are heard as they come, each once; the result is a dataclass that reads as metrics.json."""

import json

import pytest

import gradloom


def heard_of(folder, preset, **options):
    heard = []
    made = gradloom.finetune(preset, output=folder / "out", callbacks=[heard.append], **options)
    return made, heard


@pytest.mark.parametrize("engine", ["reference", "float"])
def test_images_are_heard(tmp_path, engine):
    made, heard = heard_of(tmp_path, "digits-ulx3s", engine=engine, epochs=2)
    steps = [each for each in heard if each.loss is not None]
    assert [each.number for each in steps] == list(range(1, 25)) and {each.steps for each in steps} == {24}
    assert [each.loss for each in steps] == made.losses == made["loss"]
    scores = [each.held_out for each in heard if each.held_out is not None]
    assert scores == made.held_out and [each.step for each in scores] == [0, 12, 24]
    # A score is heard between the steps.
    assert [bool(each.held_out) for each in heard].index(True, 1) == 13
    assert (made.accuracy_before, made.accuracy_after) == (scores[0].accuracy, scores[-1].accuracy)
    assert dict(made) == json.loads((made.folder / "metrics.json").read_text())
    assert made.forecast == (None if engine == "float" else made["forecast"]["total"]) and made.cycles is None


def test_a_callback_that_raises_ends_it_and_nothing_is_written(tmp_path):
    def stop(step):
        if step.number == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gradloom.finetune("digits-ulx3s", engine="float", output=tmp_path / "out", callbacks=[stop])
    assert not (tmp_path / "out").exists()


def test_steps_that_rtl_and_reference_make_are_heard_once():
    from types import SimpleNamespace

    from gradloom.systems.job import Job

    heard = []
    job = Job(preset=SimpleNamespace(), options=None, design=None, output=None, tell=None, callbacks=[heard.append])
    for _ in range(2):
        job.judged(0, 2, {"loss": 3.0})
        for number in (1, 2):
            job.made(number, 2, 1.0 / number)
        job.judged(2, 2, {"loss": 2.0, "accuracy": 0.5})
    assert [(each.number, each.loss) for each in heard] == [(0, None), (1, 1.0), (2, 0.5), (2, None)]
    assert heard[-1].held_out.accuracy == 0.5


@pytest.mark.parametrize(
    "model, options",
    [("digits-ulx3s", {}), ("digits-unet", {}), ("spar-lstm", {}), ("smollm2-135m", {"method": "instantft"})],
)
def test_a_plan_has_the_entries_of_its_type(model, options):
    found = gradloom.plan(model, **options)
    assert found and set(found) <= set(gradloom.Planned.__annotations__)


def test_answers_have_the_entries_of_their_type():
    found = gradloom.infer("lenet5", limit=4)
    assert set(found) <= set(gradloom.Inferred.__annotations__) and len(found["labels"]) == 4
