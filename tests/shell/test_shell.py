"""The shell on a bus: the laws are in ``*_laws.py``."""

import pytest

from ..laws import cases
from .bench import built


@pytest.mark.parametrize(
    "laws, data_bits, law",
    [
        case
        for laws in ("shell_laws", "bus_laws", "request_laws", "limit_laws")
        for data_bits in (128, 256)
        for case in cases(f"tests.shell.{laws}", laws, data_bits)
    ],
)
def test_the_shell_obeys_its_laws_on_the_bus(laws, data_bits, law, law_holds):
    law_holds(law, module=f"tests.shell.{laws}", where=built(data_bits), top="shell_bench", DATA_BITS=str(data_bits))
