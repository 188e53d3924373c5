"""Block RAM for the ECP5 as instances of its blocks, filled."""

from pathlib import Path

import numpy as np

__all__ = ["WORDS", "ram_verilog"]

_BITS = 128
#: Bits of a beat that a block holds, of all beats: nothing but wires is between blocks and ports.
_WIDTH = 2
#: Beats.
WORDS = 16384 // _WIDTH
#: Bits of a beat's address; of what a group of blocks is asked: address and write of port A, then of B with its word.
_ADDRESS = WORDS.bit_length() - 1
#: Blocks that share registers of what they are asked: those of a word, which port B writes.
_LANE = 32
_GROUP = _LANE // _WIDTH
_ASKED = 2 * (_ADDRESS + 1) + _LANE


def ram_verilog(image: bytes) -> str:
    """Module ``gradloom_ram`` with ``image`` in it, zeros behind.

    Synthesis would take minutes to find the same, most of them for the contents of the memory.
    """
    if len(image) > 16 * WORDS:
        raise ValueError(f"image has {len(image)} bytes: the block RAM holds {16 * WORDS}")
    beats = np.zeros((WORDS, 16), np.uint8)
    beats.reshape(-1)[: len(image)] = np.frombuffer(image, np.uint8)
    # Of each block: its bits of one beat after the other.
    bits = np.unpackbits(beats, axis=1, bitorder="little").reshape(WORDS, -1, _WIDTH).swapaxes(0, 1)
    blocks = len(bits)
    # A word of 18 bits is two bytes of 9, whose last bit a narrow port does not reach; 16 words a parameter, 20 bits
    # apart.
    cells = np.zeros((blocks, 64, 16, 20), np.uint8)
    by_byte = bits.reshape(blocks, 64, 16, 2, 8)
    cells[..., :8], cells[..., 9:17] = by_byte[..., 0, :], by_byte[..., 1, :]
    packed = np.packbits(cells.reshape(blocks, 64, 320), axis=2, bitorder="little")
    lines = []
    zeros = ", ".join(
        [
            *(f".DIA{n}(1'b0)" for n in range(_WIDTH, 18)),
            *(f".DIB{n}(1'b0)" for n in range(_WIDTH, 18)),
            *(f".AD{port}{n}(1'b0)" for port in "AB" for n in range(14 - _ADDRESS)),
        ]
    )
    for block in range(blocks):
        group, first = divmod(block, _GROUP)
        if not first:
            lines += [
                f"    wire [{_ASKED - 1}:0] there_{group};",
                f"    gradloom_ram_group group_{group} (",
                f"        .clk(clk), .there(there_{group}),",
                f"        .asked({{a_asked, a_writes_asked, b_asked, b_writes_asked[{group}], b_data_asked}})",
                "    );",
            ]
        addresses = ", ".join(
            f".AD{port}{14 - _ADDRESS + n}(there_{group}[{low + n}])"
            for port, low in (("A", _LANE + _ADDRESS + 2), ("B", _LANE + 1))
            for n in range(_ADDRESS)
        )
        words = ", ".join(
            f".DIA{n}(a_data_there[{bit}]), .DIB{n}(there_{group}[{bit % _LANE}]), "
            f".DOA{n}(a_read[{bit}]), .DOB{n}(b_read[{bit}])"
            for n, bit in enumerate(range(_WIDTH * block, _WIDTH * (block + 1)))
        )
        inits = ",\n".join(
            f"        .INITVAL_{n:02X}(320'h{int.from_bytes(packed[block, n].tobytes(), 'little'):080x})"
            for n in range(64)
        )
        lines += [
            "    DP16KD #(",
            f"        .DATA_WIDTH_A({_WIDTH}), .DATA_WIDTH_B({_WIDTH}),",
            '        .REGMODE_A("OUTREG"), .REGMODE_B("OUTREG"),',
            '        .WRITEMODE_A("NORMAL"), .WRITEMODE_B("NORMAL"), .GSR("AUTO"),',
            f"{inits}",
            f"    ) block_{block} (",
            f"        .CLKA(clk), .CEA(1'b1), .OCEA(1'b1), .WEA(there_{group}[{_LANE + 1 + _ADDRESS}]), .RSTA(1'b0),",
            "        .CSA0(1'b0), .CSA1(1'b0), .CSA2(1'b0), .CLKB(clk), .CEB(1'b1), .OCEB(1'b1),",
            f"        .WEB(there_{group}[{_LANE}]),",
            f"        .RSTB(1'b0), .CSB0(1'b0), .CSB1(1'b0), .CSB2(1'b0), {addresses},",
            f"        {words}, {zeros}",
            "    );",
        ]
    text = (Path(__file__).parent / "ram.v").read_text(encoding="utf-8")
    for name, value in (("WORDS", WORDS), ("ADDRESS", _ADDRESS), ("ASKED", _ASKED), ("BLOCKS", "\n".join(lines))):
        text = text.replace(f"@{name}@", str(value))
    return text
