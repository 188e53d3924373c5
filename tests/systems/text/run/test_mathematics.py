"""The operations of a step are a LLaMA's, and integers follow floats."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.pack import quantize_linear
from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.elements import Loss
from gradloom.systems.text.operations.exponents import choose
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.operations.shapes import odd_shapes
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.order import order
from gradloom.systems.text.quantized import in_order
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import largest

from ..conftest import MODEL, TOKENS


def test_operations_are_those_of_a_llama(training, frozen, tensors, adapters):
    """Against the model written as a model, on the same dequantised weights: the loss, and every gradient."""
    exact = {
        name: frozen.linear(name.removesuffix(".weight")).weight() if "_proj" in name else values
        for name, values in tensors.items()
    }
    loss, gradients = Llama(MODEL, exact.__getitem__, dtype=np.float64).gradients(TOKENS, adapters)
    made = training().exact()
    assert made.mean_loss == pytest.approx(loss, rel=1e-12)
    for name, (ga, gb) in gradients.items():
        np.testing.assert_allclose(made.values[f"{name}.ga"], ga, rtol=0, atol=1e-11 * np.abs(ga).max())
        # B has the adapter's factor in it.
        gb = gb.T / adapters[name].scale
        np.testing.assert_allclose(made.values[f"{name}.gb"], gb, rtol=0, atol=1e-11 * np.abs(gb).max())


def test_integers_follow_floats(training):
    """Every tensor within 0.5 % of its RMS: 18-bit operands of 2**-17, and what a chain of some twenty adds up to."""
    prepared = training()
    exact = prepared.exact()
    frac = prepared.fracs(largest(exact), headroom=1)
    made = prepared.integers(frac)
    assert made.saturated == 0 and made.mean_loss == pytest.approx(exact.mean_loss, rel=1e-4)
    for name, values in exact.values.items():
        error = made.values[name] * 2.0 ** -frac[name] - values
        assert np.sqrt(np.mean(error**2)) <= 5e-3 * np.sqrt(np.mean(values**2)), name


def test_a_trainer_learns_and_its_exponents_follow(frozen, adapters):
    trainer = Trainer(frozen, dict(adapters), range(MODEL.layers), AdamW(lr=3e-3))
    found = [trainer.step(TOKENS) for _ in range(4)]
    assert found[-1].loss < found[0].loss - 0.05 and sum(each.saturated for each in found) == 0
    assert trainer.loss(TOKENS) < found[-1].loss
    exact = Trainer(frozen, dict(adapters), range(MODEL.layers), AdamW(lr=3e-3))
    assert exact.loss(TOKENS) == pytest.approx(found[0].loss, rel=1e-4)


def test_every_tensor_is_made_before_it_is_read():
    made = {"identity", "0.x"}
    for operation in StepOperations(MODEL, 9, {}, range(2)).operations():
        reads = [
            part.name for part in vars(operation).values() if hasattr(part, "tensor") and part not in operation.results
        ]
        if isinstance(operation, Product) and hasattr(operation.weight, "tiles"):
            reads += [part.name for part in operation.weight.tiles]
        assert not set(reads) - made, operation
        made |= {part.name for part in operation.results}


def test_exponents_out_of_reach_are_named():
    operations = StepOperations(MODEL, 9, {}, range(1)).operations()
    first = operations[0]
    with pytest.raises(ValueError, match="0.attended: 99 fraction bits"):
        choose([first], {}, {"0.x": 20, "0.norm1": 14, "0.attended": 99})


@pytest.mark.parametrize(
    "shapes, named",
    [
        ({"hidden": 100}, "model=small: must have shapes in multiples of 64"),
        ({"head_dim": 32}, "model=small: must have shapes in multiples of 64"),
        ({"head_dim": 320}, "head_dim=320: must be at most 256"),
    ],
)
def test_shapes_are_refused_by_name(shapes, named):
    with pytest.raises(ValueError, match=named):
        StepOperations(replace(MODEL, **shapes), 9, {}, range(1))


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
@pytest.mark.parametrize("hidden", [64, 128, 192, 256, 512, 1024])
def test_rows_that_part_groups_of_scales_have_codes_in_their_order(head_dim, hidden):
    """Other rows of codes move with whole groups."""
    model = replace(MODEL, hidden=hidden, head_dim=head_dim, heads=4)
    weight = np.random.default_rng(3).normal(size=(4 * head_dim, hidden)).astype(np.float32)
    held, rows = in_order(model, "q_proj", weight), order(model, "q_proj")
    assert not any(odd_shapes(model))
    if rows is None:
        return
    np.testing.assert_array_equal(held.ordered(rows).weight(), held.weight()[rows])
    if held.rows is None:
        assert hidden % 512 == 0 or 256 % (head_dim * hidden // 64) == 0
        np.testing.assert_array_equal(held.weight(), quantize_linear(weight).weight())
    else:
        np.testing.assert_array_equal(held.ordered(rows).weight(), quantize_linear(weight[rows]).weight())
        with pytest.raises(ValueError, match=f"inputs={hidden}: the order of rows parts groups of 256 scales"):
            quantize_linear(weight).ordered(rows)


def test_a_head_of_many_tiles_is_cut(frozen):
    wide = replace(MODEL, vocab=64 * 300)
    operations = StepOperations(wide, 9, {}, range(1)).operations()
    loss = next(n for n, each in enumerate(operations) if isinstance(each, Loss))
    logits = [each for each in operations[:loss] if isinstance(each, Product) and each.weight_name == "head"]
    assert [each.y.count for each in logits] == [128, 128, 44]
    assert all(
        each.x.count <= 16 for each in operations[loss:] if isinstance(each, Product) and each.weight_name == "head"
    )
