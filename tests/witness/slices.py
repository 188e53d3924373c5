"""AMD's simulation models of DSP48E1 and DSP48E2: a stand-in around one gives what its unit gives, in every cycle."""

# amaranth: UnusedElaboratable=no
from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.systolic.pe import PE

from ..systolic.test_slices import HERE, ONLY_E2, UNITS
from .icarus import simulate

__all__ = ["FILES", "OF", "hear", "subject"]

#: What is counted.
OF = "cycles"
FILES = ("unisim/DSP48E1.v", "unisim/DSP48E2.v", "unisim/glbl.v")
_CELLS = {"xc7": "DSP48E1", "xcup": "DSP48E2"}
#: A model of a slice shows nothing but x until its operands have changed: cycles that are not compared.
_START = 8
_CYCLES = 20_000
_TOP = """`timescale 1ns / 1ps
module clocked;
  reg clk = 0;
  wire [31:0] differing, changes;
  reg [31:0] start;
  glbl glbl();
  %s bench(.clk(clk), .differing(differing), .changes(changes));
  initial begin
    #200 repeat (%d) #1 clk = ~clk;
    start = differing;
    repeat (%d) #1 clk = ~clk;
    $display("%%0d %%0d", differing - start, changes);
    $finish;
  end
endmodule
"""


def subject():
    """Units and their stand-ins for each family, as they are emitted, by bench and file."""
    made = {"pe_bench/behaviour.v": convert(PE(), name="behaviour").files["behaviour"]}
    for family in _CELLS:
        made[f"pe_bench/{family}/sliced.v"] = PE().primitive(family=family, name="sliced")
    for name, make in UNITS.items():
        made[f"slices_bench/{name}.v"] = convert(make(), name=f"{name}_behaviour").files[f"{name}_behaviour"]
        for family in _CELLS:
            if family == "xcup" or name not in ONLY_E2:
                made[f"slices_bench/{family}/{name}.v"] = make().primitive(family=family, name=f"{name}_sliced")
    return made


def _differing(models, family, bench, folder):
    """Cycles in which a stand-in and its unit differ."""
    sources = {"clocked.v": _TOP % (bench, 2 * _START, 2 * _CYCLES), **models}
    sources["bench.v"] = "`define NO_ROUND\n" * (family == "xc7") + (HERE / f"{bench}.v").read_text()
    for name, text in subject().items():
        where, *middle, file = name.split("/")
        if where == bench and middle in ([], [family]) and (family == "xcup" or file[:-2] not in ONLY_E2):
            sources["_".join((*middle, file))] = text
    folder.mkdir()
    differing, changes = map(int, simulate(sources, top="clocked", folder=folder).split())
    if changes < _CYCLES // 2:
        raise RuntimeError(f"{bench}, {family}: the bench does not try the slice: {changes} changes")
    return differing


def hear(witness, folder):
    """What the models say: by cell, cycles in which a stand-in and its unit differ, and cycles compared."""
    said = {}
    for family, cell in _CELLS.items():
        models = {path.name: path.read_text() for path in (witness / f"unisim/{cell}.v", witness / "unisim/glbl.v")}
        differing = [
            _differing(models, family, bench, folder / f"{bench}_{family}") for bench in ("slices_bench", "pe_bench")
        ]
        said[cell] = {"differing": sum(differing), "compared": _CYCLES * len(differing)}
    return said
