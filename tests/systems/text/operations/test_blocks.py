"""Texts of several blocks: operations in float, integers and RTL, for every method and all that families have."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.lora_xs import fresh_cores
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.texts.example import Example
from gradloom.program.descent import AdamW
from gradloom.systems.text.card.layout import Shape, counted_bytes, laid_out, program_bytes
from gradloom.systems.text.operations.blocks.rows import blocks
from gradloom.systems.text.operations.products import Gradient, Product
from gradloom.systems.text.operations.tensors import Words
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.order import arranged
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import SMALL, frozen_of, random_tensors

from ....deep import deep
from ..conftest import CONFIG, FAMILIES, LONG_HEADS, TARGETS, exact_llama

#: A machine of whole blocks.
WHOLE = replace(CONFIG, tokens=64, depth=1024)
MODELS = {name: replace(model, context=512) for name, model in (("small", SMALL), ("long heads", LONG_HEADS))}
MODELS["families"] = replace(FAMILIES, context=512, kv_heads=1)
#: The last block is not whole.
TOKENS = tuple(np.random.default_rng(1).integers(0, SMALL.vocab, 160).tolist())
RULE = AdamW(lr=1e-2)


@pytest.fixture(scope="module", params=MODELS)
def frozen(request):
    model = MODELS[request.param]
    return frozen_of(random_tensors(np.random.default_rng(3), model), model)


def drawn(model, targets=TARGETS, layers=range(2), rank=2):
    random = np.random.default_rng(4)
    return {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(model, rank=rank, targets=targets, layers=layers).items()
    }


def learnt_by(method, model, tensors):
    """What learns, near where a fine-tune starts."""
    random = np.random.default_rng(6)
    if method == "lora-xs":
        found = fresh_cores(model, tensors.__getitem__, rank=2, targets=TARGETS, layers=range(2))
        return {name: each.taking({"r": random.normal(0, 0.3, each.r.shape)}) for name, each in found.items()}
    known = {"layernorm": LAYERNORM, "ia3": IA3}[method]
    names = known.modules(model, known.usual, range(2))
    sizes = {name: max(next(iter(known.shapes(model, name, 1).values()))) for name in names}
    return {name: Vector(random.normal(1, 0.2, sizes[name])) for name in names}


def test_gradients_are_those_of_the_model(frozen):
    """Loss and gradients of float64, and of the integers within what formats lose."""
    adapters = drawn(frozen.model)
    step = Training(frozen, TOKENS, adapters, range(2), rule=RULE)
    exact = step.exact()
    loss, gradients = exact_llama(frozen).gradients(TOKENS, adapters)
    assert exact.mean_loss == pytest.approx(loss, rel=1e-12) and exact.foretold == len(TOKENS) - 1
    frac = step.fracs(largest(exact), headroom=1)
    made = step.integers(frac)
    assert made.saturated == 0 and made.mean_loss == pytest.approx(loss, rel=1e-4)
    ordered = arranged(frozen.model, {name: replace(adapters[name], b=gb) for name, (_, gb) in gradients.items()})
    for name, (ga, _) in gradients.items():
        for which, wanted in (("ga", ga), ("gb", ordered[name].b.T / adapters[name].scale)):
            found = exact.values[f"{name}.{which}"]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())
            words = made.values[f"{name}.{which}"] * 2.0 ** -frac[f"{name}.{which}"]
            assert np.linalg.norm(words - wanted) < 2e-3 * np.linalg.norm(wanted), (name, which)


@pytest.mark.parametrize("method, end", [("lora-xs", "gr"), ("layernorm", "gw"), ("ia3", "gw")])
def test_every_method_adds_its_blocks_up(method, end):
    """With a text of which parts are learnt, in float and in integers."""
    model = MODELS["small"]
    tensors = random_tensors(np.random.default_rng(3), model)
    frozen, learnt = frozen_of(tensors, model), learnt_by(method, model, tensors)
    text = Example(TOKENS, tuple(place % 3 > 0 for place in range(len(TOKENS))))
    step = Training(frozen, text, learnt, range(2), rule=RULE)
    exact = step.exact()
    loss, gradients = exact_llama(frozen).gradients(text, learnt)
    assert exact.mean_loss == pytest.approx(loss, rel=1e-6)
    frac = step.fracs(largest(exact), headroom=1)
    made = step.integers(frac)
    assert made.saturated == 0 and made.foretold == exact.foretold == sum(text.learnt[1:])
    for name, (wanted,) in gradients.items():
        wanted = wanted[None] if end == "gw" else wanted.T
        found = exact.values[f"{name}.{end}"][:, : wanted.shape[1]]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
        words = made.values[f"{name}.{end}"][:, : wanted.shape[1]] * 2.0 ** -frac[f"{name}.{end}"]
        assert np.linalg.norm(words - wanted) < 4e-3 * np.linalg.norm(wanted), name


@pytest.mark.parametrize("method", ["lora-xs", "ia3"])
def test_only_adapters_are_stored_as_codes(method):
    model = MODELS["small"]
    tensors = random_tensors(np.random.default_rng(3), model)
    with pytest.raises(ValueError, match="^wide: neither vectors nor LoRA-XS are stored as codes$"):
        Training(frozen_of(tensors, model), TOKENS, learnt_by(method, model, tensors), range(2), rule=RULE, wide=True)


def test_texts_are_added_up_and_the_trunk_is_kept():
    """Two updates of two long texts from the last layer on, which come back with what enters it in memory."""
    model = MODELS["small"]
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    trainer = Trainer(frozen, drawn(model, layers=[1]), range(2), RULE, texts=2)
    texts = TOKENS[:100], TOKENS[60:]
    losses = [trainer.update(texts) for _ in range(2)]
    assert losses[0].loss > losses[1].loss and not any(each.saturated for each in losses)
    assert trainer.cache_bytes(TOKENS[:100]) == 4 * 100 * model.hidden
    exact = exact_llama(frozen)
    both = sum(exact.gradients(text, drawn(model, layers=[1]))[0] for text in texts) / 2
    assert losses[0].loss == pytest.approx(both, rel=1e-4)
    # Of all blocks, and without the layers that the losses do not need.
    learnt = trainer.adapters
    assert trainer.loss(texts[0]) == pytest.approx(exact.gradients(texts[0], learnt)[0], rel=1e-9)


@pytest.mark.parametrize("tokens, pairs", [(64, 1), (65, 3), (160, 6)])
def test_queries_meet_the_keys_up_to_their_block(tokens, pairs):
    """Tiles of scores, on the way back twice: no tile of later keys is made."""
    model = MODELS["small"]
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    step = Training(frozen, TOKENS[:1] * tokens, drawn(model), range(2), rule=RULE)
    scores = [each for each in step.operations if isinstance(each, Product) and ".scores" in each.y.name]
    assert sum(each.y.count for each in scores) == 2 * model.heads * pairs
    assert sum(len(each.weight.tiles) for each in step.operations if _of(each, ".dq")) == 2 * model.heads * pairs
    assert max(each.x.rows for each in step.operations if isinstance(each, Product)) <= 64
    assert [(each.first, each.rows) for each in blocks(tokens)] == [
        (64 * number, min(64, tokens - 64 * number)) for number in range(-(-tokens // 64))
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("name", MODELS)
def test_no_operation_comes_before_what_it_reads(name, count):
    """In whatever order stages hide each other: every row and tile has been made, if the step makes it at all."""
    model = MODELS[name]
    ranks = dict.fromkeys(drawn(model, targets=("q_proj", "v_proj", "o_proj")), 2)
    operations = StepOperations(model, 64 * count - 9, ranks, range(2)).operations()
    made = {part.name: part.tensor for each in operations for part in each.results}
    held = {name: np.zeros((each.rows, each.features), bool) for name, each in made.items()}
    for each in operations:
        match each:
            case Product():
                reads = [each.x, *(each.weight.tiles if isinstance(each.weight, Words) else ())]
            case Gradient():
                reads = [each.x, each.dy]
            case _:
                reads = [part for field in each.takes if (part := getattr(each, field)) is not None]
        for part in reads:
            assert part.name not in held or part.of(held[part.name]).all(), (each, part)
        for part in each.results:
            part.put(held[part.name], np.ones((part.rows, 64 * part.count), bool))
    tall = {name for name, each in made.items() if each.rows > 64}
    assert all(held[name].all() for name in tall) and bool(tall) == (count > 1)


def _of(each, end):
    return isinstance(each, Product) and isinstance(each.weight, Words) and each.y.name.endswith(end)


@pytest.fixture(scope="module")
def machine():
    machine = StepMachine(WHOLE, memory_bytes=1 << 26)
    yield machine
    machine.close()


@pytest.mark.parametrize(
    "name, stall, options",
    [
        ("small", 0, {}),
        ("small", 25, {"share": True}),
        pytest.param("small", 0, {"share": True, "yield_every": 20000}, marks=deep),
        pytest.param("long heads", 0, {}, marks=deep),
        pytest.param("families", 25, {}, marks=deep),
    ],
)
def test_a_step_in_rtl(machine, name, stall, options):
    """Every word, and every command to the cycle where memory's latency is fixed."""
    model = MODELS[name]
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    step = Training(frozen, TOKENS[:130], drawn(model), range(2), rule=RULE)
    frac = step.fracs(largest(step.exact()), headroom=1)
    fresh = StepMachine(WHOLE, device=machine.device)
    machine.device.set("stall", stall)
    try:
        run = fresh.run(step, frac, **options)
    finally:
        machine.device.set("stall", 0)
    reference = step.integers(frac)
    if "yield_every" in options:
        # Parts of a loss are cut to 16 fraction bits each.
        assert run.loss == pytest.approx(reference.mean_loss, rel=1e-4)
        for key, words in run.values.items():
            np.testing.assert_array_equal(words, reference.values[key], err_msg=key)
        return
    checked = run.check(reference)
    assert checked["commands"] == (0 if stall else len(run.instructions)) and reference.saturated == 0
    wanted = (
        {"0.p@64", "1.ds", "1.turned_p@64", "2.dlogits@0"} if not options else {"model.layers.0.self_attn.q_proj.a"}
    )
    assert wanted <= set(run.values)


def test_memory_is_counted_near_what_a_program_takes():
    """A plan of a long text does not lay its program out."""
    shape = Shape(model=MODELS["small"], ranks=tuple(dict.fromkeys(drawn(MODELS["small"]), 2).items()), tokens=250)
    (tensors, code), (laid, made) = counted_bytes(shape, WHOLE), program_bytes(shape, WHOLE)
    assert tensors == pytest.approx(laid, rel=0.1) and code == pytest.approx(made, rel=0.1)
    assert not shape.on_card and laid_out(shape, WHOLE)["step_tensors"] == tensors
