"""Budgets with their units, the offers that are worth a run, and the command of the one that is chosen."""

import shlex
from dataclasses import replace

import pytest

from gradloom.choosing.budgets import BYTES, SECONDS, parse_bytes, parse_seconds
from gradloom.choosing.candidates import Candidate
from gradloom.choosing.costs import Cost
from gradloom.choosing.finalists import MOST, finalists, offer
from gradloom.choosing.text import TextChooser

from .test_runs import offered


def test_units_are_those_of_the_si_and_of_iec():
    thousand = {unit: 1000**power for power, unit in enumerate(("B", "kB", "MB", "GB"))}
    assert thousand | {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3} == BYTES
    for unit, size in BYTES.items():
        assert parse_bytes("memory", f"3{unit}") == 3 * size
    assert {unit: parse_seconds("time", f"1.5{unit}") for unit in SECONDS} == pytest.approx(
        {"us": 1.5e-6, "ms": 1.5e-3, "s": 1.5, "min": 90, "h": 5400}
    )


@pytest.mark.parametrize("count, kept", [(1, [0]), (2, [1, 0]), (5, [4, 3, 2, 1, 0]), (9, [8, 6, 4, 2, 0])])
def test_of_too_many_offers_the_ends_and_what_lies_between_are_run(count, kept):
    """One that is slower and worth less is not, nor a smaller rank where a larger one learns in the same place."""
    front = [
        replace(offered(Candidate(rank=8, from_layer=20 - number)), seconds=float(number)) for number in range(count)
    ]
    slower = replace(offered(Candidate(rank=8, from_layer=21)), seconds=float(count))
    smaller = replace(offered(Candidate(rank=4, from_layer=20)), seconds=0.0)
    found = finalists([slower, smaller, *front], lambda each: 21 - each.from_layer)
    assert found == [front[number] for number in kept] and len(found) <= MOST


@pytest.mark.parametrize(
    "steps, seconds, updates, texts, programs, took",
    [
        (4, None, 2, 4, 7, 4.2),
        (6, None, 3, 6, 7, 6.3),  # each of the six texts once
        (8, None, 4, 6, 12, 6.4),
        (800, 11.0, 50, 6, 12, 11.0),
        (800, 10.999, 49, 6, 12, 10.9),
    ],
)
def test_an_offer_counts_texts_and_updates(steps, seconds, updates, texts, programs, took):
    """100 tokens are six texts of 16, two an update; programs of known texts are five bytes more."""
    cost = Cost(
        update_cycles=100, trunk_cycles=1000, memory={"programs": 7, "texts": 3}, update_bytes=9, later_programs=5
    )
    each = Candidate(seq=16, accumulate=2)
    found = offer(each, cost, tokens=100, steps=steps, longest=16, clock_hz=1000.0, seconds=seconds)
    assert (found.steps, found.texts, found.classes) == (updates, texts, {"programs": programs, "texts": 3 * texts})
    assert found.seconds == pytest.approx(took) and found.wanted == steps // 2


def test_a_command_says_what_is_not_usual_already():
    said = {
        Candidate(): "targets='q,v' rank=8 seq=64 steps=3",
        Candidate(method="layernorm", rank=0, from_layer=2, seq=32): "method=layernorm from-layer=2 seq=32 steps=3",
        Candidate(store="int8", accumulate=4): "targets='q,v' rank=8 store=int8 seq=64 accumulate=4 steps=3",
    }
    for each, words in said.items():
        command = TextChooser.command(None, offered(each))
        assert [f"{name}={value}" for name, value in command.items()] == shlex.split(words)
