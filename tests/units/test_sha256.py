"""SHA-256: digests are hashlib's, at the stated rate, and in a small part of a chip."""

import hashlib
import random

import pytest

from gradloom import boards
from gradloom.boards.netlist.area import area
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.units.sha256 import Sha256
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench


def hashed(messages, **how):
    beats = [
        {"data": byte, "last": int(at == len(message) - 1)} for message in messages for at, byte in enumerate(message)
    ]
    found = EngineBench(component=Sha256()).run(BenchLoad("i", beats), BenchStore("o", len(messages)), **how)
    assert not found.left
    return found


@pytest.mark.parametrize("stall, hold", [(0.0, 0), (0.3, 0), (0.2, 1500)])
def test_digests_are_hashlibs(stall, hold):
    """Lengths around the ends of a block, where the padding takes another."""
    chosen = random.Random(3)
    messages = [chosen.randbytes(length) for length in (1, 3, 55, 56, 63, 64, 65, 119, 120, 128)]
    found = hashed(messages, stall=stall, hold=hold, seed=7)
    expected = [int.from_bytes(hashlib.sha256(message).digest(), "big") for message in messages]
    assert found.words["o"] == expected


def test_a_byte_takes_at_most_eight_cycles():
    cycles = [hashed([bytes(64 * blocks)]).stored["o"][0] for blocks in (1, 5)]
    assert cycles[1] - cycles[0] == 4 * 400


def test_the_unit_is_small(tmp_path):
    emit(Sha256(), tmp_path / "design", name="sha256", family="xc7")
    found = area(tmp_path / "design", boards.find("genesys2"), paths=1)
    assert found["total"]["lut"] <= 900 and found["levels"] <= 12, (found["total"], found["levels"])
