"""Block RAM for the ECP5 as instances of its blocks, filled."""
import numpy as np

__all__ = ["WORDS", "ram_verilog"]

#: Beats in a block of one bit a word: a block a bit, and nothing but wires between them and the ports.
WORDS = 16384
_BITS = 128


def ram_verilog(image: bytes) -> str:
    """Module ``gradloom_ram`` with ``image`` in it, zeros behind. Synthesis would take minutes to find the same, most
    of them for what the memory holds."""
    if len(image) > 16 * WORDS:
        raise ValueError(f"image has {len(image)} bytes: the block RAM holds {16 * WORDS}")
    beats = np.zeros((WORDS, 16), np.uint8)
    beats.reshape(-1)[:len(image)] = np.frombuffer(image, np.uint8)
    bits = np.unpackbits(beats, axis=1, bitorder="little")
    # A word of 18 bits is two bytes of 9, whose last bit a port of one bit does not reach; 16 words a parameter, 20
    # bits apart.
    cells = np.zeros((_BITS, 64, 16, 20), np.uint8)
    by_byte = bits.T.reshape(_BITS, 64, 16, 2, 8)
    cells[..., :8], cells[..., 9:17] = by_byte[..., 0, :], by_byte[..., 1, :]
    packed = np.packbits(cells.reshape(_BITS, 64, 320), axis=2, bitorder="little")
    lines = [
        "// Made by gradloom: rtl/soc/onchip_ram.v for the ECP5, a block a bit, filled.",
        f"module gradloom_ram #(parameter integer WORDS = {WORDS}, parameter IMAGE = \"\") (",
        "  input wire clk, input wire [13:0] a_word, input wire a_write, input wire [127:0] a_data,",
        "  output wire [127:0] a_read, input wire [13:0] b_word, output wire [127:0] b_read);",
    ]
    addresses = ", ".join(f".AD{port}{n}({word}[{n}])" for port, word in (("A", "a_word"), ("B", "b_word"))
                          for n in range(14))
    idle = ", ".join(f".DI{port}{n}(1'b0)" for port in "AB" for n in range(18) if (port, n) != ("A", 0))
    for bit in range(_BITS):
        inits = ",\n".join(f"    .INITVAL_{n:02X}(320'h{int.from_bytes(packed[bit, n].tobytes(), 'little'):080x})"
                           for n in range(64))
        lines += [
            "  DP16KD #(.DATA_WIDTH_A(1), .DATA_WIDTH_B(1), .REGMODE_A(\"NOREG\"), .REGMODE_B(\"NOREG\"),",
            "    .WRITEMODE_A(\"NORMAL\"), .WRITEMODE_B(\"NORMAL\"), .GSR(\"AUTO\"),",
            f"{inits}) bit_{bit} (.CLKA(clk), .CEA(1'b1), .OCEA(1'b1), .WEA(a_write), .RSTA(1'b0),",
            "    .CSA0(1'b0), .CSA1(1'b0), .CSA2(1'b0), .CLKB(clk), .CEB(1'b1), .OCEB(1'b1), .WEB(1'b0), .RSTB(1'b0),",
            f"    .CSB0(1'b0), .CSB1(1'b0), .CSB2(1'b0), {addresses},",
            f"    .DIA0(a_data[{bit}]), {idle}, .DOA0(a_read[{bit}]), .DOB0(b_read[{bit}]));",
        ]
    return "\n".join([*lines, "endmodule", ""])
