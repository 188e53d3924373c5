"""Costs that are composed of small programs beside those of whole programs."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from gradloom.choosing import points
from gradloom.choosing.candidates import Candidate, candidates, first_layers
from gradloom.choosing.costs import Cost, Costs
from gradloom.choosing.points import PIECE, SHORT, Point, measured
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.language import LanguageModel
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import forecast
from gradloom.systems.text.card.layout import laid_out
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.program.packed import STORES
from gradloom.systems.text.program.planned import planned_step

from ..deep import DEEP

MODEL = LanguageModel(
    name="small",
    hidden=128,
    inter=192,
    layers=5,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=64 * 260,
    context=64,
    rope_theta=100.0,
    norm_eps=1e-5,
    tied=True,
)
CONFIG = LanguageConfig(columns=4, rank=8, tokens=32, depth=512, lane_depth=256, features=256)
#: Fine-tunes whose adapters are stored as codes need it.
PACKING = replace(CONFIG, packing=1)
Q_V, ALL = TARGETS["q,v"], TARGETS["all"]
CHOICES = {
    "q, v everywhere": Candidate(targets=Q_V, rank=8, seq=32),
    "all linears of the last layers": Candidate(targets=ALL, rank=4, seq=32, from_layer=2),
    "norms of the last layers": Candidate(method="layernorm", targets=LAYERNORM.usual, rank=0, seq=32, from_layer=2),
    "LoRA-XS": Candidate(method="lora-xs", targets=ALL, rank=8, seq=32, from_layer=2),
    "factors everywhere": Candidate(method="ia3", targets=IA3.usual, rank=0, seq=32),
    "stored as codes": Candidate(targets=Q_V, rank=2, seq=32, from_layer=3, store="int8"),
    "shorter windows": Candidate(targets=ALL, rank=8, seq=16, from_layer=4),
    "several texts": Candidate(targets=ALL, rank=8, seq=32, from_layer=2, accumulate=4),
}


#: What is scaled by parameters is rougher in a model so small: cycles and programs are off by so much at most. Those
#: of SmolLM2 are within 0.11 % (docs/examples/programs/choose_costs.py).
ROUGH = {
    "stored as codes": (0.01, 0.03),
    "several texts": (0.02, 0.015),
    "all linears of the last layers": (0.009, 0.005),
}
USUAL = 0.005, 0.005
#: Without GRADLOOM_DEEP=1.
QUICK = ("all linears of the last layers", "norms of the last layers")


@pytest.fixture(scope="module")
def costs():
    return Costs(MODEL, CONFIG, [each for name, each in CHOICES.items() if name in QUICK or DEEP])


def whole(each, **change):
    """Cycles of a program of the whole model."""
    options = {
        "rule": AdamW(lr=1e-3),
        "texts": each.accumulate,
        "wide": STORES[each.store],
        "vectors": each.vectors(MODEL),
        "made": each.ranks(MODEL) if each.method == "lora-xs" else (),
    } | change
    ranks, layers = each.ranks(MODEL), range(MODEL.layers)
    program, _ = planned_step(MODEL, ranks, layers, PACKING, tokens=each.seq, **options)
    return forecast(program, config=PACKING).total


@pytest.mark.parametrize("name", [name for name in CHOICES if name in QUICK or DEEP])
def test_composed_costs_are_those_of_whole_programs(costs, name):
    each = CHOICES[name]
    found = costs.of(each)
    later = whole(each, kept=bool(each.from_layer))
    before = (each.accumulate - 1) * whole(each, kept=True, rule=None) if each.accumulate > 1 else 0
    off, _ = ROUGH.get(name, USUAL)
    assert found.update_cycles == pytest.approx(later + before, rel=off)
    if each.from_layer:
        first = whole(each)
        assert found.update_cycles / each.accumulate + found.trunk_cycles == pytest.approx(
            first if each.accumulate == 1 else (later + before) / each.accumulate + first - later, rel=off
        )


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("steps, texts", [(1, 1), (5, 2)])
def test_composed_memory_is_that_of_the_job(costs, name, steps, texts):
    """Each class is the allocator's; only commands of a program and what is patched of them differ by a few."""
    each = CHOICES[name]
    if each not in costs.found:
        pytest.skip("GRADLOOM_DEEP=1")
    texts = min(steps * each.accumulate, texts)
    composed = costs.of(each).classes(steps, each.accumulate, texts)
    job = laid_out(each.shape(MODEL, steps=steps, texts=texts), PACKING)
    _, off = ROUGH.get(name, USUAL)
    rough: dict[str, float | None] = {"programs": off, "step_table": 0.15, "page_rounding": None}
    if each.method == "lora-xs":
        # A layer's adapters are made beside the layer before it, whose places depend on how many there are.
        rough["step_tensors"] = 0.01
    assert {name: size for name, size in composed.items() if name not in rough and size} == {
        name: size for name, size in job.items() if name not in rough and size
    }
    for part, off in rough.items():
        if off is not None and part in job:
            assert composed[part] == pytest.approx(job[part], rel=off), part
    assert sum(composed.values()) == pytest.approx(sum(job.values()), rel=0.005 if "step_tensors" in rough else 0.001)


def test_programs_that_are_measured_are_small():
    """Whatever the candidates are: two layers of a kind, and a head that ends like the whole one, or one piece more."""

    class Known(dict):
        def get(self, point):
            return {"cycles": point.learning}

    found = Costs(MODEL, CONFIG, list(CHOICES.values()), known=Known()).points
    assert {point.learning for point in found} == {1, 2} and {point.trunk for point in found} == {0, 1, 2}
    assert {point.tiles for point in found} == {SHORT, PIECE + 260 % PIECE, 2 * PIECE + 260 % PIECE}


def test_programs_are_measured_on_as_many_processes_as_there_may_be(monkeypatch):
    asked = []

    @contextmanager
    def processes(jobs):
        asked.append(jobs)
        yield lambda function, items: ((each, function(each)) for each in items)

    monkeypatch.setattr(points, "processes", processes)
    monkeypatch.setattr(points, "measure", lambda model, config, point: {"cycles": point.rank})
    some = [Point(targets=Q_V, rank=rank, seq=32) for rank in (2, 4, 8)]
    for jobs in (1, 2, 8):
        assert measured(MODEL, CONFIG, some, jobs=jobs) == {point: {"cycles": point.rank} for point in some}
    assert asked == [2, 3]


def test_an_update_is_a_float_a_parameter(costs):
    each = CHOICES["all linears of the last layers"]
    sizes = [sum(MODEL.shape(name)) for name in each.targets]
    assert costs.of(each).update_bytes == 4 * 3 * 4 * sum(sizes)


def test_steps_in_a_time_are_those_that_it_is_enough_for():
    cost = Cost(update_cycles=100, trunk_cycles=30, memory={}, update_bytes=0)
    for each in (1, 3):
        for windows in (1, 2, 7):
            for cycles in range(0, 3000, 37):
                steps = cost.steps(cycles, each, windows)
                assert cost.cycles(steps, min(steps * each, windows)) <= cycles
                assert cost.cycles(steps + 1, min((steps + 1) * each, windows)) > cycles


def test_layers_that_may_learn():
    assert first_layers(30) == [0, 15, 22, 26, 28, 29]
    assert first_layers(2) == [0, 1] and first_layers(1) == [0]


def test_what_the_machine_does_not_take_is_no_candidate():
    found, left = candidates(MODEL, LanguageConfig(), (64,))
    assert {each.rank for each in found if each.method == "lora"} == {2, 4, 8} and not left
    narrow = replace(LanguageConfig(), rank=4)
    assert {each.rank for each in candidates(MODEL, narrow, (64,))[0]} == {0, 2, 4}
    assert len(candidates(replace(MODEL, hidden=100), LanguageConfig(), (64,))[0]) == len(found)
    none, left = candidates(replace(MODEL, head_dim=260), LanguageConfig(), (64,))
    assert not none and str(left[0]).startswith("head_dim=260: must be at most 256")
