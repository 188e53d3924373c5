"""The shell on a bus: the laws are in ``laws``."""

import pytest

from ..deep import deep
from ..laws import cases
from .bench import built

LAWS = ("shell_laws", "bus_laws", "request_laws", "limit_laws", "time_laws")


def held(laws, data_bits, law, law_holds):
    law_holds(
        law, module=f"tests.shell.laws.{laws}", where=built(data_bits), top="shell_bench", DATA_BITS=str(data_bits)
    )


@pytest.mark.parametrize("laws, law", [case for laws in LAWS for case in cases(f"tests.shell.laws.{laws}", laws)])
def test_the_shell_obeys_its_laws_on_the_bus(laws, law, law_holds):
    held(laws, 128, law, law_holds)


@deep
@pytest.mark.parametrize("laws, law", [case for laws in LAWS for case in cases(f"tests.shell.laws.{laws}", laws)])
def test_the_shell_obeys_its_laws_on_a_wider_bus(laws, law, law_holds):
    held(laws, 256, law, law_holds)
