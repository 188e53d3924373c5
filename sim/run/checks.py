"""Checks in simulation for behaviour that a chip does not define.

The text that is synthesised stays as it was generated. What simulation is built from differs in two places:

- A PE whose slice has one input for the sum from above and for its own ORs them in the text. Where both tag bits come
  together, the simulation stops with a message.
- A read of an UltraRAM address that is written in the same cycle returns every bit of the old word inverted: what the
  chip returns depends on ports and modes, so that no design may use the word.
"""

import re

__all__ = ["checked"]

_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(
    r"^  assign (\w+) = mode\[3\] \? p_i : .*?^  assign (\w+) = mode\[4\] \? p_o : .*?"
    r"^  assign \w+ = (.*?);\n",
    re.MULTILINE | re.DOTALL,
)
_ULTRA = re.compile(r'^  \(\* ram_style = "ultra" \*\)\n  reg (?:\[\d+:0\] )?(\\\S+ |\w+) \[\d+:0\];\n', re.MULTILINE)
#: The Verilog standard's number of standard error; standard output carries the bench's answers.
_STDERR = "32'h8000_0002"


def checked(verilog: str, *, tags: bool = True) -> str:
    """Generated Verilog with the checks.

    ``tags``: those of a PE, too. They would stop a simulation whose registers start as random values.

    Raises ``ValueError`` where a PE or a memory is written in an unknown way.
    """
    if "tag_i" not in verilog and '"ultra"' not in verilog:
        return verilog
    return _MODULE.sub(lambda module: _poisoned(_tagged(module[0]) if tags else module[0]), verilog)


def _name(module: str) -> str:
    return re.split(r"[ (;]", module.split(maxsplit=1)[1], maxsplit=1)[0]


def _tagged(module: str) -> str:
    """Of a PE that ORs both sums, the module with a stop where both come."""
    ports = ("tag_i", "p_i", "p_o")
    if not all(re.search(rf"^  (?:input|output) .*\b{port};", module, re.MULTILINE) for port in ports):
        return module
    if not re.search(r"^  reg \[4:0\] mode\b", module, re.MULTILINE):
        return module  # a row or a grid of PEs
    found = _TAGS.search(module)
    if found is None:
        raise ValueError(f"module {_name(module)}: has tags of a PE, but no sums that its bits choose")
    above, own, both = found.groups()
    if both != f"{above} | {own}":
        return module  # an adder takes both
    check = (
        "  always @(posedge clk)\n"
        "    if (mode[3] && mode[4]) begin\n"
        f'      $fdisplay({_STDERR}, "%m: tag bits from_above and from_self are both 1; the slice takes one of these '
        'sums, and the simulation would OR them");\n'
        "      $stop;\n"
        "    end\n"
    )
    return module.removesuffix("endmodule\n") + check + "endmodule\n"


def _index(text: str, at: int) -> str:
    """The index at the bracket at ``at``, without its brackets."""
    depth = 0
    for end in range(at, len(text)):
        depth += {"[": 1, "]": -1}.get(text[end], 0)
        if not depth:
            return text[at + 1 : end]
    raise ValueError(f"no end of the index in {text[at : at + 40]!r}")


def _poisoned(module: str) -> str:
    """Compares each read of an UltraRAM with each write of it."""
    for memory in _ULTRA.findall(module):
        name = re.escape(memory)
        writes = []
        for write in re.finditer(rf"^(?:    if \((.*)\)\n  )?    {name}(?=\[.* <= )", module, re.MULTILINE):
            writes.append((write[1] or "1'b1", _index(module, write.end())))
        if not writes:
            raise ValueError(f"module {_name(module)}: UltraRAM {memory.strip()} is written nowhere")
        reads = 0

        def read(match: re.Match[str], writes: list[tuple[str, str]] = writes, memory: str = memory) -> str:
            nonlocal reads
            reads += 1
            address = match[2]
            meet = " || ".join(f"(({enable}) && ({place}) == ({address}))" for enable, place in writes)
            return f"{match[1]}({meet}) ? ~{memory}[{address}] : {memory}[{address}];\n"

        module = re.sub(rf"^( +\S+ <= ){name}\[(.*)\];\n", read, module, flags=re.MULTILINE)
        if not reads:
            raise ValueError(f"module {_name(module)}: UltraRAM {memory.strip()} has no read port with a register")
    return module
