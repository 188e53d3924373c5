"""Answers in the machine's integers: those of the float model, and of RTL word for word and cycle for cycle."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter
from gradloom.rtl.formats.weights.tiles import tile_rows
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.reference.llama import greedy
from gradloom.systems.text.run.answers import AnswerMachine, TokenReply, prompt_of

from ..conftest import CONFIG, FAMILIES, LONG_HEADS, MODEL, exact_llama

GIVEN = (3, 14, 15)
WIDE = replace(MODEL, context=2 * EDGE)


@pytest.fixture
def reply(frozen, adapters):
    def make(given=GIVEN, **options):
        return TokenReply(prompt_of(frozen, given, adapters, {}, CONFIG, **{"coded": False, **options}))

    return make


def machine_of(reply, positions, host=None):
    return AnswerMachine(reply, positions, CONFIG, tell=lambda text: None, host=host)


@pytest.mark.parametrize("model", [MODEL, LONG_HEADS, FAMILIES], ids=["llama", "long heads", "families"], indirect=True)
def test_tokens_are_those_of_the_model(reply, frozen, adapters):
    made = reply()
    found = list(made.tokens(GIVEN, 5))
    assert found == list(greedy(exact_llama(frozen), GIVEN, 5, adapters=adapters)) and not made.saturated
    assert found != list(reply((3, 14, 16)).tokens((3, 14, 16), 5))
    assert list(made.tokens(GIVEN, 5, ends=frozenset(found[2:3]))) == found[: found.index(found[2])]


@pytest.mark.parametrize("coded", [False, True], ids=["head in words", "head in codes"])
def test_tokens_of_rtl(reply, coded):
    """Two of a prompt, two of an answer; keys and values are those that the tokens before have left."""
    made = reply(coded=coded)
    machine = machine_of(made, 4)
    try:
        assert list(made.tokens(GIVEN[:2], 2, machine)) == list(made.tokens(GIVEN[:2], 2))
        assert machine.cycles == machine.told > 30_000
        before = made.decoding(0, GIVEN[0]).integers(None)
        with pytest.raises(MismatchError, match="logits"):
            machine.run(made.decoding(0, GIVEN[1]), before)
    finally:
        machine.close()


def test_tokens_of_rtl_by_instantft(frozen):
    rng = np.random.default_rng(5)
    blocks = {
        layer: Adapter(rng.normal(0, 0.1, (4, MODEL.hidden)), rng.normal(0, 0.1, (MODEL.hidden, 4)), 2.0)
        for layer in range(MODEL.layers)
    }
    made = TokenReply(prompt_of(frozen, GIVEN, {}, blocks, CONFIG, coded=False))
    machine = machine_of(made, 2)
    try:
        assert list(made.tokens(GIVEN[:1], 2, machine)) == list(made.tokens(GIVEN[:1], 2))
    finally:
        machine.close()
    plain = TokenReply(prompt_of(frozen, GIVEN, {}, {}, CONFIG, coded=False))
    assert list(made.tokens(GIVEN, 5)) != list(plain.tokens(GIVEN, 5))


@pytest.mark.parametrize("model", [WIDE], ids=["128 positions"], indirect=True)
def test_tokens_beyond_a_tile_of_the_cache(reply):
    """The last one of the first tile, and two of the next, whose program is another."""
    made, text = reply(), np.random.default_rng(6).integers(0, WIDE.vocab, EDGE + 2).tolist()
    before = None
    for position in range(EDGE - 1):
        before = made.decoding(position, text[position]).integers(before)
    machine = machine_of(made, len(text))
    try:
        for name in made.decoding(0, 0).cache:
            machine.machine.write(machine.layout[name], tile_rows(before.values[name], EDGE))
        for position in range(EDGE - 1, len(text)):
            decoding = made.decoding(position, text[position])
            before = decoding.integers(before)
            machine.run(decoding, before)
        assert len(machine.programs) == 2 and machine.cycles == machine.told
    finally:
        machine.close()


class Small:
    """A board's machine with too little memory."""

    class transport:  # noqa: N801
        window_size = 1 << 16


def test_too_little_memory_is_refused(reply):
    with pytest.raises(ValueError, match=r"tokens=4: the model .* need [\d,]+ .* has reserved 65,536: make"):
        machine_of(reply(), 4, Small())
