"""Block RAM for the ECP5 as instances of its blocks, filled."""
from pathlib import Path

import numpy as np

__all__ = ["WORDS", "ram_verilog"]

#: Beats in a block of one bit a word: a block a bit, and nothing but wires between them and the ports.
WORDS = 16384
_BITS = 128
#: Blocks that share registers of their address.
_GROUP = 16


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
    lines = []
    idle = ", ".join(f".DI{port}{n}(1'b0)" for port in "AB" for n in range(18) if (port, n) != ("A", 0))
    for bit in range(_BITS):
        group, first = divmod(bit, _GROUP)
        if not first:
            lines += [f"    wire [28:0] there_{group};",
                      f"    gradloom_ram_group group_{group} (.clk(clk), .asked(asked), .there(there_{group}));"]
        addresses = ", ".join(f".AD{port}{n}(there_{group}[{low + n}])" for port, low in (("A", 15), ("B", 0))
                              for n in range(14))
        inits = ",\n".join(f"        .INITVAL_{n:02X}(320'h{int.from_bytes(packed[bit, n].tobytes(), 'little'):080x})"
                           for n in range(64))
        lines += [
            "    DP16KD #(",
            "        .DATA_WIDTH_A(1), .DATA_WIDTH_B(1), .REGMODE_A(\"OUTREG\"), .REGMODE_B(\"OUTREG\"),",
            "        .WRITEMODE_A(\"NORMAL\"), .WRITEMODE_B(\"NORMAL\"), .GSR(\"AUTO\"),",
            f"{inits}",
            f"    ) bit_{bit} (",
            f"        .CLKA(clk), .CEA(1'b1), .OCEA(1'b1), .WEA(there_{group}[14]), .RSTA(1'b0),",
            "        .CSA0(1'b0), .CSA1(1'b0), .CSA2(1'b0), .CLKB(clk), .CEB(1'b1), .OCEB(1'b1), .WEB(1'b0),",
            f"        .RSTB(1'b0), .CSB0(1'b0), .CSB1(1'b0), .CSB2(1'b0), {addresses},",
            f"        .DIA0(a_data_there[{bit}]), {idle}, .DOA0(a_read[{bit}]), .DOB0(b_read[{bit}])",
            "    );",
        ]
    text = (Path(__file__).parent / "ram.v").read_text(encoding="utf-8")
    return text.replace("@WORDS@", str(WORDS)).replace("@BLOCKS@", "\n".join(lines))
