"""A token behind a text: the row that a step over all tokens makes, in float, in integers, and as a request in RTL."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.program.placed import Written
from gradloom.rtl.formats.weights.tiles import tile_rows
from gradloom.systems.text.coded_head import coded_head
from gradloom.systems.text.operations.blocks import head as operations_of_the_head
from gradloom.systems.text.operations.decode import Decode
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.operations.tensors import EDGE, Tensor, Words
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.reference.integers import FloatStep, IntegerStep
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.decode import Decoding, beside
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG, LONG_HEADS, MODEL, TOKENS

TEXT = TOKENS[:7]


def forward(step):
    return [each for layer in step.layers for each in step.forward(layer)]


@pytest.fixture
def prompted(training):
    """A whole text, and what its first tokens leave behind, in float and in words; rows behind them are padding."""

    def make(layers=range(MODEL.layers), **options):
        whole = training(layers, tokens=TEXT, **options)
        exact = whole.exact()
        frac = whole.fracs(largest(exact), headroom=2)
        return whole, frac, exact, whole.integers(frac)

    return make


def cut_off(before: FloatStep | IntegerStep, position: int):
    """As it is before the token at a position: what is behind was never written."""
    for name, values in before.values.items():
        if name.endswith((".k", ".v")):
            values[position:] = 0
    return before


@pytest.mark.parametrize("position", [0, 3, 6])
def test_a_token_is_a_row_of_the_whole(prompted, position):
    whole, frac, exact, integers = prompted()
    want = {name: values[position].copy() for name, values in exact.values.items() if values.shape[0] == len(TEXT)}
    words = {name: values[position].copy() for name, values in integers.values.items() if values.shape[0] == len(TEXT)}
    token = Decoding(whole, frac, position, [TEXT[position]])
    made = token.exact(cut_off(exact, position))
    for name in ("0.q", "0.context", "1.act", "2.x", "2.logits"):
        np.testing.assert_allclose(made.values[f"next.{name}"][0], want[name], rtol=1e-9, atol=1e-12)
    made = token.integers(cut_off(integers, position))
    # Every row has a level of its own: nothing differs at all.
    for name in ("0.q", "0.p", "0.context", "1.act", "2.x", "2.logits"):
        np.testing.assert_array_equal(made.values[f"next.{name}"][0], words[name], err_msg=name)
    np.testing.assert_array_equal(made.values["1.k"][position], words["1.k"])


@pytest.fixture
def parted(monkeypatch, frozen):
    """Of the head's three tiles the third is a part of its own, here alone: others know the parts by the same names."""
    monkeypatch.setattr(operations_of_the_head, "_MOST", 2)
    for kept in ("words", "held", "frac", "saturated"):
        own = {name: each for name, each in getattr(frozen, kept).items() if "head." not in name}
        monkeypatch.setattr(frozen, kept, own)


def test_logits_of_a_head_in_codes(prompted, parted):
    """They are those of the whole head's codes; rows behind it give nothing."""
    whole, frac, exact, integers = prompted()
    token = Decoding(whole, frac, 3, [TEXT[3]], coded=True)
    made, words = token.exact(cut_off(exact, 3)).values, token.integers(cut_off(integers, 3)).values
    head = coded_head(Llama(MODEL, whole.frozen.tensor)).weight()
    logits = made["next.2.logits"][0]
    np.testing.assert_allclose(logits[: len(head)], made["next.2.normed"][0] @ head.T, rtol=1e-9)
    assert not logits[len(head) :].any()
    assert np.abs(logits[: len(head)] - exact.values["2.logits"][3][: len(head)]).max() > 1e-2
    error = words["next.2.logits"][0] * 2.0 ** -token.fracs["next.2.logits"] - logits
    assert np.abs(error).max() < 1e-3 * np.abs(logits).max()


@pytest.mark.parametrize("coded", [False, True], ids=["head in words", "head in codes"])
def test_a_request_in_rtl(prompted, training, machine, parted, coded):
    """Two tokens, one behind the other, on the cache that the first has added to.

    A token that runs as a program takes the cycles of its forecast.
    """
    whole, frac, _, before = prompted()
    position = 4
    cut_off(before, position)
    machine.load(whole, frac)
    for number in range(2):
        token = Decoding(whole, frac, position + number, [TEXT[position + number]], coded=coded)
        after = token.integers(before)
        loaded = token.load(machine, before)
        machine.host.request(loaded.start, len(loaded.program))
        served = machine.host.wait_request()
        assert served.waited == 3 < served.cycles
        for name, words in token.values(machine, loaded).items():
            np.testing.assert_array_equal(words, after.values[name], err_msg=name)
        assert after.saturated == 0
        before = after
    commands, code = loaded.program.instructions, loaded.program.code
    written = Written(config=machine.config, instructions=commands, code=code, offset=loaded.start)
    assert machine.machine.run(written).check(saturated=0)["commands"]


@pytest.mark.parametrize("every, stall", [(4000, 0), (12000, 30)])
def test_requests_beside_a_training_step(prompted, training, machine, every, stall):
    """Words of both are those that they have alone; nobody waits longer than a section."""
    whole, frac, _, before = prompted()
    step = training(rule=AdamW(lr=1e-2))
    fracs = step.fracs(largest(step.exact()), headroom=1)
    alone = step.integers(fracs)
    cut_off(before, 4)
    tokens, held = [], before
    for number in range(3):
        tokens.append((Decoding(whole, frac, 4 + number, [TEXT[4 + number]]), held))
        held = tokens[-1][0].integers(held)
    moments = sorted(np.random.default_rng(every).integers(0, 45000, len(tokens)).tolist())
    machine.device.set("stall", stall)
    try:
        run, answered = beside(machine, step, fracs, tokens, moments, bound=every)
    finally:
        machine.device.set("stall", 0)
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, alone.values[name], err_msg=name)
    assert run.loss == alone.mean_loss
    for (token, held), each in zip(tokens, answered, strict=True):
        want = token.integers(held)
        for name, words in each.values.items():
            np.testing.assert_array_equal(words, want.values[name], err_msg=name)
        assert each.served.waited <= every * (1 + stall / 100)


@pytest.mark.parametrize("model", [MODEL, LONG_HEADS], ids=["heads of 64", "heads of 128"], indirect=True)
def test_a_text_longer_than_a_tile(training, fresh, model):
    """Tokens behind 64: their keys and values are in another tensor, and attention reaches over both."""
    text = np.random.default_rng(6).integers(0, model.vocab, 69).tolist()
    inputs = {"gradient": np.random.default_rng(7).normal(0, 1e-2, (64, model.hidden))}
    prompt = training([0], tokens=text[:64], head=False, inputs=inputs)
    prompt.step = replace(prompt.step, model=replace(model, context=128))
    exact = prompt.exact()
    frac = prompt.fracs(largest(exact), headroom=2)
    before = prompt.integers(frac)
    fresh.load(training([0], tokens=text[:2], head=False, inputs={"gradient": inputs["gradient"][:2]}), frac)
    for position, count in ((64, 1), (65, 1), (66, 3)):
        token = Decoding(prompt, frac, position, text[position : position + count])
        exact = token.exact(exact)
        q, context, x = (
            exact.values[token.decode.tensor(Tensor(name, 64, 64)).name] for name in ("0.q", "0.context", "1.x")
        )
        # Tiles of the same number of all heads are neighbours.
        q, context = (
            each.reshape(count, -1, model.heads, EDGE).swapaxes(1, 2).reshape(count, model.heads, -1)
            for each in (q, context)
        )
        for row in range(count):
            keys, values = (
                np.concatenate([exact.values[f"0.{name}"], exact.values[f"0.{name}.1"][: position + row - 63]])
                for name in "kv"
            )
            p = np.exp2(q[row] @ keys.T * 2.0**token.decode.step.lift)
            want = (p / p.sum(axis=1, keepdims=True)) @ values
            np.testing.assert_allclose(context[row], want, rtol=1e-9)
        after = token.integers(before)
        error = after.values[token.decode.output.name] * 2.0 ** -token.fracs[token.decode.output.name] - x
        assert np.abs(error).max() < 1e-2 * np.abs(x).max()
        loaded = token.load(fresh, before)
        fresh.host.request(loaded.start, len(loaded.program))
        fresh.host.wait_request()
        for name, words in token.values(fresh, loaded).items():
            np.testing.assert_array_equal(words, after.values[name], err_msg=name)
        before = after


def test_a_long_text_has_further_tensors():
    model = replace(MODEL, context=256)
    token = Decode(StepOperations(model, 64, {}, [0], False), 130)
    assert [each.name for each in token.cache(0, "k")] == ["0.k", "0.k.1", "0.k.2"]
    with pytest.raises(ValueError, match="position=256"):
        Decode(StepOperations(model, 64, {}, [0], False), 256)
    with pytest.raises(ValueError, match="position=9: must be 0 to 8"):
        Decode(StepOperations(MODEL, 9, {}, [0], False), 9)
    # Of the cache's tile, and of the model's context.
    for context, position, most in ((256, 130, 62), (131, 130, 1)):
        step = StepOperations(replace(model, context=context), 64, {}, [0], False)
        with pytest.raises(ValueError, match=f"count={most + 1}: must be 1 to {most} at position 130"):
            Decode(step, position, count=most + 1)
        Decode(step, position, count=most)


def test_tokens_in_one_program_are_those_of_one_by_one(prompted):
    """All rows of logits, with adapters and biases; a row sees none behind it."""
    whole, frac, exact, integers = prompted()
    words = [integers.values["2.logits"][position].copy() for position in range(len(TEXT))]
    token = Decoding(whole, frac, 2, TEXT[2:6])
    made = token.integers(cut_off(integers, 2))
    np.testing.assert_array_equal(made.values["next4.2.logits"], words[2:6])
    np.testing.assert_array_equal(made.values["next4.2.logits"][1], words[3])
    assert (words[2] != words[3]).any()


def test_keys_and_values_of_a_group_of_heads_are_read_once():
    """Of one tile or several, of one token or several; a machine that takes fewer rows or words refuses."""
    grouped, wide = (replace(MODEL, heads=4, kv_heads=2, context=128, head_dim=size) for size in (64, 128))
    for model, position, tokens in ((grouped, 63, 1), (grouped, 64, 1), (wide, 63, 1), (wide, 100, 4)):
        token = Decode(StepOperations(model, 64, {}, [0]), position, count=tokens)
        found = [each for each in token.operations if isinstance(each, Product) and isinstance(each.weight, Words)]
        assert [each.x.rows for each in found] == [2 * tokens] * 4
        read = [part for each in found for part in each.weight.tiles]
        assert len(read) == len(set(read)) == 4 * model.head_dim // EDGE * (position // 64 + 1)
    token = Decode(StepOperations(replace(grouped, kv_heads=1), 64, {}, [0]), 5)
    with pytest.raises(ValueError, match="next.0.scores: has 4 rows, the machine's products take at most 2"):
        lower(token.operations, exponents(token.operations), Layout(), replace(CONFIG, tokens=2))
    token = Decode(StepOperations(replace(grouped, kv_heads=1, context=512), 64, {}, [0]), 300)
    with pytest.raises(ValueError, match="next.0.context: its operands are 20 words, the machine holds 16"):
        lower(token.operations, exponents(token.operations), Layout(), replace(CONFIG, depth=16))


def test_placed_tiles_are_those_of_memory():
    """Rows of neighbours lie behind each other in a tile; tiles come in any order."""
    values = np.random.default_rng(3).integers(0, 1 << 20, (3, 512))
    step = IntegerStep({"q": values.copy()}, {}, None)
    tensor = Tensor("q", 3, 512)
    memory = np.frombuffer(tile_rows(values, EDGE), "<i4").reshape(-1, EDGE)
    part = tensor.at([1, 5], 2)
    want = np.concatenate([memory[3 * place : 3 * place + 6] for place in (1, 5)], axis=1)
    np.testing.assert_array_equal(step[part], want)
    step[part] = step[part] + (1 << 20)
    changed = np.isin(np.arange(512) // EDGE, [1, 2, 5, 6])
    np.testing.assert_array_equal(step.values["q"], values + (1 << 20) * changed)
    assert (part.runs, part.step, part.whole) == ([(1, 1), (5, 1)], 4, False)
    assert tensor.at([1, 3, 5], 2).runs == [(1, 3)] and tensor.at([4, 5, 1, 2]).runs == [(4, 2), (1, 2)]
    with pytest.raises(ValueError, match="not at equal steps"):
        assert tensor.at([4, 5, 1]).step
    assert tensor.at([4, 5, 1, 2]).part(1, 2).order == (5, 1)
    assert tensor.all().every(1, 3).order == (1, 4, 7)
    np.testing.assert_array_equal(step[tensor.some(1, 2, 2, 4).every(1, 2)], step[tensor.at([3, 5])][1:3])
    for wrong in (lambda: tensor.at([7], 2), lambda: tensor.at([-1])):
        with pytest.raises(ValueError, match="of 8 tiles"):
            wrong()


def test_a_head_of_more_scales_than_the_machine_holds_is_refused():
    model = replace(MODEL, vocab=1024)
    token = Decode(StepOperations(model, 9, {}, [0]), 3, coded=True)
    with pytest.raises(ValueError, match="head.0: has 8 second-level scales, the machine holds 2"):
        lower(token.operations, exponents(token.operations), Layout(), replace(CONFIG, groups=2))
