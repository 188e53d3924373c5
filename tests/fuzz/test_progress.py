"""What the check of progress says of a program is what the RTL does with it: it ends, or it stands until it is stopped.

The programs are a good one in which tokens, commands and beats are missing, too many, or elsewhere.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator, ProgramError
from gradloom.program.assembler import Assembler
from gradloom.program.progress import StuckError, check_progress
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.engines import STORE
from gradloom.systems.images.program.tokens import IMAGE_STREAMS

from ..systems.images.conftest import SMALL, Machine, small_network
from .looks import DEEP

PROGRAMS = 4000 if DEEP else 60
#: Longer than any command of these programs, at the slowest memory.
WATCHDOG = 6000


def changed(rng, commands, tokens):
    """The program with one to three changes; its END stays the last."""
    made = list(commands[:-1])
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(made)))
        each = made[at]
        kind = rng.integers(8)
        if kind < 4:
            field = "wait" if kind % 2 else "post"
            places = [n for n, one in enumerate(made) if getattr(one, field)]
            if kind < 2 and places:
                at = int(rng.choice(places))
                made[at] = replace(made[at], **{field: getattr(made[at], field)[1:]})
            else:
                token = int(rng.integers(tokens))
                if token not in getattr(each, field):
                    made[at] = replace(each, **{field: (*getattr(each, field), token)})
        elif kind == 4:
            del made[at]
        elif kind == 5:
            made.insert(at, each)
        elif kind == 6:
            made.insert(int(rng.integers(len(made))), made.pop(at))
        elif each.engine == STORE:
            beats = max(each.operands["beats"] + int(rng.integers(-1, 2)), 1)
            made[at] = replace(each, operands={**each.operands, "beats": beats})
    return [*made, commands[-1]]


def verdict(commands):
    """``ends``, ``stands``, or ``depends`` on time; with no slot of the cache valid."""
    try:
        check_progress(commands, IMAGES, depth=SMALL.queue_depth, streams=IMAGE_STREAMS)
    except StuckError as error:
        return "depends" if "both wait" in str(error) or "overflows" in str(error) else "stands"
    return "ends"


@pytest.fixture(scope="module")
def small():
    machine = Machine(SMALL)
    plan, _, _ = machine.plan(small_network(), samples=12, epochs=1, batch=5)
    with machine.device() as device:
        host = Accelerator(device)
        host.set_watchdog(WATCHDOG)
        for offset, content in plan.segments:
            host.store(offset, content)
        yield plan, device, host


def test_the_rtl_ends_where_the_check_says_so(small):
    plan, device, host = small
    # Without predicates, so that what is checked is what runs.
    good = [replace(each, slots=None) for each in plan.assembler.instructions]
    assert verdict(good) == "ends"
    rng = np.random.default_rng(0)
    found = Counter()
    for number in range(PROGRAMS):
        commands = changed(rng, good, 14)
        said = verdict(commands)
        assembler = Assembler()
        for each in commands:
            assembler.add(
                each.engine,
                each.opcode,
                wait=each.wait,
                post=each.post,
                phase=each.phase,
                **{name + "_" * (name == "from"): value for name, value in each.operands.items()},
            )
        for name, value in (
            ("read_latency", int(rng.integers(1, 200))),
            ("write_latency", int(rng.integers(1, 200))),
            ("stall", int(rng.choice([0, 60]))),
        ):
            device.set(name, value)
        place = 1 << 20
        host.store(place, assembler.code)
        try:
            host.run(place, len(assembler), timeout=60)
            ends = True
        except ProgramError as error:
            assert "WATCHDOG" in str(error) or "DEADLOCK" in str(error), (number, error)
            ends = False
        assert said == "depends" or ends == (said == "ends"), (number, said, ends)
        found[said, ends] += 1
    print(dict(found))
    assert found["ends", True] > PROGRAMS / 10 and found["stands", False] > PROGRAMS / 10
