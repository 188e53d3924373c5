"""Compiles SystemRDL to Python, C, manual and IP-XACT.

``registers.rdl`` is the source. :mod:`gradloom.rtl.shell.registers.regtable` is its Python view and ``gradloom.xml``
its IP-XACT, generated and committed so that neither hardware units nor ``gradloom generate`` need an RDL compiler; a
test compares them. ``python -m gradloom.rtl.shell.registers.regmap`` renews them.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from .errors import DESCRIPTIONS, Error
from .register import Field, Register, RegisterMap

__all__ = ["compile_rdl", "error_codes_rdl", "regtable_source", "c_header", "markdown", "html", "ipxact", "write_all"]

_HERE = Path(__file__).parent


def error_codes_rdl():
    """Text of ``error_codes.rdl``, generated from :class:`~.errors.Error`."""
    lines = ["// Generated from errors.py; do not edit.", "enum error_code_e {"]
    for code in Error:
        lines.append(f'    {code.name} = {code.value} {{ name = "{code.name}"; desc = "{DESCRIPTIONS[code]}"; }};')
    return "\n".join(lines + ["};", ""])


def _compile():
    from systemrdl import RDLCompiler  # lazily: only exporters and tests need it

    compiler = RDLCompiler()
    compiler.compile_file(str(_HERE / "registers.rdl"))
    return compiler.elaborate(top_def_name="gradloom")


def _text(node):
    return " ".join((node.get_property("desc") or "").split())


def compile_rdl():
    """:class:`RegisterMap` compiled from ``registers.rdl``."""
    from systemrdl.node import RegNode
    from systemrdl.rdltypes import OnWriteType

    registers = []
    top = _compile().top
    for reg in top.descendants(unroll=True):
        if not isinstance(reg, RegNode):
            continue
        if not _text(reg):
            raise ValueError(f"register {reg.inst_name} has no description")
        fields = []
        for f in reg.fields():
            if not _text(f):
                raise ValueError(f"field {reg.inst_name}.{f.inst_name} has no description")
            pulse = f.get_property("singlepulse")
            onwrite = f.get_property("onwrite")
            constant = not f.is_sw_writable and not f.is_hw_writable
            fields.append(
                Field(
                    name=f.inst_name,
                    lsb=f.lsb,
                    width=f.width,
                    readable=f.is_sw_readable,
                    writable=f.is_sw_writable,
                    reset=f.get_property("reset") or 0,
                    stored=f.is_sw_writable and not pulse,
                    pulse=pulse,
                    clear_on_one=onwrite is OnWriteType.woclr,
                    constant=constant,
                    description=_text(f),
                )
            )
        name = reg.inst_name
        if reg.is_array:
            name += "".join(str(i) for i in reg.current_idx)
        registers.append(
            Register(
                name=name,
                address=reg.absolute_address,
                locked=reg.get_property("locked") or "",
                fields=tuple(fields),
                title=reg.get_property("name"),
                description=_text(reg),
            )
        )
    return RegisterMap(description=_text(top), registers=tuple(sorted(registers, key=lambda r: r.address)))


def regtable_source():
    """Text of ``regtable.py``."""
    out = [
        '"""Generated from registers.rdl by gradloom.rtl.shell.registers.regmap; do not edit."""',
        "from .register import Field, Register, RegisterMap",
        "",
        '__all__ = ["REGISTERS"]',
        "",
        "# ruff: noqa: E501",
    ]
    registers = compile_rdl()
    out.append(f"REGISTERS = RegisterMap(description={registers.description!r}, registers=(")
    for r in registers:
        out.append(f"    Register(name={r.name!r}, address=0x{r.address:03x}, locked={r.locked!r}, title={r.title!r},")
        out.append(f"             description={r.description!r}, fields=(")
        for f in r.fields:
            args = ", ".join(f"{k}={getattr(f, k)!r}" for k in Field.__dataclass_fields__ if k != "description")
            out.append(f"        Field({args},")
            out.append(f"              description={f.description!r}),")
        out.append("    )),")
    return "\n".join(out + ["))", ""])


def c_header():
    """C header with addresses, masks, a struct and the error codes.

    PeakRDL makes all but the error codes.
    """
    from peakrdl_cheader.exporter import CHeaderExporter

    with TemporaryDirectory() as where:
        path = Path(where) / "gradloom_registers.h"
        CHeaderExporter().export(_compile(), str(path), reuse_typedefs=True)
        text = path.read_text()
    codes = ["// Values of ERROR_CODE", "enum gradloom_error {"]
    codes += [f"    GRADLOOM_ERROR_{c.name} = 0x{c.value:02x}, /* {DESCRIPTIONS[c]} */" for c in Error]
    marker = "// addrmap - gradloom"
    if marker not in text:
        raise RuntimeError("PeakRDL-cheader's output has no address map")
    return text.replace(marker, "\n".join(codes + ["};", "", marker]), 1)


def ipxact():
    """IP-XACT memory map (PeakRDL)."""
    from peakrdl_ipxact import IPXACTExporter

    with TemporaryDirectory() as where:
        path = Path(where) / "gradloom.xml"
        IPXACTExporter(vendor="gradloom", library="gradloom").export(_compile(), str(path), component_name="gradloom")
        return path.read_text()


def html(directory):
    """Writes the browsable manual (PeakRDL) into ``directory``."""
    from peakrdl_html import HTMLExporter

    HTMLExporter().export(_compile(), str(directory))


def _access(field):
    if field.pulse:
        return "write 1"
    if field.clear_on_one:
        return "read, write 1 to clear"
    return "read, write" if field.writable else "read"


def markdown():
    """The register manual as one Markdown page, from the Python view."""
    from .regtable import REGISTERS as registers

    out = ["# Registers", "", registers.description, "", "| address | register | what |", "| --- | --- | --- |"]
    out += [f"| 0x{r.address:03X} | `{r.name}` | {r.title} |" for r in registers]
    for r in registers:
        out += [
            "",
            f"## `{r.name}` (0x{r.address:03X})",
            "",
            r.description,
            "",
            "| bits | field | access | reset | what |",
            "| --- | --- | --- | --- | --- |",
        ]
        for f in r.fields:
            bits = f"{f.lsb + f.width - 1}:{f.lsb}" if f.width > 1 else f"{f.lsb}"
            reset = f"0x{f.reset:X}" if f.stored or f.constant else "–"
            out.append(f"| {bits} | `{f.name}` | {_access(f)} | {reset} | {f.description} |")
    out += ["", "## Error codes", "", "| code | name | what |", "| --- | --- | --- |"]
    out += [f"| 0x{c.value:02X} | `{c.name}` | {DESCRIPTIONS[c]} |" for c in Error]
    return "\n".join(out) + "\n"


def write_all():
    """Renews the generated files beside this one."""
    (_HERE / "error_codes.rdl").write_text(error_codes_rdl())
    (_HERE / "regtable.py").write_text(regtable_source())
    (_HERE / "gradloom.xml").write_text(ipxact())


if __name__ == "__main__":
    write_all()
