"""A whole fine-tune in RTL leaves the reference's words in memory, whatever the network, the memory and the cache."""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.run.counted import MismatchError
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.images.integers import fill_cache, fine_tune
from gradloom.systems.images.mathematics import FloatCache, train_adapters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.simulated import compare, run_plan

from ...deep import deep
from .conftest import SMALL, small_network

#: Of 22 samples.
WEIGHTS = np.array([0.4, 1, 1, 7.5, 1, 1, 0.4, 1, 1, 1, 7.5] * 2)


@pytest.mark.parametrize("convs", [0, 1, 2])
def test_every_loss_adapter_word_and_cached_byte_is_the_references(machine, convs):
    plan, reference, cache = machine.plan(small_network(convs=convs), samples=12, epochs=2, batch=5)
    found = compare(machine.run(plan), reference, cache)
    assert found["losses"] == 6
    assert found["adapter_words"] == sum(a.size + b.size for a, b in reference.adapters())
    assert found["cached_bytes"] == 12 * 16 * plan.lowered.record_beats


@pytest.mark.parametrize("samples", [10, 19])
def test_two_convolutions_of_more_channels_than_columns_and_more_samples_than_rows(machine, samples):
    """The second group's first convolution has two commands, between which the first group's dense layer waits."""
    rng = np.random.default_rng(samples)
    network = LayerNetwork(
        name="wide",
        input_shape=(1, 10, 10),
        layers=(
            ConvLayer(weight=rng.normal(0, 0.3, (9, 1, 3, 3)), bias=rng.normal(0, 0.1, 9), relu=True, pool=2),
            ConvLayer(weight=rng.normal(0, 0.1, (4, 9, 3, 3)), bias=rng.normal(0, 0.1, 4), relu=True),
            DenseLayer(weight=rng.normal(0, 0.2, (4, 16)), bias=rng.normal(0, 0.1, 4)),
        ),
    )
    assert len(network.layers[0].weight) > machine.config.columns and samples > machine.config.rows
    plan, reference, cache = machine.plan(network, samples=samples, epochs=1, batch=5)
    result = machine.run(plan)
    assert compare(result, reference, cache)["commands"] == result.ran.counters.commands_done


@pytest.mark.parametrize("shape, kernel, stride", [((3, 4, 9), (1, 1), (2, 1)), ((3, 7, 9), (2, 2), (3, 1))])
def test_pixels_behind_the_last_window_are_learnt_from_too(machine, shape, kernel, stride):
    """Strides leave rows over. The next sample must wait until they have been read."""
    rng = np.random.default_rng(1)
    conv = ConvLayer(weight=rng.normal(0, 0.3, (1, shape[0], *kernel)), bias=rng.normal(0, 0.1, 1), stride=stride)
    size = int(np.prod(conv.output_shape(shape)))
    network = LayerNetwork(
        name="strides",
        input_shape=shape,
        layers=(conv, DenseLayer(weight=rng.normal(0, 0.2, (2, size)), bias=rng.normal(0, 0.1, 2))),
    )
    plan, reference, cache = machine.plan(network, samples=4, epochs=1, batch=2)
    result = machine.run(plan)
    assert compare(result, reference, cache)["commands"] == result.ran.counters.commands_done


@pytest.mark.parametrize(
    "asked",
    [
        {"batch": 20, "momentum": 0.9},  # more than a microbatch, and a velocity that is kept
        {"batch": 9, "rate": 1.5},  # another gradient exponent
        {"batch": 1, "rate": 0.01},
        # Classes of their own weights: a step has microbatches of several rates, an epoch as many as it happens.
        {"batch": 12, "momentum": 0.5, "weights": WEIGHTS, "slots": 15},
        {"batch": 9, "rate": 1.5, "momentum": 0.5, "schedule": "linear"},  # two gradient exponents
    ],
)
def test_batches_rates_momentum_and_weights_make_no_difference_to_that(machine, asked):
    plan, reference, cache = machine.plan(small_network(1), samples=22, epochs=2, **asked)
    compare(machine.run(plan), reference, cache)


@pytest.mark.parametrize(
    "asked",
    [
        {"convs": 2, "batch": 5, "slots": 7},  # samples that are computed each time, too
        {"convs": 1, "batch": 20, "momentum": 0.9, "rank": 3},  # microbatches, a velocity, two adapters a tap
        {"convs": 0, "batch": 9, "rate": 1.5},
    ],
)
def test_codes_of_eight_bits_are_learnt_from_by_the_same_design(machine, asked):
    network = small_network(6, convs=asked["convs"])
    asked = {name: value for name, value in asked.items() if name != "convs"}
    plan, reference, cache = machine.plan(network, samples=14, epochs=2, wide=True, **asked)
    compare(machine.run(plan), reference, cache)
    assert plan.lowered.record_codes == 4 * sum(tap.blocks for tap in plan.lowered.taps)


@pytest.mark.parametrize("wide, cache, bound", [(True, "int8", 0.004), (False, "nf4", 0.03)])
@pytest.mark.parametrize("weights", [None, WEIGHTS[:12]])
def test_the_reference_learns_what_float_learns(wide, cache, bound, weights):
    network = small_network(7, convs=1)
    rng = np.random.default_rng(7)
    images, labels = rng.integers(0, 256, (12, *network.input_shape), np.uint8), rng.integers(0, 4, 12)
    lowered = lower(network, SMALL, 2, wide=wide)
    start = [
        (PARAMETER.decode(PARAMETER.encode(a)), PARAMETER.decode(PARAMETER.encode(rng.normal(0, 0.3, b.shape))))
        for a, b in initial_adapters(network.taps, network.classes, 2, 7)
    ]
    asked = {"epochs": 3, "batch": 4, "momentum": 0.5, "weights": weights}
    kept = fill_cache(lowered, network.pixel_map.words(images, SMALL.activation))
    words = fine_tune(
        lowered,
        Settings(samples=12, rate=0.05, seed=7, **asked),
        kept,
        labels,
        [PARAMETER.encode(a) for a, _ in start],
        [PARAMETER.encode(b) for _, b in start],
    )
    loss, _ = train_adapters(FloatCache.of(network, images, cache=cache), labels, start, lr=0.05, seed=7, **asked)
    assert np.abs(np.array(words.mean_losses) - loss).max() < bound * max(loss)


def test_pixels_that_the_host_normalised_may_be_of_either_sign(machine):
    plan, reference, cache = machine.plan(
        small_network(9, convs=2), darkest=-3 << 16, brightest=3 << 16, epochs=1, batch=6
    )
    compare(machine.run(plan), reference, cache)


@pytest.mark.parametrize("rank", [1, 3])
def test_ranks_other_than_the_designs_own_work(machine, rank):
    network = small_network(2, convs=0)
    plan, reference, cache = machine.plan(network, rank=rank, samples=10, epochs=1, batch=5)
    compare(machine.run(plan), reference, cache)


@pytest.mark.parametrize("slots", [0, 7])
def test_the_cache_size_does_not_change_what_is_learnt(machine, slots):
    asked = {"samples": 12, "epochs": 2, "batch": 5}
    plan, reference, cache = machine.plan(small_network(3), slots=slots, **asked)
    result = machine.run(plan)
    compare(result, reference, cache)
    assert result.metrics["cache"] == {"hits": slots, "misses": slots + 2 * (12 - slots)}


def test_a_slow_and_stalling_memory_changes_cycles_and_nothing_else(machine):
    plan, reference, cache = machine.plan(small_network(4), samples=12, epochs=1, batch=5)
    swift = machine.run(plan)
    slow = machine.run(plan, read_latency=200, write_latency=90, stall=90, seed=5)
    # Random stalls have no forecast.
    for result, commands in ((swift, swift.ran.counters.commands_done), (slow, 0)):
        assert compare(result, reference, cache)["commands"] == commands
    assert slow.metrics["cycles"]["total"] > swift.metrics["cycles"]["total"]


def test_phases_add_up(machine):
    plan, _, _ = machine.plan(small_network(5), samples=9, epochs=1, batch=9)
    cycles = dict(machine.run(plan).metrics["cycles"])
    assert cycles.pop("total") == sum(cycles.values())


@pytest.mark.parametrize(
    "convs, asked",
    [
        (0, {"samples": 11, "batch": 4}),  # the last group leaves rows of the one before
        (1, {"samples": 10, "batch": 7, "slots": 4, "rate": 8.0}),  # samples that are computed with every step
        (2, {"samples": 12, "batch": 12, "momentum": 0.5, "wide": True}),
    ],
)
def test_words_that_are_clipped_are_counted_and_no_others(machine, convs, asked):
    """Images that nothing in the network fits; groups of fewer samples than the array has rows; one program after
    another on a machine that keeps what it held."""
    loud = small_network(8, convs=convs, gain=8.0)
    plan, reference, cache = machine.plan(loud, epochs=2, brightest=1 << 23, spread=3.0, **asked)
    few, after, kept = machine.plan(small_network(9, convs=convs), samples=2, epochs=1, batch=2)
    assert cache.saturated.min() > 10 and not kept.saturated.any()
    with machine.device() as device:
        for program, wanted, held in ((plan, reference, cache), (few, after, kept), (plan, reference, cache)):
            host = Accelerator(device)
            host.clear_cache()
            device.advance(SMALL.cache_slots // 16)  # a program would wait for it
            assert compare(run_plan(program, MachineRunner(host)), wanted, held)["counters"] == 9


def test_a_counter_that_differs_is_said(machine):
    plan, reference, cache = machine.plan(small_network(), samples=3, epochs=1, batch=3)
    result = machine.run(plan)
    counters = result.ran.counters
    names = {field.name for field in fields(counters)} - {"cycles", "phases"}
    assert len(names) == compare(result, reference, cache)["counters"]

    def differs(said, **changed):
        ran = replace(result.ran, counters=replace(counters, **changed))
        with pytest.raises(MismatchError, match=said):
            compare(replace(result, ran=ran), reference, cache)

    for name in names:
        held = getattr(counters, name)
        differs(f"the counter {name} is {held + 1}, not {held}", **{name: held + 1})
    differs(f"forecast differ: {counters.cycles + 1:,} cycles, not {counters.cycles:,}", cycles=counters.cycles + 1)
    other = counters.phases | {"load": counters.phases["load"] + 1}
    differs("cycles of the phase load, not", phases=other)
    late = result.ran.trace.copy()
    late[5] += np.uint64(1 << 32)
    with pytest.raises(MismatchError, match="forecast differ: command .* runs from cycle"):
        compare(replace(result, ran=replace(result.ran, trace=late)), reference, cache)


def test_a_changed_model_of_time_is_caught(machine, forecast_is_compared):
    plan, reference, _ = machine.plan(small_network(), samples=9, epochs=1, batch=9)
    health = asdict(reference.health)
    forecast_is_compared(machine.run(plan).ran, "array.HIDDEN", "head.FIFO", "encode.LEVELS", **health)


@deep
def test_a_changed_operator_is_caught(machine, tmp_path):
    changed = []
    for path in machine.files:
        text = path.read_text()
        if path.name == "gradloom_align.v":
            assert "48" in text
        changed.append(tmp_path / path.name)
        changed[-1].write_text(text)
    lane = tmp_path / "gradloom_adapter_lanes.v"
    optimizer = next(p for p in changed if "optimizer_lane" in p.name and "9" in p.name)
    text = optimizer.read_text()
    assert lane.exists() and " - " in text
    optimizer.write_text(text.replace(" - ", " + "))
    plan, reference, cache = machine.plan(small_network(), samples=9, epochs=2, batch=9)
    with pytest.raises(MismatchError, match="RTL and reference differ"):
        compare(machine.run(plan, changed), reference, cache)
