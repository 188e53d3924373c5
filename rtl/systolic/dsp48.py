"""Units on a DSP48E1 (``xc7``) or DSP48E2 (``xcup``): the slice by name, as Verilog."""

from .pe_ports import pe_header

__all__ = ["accumulate_of_slice", "add_of_slice", "multiply_add_of_slice", "pe_of_slice"]


#: Without registers but P's, and nothing connected: what a slice does not say otherwise.
_OPTIONS = {
    "AREG": 0,
    "ACASCREG": 0,
    "BREG": 0,
    "BCASCREG": 0,
    "CREG": 0,
    "DREG": 0,
    "ADREG": 0,
    "MREG": 0,
    "PREG": 1,
    "OPMODEREG": 0,
    "ALUMODEREG": 0,
    "INMODEREG": 0,
    "CARRYINREG": 0,
    "CARRYINSELREG": 0,
}
_PORTS = {
    "CLK": "clk",
    "CEP": "1'b1",
    **{
        port: "1'b0"
        for port in (
            "CEA1",
            "CEA2",
            "CEAD",
            "CEB1",
            "CEB2",
            "CEC",
            "CED",
            "CEM",
            "CEALUMODE",
            "CECARRYIN",
            "CECTRL",
            "CEINMODE",
            "CARRYIN",
            "CARRYCASCIN",
            "MULTSIGNIN",
            "RSTA",
            "RSTALLCARRYIN",
            "RSTALUMODE",
            "RSTB",
            "RSTC",
            "RSTCTRL",
            "RSTD",
            "RSTINMODE",
            "RSTM",
            "RSTP",
        )
    },
    "ALUMODE": "4'd0",
    "INMODE": "5'd0",
    "CARRYINSEL": "3'd0",
    "ACIN": "30'd0",
    "BCIN": "18'd0",
    "PCIN": "48'd0",
}


def _slice(cell, options, ports):
    """Lines of an instance ``slice`` of ``cell``.

    Options and ports are those given, and the defaults of the others.
    """
    ports = _PORTS | {"D": "27'd0" if cell == "DSP48E2" else "25'd0"} | ports
    return [
        f"  {cell} #(",
        ",\n".join(f"    .{key}({value})" for key, value in (_OPTIONS | options).items()),
        "  ) slice (",
        ",\n".join(f"    .{port}({value})" for port, value in ports.items()),
        "  );",
    ]


def _extended(signal, width, to):
    """``signal`` with its last bit repeated, ``to`` bits in all."""
    return signal if width == to else f"{{{{{to - width}{{{signal}[{width - 1}]}}}}, {signal}}}"


def pe_of_slice(precision, *, family, name):
    """A PE around one slice.

    Inside the slice: A (x), B1 (the weight that waits; its clock enable is ``load``), B2 (the weight in use; ``swap``),
    M, P, and OPMODE, which the tag's bits drive. Beside it: flip-flops for the outputs to the next PE.

    The sum from above comes in at C, without its register, rather than at PCIN: PCIN may be driven by
    nothing but PCOUT of the slice below it in the same column of the chip, which reaches nothing else. A
    mesh's foot, or the head of a second column of slices, would need another module.

    Two codes that stay take the wide port: A1 and A2 are their registers, and x has B2.

    On a DSP48E2 the sum from above goes through Z and the PE's own through W, a tag bit each. A DSP48E1 has
    no W; both go through Z, and one LUT tells it that either comes.
    """
    x, w, total = precision.x, precision.w, precision.sum
    newer, pair = family == "xcup", precision.pair
    if pair is not None and pair.width > (27 if newer else 25):
        return None
    fields = {"load": 0, "swap": 1, "use_m": 2, "from_above": 3, "from_self": 4}
    tag = {field: f"tag_o[{bit}]" for field, bit in fields.items()}
    # X and Y take M together. Z: 0, 2 (P) or 3 (C); W: 0 or 1 (P).
    if newer:
        cell = "DSP48E2"
        mode = f"1'b0, {tag['from_self']}, 1'b0, {tag['from_above']}, {tag['from_above']}"
        options = {"AMULTSEL": '"A"', "BMULTSEL": '"B"'}
    else:
        cell = "DSP48E1"
        mode = f"1'b0, {tag['from_above']} | {tag['from_self']}, {tag['from_above']}"
        options = {"USE_DPORT": '"FALSE"'}
    stays, moves = "BA" if pair is None else "AB"
    for port, registers in ((moves, 1), (stays, 2)):
        options |= {f"{port}REG": registers, f"{port}CASCREG": registers}
    options |= {"USE_MULT": '"MULTIPLY"', "MREG": 1, "OPMODEREG": 1}
    if pair is None:
        operand = _extended("w_i", w, 18)
    else:
        # Wires: the low code, its sign up to the high code, the high code and its sign.
        ends = 30 - pair.apart - pair.CODE
        operand = f"{{{{{ends}{{w_i[15]}}}}, w_i[15:8], {{{pair.apart - pair.CODE}{{w_i[7]}}}}, w_i[7:0]}}"
    ports = {
        moves: _extended("x_i", x, 30 if moves == "A" else 18),
        stays: operand,
        "C": _extended("p_i", total, 48),
        "P": "p",
        # One register is the second, two are the first and the second.
        f"CE{moves}2": "1'b1",
        f"CE{stays}1": "tag_i[0]",
        f"CE{stays}2": "tag_i[1]",
        "CEM": "1'b1",
        "CECTRL": "1'b1",
        "OPMODE": f"{{{mode}, 1'b0, {tag['use_m']}, 1'b0, {tag['use_m']}}}",
        "RSTP": "rst",
        "RSTCTRL": "rst",
    }
    lines = [
        *pe_header(precision, name),
        f"  input [{total - 1}:0] p_i;",
        f"  output [{total - 1}:0] p_o;",
        "  wire [47:0] p;",
        f"  assign p_o = p[{total - 1}:0];",
        "  always @(posedge clk)",
        "    if (rst) begin x_o <= 0; tag_o <= 0; w_o <= 0; end",
        "    else begin x_o <= x_i; tag_o <= tag_i; w_o <= w_i; end",
        *_slice(cell, options, ports),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def multiply_add_of_slice(unit, *, family, name):
    """A multiply-add around one slice.

    A and B have a register, then M and P. C comes in without one, and ``add`` opens it: Z is C or 0. The
    constant ``half`` needs the slice's W and its RND, which a DSP48E1 does not have.
    """
    if unit.half is not None and family != "xcup":
        return None
    newer = family == "xcup"
    options = {"USE_MULT": '"MULTIPLY"', "AREG": 1, "ACASCREG": 1, "BREG": 1, "BCASCREG": 1, "MREG": 1}
    options |= {"AMULTSEL": '"A"', "BMULTSEL": '"B"'} if newer else {"USE_DPORT": '"FALSE"'}
    ports = {
        "A": _extended("a", unit.a_width, 30),
        "B": _extended("b", unit.b_width, 18),
        "C": _extended("c", unit.width, 48),
        "P": "sum",
        "RSTP": "rst",
        "CEA2": "1'b1",
        "CEB2": "1'b1",
        "CEM": "1'b1",
    }
    rounds = 0
    if unit.half is not None:
        # W: 2 is RND. A pattern's masked bits do not count.
        rounds = 2
        low = (1 << unit.half + 1) - 1
        options |= {
            "RND": f"48'h{1 << unit.half:x}",
            "USE_PATTERN_DETECT": '"PATDET"',
            "PATTERN": "48'h0",
            "MASK": f"48'h{(1 << 48) - 1 - low:x}",
            "SEL_MASK": '"MASK"',
            "SEL_PATTERN": '"PATTERN"',
        }
        ports["PATTERNDETECT"] = "tie"
    # Z: 0 or 3 (C). X and Y take M together.
    mode = "1'b0, add, add, 4'b0101"
    ports["OPMODE"] = f"{{2'd{rounds}, {mode}}}" if newer else f"{{{mode}}}"
    names = "clk, rst, a, b, c, add, p" + (", tie" if unit.half is not None else "")
    return (
        "\n".join(
            [
                f"module {name} ({names});",
                "  input clk, rst, add;",
                f"  input [{unit.a_width - 1}:0] a;",
                f"  input [{unit.b_width - 1}:0] b;",
                f"  input [{unit.width - 1}:0] c;",
                f"  output [{unit.width - 1}:0] p;",
                *(["  output tie;"] if unit.half is not None else []),
                "  wire [47:0] sum;",
                f"  assign p = sum[{unit.width - 1}:0];",
                *_slice("DSP48E2" if newer else "DSP48E1", options, ports),
                "endmodule",
            ]
        )
        + "\n"
    )


def accumulate_of_slice(unit, header, *, family):
    """An accumulator around one slice: Z is P or 0."""
    if family == "xc7" and unit.a_width > 25:
        return None
    newer = family == "xcup"
    options = {"USE_MULT": '"MULTIPLY"', "AREG": 1, "ACASCREG": 1, "BREG": 1, "BCASCREG": 1, "MREG": 1}
    options |= {"AMULTSEL": '"A"', "BMULTSEL": '"B"'} if newer else {"USE_DPORT": '"FALSE"'}
    # X and Y take M together. Z: 0 or 2 (P).
    mode = "1'b0, add, 1'b0, 4'b0101"
    ports = {
        "A": _extended("a", unit.a_width, 30),
        "B": _extended("b", unit.b_width, 18),
        "P": "sum",
        "RSTP": "rst",
        "CEA2": "1'b1",
        "CEB2": "1'b1",
        "CEM": "1'b1",
        "OPMODE": f"{{2'd0, {mode}}}" if newer else f"{{{mode}}}",
        "C": "48'd0",
    }
    return (
        "\n".join(
            [
                *header,
                f"  output [{unit.width - 1}:0] p;",
                "  wire [47:0] sum;",
                f"  assign p = sum[{unit.width - 1}:0];",
                *_slice("DSP48E2" if newer else "DSP48E1", options, ports),
                "endmodule",
            ]
        )
        + "\n"
    )


def add_of_slice(width, *, family, name):
    """An adder around one slice: A and B together are an addend."""
    newer = family == "xcup"
    options = {"USE_MULT": '"NONE"'} | ({} if newer else {"USE_DPORT": '"FALSE"'})
    # X: 3 (A and B). Z: 0 or 3 (C).
    mode = "1'b0, add, add, 4'b0011"
    ports = {
        "A": "addend[47:18]",
        "B": "addend[17:0]",
        "C": _extended("c", width, 48),
        "P": "total",
        "RSTP": "rst",
        "OPMODE": f"{{2'd0, {mode}}}" if newer else f"{{{mode}}}",
    }
    return (
        "\n".join(
            [
                f"module {name} (clk, rst, a, c, add, p);",
                "  input clk, rst, add;",
                f"  input [{width - 1}:0] a, c;",
                f"  output [{width - 1}:0] p;",
                "  wire [47:0] addend, total;",
                f"  assign addend = {_extended('a', width, 48)};",
                f"  assign p = total[{width - 1}:0];",
                *_slice("DSP48E2" if newer else "DSP48E1", options, ports),
                "endmodule",
            ]
        )
        + "\n"
    )
