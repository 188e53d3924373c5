"""Emits Verilog, one file for each distinct module.

Output is deterministic: the same bytes in each run and on each machine.
"""

import dataclasses
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from amaranth.hdl import Value
from amaranth.lib import wiring

from gradloom import __version__
from gradloom.output import staged

from ..hierarchy import DistinctModule, Emitter, ModulePort
from .yosys import Yosys, YosysError

__all__ = ["WAIVERS", "Emission", "EmitError", "convert", "emit"]

#: Rules of Verilator's ``-Wall`` that do not hold for our Verilog, and why.
WAIVERS = {
    "WIDTHEXPAND": "sums are as wide as they can get, their operands as wide as they are",
    "WIDTHTRUNC": "a part chosen by an index is a word shifted right, and ! asks whether a word is 0; Yosys slices "
    "whatever else it cuts",
    "CASEOVERLAP": "a multiplexer is a parallel case whose selects are never 1 together, each item looks at its own",
    "PROCASSINIT": "registers start at a value on an FPGA, and are assigned by clocks",
    "UNUSEDSIGNAL": "a unit may leave a part of what another offers, such as the top bits of a sum",
    "DECLFILENAME": "submodules that are used once stand in the file of the module that holds them",
}


class EmitError(ValueError):
    """A design that cannot or must not become Verilog."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emission:
    """Result of :func:`emit`.

    ``ports`` of the outermost module ``name``; ``files`` is the Verilog by module name; ``synth`` the
    primitives that stand in for some of them in synthesis; ``instances`` counts, for each module, the modules
    in it.
    """

    name: str
    ports: tuple[ModulePort, ...]
    files: dict[str, str]
    synth: dict[str, str]
    instances: dict[str, dict[str, int]]

    def write(self, directory: Path | str) -> None:
        """Writes ``rtl/*.v`` and, if there are any, ``synth/*.v``.

        Both are below ``directory``.
        """
        for folder, files in (("rtl", self.files), ("synth", self.synth)):
            for name, text in files.items():
                path = Path(directory) / folder / f"{name}.v"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")

    @property
    def port_list(self) -> list[dict[str, str | int]]:
        """Ports as plain values, for JSON."""
        return [dataclasses.asdict(port) for port in self.ports]


def emit(
    component: wiring.Component, directory: Path | str, *, name: str, prefix: str | None = None, family: str = "xcup"
) -> list[ModulePort]:
    """Writes ``component`` as module ``name`` and returns its ports.

    The files are ``directory/rtl/*.v``.

    All or nothing: a directory that holds anything but an earlier output is refused, see
    :func:`~gradloom.output.staged`.
    """
    emission = convert(component, name=name, prefix=prefix, family=family)
    with staged(directory, verb="generate") as stage:
        emission.write(stage)
    return list(emission.ports)


def convert(component: wiring.Component, *, name: str, prefix: str | None = None, family: str = "xcup") -> Emission:
    """Verilog of ``component`` as module ``name``.

    Other modules are called ``prefix`` and their class.

    A component that stands for a primitive of the chip offers ``primitive(*, family, name)``, which returns the
    Verilog of a module of the same ports for synthesis (``family`` is ``"xc7"``, ``"xcup"`` or ``"ecp5"``), or None.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise EmitError(f"name is {name!r}, must be lower-case letters, digits and underscores")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Yosys() as yosys:
                # Yosys writes a module while Amaranth makes the next.
                emitter = Emitter(made=lambda module, parts: yosys.run(_translation(module, parts, Path(folder))))
                top = emitter.top(component, name, prefix=f"{name}_" if prefix is None else prefix, rename=_top_ports)
                _check(emitter.modules)
        except YosysError as error:
            raise EmitError(emitter.named(str(error))) from None
        texts = {
            module.name: emitter.named(_written(module, Path(folder)).read_text(encoding="utf-8"))
            for module in emitter.modules
        }

    names = {module.token: module.name for module in emitter.modules}
    files = {
        module.name: _header(module.name, module.component)
        + _modules(_clear_memories(_rename_functions(texts[module.name])))
        for module in emitter.modules
    }
    synth = {}
    for module in emitter.modules:
        primitive = getattr(module.component, "primitive", None)
        stand_in = primitive(family=family, name=module.name) if primitive else None
        if stand_in is not None:
            synth[module.name] = _header(module.name, module.component) + stand_in
    return Emission(
        name=name,
        ports=top.ports,
        files=dict(sorted(files.items())),
        synth=dict(sorted(synth.items())),
        instances={
            module.name: {names[token]: count for token, count in module.children.items()} for module in emitter.modules
        },
    )


def _top_ports(component: wiring.Component) -> Iterator[tuple[str, Value, str]]:
    """Ports as Vivado and people call them: ``i_payload``, ``m_axi_awaddr``."""
    taken: dict[str, object] = {}
    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        name = "_".join(map(str, path))
        if taken.setdefault(name, path) != path:
            raise EmitError(f"ports {taken[name]} and {path} of {type(component).__name__} would both be {name!r}")
        if len(signal):
            yield name, signal, "input" if member.flow == wiring.In else "output"


def _check(modules: Iterable[DistinctModule]) -> None:
    for module in modules:
        label = f"{module.name} ({type(module.component).__name__})"
        for match in re.finditer(r"parameter \\TRANSPARENCY_MASK \d+'([01x]+)", module.text):
            if "1" in match[1]:
                raise EmitError(
                    f"{label} has a transparent memory read port, which Vivado gets wrong: use a plain "
                    f"synchronous port and forward the written word"
                )


def _translation(module: DistinctModule, parts: Iterable[DistinctModule], folder: Path) -> list[str]:
    """Yosys' commands that make Verilog of a module.

    The ports of the ``parts`` in it are enough.
    """
    source = folder / f"{module.token}.il"
    boxes = [f"attribute \\blackbox 1\nmodule \\{part.token}\n{_wires(part.ports)}end\n" for part in parts]
    source.write_text("\n".join([*boxes, module.text]), encoding="utf-8")
    names = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding", "unused_bits")
    removed = " ".join(f"-remove {name}" for name in names)
    return [
        "design -reset",
        f"read_rtlil {source}",
        "proc -norom",
        "memory_collect",
        # Wires that only rename others are half of an array's text.
        "opt_clean -purge",
        # Loops of gates, two drivers of a wire, none.
        "check -assert",
        f"attrmap {removed}",
        f"attrmap -modattr {removed}",
        f"write_verilog {_written(module, folder)}",
    ]


def _wires(ports: Iterable[ModulePort]) -> str:
    return "".join(
        f"  wire width {port.width} {port.direction} {number} \\{port.name}\n" for number, port in enumerate(ports, 1)
    )


def _written(module: DistinctModule, folder: Path) -> Path:
    return folder / f"{module.token}.v"


def _rename_functions(verilog: str) -> str:
    """Renames Yosys' functions, whose names may clash with signals.

    Their arguments are ``a``, ``b`` and ``s``, as a signal of the module may well be; functions are called ``_277_``,
    as a wire of the module above.
    """

    def renamed(function: re.Match[str]) -> str:
        # Not the b of a number's base.
        text = re.sub(r"(?<!')\b[abs]\b", r"\g<0>_arg", function[0])
        return re.sub(r"\b_\d+_\b", r"select\g<0>", text)

    verilog = re.sub(r"^  function .*?^  endfunction\n", renamed, verilog, flags=re.MULTILINE | re.DOTALL)
    # A call; an instance's name has a space behind it.
    return re.sub(r"\b_\d+_(?=\()", r"select\g<0>", verilog)


def _clear_memories(verilog: str) -> str:
    """Clears memories without initial content to zero, for simulators.

    Chips do so by themselves.
    """
    depth_of = re.compile(r"^  reg (?:\[\d+:0\] )?(\\\S+ |\w+) \[(\d+):0\];\n", re.MULTILINE)

    def cleared(module: re.Match[str]) -> str:
        def declaration(match: re.Match[str]) -> str:
            name, last = match[1], int(match[2])
            if f"    {name}[0] = " in module[0]:
                return match[0]
            label = "clear_" + re.sub(r"\W+", "_", name).strip("_")
            # A port may well be called i.
            at = f"{label}_at"
            # Not for synthesis: an ultra RAM takes no initial content at all.
            return (
                f"{match[0]}`ifndef SYNTHESIS\n  initial begin : {label}\n    integer {at};\n"
                f"    for ({at} = 0; {at} <= {last}; {at} = {at} + 1) {name}[{at}] = 0;\n"
                f"  end\n`endif\n"
            )

        return depth_of.sub(declaration, module[0])

    return re.sub(r"^module .*?^endmodule\n", cleared, verilog, flags=re.MULTILINE | re.DOTALL)


def _modules(verilog: str) -> str:
    """The modules of a text, one after the other.

    Submodules that were not placed stand with their holder.
    """
    found = []
    for match in re.finditer(r"^(?:\(\*.*\*\)\n)*module (\S+?)[ (;].*?^endmodule\n", verilog, re.MULTILINE | re.DOTALL):
        if not re.search(r"^  (?!input|output|wire|\(\*)\S", match[0], re.MULTILINE):
            name = match[1].lstrip("\\")
            raise EmitError(f"module {name} is empty: Vivado would take it for a black box")
        found.append("\n" + match[0])
    return "".join(found)


def _header(module: str, component: wiring.Component) -> str:
    summary = (type(component).__doc__ or type(component).__name__).strip().splitlines()[0]
    return f"// {module}: {summary}\n// Generated by gradloom {__version__}; Apache-2.0.\n"
