"""The C runner reads a text as one value of JSON, or not at all."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import gradloom.firmware

GOOD = ["{}", " [1, -2.5e3, true, null]\n", '{"a": {"b": [["x\\"y"], 0]}, "c": ""}', "7", '"text"']
BAD = [
    *("", " ", "{", "[1", '{"a"}', '{"a": }', "{1: 2}", '"open', "tru", "[1 2]", "{}{}", "[1] x", "7 7", '{"a": 1}}'),
    "[" * 40 + "]" * 40,
]


@pytest.fixture(scope="module")
def parse(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source = Path(gradloom.firmware.__path__[0], "linux", "linux_json.c")
    target = tmp_path_factory.mktemp("json") / "json.so"
    strict = ["-Wall", "-Wextra", "-Werror", "-std=c99", "-O2", "-shared", "-fPIC"]
    subprocess.run(["gcc", *strict, "-o", str(target), str(source)], check=True)
    library = ctypes.CDLL(str(target))

    def parse(text):
        made = (ctypes.c_uint64 * 8)()
        found = library.json_parse(made, text, ctypes.c_size_t(len(text)))
        library.json_free(made)
        return found

    return parse


@pytest.mark.parametrize("text", GOOD)
def test_a_value_is_read(parse, text):
    assert parse(text.encode()) == 0


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_value_or_has_more_behind_it_is_refused(parse, text):
    assert parse(text.encode()) == -1
