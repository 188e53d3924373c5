"""Generates the files that drivers share with the hardware.

``python -m gradloom.firmware.generate``

The C header and the Python constants come from the one register map in ``rtl/shell/registers/registers.rdl``. They
are committed, so that neither a C build nor the host on a board needs an RDL compiler or an HDL; a test
compares them.
"""

from pathlib import Path

_HERE = Path(__file__).parent

# PeakRDL's header checks its own layout with C11's static_assert; a C99 compiler without a C library has
# neither that nor assert.h.
_ASSERT = """\
#if !defined(__cplusplus) && !defined(static_assert)
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define static_assert _Static_assert
#else
#define static_assert(condition, message) extern char gradloom_static_assert[(condition) ? 1 : -1]
#endif
#endif
"""


def c_header() -> str:
    """``gradloom_regs.h``: PeakRDL's header, and the error codes.

    It is freestanding C99. The error codes are a list.
    """
    from gradloom.rtl.shell.registers import errors, regmap

    text = regmap.c_header()
    if "#include <assert.h>\n" not in text:
        raise RuntimeError("PeakRDL-cheader's output no longer includes assert.h: renew the replacement")
    text = text.replace("#include <assert.h>\n", _ASSERT, 1)
    lines = [f'    X({code.name}, 0x{code.value:02x}, "{errors.DESCRIPTIONS[code]}")' for code in errors.Error]
    table = (
        "// X(name, code, description) for every error code\n#define GRADLOOM_ERRORS(X) \\\n"
        + " \\\n".join(lines)
        + "\n\n"
    )
    marker = "// addrmap - gradloom"
    return text.replace(marker, table + marker, 1)


def python_constants() -> str:
    """``registers.py``: constants of the register map as plain values.

    They are offsets, fields, constants, errors and command codes.
    """
    from gradloom.rtl.shell import engines, signature
    from gradloom.rtl.shell.registers import errors, regmap

    out = [
        '"""Generated from registers.rdl by gradloom.firmware.generate; do not edit."""',
        "# ruff: noqa: E501",
        "",
        "# Byte offset of each register.",
    ]
    registers = list(regmap.compile_rdl())
    out += [f"{register.name} = 0x{register.address:03X}" for register in registers]
    out += ["", "#: Every register, by name.", "REGISTERS = {"]
    out += [f'    "{register.name}": {register.name},' for register in registers]
    out += ["}", "", "#: Place of each field: lowest bit and width.", "FIELDS = {"]
    out += [f'    "{r.name}.{f.name}": ({f.lsb}, {f.width}),' for r in registers for f in r.fields]
    out += ["}", "", "#: Value of each register that is constant in this version.", "CONSTANTS = {"]
    out += [
        f'    "{r.name}": 0x{sum(f.reset << f.lsb for f in r.fields):08X},'
        for r in registers
        if all(f.constant for f in r.fields)
    ]
    out += ["}", "", "#: Registers that must not be written while one of these is set.", "LOCKED = {"]
    busy = {
        "program": ("STATUS.busy",),
        "request": ("STATUS.request_busy",),
        "machine": ("STATUS.busy", "STATUS.request_busy"),
    }
    out += [f'    "{r.name}": {busy[r.locked]},'.replace("'", '"') for r in registers if r.locked]
    out += ["}", "", "#: Value of ERROR_CODE: name and meaning.", "ERRORS = {"]
    out += [f'    0x{code.value:02X}: ("{code.name}", "{errors.DESCRIPTIONS[code]}"),' for code in errors.Error]
    out += ["}", "", "#: Engine field of a command, of the engines that every machine has.", "ENGINES = {"]
    out += [f'    "{engine.name}": {int(engine)},' for engine in engines.Engines()]
    out += ["}", "", "#: Opcodes of the engine CONTROL.", "CONTROL_OPCODES = {"]
    out += [f'    "{opcode.name}": {opcode.value},' for opcode in signature.ControlOpcode]
    out += ["}", "", f"COMMAND_BYTES = {signature.COMMAND_BYTES}", f"TOKENS = {signature.TOKENS}", ""]
    return "\n".join(out)


def write_all() -> None:
    """Writes both files to their folders."""
    (_HERE / "driver" / "gradloom_regs.h").write_text(c_header(), encoding="utf-8", newline="\n")
    (_HERE / "device" / "registers.py").write_text(python_constants(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_all()
