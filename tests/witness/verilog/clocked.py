"""A bench under AMD's simulation models: cycles in which two of its parts differ."""

from .icarus import simulate

__all__ = ["counted", "models"]

#: A model shows nothing but x until its operands have changed: cycles that are not compared.
_START = 8
#: The bench begins when the chip's own reset has ended.
_TOP = """`timescale 1ns / 1ps
module clocked;
  reg clk = 0;
  wire [31:0] differing, changes;
  reg [31:0] start;
  glbl glbl();
  %s bench(.clk(clk), .differing(differing), .changes(changes));
  initial begin
    %s
    repeat (%d) #1 clk = ~clk;
    start = differing;
    repeat (%d) #1 clk = ~clk;
    $display("%%0d %%0d", differing - start, changes);
    $finish;
  end
endmodule
"""


def models(witness, names):
    """The models of cells, by file name, with that of the chip's own signals."""
    return {f"{name}.v": (witness / f"unisim/{name}.v").read_text() for name in (*names, "glbl")}


def counted(bench, sources, *, cycles, least, folder, reset="#200;"):
    """Cycles of ``cycles`` in which module ``bench`` finds a difference.

    ``RuntimeError`` where its parts show fewer than ``least`` new words. ``reset`` is what the clock does meanwhile.
    """
    clocked = {"clocked.v": _TOP % (bench, reset, 2 * _START, 2 * cycles)}
    # The model of ultra RAM has words about pins of the cascade that are left open.
    said = simulate(clocked | sources, top="clocked", folder=folder).splitlines()[-1]
    differing, changes = map(int, said.split())
    if changes < least:
        raise RuntimeError(f"{folder.name}: {bench} does not try what it compares: {changes} changes")
    return differing
