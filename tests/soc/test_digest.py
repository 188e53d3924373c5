"""SHA-256 on the processor's bus; the laws are in ``digest_laws.py``."""

import functools
from pathlib import Path

import pytest

import gradloom.rtl.soc
from gradloom.rtl.soc.__main__ import digest_verilog
from gradloom.sim.run.builds import runner

from ..laws import cases

_HERE = Path(gradloom.rtl.soc.__file__).parent


@functools.cache
def _built():
    files = {name: (_HERE / name).read_text() for name in ("digest.v", gradloom.rtl.soc.DIGEST)}
    return runner.build(files, top="gradloom_digest", parameters={})


@pytest.mark.parametrize("law", cases("tests.soc.digest_laws"))
def test_the_unit_on_the_bus_obeys_its_laws(law, law_holds):
    law_holds(law, module="tests.soc.digest_laws", where=_built(), top="gradloom_digest")


def test_the_committed_verilog_is_the_unit():
    assert (_HERE / gradloom.rtl.soc.DIGEST).read_text() == digest_verilog(), "python -m gradloom.rtl.soc"
