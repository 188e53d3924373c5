"""The control port of a slot; the laws are in ``slot_control_laws.py``."""
from pathlib import Path

import pytest

import gradloom.rtl.soc
from gradloom.sim.run import runner


@pytest.mark.parametrize("data_bits", [32, 128])
def test_the_control_port_obeys_its_laws(data_bits, tmp_path):
    source = Path(gradloom.rtl.soc.__file__).with_name("slot_control.v")
    parameters = {"DATA_BITS": data_bits, "ID_BITS": 3, "ADDRESS_BITS": 32}
    # cocotb's manager wants ports that this module needs not.
    text = source.read_text().replace(
        "    input  wire [7:0] s_awlen,", "    input  wire [2:0] s_awsize,\n    input  wire [1:0] s_awburst,\n"
        "    input  wire [7:0] s_awlen,").replace(
        "    input  wire [7:0] s_arlen,", "    input  wire [2:0] s_arsize,\n    input  wire [1:0] s_arburst,\n"
        "    input  wire [7:0] s_arlen,")
    where = runner.build({"slot_control.v": text}, top="gradloom_slot_control", parameters=parameters)
    runner.run_cocotb(where, top="gradloom_slot_control", module="tests.soc.slot_control_laws", directory=tmp_path,
                      environment={"DATA_BITS": str(data_bits)})
