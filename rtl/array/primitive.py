"""A PE as one DSP slice: Verilog that stands in for it in synthesis."""

__all__ = ["pe_primitive", "MODEL_FAMILY"]

#: The family whose slice Yosys can simulate. Of the other one's slice, the same subset of ports is used.
MODEL_FAMILY = "xc7"

_UNUSED_INPUTS = ("ACIN", 30), ("BCIN", 18), ("PCIN", 48)


def pe_primitive(precision, *, family, name):
    """Module ``name`` with the ports of :class:`~.pe.PE` around a DSP48E1 (``xc7``) or DSP48E2 (``xcup``).

    Inside the slice: A (x), B1 (the weight that waits; its clock enable is ``load``), B2 (the weight in use;
    ``swap``), M, P, and OPMODE, which the tag's bits drive. Beside it: flip-flops for what travels on.

    The sum from above comes in at C, without its register, rather than at PCIN: PCIN may be driven by
    nothing but PCOUT of the slice below it in the same column of the chip, which reaches nothing else. A
    mesh's foot, or the head of a second column of slices, would need another module.

    On a DSP48E2 the sum from above goes through Z and the PE's own through W, a tag bit each. A DSP48E1 has
    no W; both go through Z, and one LUT tells it that either comes.
    """
    if family not in ("xc7", "xcup"):
        return None
    x, w, total = precision.x, precision.w, precision.sum
    newer = family == "xcup"
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
    options |= {
        "USE_MULT": '"MULTIPLY"',
        "AREG": 1, "ACASCREG": 1, "BREG": 2, "BCASCREG": 2, "CREG": 0, "DREG": 0, "ADREG": 0, "MREG": 1, "PREG": 1,
        "OPMODEREG": 1, "ALUMODEREG": 0, "INMODEREG": 0, "CARRYINREG": 0, "CARRYINSELREG": 0,
    }
    ports = {
        "CLK": "clk",
        "A": _extended("x_i", x, 30), "B": _extended("w_i", w, 18), "C": _extended("p_i", total, 48), "P": "p",
        # One A register is A2, two B registers are B1 and B2.
        "CEA2": "1'b1", "CEB1": "tag_i[0]", "CEB2": "tag_i[1]", "CEM": "1'b1", "CEP": "1'b1", "CECTRL": "1'b1",
        "OPMODE": f"{{{mode}, 1'b0, {tag['use_m']}, 1'b0, {tag['use_m']}}}",
        "RSTP": "rst", "RSTCTRL": "rst",
        **{port: "1'b0" for port in (
            "CEA1", "CEAD", "CED", "CEC", "CEALUMODE", "CECARRYIN", "CEINMODE", "CARRYIN", "CARRYCASCIN",
            "MULTSIGNIN", "RSTA", "RSTALLCARRYIN", "RSTALUMODE", "RSTB", "RSTC", "RSTD", "RSTINMODE", "RSTM")},
        "ALUMODE": "4'd0", "INMODE": "5'd0", "CARRYINSEL": "3'd0", "D": "27'd0" if newer else "25'd0",
        **{port: f"{bits}'d0" for port, bits in _UNUSED_INPUTS},
    }
    lines = [
        f"module {name} (clk, rst, x_i, x_o, tag_i, tag_o, w_i, w_o, p_i, p_o);",
        "  input clk, rst;",
        f"  input [{x - 1}:0] x_i;",
        f"  output reg [{x - 1}:0] x_o = 0;",
        "  input [4:0] tag_i;",
        "  output reg [4:0] tag_o = 0;",
        f"  input [{w - 1}:0] w_i;",
        f"  output reg [{w - 1}:0] w_o = 0;",
        f"  input [{total - 1}:0] p_i;",
        f"  output [{total - 1}:0] p_o;",
        "  wire [47:0] p;",
        f"  assign p_o = p[{total - 1}:0];",
        "  always @(posedge clk)",
        "    if (rst) begin x_o <= 0; tag_o <= 0; w_o <= 0; end",
        "    else begin x_o <= x_i; tag_o <= tag_i; w_o <= w_i; end",
        f"  {cell} #(",
        ",\n".join(f"    .{key}({value})" for key, value in options.items()),
        "  ) slice (",
        ",\n".join(f"    .{port}({value})" for port, value in ports.items()),
        "  );",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _extended(signal, width, to):
    return signal if width == to else f"{{{{{to - width}{{{signal}[{width - 1}]}}}}, {signal}}}"
