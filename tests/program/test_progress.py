"""A program that may not come to its end is found without a clock, and the report says what waits for what."""

import time
from itertools import pairwise

import numpy as np
import pytest

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.program.assembler import Instruction
from gradloom.program.progress import StuckError, check_progress
from gradloom.rtl.engines.array.commands import ArrayOpcode
from gradloom.rtl.engines.encode.commands import EncodeOpcode
from gradloom.rtl.engines.ports import TapQueue
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD, IMAGES
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.systems.images.program import tokens
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.tokens import IMAGE_STREAMS, ProgramToken, check_program

END = Instruction(CONTROL, ControlOpcode.END, {})
FENCE = Instruction(CONTROL, ControlOpcode.FENCE, {})


def step(engine, *, wait=(), post=(), slots=None, opcode=0, **operands):
    return Instruction(engine, opcode, operands, wait=wait, post=post, slots=slots)


def control(opcode=ControlOpcode.LOOKUP, **more):
    return step(CONTROL, opcode=opcode, **more)


def check(*commands, depth=4, **more):
    check_progress([*commands, END], IMAGES, depth=depth, **more)


def stuck(*commands, says, **more):
    with pytest.raises(StuckError, match=says):
        check(*commands, **more)


def plan_of(network, config, samples, rank=2, **options):
    low = lower(network, config, rank, **options)
    return plan_finetune(
        low,
        Settings(samples=samples, epochs=1),
        np.zeros((samples, *network.input_shape), np.int64),
        np.zeros(samples, np.int64),
        [np.zeros((rank, tap.elements), np.int64) for tap in low.taps],
        [np.zeros((network.classes, rank), np.int64) for _ in low.taps],
    )


def convolutions(*channels, edge=28, pads=0):
    """Convolutions of 3 x 3 with a max-pool of 2 x 2 on images of one channel, and a dense layer."""
    rng = np.random.default_rng(0)
    layers, side = [], edge
    for inputs, outputs in pairwise((1, *channels)):
        layers.append(
            ConvLayer(
                weight=rng.normal(0, 0.1, (outputs, inputs, 3, 3)),
                bias=np.zeros(outputs),
                relu=True,
                pool=2,
                pads=(pads,) * 4,
            )
        )
        side = side + 2 * pads - 2 >> 1
    layers.append(DenseLayer(weight=rng.normal(0, 0.1, (4, channels[-1] * side * side)), bias=np.zeros(4)))
    return LayerNetwork(name="made", input_shape=(1, edge, edge), layers=tuple(layers))


def test_tokens_that_come_are_waited_for():
    check(step(ARRAY, wait=(3,)), step(LOAD, post=(3, 4)), step(STORE, wait=(4,)), FENCE)
    check(*[step(LOAD, wait=(1,), post=(2,)), step(ARRAY, wait=(2,), post=(1,))] * 50, control(post=(1,)), depth=64)


def test_a_token_that_nobody_posts():
    stuck(
        step(LOAD, post=(3,)),
        step(ARRAY, wait=(3, 4)),
        FENCE,
        says=r"command 2 of 4; FENCE \(command 2\) waits for array; array \(command 1\) waits for token 4, posted by "
        r"no command$",
    )


def test_a_command_of_control_waits_for_its_token():
    check(step(LOAD, post=(4,)), control(wait=(4,), post=(5,)), step(ARRAY, wait=(5,)))
    stuck(
        control(wait=(4,), post=(5,)),
        step(ARRAY, wait=(5,), post=(4,)),
        says=r"command 0 of 3; control \(command 0\) waits for token 4, next posted by command 1",
    )


def test_a_circle_of_waits_is_named():
    stuck(
        step(LOAD, wait=(1,), post=(2,)),
        step(HEAD, wait=(2,), post=(1,)),
        says="load .* next posted by command 1; head .* next posted by command 0; in a circle: load -> head -> load",
    )


def test_a_queue_that_fills_up_before_the_command_that_all_wait_for():
    waiting = [step(ARRAY, wait=(1,))] * 4
    posts = [step(LOAD, post=(1,))] * 4
    check(*waiting, *posts, depth=4)
    stuck(
        *waiting,
        *posts,
        depth=2,
        says="dispatch of command 2 waits for room in the queue of array, which holds 2; array .command 0. waits for "
        "token 1, next posted by command 4; in a circle: control -> array -> control",
    )


def test_a_program_without_an_end():
    with pytest.raises(StuckError, match="a program of 1 commands has no END"):
        check_progress([FENCE], IMAGES, depth=4)


def test_two_queues_that_wait_for_one_token():
    both = step(ARRAY, wait=(5,)), step(ENCODE, wait=(5,))
    posts = [step(LOAD, post=(5,))] * 2
    stuck(
        *posts,
        *both,
        says=r"array \(command 2\) and encode \(command 3\) both wait for token GROUP with no fence",
        names={5: "GROUP"},
    )
    check(*posts, both[0], FENCE, both[1])
    stuck(*posts, both[0], control(wait=(5,)), says="array .* and control .* both wait for token 5")


def test_predicates_are_asked_of_an_empty_and_of_a_full_cache():
    post, wait = step(LOAD, post=(1,)), step(ARRAY, wait=(1,))
    dropped = {"slots": (3, 2)}
    check(step(LOAD, post=(1,), **dropped), step(ARRAY, wait=(1,), **dropped))
    stuck(step(LOAD, post=(1,), **dropped), wait, says="token 1")
    check(post, step(ARRAY, wait=(1,), **dropped))
    # MARK sets bits, CLEAR takes them back.
    mark = step(CONTROL, opcode=ControlOpcode.MARK, slot=3, count=2)
    check(mark, step(ARRAY, wait=(1,), **dropped))
    # More than is asked for may be marked, and less is not enough.
    check(control(ControlOpcode.MARK, slot=2, count=6), step(ARRAY, wait=(1,), **dropped))
    stuck(control(ControlOpcode.MARK, slot=4, count=6), step(ARRAY, wait=(1,), **dropped), says="token 1")
    stuck(mark, control(ControlOpcode.CLEAR), step(ARRAY, wait=(1,), **dropped), says="token 1")


def test_no_token_survives_a_yield():
    check(step(LOAD, post=(1,)), FENCE, step(ARRAY, wait=(1,)))
    stuck(step(LOAD, post=(1,)), control(ControlOpcode.YIELD), step(ARRAY, wait=(1,)), says="token 1")


@pytest.mark.parametrize("taker", [ARRAY, CONTROL])
@pytest.mark.parametrize("number, fits", [(255, True), (256, False)])
def test_a_counter_overflows_if_who_takes_is_slow(taker, number, fits):
    """However fast it is in the run that decides on progress."""

    def program(depth):
        posts = [step(LOAD, post=(1,))] * number
        if taker == CONTROL:
            return [*posts, *[control(wait=(1,))] * number]
        # What the array does first may take for ever; the last posts come when its queue has room.
        return [*[step(taker, wait=(1,))] * (depth - 1), *posts, *[step(taker, wait=(1,))] * (number - depth + 1)]

    if fits:
        check(*program(4))
    else:
        stuck(*program(4), says="token 1 overflows .* posted 256 times and not taken, its counter holds 255")


def test_many_posts_that_are_taken_in_time_do_not_overflow():
    check(*[step(LOAD, post=(1,)), step(ARRAY, wait=(1,))] * 1000)
    # Nor where only tokens that come back hold who posts, which no count of commands shows.
    turns = [step(LOAD, wait=(2,), post=(1,)), *[step(HEAD)] * 100, step(ARRAY, wait=(1,), post=(2,))]
    check(control(post=(2,)), *turns * 20, depth=32)


def test_what_a_store_takes_must_be_given():
    def store(beats, source=None):
        source = ENCODE.store("raw") if source is None else source
        return step(STORE, source=source, beats=beats)

    raw = step(ENCODE, opcode=EncodeOpcode.RAW, elements=10)
    check(raw, store(3), streams=IMAGE_STREAMS)
    check(store(3), raw, streams=IMAGE_STREAMS)
    stuck(
        raw,
        store(4),
        says=r"store \(command 1\) waits for beats of stream encode.raw, given by no command",
        streams=IMAGE_STREAMS,
    )
    stuck(raw, store(3, ENCODE.store("taps")), says="beats of stream encode.taps", streams=IMAGE_STREAMS)
    # Of adapter words there are always some.
    check(store(300, ARRAY.store("lanes")), streams=IMAGE_STREAMS)


def test_what_is_given_must_find_room():
    blocks = TapQueue.depth // 2
    tap = step(ARRAY, opcode=ArrayOpcode.CONVOLVE, height=64, width=1, channels=blocks, encode=1)
    store = step(STORE, source=ARRAY.store("taps"), beats=2 * blocks + -(-blocks // 7))
    more = [step(ARRAY, opcode=ArrayOpcode.DENSE)] * 4
    check(tap, *more[:3], store, streams=IMAGE_STREAMS)
    stuck(
        tap,
        *more,
        store,
        streams=IMAGE_STREAMS,
        says="queue of array, which holds 4; array .* waits for room of stream array.taps, next taken by "
        "command 5; in a",
    )


def test_a_tap_of_many_beats_before_more_tiles_than_the_queue_holds():
    """Its STOREs stand where they are dispatched while the first tile is under way."""
    config = ImageConfig(queue_depth=2, weight_depth=16384, blocks=128)
    plan = plan_of(convolutions(40, 50, edge=16, pads=1), config, 30, wide=True)
    beats = 4 * plan.lowered.taps[1].blocks
    tiles = -(-50 // config.columns)
    assert beats > TapQueue.depth and tiles > config.queue_depth


@pytest.mark.parametrize("samples", [26, 40, 60])
def test_convolutions_of_several_tiles_pass(samples):
    plan_of(convolutions(17, 8), ImageConfig(), samples)


def test_tokens_of_one_purpose_each():
    """As they were: the dense layer and the encoder behind it waited for the same token."""
    plan = plan_of(convolutions(17, 8), ImageConfig(), 26)
    layer, logits = ProgramToken.GROUP, ProgramToken.LOGITS
    commands = [
        Instruction(
            each.engine,
            each.opcode,
            each.operands,
            slots=each.slots,
            **{
                kind: tuple(layer if token == logits else token for token in getattr(each, kind))
                for kind in ("wait", "post")
            },
        )
        for each in plan.assembler.instructions
    ]
    with pytest.raises(StuckError, match="array .* and encode .* both wait for token"):
        check_progress(commands, IMAGES, depth=16, streams=IMAGE_STREAMS)


def test_it_is_quick():
    """At most a second for 100,000 commands, by the processor's clock."""
    plan = plan_of(convolutions(6, 8, edge=16), ImageConfig(), 1024)
    count = len(plan.assembler)
    assert count > 10_000
    start = time.process_time()
    check_program(plan.assembler, plan.lowered.config)
    assert time.process_time() - start < count / 100_000


def test_it_is_a_fault_of_ours(monkeypatch, run, tmp_path):
    """Whatever is asked for: exit 1, not the 2 of a wrong request."""

    def refuse(*_, **__):
        raise StuckError("a program cannot go on at command 7 of 9")

    monkeypatch.setattr(tokens, "check_progress", refuse)
    code, _, said = run("finetune", "instantft-kv260", "--engine", "reference", "--limit", 20, "-o", tmp_path / "out")
    assert code == 1 and "internal error: StuckError: a program cannot go on at command 7" in said
