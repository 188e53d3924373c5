"""Memory at power-up: its header is what the firmware reads, and nothing reaches beyond its room."""

import struct

import pytest

from gradloom.program.assembler import Assembler
from gradloom.program.power_up import BEAT, PowerUp, PowerUpMemory, PowerUpStage, usual_pause
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode

STAGES = (
    PowerUpStage(name="before", program="judge", block=512, blocks=3, told=96),
    PowerUpStage(name="epoch", program="learn", block=1024, blocks=2, runs=40),
)


def memory():
    made = PowerUpMemory(bytearray(300))
    assert made.place("weights", b"\x07" * 21) == (300, 21)
    for name, count in (("judge", 1), ("learn", 2)):
        program = Assembler()
        for _ in range(count):
            program.add(CONTROL, ControlOpcode.END)
        made.add(name, program)
    return made


def ended(made, *, room=1 << 12, pause=9, **more):
    return made.end(STAGES, room=room, needs="digits need", remedy=": fewer", pause=pause, **more)


def test_the_header_names_programs_stages_and_results():
    made = memory()
    (judge, _), (learn, _) = made.programs["judge"], made.programs["learn"]
    # Commands begin at multiples of their 32 bytes.
    assert (judge, learn) == (352, 384)
    image = ended(made, result=(320, 8), biases=(340, 4))
    assert image[:4] == b"GLTN" and len(image) % BEAT == 0 and len(image) == learn + 64
    assert struct.unpack_from("<7I", image, 4) == (len(image), 2, 320, 8, 9, 340, 4)
    assert struct.unpack_from("<8s6I", image, 32) == (b"before\0\0", judge, 1, 512, 3, 1, 96)
    assert struct.unpack_from("<8s6I", image, 64) == (b"epoch\0\0\0", learn, 2, 1024, 2, 40, 0)
    assert image[300:321] == b"\x07" * 21 and image[judge : judge + 32] == made.programs["judge"][1].code
    assert struct.unpack_from("<4I", ended(memory()), 12) == (0, 0, 9, 0)


def test_whole_beats_are_written_one_a_line():
    image = bytes(range(2 * BEAT))
    text = PowerUp(stages=STAGES, image=image, pause=9, programs={}, sizes={}).text()
    assert text.splitlines() == [image[at : at + BEAT][::-1].hex() for at in (0, BEAT)]


def test_an_image_beyond_its_room_is_refused():
    size = len(ended(memory()))
    assert ended(memory(), room=size)
    with pytest.raises(ValueError, match=rf"^digits need {size} bytes of memory, there are {size - 1}: fewer$"):
        ended(memory(), room=size - 1)


@pytest.mark.parametrize("pause", [0, 1 << 32])
def test_a_pause_must_fit_its_word(pause):
    with pytest.raises(ValueError, match=rf"^pause={pause}: must be from 1 to 2\^32 - 1 cycles$"):
        ended(memory(), pause=pause)
    for held in (1, (1 << 32) - 1):
        assert struct.unpack_from("<I", ended(memory(), pause=held), 20) == (held,)


def test_lines_repeat_every_two_seconds():
    assert usual_pause(25) == 50_000_000
