"""A choice asks its system, whichever it is: the cheapest of those that learn as well is chosen."""

import json
import math
from dataclasses import dataclass
from hashlib import sha256
from types import SimpleNamespace

import pytest

from gradloom.choosing.chooser import Chooser, Short, ShortRuns, ranked
from gradloom.systems.job import digest


@dataclass(frozen=True)
class Offer:
    learns: str
    seconds: float
    memory: int = 1000
    update: int = 10

    def told(self):
        return {"learns": self.learns, "seconds": self.seconds, "beside_frozen_bytes": self.memory}


OFFERS = [Offer("much", 4.0), Offer("little", 1.0), Offer("too much", 9.0)]


class Some(Chooser):
    """Of three fine-tunes, whose losses are known."""

    units = {"time": "ms", "memory": "kB"}
    model = "net"

    def identity(self):
        return {}

    def offers(self, state, tell):
        return OFFERS

    def short_runs(self, within, state, tell):
        return ShortRuns(before=2.0, runs=[Short(offer=each, loss=self.loss[each.learns]) for each in within])

    def facts(self):
        return {"model": "net", "data": self.data.name}

    def described(self, offer):
        return offer.learns

    def last(self, offer):
        return offer.seconds

    def command(self, offer):
        return {"learns": offer.learns}


@pytest.fixture
def choose(tmp_path):
    def choose(time, **loss):
        (tmp_path / "data").write_text("x")
        Some.loss = loss
        asked = SimpleNamespace(preset=SimpleNamespace(name="preset", board="board"))
        options = SimpleNamespace(
            seed=0, time=time, memory=None, update=None, data=tmp_path / "data", output=tmp_path / "out"
        )
        return Some.choose(asked, options, lambda *_: None), tmp_path

    return choose


def test_the_cheapest_of_those_as_good_is_chosen(choose):
    result, folder = choose("5s", much=1.0, little=1.02)
    assert [row["learns"] for row in result["finalists"]] == ["little", "much"]
    assert result["command"] == f"gradloom finetune net --board board --data {folder / 'data'} --learns little"
    assert [row["within"] for row in result["offers"]] == [True, True, False] and result["within"] == 2
    assert result == json.loads((folder / "out" / "choose.json").read_text())


def test_what_learns_more_is_worth_its_time(choose):
    result, _ = choose("5s", much=1.0, little=1.1)
    assert [row["learns"] for row in result["finalists"]] == ["much", "little"]


def test_the_nearest_is_named_where_none_is_within(choose):
    with pytest.raises(ValueError, match=r"no candidate of 3 meets it; the nearest \(little\) takes time 1000ms"):
        choose("0.5s")


def test_where_nothing_falls_the_least_loss_is_first():
    runs = [Short(offer=OFFERS[1], loss=math.inf), Short(offer=OFFERS[0], loss=3.0)]
    assert [run.offer.learns for run in ranked(runs, 2.0)] == ["much", "little"]


def test_a_folder_of_data_is_known_by_all_that_is_in_it(tmp_path):
    """A choice goes on only with the same data, whether these are a file or folders of pictures."""
    picture = tmp_path / "d" / "train" / "0" / "a.png"
    picture.parent.mkdir(parents=True)
    seen = set()
    for content in (b"one", b"two"):
        picture.write_bytes(content)
        seen.add(digest(tmp_path / "d"))
        assert digest(picture) == sha256(content).hexdigest()
    picture.rename(picture.with_name("b.png"))
    assert len(seen | {digest(tmp_path / "d")}) == 3
