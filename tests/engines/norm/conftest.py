"""The bench of the norm engine, built once."""

import pytest

from gradloom.rtl.engines.norm.spec import SPEC
from gradloom.sim.bench.engine import EngineBench

from .script import CONFIG


@pytest.fixture(scope="session")
def bench():
    return EngineBench(SPEC, CONFIG)
