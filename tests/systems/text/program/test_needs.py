"""A step has no operation that it could do without, and what is left makes what all of them would."""

from dataclasses import replace

import pytest

from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.language import BUILT_IN, PROJECTIONS
from gradloom.program.operations import needed
from gradloom.systems.text.operations.elements import Loss
from gradloom.systems.text.operations.products import Gradient, Product
from gradloom.systems.text.operations.scaling import Narrow, Norm, NormBackward, TokenSum
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.traffic import base_bytes
from gradloom.systems.text.small import SMALL

MODEL = replace(SMALL, layers=3)


def step(targets, first=0, rank=8, model=MODEL, tokens=9):
    names = [
        each.name for each in model.linears if each.projection in targets and int(each.name.split(".")[2]) >= first
    ]
    return StepOperations(model, tokens, dict.fromkeys(names, rank), range(model.layers)).operations()


@pytest.mark.parametrize(
    "targets, first",
    [
        (tuple(PROJECTIONS), 0),
        (("q_proj", "v_proj"), 0),
        (("down_proj",), 0),
        (("gate_proj",), 1),
        (tuple(PROJECTIONS), 2),
        (("v_proj",), 2),
    ],
)
def test_nothing_is_left_that_nothing_reads(targets, first):
    """Each result is read by an operation behind it; and what each reads is made before it."""
    every = step(targets, first)
    kept = needed(every)
    ends = {each.adapter.name for each in every if isinstance(each, Gradient)}
    assert ends == {each.adapter.name for each in kept if isinstance(each, Gradient)} and ends
    made = {f"{name}.{which}" for name in ends for which in ("h", "dh")} | {"0.x", "identity"}
    for place, operation in enumerate(kept):
        assert set(operation.reads) <= made, operation
        made |= {part.name for part in operation.results}
        behind = {name for each in kept[place + 1 :] for name in each.reads}
        hidden = {operation.hidden} if isinstance(operation, Product) and operation.adapter else set()
        if not isinstance(operation, Gradient | Loss):
            assert behind & (hidden | {part.name for part in operation.results}), operation


def test_the_backward_pass_ends_at_the_lowest_adapter():
    kept = needed(step(("q_proj", "v_proj"), first=2))
    loss = next(n for n, each in enumerate(kept) if isinstance(each, Loss))
    assert not [each for each in kept[loss + 1 :] for part in each.results if part.name.startswith(("0.", "1."))]
    # Of both products of the lowest layer, h alone is read: it is complete after a tile.
    entry = [each for each in kept[loss:] if isinstance(each, Product) and each.adapter is not None]
    assert [(each.adapter.name[-6:], each.y.count, each.y.tensor.features) for each in entry] == [
        ("v_proj", 1, 64),
        ("q_proj", 1, 64),
    ]
    wide = needed(step(("v_proj",), first=2, rank=16))
    assert [each.y.count for each in wide if isinstance(each, Product) and each.backward and each.adapter] == [2]


@pytest.mark.parametrize("method, targets, lowest", [(LAYERNORM, None, 1), (LAYERNORM, ("norm",), 3), (IA3, None, 1)])
def test_vectors_need_no_more_than_their_gradients(method, targets, lowest):
    """Each vector's factors are made, and its gradient; the backward pass ends at the lowest that learns."""
    modules = method.modules(MODEL, targets or method.usual, range(1, MODEL.layers))
    every = StepOperations(MODEL, 9, {}, range(MODEL.layers), vectors=frozenset(modules)).operations()
    kept = needed(every)
    assert {each.y.name for each in kept if isinstance(each, TokenSum)} == {f"{name}.gw" for name in modules}
    assert {each.words.name for each in kept if isinstance(each, Narrow)} == {f"{name}.w" for name in modules}
    made = {part.name for each in every for part in each.results}
    known, read = {f"{name}.w" for name in modules} | {"0.x", "identity"}, set()
    for operation in kept:
        weights = {operation.weight} & made if isinstance(operation, Norm | NormBackward) else set()
        assert {*operation.reads, *weights} <= known, operation
        known |= {part.name for part in operation.results}
        read |= {*operation.reads, *weights}
    for operation in kept:
        if not isinstance(operation, TokenSum | Loss):
            assert read & {part.name for part in operation.results}, operation
    loss = next(n for n, each in enumerate(kept) if isinstance(each, Loss))
    below = tuple(f"{layer}." for layer in range(lowest))
    behind = [part.name for each in kept[loss + 1 :] for part in each.results]
    assert not [name for name in behind if name.startswith(below)] and behind


def test_what_is_wanted_stays():
    every = step(("q_proj",), first=1)
    assert any(part.name == "0.dx" for each in needed(every, ("0.dx",)) for part in each.results)
    assert not any(part.name == "0.dx" for each in needed(every) for part in each.results)
    assert needed(every[:1]) == [] and needed(every[:1], ("0.attended",)) == every[:1]


def test_a_narrow_product_reads_a_part_of_its_matrix():
    """Of SmolLM2's last four layers: each matrix forward, and back; in the lowest, a column of tiles for each h."""
    smollm2 = BUILT_IN["smollm2-135m"]
    kept = needed(step(tuple(PROJECTIONS), 26, model=smollm2, tokens=64))
    tile, header = (
        64 + 64 * 32,
        {
            name: base_bytes([each])
            for each in kept
            if isinstance(each, Product)
            for name in [each.weight_name]
            if each.y.count == 1 and each.adapter
        },
    )
    assert sorted(header) == [f"model.layers.26.self_attn.{name}_proj" for name in "kqv"]
    assert header["model.layers.26.self_attn.q_proj"] == 9 * tile + 96
    assert header["model.layers.26.self_attn.v_proj"] == 3 * tile + 32
