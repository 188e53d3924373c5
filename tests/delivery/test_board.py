"""From a signed adapter to words in a board's memory: verbs, a real card, and the firmware on this machine."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import gradloom
from gradloom.delivery.keys import read_public
from gradloom.models.adapters.lora import save_lora, single
from gradloom.systems.text.card.words import read_board

from ..firmware.chip.deliver import Receiver
from ..models.test_filled import QWEN
from ..systems.text.card.power import compiled
from ..systems.text.conftest import LONG_HEADS, MODEL, adapters, frozen, model, tensors  # noqa: F401
from .test_collect import card  # noqa: F401

MEMORY = 1 << 24


@pytest.fixture
def learnt(adapters, model, tmp_path):  # noqa: F811
    """Two adapters of the card's job in PEFT's format, and a key pair."""
    pytest.importorskip("monocypher")
    for name, factor in (("one", 1.0), ("two", 1.01)):
        moved = {each: replace(of, a=of.a * factor, b=of.b * factor) for each, of in adapters.items()}
        save_lora(tmp_path / name, model, moved)
    gradloom.package.keys(tmp_path / "root")
    return tmp_path


def test_signed_adapters_reach_the_board(card, learnt, run):  # noqa: F811
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed")
    image, common = card[0], {"key": learnt / "root"}
    with image.open("rb") as file:
        job = read_board(file)
    (learnt / "host").mkdir()
    program = compiled(learnt / "host", MEMORY, read_public(learnt / "root.pub"))
    board = Receiver(program, learnt, image.read_bytes())

    def start(seed):
        board.start(seed=seed, cut_runs=1)
        return np.frombuffer(board.memory.read_bytes()[4096:][: len(job.words)], "<i4")

    assert start(1).tobytes() == job.words
    told = gradloom.package.sign(learnt / "one", learnt / "one.pkg", card=image, version=1, bits=32, **common)
    code, out, _ = run("card", "install", learnt / "one.pkg", "--card", board.card)
    assert code == 0 and "version 1 waits in the inbox" in " ".join(out.split())
    first = start(2)
    assert np.array_equal(first, job.of(learnt / "one")) and told["largest_error"] == 0
    # Exponents are those that the job begins with.
    assert first[job.exact :].tobytes() == job.words[4 * job.exact :] and first[: job.exact].any()
    gradloom.package.sign(
        learnt / "two", learnt / "two.pkg", parent=learnt / "one.pkg", card=image, version=2, **common
    )
    assert (learnt / "two.pkg").stat().st_size < (learnt / "one.pkg").stat().st_size / 4
    gradloom.card.install(learnt / "two.pkg", card=board.card)
    second = start(3)
    wanted = job.of(learnt / "two")
    assert np.abs(second - wanted).max() < np.abs(first - wanted).max() / 5
    code, _, err = run("card", "collect", "--card", board.card, "-o", learnt / "out")
    assert code == 2 and "the board has stored nothing yet" in err
    code, out, _ = run("card", "rollback", "--card", board.card)
    assert code == 0 and "brings back version 1 for 2" in " ".join(out.split())
    assert np.array_equal(start(4), first)


@pytest.mark.parametrize(
    "model", [MODEL, LONG_HEADS, QWEN], ids=["heads of 64", "heads of 128", "heads of 48"], indirect=True
)
def test_the_words_of_an_adapter_are_those_that_a_job_begins_with(card, adapters, model, tmp_path):  # noqa: F811
    save_lora(tmp_path / "same", model, {name: single({name: each})[name] for name, each in adapters.items()})
    with card[0].open("rb") as file:
        job = read_board(file)
    found, begun = job.of(tmp_path / "same"), np.frombuffer(job.words, "<i4")
    # Files have float32.
    assert np.abs(found - begun).max() < 1e-6 * np.abs(begun).max() and found.any()


def test_what_a_board_would_refuse_is_one_line(card, learnt, run, monkeypatch):  # noqa: F811
    image, common = card[0], {"key": learnt / "root", "version": 1}
    gradloom.package.sign(learnt / "one", learnt / "one.pkg", card=image, **common)
    whole = (learnt / "one.pkg").read_bytes()
    before = image.read_bytes()
    (learnt / "base").write_bytes(b"base")
    gradloom.package.sign(learnt / "one", learnt / "host.pkg", base=learnt / "base", **common)
    cases = [(whole[:500], "has 500 bytes"), (whole[:-1], f"has {len(whole) - 1} bytes"), (b"x" * 600, "GRADLOOM")]
    cases += [((learnt / "host.pkg").read_bytes(), "is not for boards; sign it with --card")]
    other = bytearray(whole)
    other[72] ^= 1
    cases += [(bytes(other), "name the card it was made for")]
    for content, why in cases:
        (learnt / "bad.pkg").write_bytes(content)
        code, _, err = run("card", "install", learnt / "bad.pkg", "--card", image)
        assert code == 2 and why in " ".join(err.split()) and image.read_bytes() == before, why
    code, _, err = run("card", "rollback", "--card", image)
    assert code == 2 and "has no older adapter" in err and image.read_bytes() == before
    code, _, err = run("card", "install", learnt / "one.pkg", "--card", learnt / "none")
    assert code == 2 and "No such file" in err
    code, _, err = run("package", "apply", learnt / "one.pkg", "--check", "--trust", learnt / "root.pub")
    assert code == 0
    code, _, err = run(
        "package",
        "apply",
        learnt / "one.pkg",
        "--trust",
        learnt / "root.pub",
        "--base",
        learnt / "base",
        "-o",
        learnt / "out",
    )
    assert code == 2 and not (learnt / "out").exists()
    code, _, err = run(
        "package", "sign", learnt / "one", "--key", learnt / "root", "--version", "1", "-o", learnt / "x.pkg"
    )
    assert code == 2 and "base, card: give one of them" in err
    code, _, err = run(
        "package",
        "sign",
        learnt / "two",
        "--parent",
        learnt / "host.pkg",
        "--card",
        image,
        "--key",
        learnt / "root",
        "--version",
        "2",
        "-o",
        learnt / "x.pkg",
    )
    assert code == 2 and "must be a package of gradloom package sign --card" in " ".join(err.split())
