"""What `generate` says of a preset's own workload, without running it."""

import numpy as np
import pytest

from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.time.forecast import forecast
from gradloom.systems.images.expectation import SAMPLES, expectation
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.task import shipped
from gradloom.systems.images.workload import DIGITS, LENET5


@pytest.fixture(scope="module")
def said():
    return expectation(ImageConfig())


def whole_plan(settings):
    network = load_pretrained()
    images = np.zeros((settings.samples, *network.input_shape), np.int64)
    return plan_finetune(
        lower(network, ImageConfig(), 4),
        settings,
        images,
        np.zeros(settings.samples, np.int64),
        [np.zeros((4, n), np.int64) for n in network.taps],
        [np.zeros((network.classes, 4), np.int64) for _ in network.taps],
    )


@pytest.mark.parametrize("workload", [LENET5, DIGITS], ids=lambda each: each.network)
def test_a_workload_says_how_many_images_it_has(workload):
    found = shipped(workload, load_pretrained(workload.network), 0, None)
    assert (len(found.x_train), len(found.x_test)) == (workload.samples, workload.judged)


def test_the_memory_map_is_that_of_the_whole_plan(said):
    plan = whole_plan(Settings(samples=SAMPLES))
    assert said["forecast"]["commands"] == plan.commands
    regions = {each["name"]: (each["address"], each["bytes"]) for each in said["memory_map"]["regions"]}
    assert regions == plan.memory.areas
    assert said["memory_map"]["window_bytes"] == plan.length


def test_regions_do_not_overlap(said):
    end = 0
    for region in said["memory_map"]["regions"]:
        assert region["address"] >= end and region["address"] % 4096 == 0
        end = region["address"] + region["bytes"]
    assert end <= said["memory_map"]["window_bytes"]


def test_the_forecast_is_the_whole_one_to_a_tenth_of_a_percent(said):
    whole = forecast(whole_plan(Settings(samples=SAMPLES)))
    assert said["forecast"]["cycles"] == pytest.approx(whole.total, rel=1e-3)
    assert said["forecast"]["phases"]["convolution"] == whole.phases["convolution"]
    assert sum(said["forecast"]["phases"].values()) == said["forecast"]["cycles"]


def test_few_groups_and_steps_say_what_many_take(monkeypatch):
    monkeypatch.setattr("gradloom.systems.images.expectation.SAMPLES", 210)
    whole = forecast(whole_plan(Settings(samples=210)))
    short = expectation(ImageConfig())["forecast"]
    assert short["cycles"] == pytest.approx(whole.total, rel=5e-3)
    assert short["phases"]["dense"] == pytest.approx(whole.phases["dense"], rel=5e-3)


@pytest.mark.parametrize(
    ("change", "named"), [({"adapter_depth": 256}, "adapter words"), ({"cache_slots": 64}, "cache_slots=64")]
)
def test_a_design_that_cannot_run_it_says_why(change, named):
    said = expectation(ImageConfig(**change))
    assert said["forecast"] is None and said["memory_map"] is None and named in said["reason"]


def test_a_report_names_registers_and_the_window():
    from gradloom.boards import find
    from gradloom.cli.design import generate as cli_generate

    said = cli_generate._expected(expectation(ImageConfig()), find("kv260"), [{"name": "s_axi_awaddr", "width": 12}])
    assert said["memory_map"]["registers"] == {"address": find("kv260").register_base, "bytes": 4096}
    assert {"regions", "window_bytes", "window_base"} <= set(said["memory_map"])
