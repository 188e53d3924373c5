"""DSP slices by name: Verilog that replaces a module in synthesis."""

__all__ = ["pe_primitive", "multiply_add_primitive", "accumulate_primitive", "add_primitive", "MODEL_FAMILY"]

#: The family whose slice Yosys can simulate. Of the other one's slice, the same subset of ports is used.
MODEL_FAMILY = "xc7"

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


def _multiplier(a, a_width, b, b_width, product, *, b_enable="1'b1", name="multiplier"):
    """Lines of an instance of the ECP5's multiplier with registers.

    Registers are at its inputs and its output; those of ``b`` have an enable. Without a name of theirs those registers
    end up in fabric, and half a cycle on the way.
    """
    ports = {
        port: "1'b0"
        for port in (
            "SIGNEDA",
            "SIGNEDB",
            "SOURCEA",
            "SOURCEB",
            "CLK1",
            "CLK2",
            "CLK3",
            "CE2",
            "CE3",
            "RST0",
            "RST1",
            "RST2",
            "RST3",
        )
    }
    ports |= {"SIGNEDA": "1'b1", "SIGNEDB": "1'b1", "CLK0": "clk", "CE0": "1'b1", "CE1": b_enable}
    for letter, signal, width in (("A", a, a_width), ("B", b, b_width)):
        ports |= {f"{letter}{n}": f"{signal}[{min(n, width - 1)}]" for n in range(18)}
    ports |= {f"C{n}": "1'b0" for n in range(18)} | {f"P{n}": f"{product}[{n}]" for n in range(36)}
    options = {
        "REG_INPUTA_CLK": "CLK0",
        "REG_INPUTA_CE": "CE0",
        "REG_INPUTB_CLK": "CLK0",
        "REG_INPUTB_CE": "CE1",
        "REG_OUTPUT_CLK": "CLK0",
        "REG_OUTPUT_CE": "CE0",
    }
    return [
        "  MULT18X18D #(",
        ",\n".join(f'    .{key}("{value}")' for key, value in options.items()),
        f"  ) {name} (",
        ",\n".join(f"    .{port}({value})" for port, value in ports.items()),
        "  );",
    ]


def _gated_sum(total, plain, plain_width, gated, gated_width, gate, *, width):
    """Lines of ``total = plain + (gate ? gated : 0)``, ``width`` bits of it.

    Operands are extended by their last bits. The table beside a carry of the ECP5 has an input left: the gate, which
    costs no LUT there.
    """
    # With D high: A, changed by B where C is high. Without: A, which is the carry where both addends are alike.
    options = {"INIT0": "16'h6aaa", "INIT1": "16'h6aaa", "INJECT1_0": '"NO"', "INJECT1_1": '"NO"'}
    pairs = (width + 1) // 2
    lines = [
        f"  wire [{2 * pairs - 1}:0] {total};",
        f"  wire [{pairs}:0] carry_{total};",
        f"  assign carry_{total}[0] = 1'b0;",
    ]
    for pair in range(pairs):
        ports = {"CIN": f"carry_{total}[{pair}]", "COUT": f"carry_{total}[{pair + 1}]"}
        for half, bit in enumerate((2 * pair, 2 * pair + 1)):
            ports |= {
                f"A{half}": f"{plain}[{min(bit, plain_width - 1)}]",
                f"C{half}": gate,
                f"D{half}": "1'b1",
                f"B{half}": f"{gated}[{min(bit, gated_width - 1)}]",
                f"S{half}": f"{total}[{bit}]",
            }
        lines += [
            "  CCU2C #(" + ", ".join(f".{key}({value})" for key, value in options.items()) + f") sum_{pair} (",
            "    " + ", ".join(f".{port}({value})" for port, value in sorted(ports.items())),
            "  );",
        ]
    return lines


def _pe_header(precision, name):
    """Lines that begin a PE's module, up to the ports of its sums."""
    return [
        f"module {name} (clk, rst, x_i, x_o, tag_i, tag_o, w_i, w_o, p_i, p_o);",
        "  input clk, rst;",
        f"  input [{precision.x - 1}:0] x_i;",
        f"  output reg [{precision.x - 1}:0] x_o = 0;",
        "  input [4:0] tag_i;",
        "  output reg [4:0] tag_o = 0;",
        f"  input [{precision.w - 1}:0] w_i;",
        f"  output reg [{precision.w - 1}:0] w_o = 0;",
    ]


def _pe_of_multiplier(precision, name):
    """A PE on an ECP5: multiplier and its registers, the rest in fabric."""
    x, w, total = precision.x, precision.w, precision.sum
    if x > 18 or precision.pair is not None:
        return None
    return (
        "\n".join(
            [
                *_pe_header(precision, name),
                f"  input signed [{total - 1}:0] p_i;",
                f"  output reg signed [{total - 1}:0] p_o = 0;",
                f"  reg [{w - 1}:0] waiting = 0;",
                "  reg [4:0] mode = 0;",
                "  wire signed [35:0] product;",
                *_multiplier("x_i", x, "waiting", w, "product", b_enable="tag_i[1]"),
                f"  wire [{total - 1}:0] old = {{{total}{{mode[3]}}}} & p_i | {{{total}{{mode[4]}}}} & p_o;",
                *_gated_sum("sum", "old", total, "product", 36, "mode[2]", width=total),
                "  always @(posedge clk) begin",
                "    if (tag_i[0]) waiting <= w_i;",
                "    if (rst) begin x_o <= 0; tag_o <= 0; w_o <= 0; mode <= 0; p_o <= 0; end",
                "    else begin",
                "      x_o <= x_i; tag_o <= tag_i; w_o <= w_i; mode <= tag_o;",
                f"      p_o <= sum[{total - 1}:0];",
                "    end",
                "  end",
                "endmodule",
            ]
        )
        + "\n"
    )


def _sum_of_products(unit):
    """Lines that make ``total`` of the products of ``a``'s halves.

    One multiplier does not take the whole of ``a``. Three addends become two without a carry, and half a unit stands
    where the upper product has no bits.
    """
    low, width = 17, unit.width
    if unit.half is not None and unit.half >= low:
        return None
    half = "" if unit.half is None else f" | {width}'d{1 << unit.half}"
    return [
        f"  wire [17:0] a_low = {{1'b0, a[{low - 1}:0]}};",
        f"  wire signed [17:0] a_high = $signed(a[{unit.a_width - 1}:{low}]);",
        "  wire signed [35:0] high;",
        *_multiplier("a_low", 18, "b", unit.b_width, "product", name="multiplier_low"),
        *_multiplier("a_high", 18, "b", unit.b_width, "high", name="multiplier_high"),
        f"  wire signed [{width - 1}:0] below = product, gated = add ? c : {width}'sd0, shifted = high;",
        f"  wire [{width - 1}:0] above = shifted << {low}{half};",
        f"  wire [{width - 1}:0] carries = (below & gated | below & above | gated & above) << 1;",
        f"  wire signed [{width - 1}:0] total = (below ^ gated ^ above) + carries;",
    ]


def _multiply_add_of_multiplier(unit, name):
    """A multiply-add on an ECP5, likewise."""
    single = _multiplier("a", unit.a_width, "b", unit.b_width, "product")
    if unit.a_width > 18:
        sums = _sum_of_products(unit)
        if sums is None:
            return None
    elif unit.half is None:
        sums = [
            *single,
            *_gated_sum("sum", "product", 36, "c", unit.width, "add", width=unit.width),
            f"  wire [{unit.width - 1}:0] total = sum[{unit.width - 1}:0];",
        ]
    else:
        sums = [
            *single,
            f"  wire signed [{unit.width - 1}:0] total = product + (add ? c : {unit.width}'sd0)"
            f" + {unit.width}'sd{1 << unit.half};",
        ]
    tie = [] if unit.half is None else ["  output reg tie = 0;"]
    names = "clk, rst, a, b, c, add, p" + (", tie" if tie else "")
    return (
        "\n".join(
            [
                f"module {name} ({names});",
                "  input clk, rst, add;",
                f"  input [{unit.a_width - 1}:0] a;",
                f"  input [{unit.b_width - 1}:0] b;",
                f"  input signed [{unit.width - 1}:0] c;",
                f"  output reg signed [{unit.width - 1}:0] p = 0;",
                *tie,
                "  wire signed [35:0] product;",
                *sums,
                "  always @(posedge clk)",
                "    if (rst) begin p <= 0;" + (" tie <= 0;" if tie else "") + " end",
                "    else begin p <= total;" + (f" tie <= ~|total[{unit.half}:0];" if tie else "") + " end",
                "endmodule",
            ]
        )
        + "\n"
    )


def pe_primitive(precision, *, family, name):
    """Module ``name``: a PE around one DSP48 slice.

    It has the ports of :class:`~.pe.PE`. The slice is a DSP48E1 (``xc7``) or DSP48E2 (``xcup``).

    Inside the slice: A (x), B1 (the weight that waits; its clock enable is ``load``), B2 (the weight in use; ``swap``),
    M, P, and OPMODE, which the tag's bits drive. Beside it: flip-flops for the outputs to the next PE.

    The sum from above comes in at C, without its register, rather than at PCIN: PCIN may be driven by
    nothing but PCOUT of the slice below it in the same column of the chip, which reaches nothing else. A
    mesh's foot, or the head of a second column of slices, would need another module.

    Two codes that stay take the wide port: A1 and A2 are their registers, and x has B2.

    On a DSP48E2 the sum from above goes through Z and the PE's own through W, a tag bit each. A DSP48E1 has
    no W; both go through Z, and one LUT tells it that either comes.
    """
    if family == "ecp5":
        return _pe_of_multiplier(precision, name)
    if family not in ("xc7", "xcup"):
        return None
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
        *_pe_header(precision, name),
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


def _extended(signal, width, to):
    return signal if width == to else f"{{{{{to - width}{{{signal}[{width - 1}]}}}}, {signal}}}"


def multiply_add_primitive(unit, *, family, name):
    """Module ``name``: a multiply-add around one slice.

    It has the ports of :class:`~.slices.MultiplyAdd`.

    A and B have a register, then M and P. C comes in without one, and ``add`` opens it: Z is C or 0. The
    constant ``half`` needs the slice's W and its RND, which a DSP48E1 does not have.
    """
    if family == "ecp5":
        return _multiply_add_of_multiplier(unit, name)
    if family not in ("xc7", "xcup") or (unit.half is not None and family != "xcup"):
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


def accumulate_primitive(unit, *, family, name):
    """Module ``name`` with the ports of Accumulate around one slice.

    Z is P or 0. On an ECP5: the multiplier and its registers, the sum in fabric.
    """
    header = [
        f"module {name} (clk, rst, a, b, add, p);",
        "  input clk, rst, add;",
        f"  input [{unit.a_width - 1}:0] a;",
        f"  input [{unit.b_width - 1}:0] b;",
    ]
    if family == "ecp5":
        if unit.a_width > 18:
            return None
        return (
            "\n".join(
                [
                    *header,
                    f"  output reg signed [{unit.width - 1}:0] p = 0;",
                    "  wire signed [35:0] product;",
                    *_multiplier("a", unit.a_width, "b", unit.b_width, "product"),
                    *_gated_sum("sum", "product", 36, "p", unit.width, "add", width=unit.width),
                    f"  always @(posedge clk) p <= rst ? 0 : sum[{unit.width - 1}:0];",
                    "endmodule",
                ]
            )
            + "\n"
        )
    if family not in ("xc7", "xcup") or (family == "xc7" and unit.a_width > 25):
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


def add_primitive(width, *, family, name):
    """Module ``name``: an adder around one slice.

    It has the ports of :class:`~.slices.Add`. A and B together are an addend.
    """
    if family not in ("xc7", "xcup"):
        return None
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
