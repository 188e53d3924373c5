"""ZipCPU's properties of an AXI4-Lite subordinate: the emitted register file keeps all, in runs of any length."""

import json
import re
import subprocess

from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.emit.yosys import run_yosys, yosys_files
from gradloom.rtl.shell.registers.axilite import RegisterFile

__all__ = ["FILES", "OF", "hear", "subject"]

#: What is counted.
OF = "assertions"
FILES = ("zipcpu/faxil_slave.v",)
_CHANNELS = {
    "aw": ("valid", "ready", "addr", "prot"),
    "w": ("valid", "ready", "data", "strb"),
    "b": ("valid", "ready", "resp"),
    "ar": ("valid", "ready", "addr", "prot"),
    "r": ("valid", "ready", "data", "resp"),
}
_SCRIPT = """\
read_verilog registers.v
read_verilog -formal -sv faxil_slave.v claim.v
hierarchy -top claim
proc
flatten
opt -full
memory_map
async2sync
chformal -cover -remove
chformal -lower
setundef -undriven -anyseq
opt -full
techmap
opt -full
dffunmap
aigmap
write_aiger -zinit -ywmap claim.json claim.aig
"""


def subject():
    """The register file as it is emitted."""
    return {"registers.v": convert(RegisterFile(), name="registers").files["registers"]}


def _claim(verilog):
    """The register file beside the properties: what comes from outside is anything."""
    signals = [f"{channel}{name}" for channel, names in _CHANNELS.items() for name in names]
    header = re.search(r"^module registers ?\(([^)]*)\)", verilog, re.MULTILINE)[1]
    ports = [port.strip() for port in header.split(",")]
    widths = {
        port: re.search(rf"^  (?:input|output)(?: reg)?( \[[^]]*\])? {port};", verilog, re.MULTILINE)[1] or ""
        for port in ports
    }
    inputs = [port for port in ports if re.search(rf"^  input[^;]* {port};", verilog, re.MULTILINE)]
    lines = [f"module claim({', '.join(inputs)});"]
    lines += [f"  {'input' if port in inputs else 'wire'}{widths[port]} {port};" for port in ports]
    lines += ["  registers unit(" + ", ".join(f".{port}({port})" for port in ports) + ");"]
    properties = ", ".join(f".i_axi_{name}(bus_{name})" for name in signals)
    lines += [
        "  faxil_slave #(.C_AXI_DATA_WIDTH(32), .C_AXI_ADDR_WIDTH(12)) properties(",
        f"    .i_clk(clk), .i_axi_reset_n(~rst), {properties});",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def prove(verilog, witness, folder):
    """Number of assertions, and whether ABC finds an inductive invariant for all of them."""
    texts = {"registers.v": verilog, "claim.v": _claim(verilog)}
    texts["faxil_slave.v"] = (witness / FILES[0]).read_text()
    for name, text in texts.items():
        (folder / name).write_text(text)
    run_yosys(_SCRIPT.splitlines(), folder)
    count = len(json.loads((folder / "claim.json").read_text())["asserts"])
    commands = "read_aiger claim.aig; fold; strash; orpos; pdr -T 300"
    said = subprocess.run(
        [yosys_files() / "yosys-abc", "-c", commands], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    return count, "Property proved" in said


def hear(witness, folder):
    """Assertions of the properties, and those that are not proven."""
    count, proven = prove(subject()["registers.v"], witness, folder)
    if count < 20:
        raise RuntimeError(f"the properties have {count} assertions only")
    return {"AXI4-Lite": {"differing": 0 if proven else count, "compared": count}}
