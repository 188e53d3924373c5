"""The shell on several ports: the laws are those of one."""

import pytest

from ...deep import deep
from ...laws import cases
from ..bench import built

#: Beats, ports, bits of a port.
SHAPES = ((128, 2, 128), (256, 2, 128), (256, 4, 128))


@deep
@pytest.mark.parametrize("data_bits, ports, port_bits", SHAPES)
@pytest.mark.parametrize(
    "laws, law",
    [
        case
        for laws in ("shell_laws", "bus_laws", "request_laws", "limit_laws", "time_laws")
        for case in cases(f"tests.shell.laws.{laws}", laws)
        if "as_long_as_promised" not in case.id
    ],
)
def test_the_shell_obeys_its_laws_on_several_ports(laws, law, data_bits, ports, port_bits, law_holds):
    law_holds(
        law,
        module=f"tests.shell.laws.{laws}",
        where=built(data_bits, ports=ports, port_bits=port_bits),
        top="shell_bench",
        DATA_BITS=str(data_bits),
        PORTS=str(ports),
        PORT_BITS=str(port_bits),
    )
