"""The preset's design, made once."""

import shutil

import pytest

from gradloom import generate


@pytest.fixture(scope="session")
def _made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ulx3s") / "design"
    generate("digits-ulx3s", directory)
    return directory


@pytest.fixture(scope="module")
def design(_made, tmp_path_factory):
    """The preset, generated; a file may change it."""
    return shutil.copytree(_made, tmp_path_factory.mktemp("own") / "design")
