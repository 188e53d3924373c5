"""The ports of a PE's module, which all families share."""

__all__ = ["pe_header"]


def pe_header(precision, name):
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
