"""The control port of a slot; the laws are in ``slot_control_laws.py``."""

import functools
from pathlib import Path

import pytest

import gradloom.rtl.soc
from gradloom.sim.run.builds import runner

from ..laws import cases


@functools.cache
def _built(data_bits):
    source = Path(gradloom.rtl.soc.__file__).with_name("slot_control.v")
    parameters = {"DATA_BITS": data_bits, "ID_BITS": 3, "ADDRESS_BITS": 32}
    # cocotb's manager wants ports that this module needs not.
    text = (
        source.read_text()
        .replace(
            "    input  wire [7:0] s_awlen,",
            "    input  wire [2:0] s_awsize,\n    input  wire [1:0] s_awburst,\n    input  wire [7:0] s_awlen,",
        )
        .replace(
            "    input  wire [7:0] s_arlen,",
            "    input  wire [2:0] s_arsize,\n    input  wire [1:0] s_arburst,\n    input  wire [7:0] s_arlen,",
        )
    )
    return runner.build({"slot_control.v": text}, top="gradloom_slot_control", parameters=parameters)


@pytest.mark.parametrize(
    "data_bits, law", [case for data_bits in (32, 128) for case in cases("tests.soc.slot_control_laws", data_bits)]
)
def test_the_control_port_obeys_its_laws(data_bits, law, law_holds):
    law_holds(
        law,
        module="tests.soc.slot_control_laws",
        where=_built(data_bits),
        top="gradloom_slot_control",
        DATA_BITS=str(data_bits),
    )
