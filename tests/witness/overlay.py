"""dtschema, by which Linux checks device trees: the KV260's overlay on a base tree keeps to its core schemas."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gradloom import boards

from ..boards.conftest import _report
from .debian import UNPACKED, unpacked

__all__ = ["FILES", "OF", "faults", "hear", "subject"]

OF = "properties"
#: dtschema is a package, which carries its schemas.
FILES = ()
_PACKAGE = "dtschema==2026.9"
#: What the overlay refers to, as Linux names it.
_BASE = """/dts-v1/;
/ {
    #address-cells = <2>; #size-cells = <2>; compatible = "xlnx,zynqmp"; model = "what an overlay needs of the KV260";
    fpga_full: fpga-full { compatible = "fpga-region"; #address-cells = <2>; #size-cells = <2>; ranges; };
    amba: axi {
        compatible = "simple-bus"; #address-cells = <2>; #size-cells = <2>; ranges;
        gic: interrupt-controller@f9010000 {
            compatible = "arm,gic-400"; reg = <0 0xf9010000 0 0x10000>;
            interrupt-controller; #interrupt-cells = <3>; #address-cells = <0>;
        };
    };
    zynqmp_clk: clock-controller { compatible = "xlnx,zynqmp-clk"; #clock-cells = <1>; };
    zynqmp_reset: reset-controller { compatible = "xlnx,zynqmp-reset"; #reset-cells = <1>; };
};
"""
#: Rules that are waived, with the reason.
_WAIVED = (
    # AMD's generator of overlays puts nodes without an address on this bus too, and Linux takes them.
    r"\(simple-bus\): gradloom-(clock|afi|buffer): 'ranges' is a required property",
    # No core schema describes the properties of these drivers. Those that one describes have a message of their own.
    r"(config-afi|device-name|linux,uio-name|sync-mode): b'.*' is not of type 'object', 'integer', 'array', ",
)


def subject():
    """The overlay of ``instantft-kv260``."""
    with tempfile.TemporaryDirectory() as folder:
        design = Path(folder)
        (design / "rtl").mkdir()
        (design / "rtl/gradloom.v").write_text("module gradloom; endmodule\n", encoding="utf-8")
        boards.write_project(boards.find("kv260"), design, _report())
        (source,) = (design / "board").glob("*.dtso")
        return {source.name: source.read_text(encoding="utf-8")}


def faults(text, folder):
    """What dtschema says of overlay ``text`` on the base tree, but for what is waived."""
    path, library = os.environ["PATH"], os.environ.get("LD_LIBRARY_PATH", "")
    if unpacked("device-tree-compiler", "libfdt1", program="fdtoverlay"):
        (found,) = UNPACKED.glob("usr/lib/*/libfdt.so.1")
        path, library = f"{UNPACKED / 'usr/bin'}:{path}", f"{found.parent}:{library}"
    folder.mkdir(exist_ok=True)
    (folder / "base.dts").write_text(_BASE, encoding="utf-8")
    (folder / "overlay.dtso").write_text(text, encoding="utf-8")
    schema = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", _PACKAGE]
    said = ""
    for command in (
        ["dtc", "-@", "-q", "-I", "dts", "-O", "dtb", "-o", "base.dtb", "base.dts"],
        ["dtc", "-@", "-q", "-I", "dts", "-O", "dtb", "-o", "overlay.dtbo", "overlay.dtso"],
        ["fdtoverlay", "-i", "base.dtb", "-o", "whole.dtb", "overlay.dtbo"],
        [*schema, "dt-mk-schema", "-j", "-o", "schemas.json"],
        [*schema, "dt-validate", "-s", "schemas.json", "whole.dtb"],
    ):
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PATH": path, "LD_LIBRARY_PATH": library},
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = done.stdout
    lines = [line for line in said.splitlines() if line and not line.startswith("\t")]
    return [line for line in lines if not any(re.search(rule, line) for rule in _WAIVED)]


def hear(witness, folder):
    """What dtschema says: properties of the overlay, and rules that are broken."""
    ((_, text),) = subject().items()
    count = len(re.findall(r"^\t+[\w#,-]+( = [^;]+)?;", text, re.MULTILINE))
    return {_PACKAGE.replace("==", " "): {"differing": len(faults(text, folder / "tree")), "compared": count}}
