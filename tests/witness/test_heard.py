"""A unit is what it was when its witness was last heard, and the witness found no difference."""

import json

import pytest

from .run import KEPT, WITNESSES, digest

HEARD = json.loads(KEPT.read_text(encoding="utf-8"))


def test_every_witness_has_been_heard():
    assert HEARD.keys() == WITNESSES.keys()
    assert all(each["differing"] == 0 for heard in HEARD.values() for each in heard["said"].values())


@pytest.mark.parametrize("name", WITNESSES)
def test_what_a_witness_was_asked_about_has_not_changed(name):
    assert digest(WITNESSES[name].subject()) == HEARD[name]["unit"], "run make evidence-witness WITNESS=DIR"
