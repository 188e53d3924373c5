"""A signed package reaches a board by a bad line; the board checks it at once, and takes it into its inbox alone."""

import numpy as np
import pytest
import serial

import gradloom
from gradloom.boards.links.cards import SerialCard
from gradloom.delivery.board import make_board_package
from gradloom.delivery.keys import Signer
from gradloom.firmware.chip.card import DELIVERY, CardError, read_header, section_of
from gradloom.firmware.chip.soc_image import IMAGE, memory_text, trusting
from gradloom.sim.run.soc import SimulatedSoC

from ..deep import deep
from ..firmware.chip.deliver import COUNT, base_of, fresh_card
from .conftest import MEMORY
from .test_serve import Line

FIRST = np.arange(COUNT, dtype=np.int32)
monocypher = pytest.importorskip("monocypher")


@pytest.fixture
def package(tmp_path):
    signer = Signer(monocypher.generate_signing_key_pair()[0])
    made, words = make_board_package(
        FIRST * 1000, signer, base=base_of(fresh_card(FIRST)), version=2, bits=8, exact=COUNT - 8
    )
    (tmp_path / "run.pkg").write_bytes(made)
    return tmp_path / "run.pkg", signer, words


def started(program, image=IMAGE):
    soc = SimulatedSoC(program, memory_bytes=MEMORY, image=image)
    soc.insert(fresh_card(FIRST))
    while soc.hear(1 << 24) != "ready":
        pass
    return soc


def test_a_package_comes_into_the_inbox_and_is_checked(program, package, monkeypatch):
    soc, line = started(program), None
    before = soc.content()
    try:
        line = Line(soc, every=3000, gap=300)
        monkeypatch.setattr(serial, "Serial", lambda *_, **how: line)
        told = []
        with pytest.raises(ValueError, match="port=/dev/ttyUSB0: the board refuses: no.key is in the firmware"):
            gradloom.card.install(package[0], port="/dev/ttyUSB0", tell=lambda *each: told.append(each))
        after = soc.content()
    finally:
        soc.close()
    area, content = section_of(read_header(before[:512])[0], DELIVERY), package[0].read_bytes()
    assert line.hurt and ("writing to the card" in {text for _, _, text in told})
    assert after[area.start + 512 :][: len(content)] == content
    rest = area.start + area.size // 5
    assert (after[: area.start], after[rest:]) == (before[: area.start], before[rest:])


def test_no_other_block_is_written(program):
    soc = started(program)
    try:
        card = SerialCard(Line(soc, gap=300))
        area = section_of(read_header(soc.content()[:512])[0], DELIVERY)
        for at in (0, area.start - 512, area.start + area.size // 5):
            card.seek(at)
            with pytest.raises(CardError, match=f"cannot write block {at // 512} of its card: the block is outside"):
                card.write(bytes(512))
    finally:
        soc.close()


@deep
def test_a_package_is_installed_and_brought_back(program, package, tmp_path, monkeypatch):
    image = tmp_path / "soc_image.mem"
    image.write_text(trusting(memory_text(), package[1].public))
    soc = started(program, image)
    monkeypatch.setattr(serial, "Serial", lambda *_, **how: Line(soc, gap=300))
    monkeypatch.setattr("gradloom.cli.field.installing._CHECKED", 200)
    try:
        done = gradloom.card.install(package[0], port="/dev/ttyUSB0")
        assert done["said"].startswith("install: version 2, base ") and done["installed"] == 0
        while (line := soc.hear(1 << 24)) != "card: the installed adapter goes on":
            assert line.startswith("card: words")
        with pytest.raises(ValueError, match="has no older adapter"):
            gradloom.card.rollback(port="/dev/ttyUSB0")
        with pytest.raises(ValueError, match="version=2: must be above 2"):
            gradloom.card.install(package[0], port="/dev/ttyUSB0")
    finally:
        soc.close()
