"""Generated designs for the tests of this room."""

import pytest

from gradloom.cli.design.generate import generate


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """The folder of a whole machine, the smallest preset."""
    folder = tmp_path_factory.mktemp("machine") / "design"
    generate("lstm-zcu104", folder)
    return folder


@pytest.fixture(scope="session")
def unit(tmp_path_factory):
    """The folder of a unit with a test bench."""
    folder = tmp_path_factory.mktemp("unit") / "design"
    generate("mesh", folder, settings={"rows": 2, "cols": 2})
    return folder
