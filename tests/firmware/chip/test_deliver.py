"""The board's firmware, on this machine, installs what is signed for it, and nothing else."""

import hashlib
import os
import random
import shutil

import numpy as np
import pytest

from gradloom.delivery.board import make_board_package
from gradloom.delivery.keys import Signer, write_keys
from gradloom.delivery.manifest import WORDS
from gradloom.delivery.package import key_list_package, signed_package
from gradloom.delivery.words import GROUP, encode
from gradloom.firmware.chip.delivered import DeliveryRequest

from ...systems.text.card.power import compiled
from .deliver import COUNT, MEMORY, Receiver, base_of, fresh_card

DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
RANDOM = np.random.default_rng(1)
FIRST = RANDOM.integers(-(1 << 20), 1 << 20, COUNT).astype(np.int32)
SECOND, THIRD = (FIRST + RANDOM.integers(-500, 500, COUNT).astype(np.int32) for _ in range(2))
EXACT = 152


@pytest.fixture(scope="module")
def signers():
    monocypher = pytest.importorskip("monocypher")
    made = []
    for _ in range(3):
        made.append(Signer(monocypher.generate_signing_key_pair()[0]))
    return made


@pytest.fixture(scope="module")
def program(signers, tmp_path_factory):
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed")
    return compiled(tmp_path_factory.mktemp("deliver"), MEMORY, signers[0].public)


@pytest.fixture
def board(program, tmp_path):
    return Receiver(program, tmp_path, fresh_card(FIRST))


@pytest.fixture
def make(signers):
    card = fresh_card(FIRST)

    def package(words, version, *, signer=0, bits=8, base=None, **more):
        return make_board_package(
            words, signers[signer], base=base or base_of(card), version=version, bits=bits, exact=EXACT, **more
        )

    return package


def test_versions_are_installed_and_rolled_back(board, make):
    """The installed words lie in memory at each start; the same request is done once."""
    one, words = make(SECOND, 3)
    assert not np.array_equal(words, SECOND) and np.array_equal(words[EXACT // 64 * 64 :], SECOND[EXACT // 64 * 64 :])
    assert np.array_equal(board.start()[1], FIRST)
    board.ask(one, number=1)
    said, found, _ = board.start()
    # Nothing here tries it: it stays new until something does.
    assert board.state().trial and board.state().current.version == 3
    assert said == [f"install: version 3, base {base_of(fresh_card(FIRST)).hex()[:16]}"]
    assert np.array_equal(found, words)
    two, changed = make(THIRD, 4, bits=4, parent=words)
    assert len(two) < len(one) - 30
    board.ask(two, number=2)
    assert np.array_equal(board.start()[1], changed) and board.state().current.version == 4
    assert board.start(seed=2)[0] == [] and np.array_equal(board.start(seed=3)[1], changed)
    board.ask(number=3, request=DeliveryRequest.ROLLBACK)
    said, found, _ = board.start()
    assert said == ["rollback: version 3 is back"] and np.array_equal(found, words) and not board.state().trial
    # Version 4 was signed, and was taken back: it does not come again.
    board.ask(two, number=4)
    assert board.start()[0] == ["install: error: the version is not above all that were installed"]


def cases(make, signers):
    """Packages that are refused after version 3, and why."""
    _, words = make(SECOND, 3)
    keys = write_keys([], [signers[1].public])
    yield make(THIRD, 3)[0], "the version is not above all that were installed"
    yield make(THIRD, 4, base=bytes(31) + b"\1")[0], "the package is for another base"
    yield make(THIRD, 4, parent=words + 1)[0], "the change is of another adapter"
    yield make(THIRD, 4, signer=2)[0], "the key is not trusted"
    yield key_list_package(keys, signers[1], version=2), "the key is not trusted"
    yield make(THIRD[:144], 4)[0], "the payload has other words than this card"
    yield make(np.tile(THIRD, 2), 4)[0], "the payload has other words than this card"
    payload = encode(THIRD, 8)
    yield (
        signed_package(
            payload, signers[0], kind=WORDS, version=4, bound=0.0, bits=8, block=GROUP, base=base_of(fresh_card(FIRST)),
            parent=bytes(32), result=hashlib.sha256(payload).digest(),
        ),
        "the words' hash does not hold",
    )  # fmt: skip
    whole = make(THIRD, 4)[0]
    yield whole[:511], "the package is shorter than a manifest"
    for length in (512, len(whole) - 1, len(whole) + 1):
        yield (whole + b"\0")[:length], "the package is cut"


def test_what_does_not_hold_is_refused_in_one_line(board, make, signers):
    board.ask(make(SECOND, 3)[0], number=1)
    words, before = board.start()[1], board.state()
    for number, (package, why) in enumerate(cases(make, signers), start=2):
        board.ask(package, number=number)
        said, found, _ = board.start()
        assert said == [f"install: error: {why}"], why
        assert np.array_equal(found, words) and board.state() == before


@pytest.mark.parametrize("zeros", [4, 3])
def test_a_payload_takes_a_quarter_of_the_memory_at_most(program, tmp_path, signers, zeros):
    """Groups of zeros take a byte and not 257, so one fewer is too many."""
    words = np.arange(1, MEMORY // 16 + 1, dtype=np.int32)
    words[: GROUP * zeros] = 0
    card = fresh_card(FIRST[:1].repeat(len(words)))
    package, _ = make_board_package(words, signers[0], base=base_of(card), version=1, bits=32, exact=0)
    assert (len(package) - 512 > MEMORY // 4) == (zeros == 3)
    board = Receiver(program, tmp_path, card)
    board.ask(package, number=1)
    said, found, _ = board.start()
    if zeros == 4:
        assert said[0].startswith("install: version 1") and np.array_equal(found, words)
    else:
        assert said == ["install: error: the package does not fit into memory"] and np.all(found == FIRST[0])


def test_a_list_of_keys_trusts_and_revokes(board, make, signers):
    root, other, _ = signers
    board.ask(key_list_package(write_keys([other.public], []), root, version=1), number=1)
    assert board.start()[0][0].startswith("install: key list, version 1") and board.state().keys_version == 1
    package, words = make(SECOND, 3, signer=1, least=3)
    board.ask(package, number=2)
    assert np.array_equal(board.start()[1], words)
    board.ask(key_list_package(write_keys([], [other.public]), root, version=2), number=3)
    board.start()
    board.ask(make(THIRD, 4, signer=1)[0], number=4)
    assert board.start()[0] == ["install: error: the key is revoked"]
    board.ask(key_list_package(write_keys([other.public], []), root, version=1), number=5)
    assert board.start()[0] == ["install: error: the key list is not newer than the one in use"]
    assert np.array_equal(board.start()[1], words) and board.state().keys_version == 2


def test_a_rollback_needs_an_older_version_that_may_come_back(board, make):
    board.ask(number=1, request=DeliveryRequest.ROLLBACK)
    assert board.start()[0] == ["rollback: error: there is no older adapter"]
    board.ask(make(SECOND, 3)[0], number=2)
    board.start()
    board.ask(make(THIRD, 4, least=4)[0], number=3)
    words = board.start()[1]
    board.ask(number=4, request=DeliveryRequest.ROLLBACK)
    said, found, _ = board.start()
    assert said == ["rollback: error: the older version is below the least that was signed"]
    assert np.array_equal(found, words)


def test_no_flipped_bit_is_accepted(board, make):
    """Anywhere in the package; in the request's block the request is not seen, or done with the package whole."""
    board.ask(make(SECOND, 3)[0], number=1)
    words, before = board.start()[1], board.state()
    package = make(THIRD, 4)[0]
    chosen = random.Random(5)
    # Bits of the manifest, its signature and the payload alike.
    parts = (range(448), range(448, 512), range(512, len(package)))
    for number in range(1000 if DEEP else 30):
        at = chosen.choice(parts[number % 3])
        bad = bytearray(package)
        bad[at] ^= 1 << chosen.randrange(8)
        board.ask(bytes(bad), number=number + 2)
        said, found, _ = board.start()
        assert len(said) == 1 and said[0].startswith("install: error: "), at
        assert np.array_equal(found, words) and board.state() == before
    board.ask(package, number=2000)
    assert board.start()[0][0].startswith("install: version 4")


@pytest.mark.parametrize("request_kind", [DeliveryRequest.INSTALL, DeliveryRequest.ROLLBACK], ids=str)
def test_power_cuts_leave_what_was_there_or_what_comes(board, make, request_kind):
    """At each boundary of a written block and inside; the next start ends what was begun."""
    _, old = make(SECOND, 3)
    board.ask(make(SECOND, 3)[0], number=1)
    board.start()
    package, new = make(THIRD, 4)
    board.ask(package, number=2)
    if request_kind == DeliveryRequest.ROLLBACK:
        board.start()
        old, new = new, old
        board.ask(number=3, request=DeliveryRequest.ROLLBACK)
    fresh = board.card.read_bytes()
    _, found, (_, length, blocks) = board.start()
    assert np.array_equal(found, new) and blocks >= (1 if request_kind == DeliveryRequest.ROLLBACK else 3)
    ends = [round(n * length / blocks) for n in range(1, blocks + 1)]
    cuts = sorted({*ends, *random.Random(3).sample(range(1, length), 60 if DEEP else 4)} - {length})
    for seed, cut in enumerate(cuts):
        board.card.write_bytes(fresh)
        _, _, (gone, _, _) = board.start(card_cut=cut, card_seed=seed, seed=seed)
        assert gone, cut
        # What a board has that nobody asks: the words of either version, whole.
        dark = board.card.read_bytes()
        board.ask(number=board.state().request, request=DeliveryRequest.INSTALL)
        found = board.start()[1]
        assert np.array_equal(found, old) or np.array_equal(found, new), cut
        board.card.write_bytes(dark)
        assert np.array_equal(board.start(seed=-seed)[1], new), cut


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"card_protect": 1}, "the card is write-protected"),
        ({"card_bad": True}, "the card cannot write a block"),
        ({"card_mute": 9}, None),
    ],
)
def test_a_card_that_does_not_store_keeps_what_was_there(board, make, settings, said):
    board.ask(make(SECOND, 3)[0], number=1)
    words = board.start()[1]
    board.ask(make(THIRD, 4)[0], number=2)
    with board.card.open("rb") as file:
        from gradloom.firmware.chip.delivered import Area

        entry = Area.of(file).entry
    spare = (entry.start + 2 * entry.size // 5) // 512 + 2
    told, found, _ = board.start(**{name: spare if value is True else value for name, value in settings.items()})
    assert len(told) >= 1 and (said is None or told == [f"install: error: {said}"])
    if said is not None:
        assert np.array_equal(found, words)
    assert board.state().current.version == 3
    # In a good slot it is installed after all.
    assert board.start()[0][0].startswith("install: version 4")
