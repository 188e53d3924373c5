"""Keys that no reader knows are refused by name."""

import json

import pytest

from gradloom.models.files.keys import ANY, check_keys, is_empty

HARMLESS = {"note": ANY, "scale": (1.0,), "flag": (True,)}


@pytest.mark.parametrize("raw", [{}, {"size": 7}, {"note": "x"}, {"scale": 1}, {"flag": True}])
def test_known_keys_pass(raw):
    check_keys(raw, handled={"size"}, harmless=HARMLESS)


@pytest.mark.parametrize("empty", [None, False, "", [], {}])
def test_a_key_that_says_nothing_passes_unknown(empty):
    check_keys({"use_magic": empty, "scale": None, "note": empty}, handled=(), harmless=HARMLESS)


@pytest.mark.parametrize("value", [True, 0, 0.5, "x", [0], {"a": None}])
def test_an_unknown_key_is_refused_by_name(value):
    assert not is_empty(value)
    with pytest.raises(ValueError, match="use_magic=.*not known"):
        check_keys({"size": 7, "use_magic": value}, handled={"size"}, harmless=HARMLESS)


@pytest.mark.parametrize("raw", [{"scale": 2.0}, {"scale": True}, {"flag": 1}, {"flag": False}])
def test_another_value_is_refused_with_the_one_that_is_right(raw):
    (key,) = raw
    with pytest.raises(ValueError, match=f"{key}=.*must be {json.dumps(HARMLESS[key][0])}"):
        check_keys(raw, handled=(), harmless=HARMLESS)
