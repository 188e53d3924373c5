"""Answers in the machine's integers: those of the float model, and of RTL word for word and cycle for cycle."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.jobs import answering
from gradloom.firmware.jobs.answering import guessed
from gradloom.models.adapters.lora import Adapter
from gradloom.program.patches import patches
from gradloom.rtl.formats.weights.tiles import tile_rows
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.reference.drawn import Draw
from gradloom.systems.text.reference.llama import greedy
from gradloom.systems.text.run.answers import TOGETHER, AnswerImage, AnswerMachine, TokenReply, prompt_of

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


@pytest.mark.parametrize("model", [WIDE, LONG_HEADS], ids=["128", "long heads"], indirect=True)
def test_programs_can_be_patched_for_every_token_of_their_tile(reply, model):
    """A field of a patch has room for the first and the last."""
    image = AnswerImage(reply(), model.context, CONFIG, tell=lambda text: None)
    assert len({tile for tile, _ in image.programs}) == model.context // image.rows
    for (tile, _), made in image.programs.items():
        found = patches(made.program.instructions, made.variables)
        assert {name for each in found for name, _ in each.terms} == {"position", "row"}
        for row in (0, image.rows - 1):
            now = {"position": tile * image.rows + row, "row": row}
            assert all(0 <= each.value(now) < 1 << each.width for each in found)


def one_by_one(reply, given, count, draw=np.argmax):
    """Decoding by programs of one token."""
    text, before = list(given), None
    for position in range(len(given) + count - 1):
        decoding = reply.decoding(position, text[position])
        before = decoding.integers(before)
        if position == len(text) - 1:
            logits = before.values["next.2.logits"][0, : reply.prompt.frozen.model.vocab]
            text.append(int(draw(logits * math.log(2) / 2.0 ** decoding.fracs["next.2.logits"])))
    return text[len(given) :]


@pytest.mark.parametrize(
    "model", [MODEL, LONG_HEADS, FAMILIES, WIDE], ids=["llama", "long heads", "families", "128"], indirect=True
)
def test_guesses_change_no_token(reply, model):
    """Whole answers, in which some guesses are right and some wrong, and which reach the end of the cache's tile."""
    given = [*GIVEN, *GIVEN, *np.random.default_rng(8).integers(0, model.vocab, 5).tolist(), *GIVEN[:2]]
    count = model.context - len(given) - 30
    made = reply(given)
    assert list(made.tokens(given, count)) == one_by_one(made, given, count)
    # Of the prompt one program gives none.
    assert made.loop.programs == made.loop.answering + 1 < len(given) + count - 1


def test_a_wrong_guess_is_written_over(reply, monkeypatch):
    """Guesses that are never right; each program gives one token."""
    made = reply()
    want = one_by_one(made, GIVEN, 6)
    monkeypatch.setattr(
        answering, "guessed", lambda text, count: [(text[-1] + 1 + text[-1] // 2) % MODEL.vocab] * count
    )
    assert list(made.tokens(GIVEN, 6)) == want and 6 >= made.loop.answering > 2
    # Right ones, to the last: the answer's end bounds them.
    monkeypatch.setattr(answering, "guessed", lambda text, count: want[len(text) - len(GIVEN) :][:count])
    before = made.loop.answering
    assert list(made.tokens(GIVEN, 6)) == want and made.loop.answering - before == 1


def test_drawn_tokens(reply, frozen, adapters):
    """Those of one by one; of floating point, whose logits differ by less than most draws."""
    made = reply()
    made.draw = Draw(5, 0.8, 3)
    found = list(made.tokens(GIVEN, 24))
    assert found == one_by_one(made, GIVEN, 24, Draw(5, 0.8, 3)) != one_by_one(made, GIVEN, 24, Draw(5, 0.8, 4))
    assert found == list(greedy(exact_llama(frozen), GIVEN, 24, adapters=adapters, draw=Draw(5, 0.8, 3)))


def test_what_is_guessed():
    assert guessed([1, 2, 3, 9, 1, 2, 3, 4, 2, 3], 3) == [4, 2, 3]
    assert guessed([1, 2, 3, 9, 5, 2, 3, 4, 1, 2, 3], 2) == [9, 5]
    assert guessed([7, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]
    assert guessed([1, 2, 3], 4) == guessed([1], 4) == guessed([1, 1], 0) == []


def test_tokens_of_a_program(reply):
    """As many as have room: in a tile of the cache, among rows of a product, on chip."""
    prompt = reply().prompt
    assert [prompt.together(at) for at in (0, 56, 57)] == [TOGETHER, TOGETHER, 1]
    for field, value in (("rows", 2 * TOGETHER - 1), ("depth", 3 * TOGETHER - 1)):
        before = getattr(prompt, field)
        setattr(prompt, field, value)
        assert prompt.together(0) == 1
        setattr(prompt, field, before)


@pytest.mark.parametrize("coded", [False, True], ids=["head in words", "head in codes"])
def test_tokens_of_rtl(reply, coded):
    """Two of a prompt, two of an answer; keys and values are those that the tokens before have left."""
    made = reply(coded=coded)
    machine = machine_of(made, 4)
    try:
        assert list(made.tokens(GIVEN[:2], 2, machine)) == list(made.tokens(GIVEN[:2], 2))
        assert machine.cycles == machine.told > 15_000
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
            machine.machine.write(machine.image.layout[name], tile_rows(before.values[name], EDGE))
        for position in range(EDGE - 1, len(text)):
            decoding = made.decoding(position, text[position])
            before = decoding.integers(before)
            machine.run(decoding, before)
        # Several tokens behind what they replace, of which none is in the tile before.
        several = made.decoding(EDGE + 1, *text[-1:], *range(TOGETHER - 1))
        machine.run(several, several.integers(before))
        assert set(machine.image.programs) == {(0, 1), (0, TOGETHER), (1, 1), (1, TOGETHER)}
        assert machine.cycles == machine.told
    finally:
        machine.close()


class Small:
    """A board's machine with too little memory."""

    class transport:  # noqa: N801
        window_size = 1 << 16


def test_too_little_memory_is_refused(reply):
    with pytest.raises(ValueError, match=r"tokens=4: the model .* need [\d,]+ .* has reserved 65,536: make"):
        machine_of(reply(), 4, Small())
