"""Units on an ECP5: its multiplier and its carry chains by name, as Verilog."""

from .pe_ports import pe_header

__all__ = ["accumulate_of_multiplier", "multiply_add_of_multiplier", "pe_of_multiplier"]


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


def pe_of_multiplier(precision, name):
    """A PE on an ECP5: multiplier and its registers, the rest in fabric."""
    x, w, total = precision.x, precision.w, precision.sum
    if x > 18 or precision.pair is not None:
        return None
    return (
        "\n".join(
            [
                *pe_header(precision, name),
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


def multiply_add_of_multiplier(unit, name):
    """A multiply-add on an ECP5: one multiplier or two, and the sum in fabric."""
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


def accumulate_of_multiplier(unit, header):
    """An accumulator on an ECP5: the multiplier and its registers, the sum in fabric."""
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
