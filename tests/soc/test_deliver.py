"""The firmware on its processor in RTL checks a signature, and installs what it is of."""

import random

import numpy as np
import pytest

from gradloom.delivery.board import make_board_package
from gradloom.delivery.keys import Signer
from gradloom.firmware.chip.delivered import Area, DeliveryRequest
from gradloom.firmware.chip.soc_image import memory_text, trusting
from gradloom.sim.run.soc import SimulatedSoC

from ..deep import deep
from ..firmware.chip.deliver import AT, COUNT, base_of, fresh_card
from .conftest import MEMORY

pytestmark = deep
#: Cycles that a check of a signature may take; with all else that an installation needs they are 27.4 million.
MOST = 30_000_000


def started(program, image, path):
    """What the board says from power-up to its wait, cycles of each line, and the words then."""
    soc = SimulatedSoC(program, memory_bytes=MEMORY, image=image)
    soc.write_memory(0, random.Random(1).randbytes(1 << 16))
    soc.insert(path.read_bytes())
    lines = {}
    while "ready" not in lines:
        line = soc.hear(1 << 26)
        lines[line] = soc.cycles
    words = np.frombuffer(soc.read_memory(AT, 4 * COUNT), "<i4")
    path.write_bytes(soc.content())
    soc.close()
    return lines, words


@pytest.mark.parametrize("flipped", [False, True])
def test_a_signature_is_checked_in_time(program, tmp_path, flipped):
    monocypher = pytest.importorskip("monocypher")
    signer = Signer(monocypher.generate_signing_key_pair()[0])
    image, path = tmp_path / "soc_image.mem", tmp_path / "card"
    image.write_text(trusting(memory_text(), signer.public))
    first = np.arange(COUNT, dtype=np.int32)
    path.write_bytes(fresh_card(first))
    package, words = make_board_package(
        first * 1000, signer, base=base_of(path.read_bytes()), version=2, bits=8, exact=COUNT - 8
    )
    if flipped:
        package = package[:300] + bytes([package[300] ^ 4]) + package[301:]
    with path.open("r+b") as file:
        Area.of(file).ask(file, DeliveryRequest.INSTALL, 1, package)
    lines, found = started(program, image, path)
    (said,) = (each for each in lines if each.startswith("install"))
    took = lines[said] - lines["card: 3 sections"]
    print(f"{took:,} cycles")
    assert said.startswith("install: error: the signature" if flipped else "install: version 2, base ")
    assert 10_000_000 < took < MOST
    assert np.array_equal(found, first if flipped else words)
    # Again, without a request that is not done.
    if not flipped:
        lines, found = started(program, image, path)
        assert not [each for each in lines if each.startswith("install")] and np.array_equal(found, words)
