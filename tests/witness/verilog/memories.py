"""AMD's simulation models of block and ultra RAM: units mapped to them, as ``report`` maps them, give what they give.

An address that is read and written at once gives the inverse of its word in the unit, so that no use of it goes unseen.
"""

import dataclasses
import re
from pathlib import Path

from gradloom.boards.netlist.area import _kept, _mapping
from gradloom.preset import KNOWN
from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.emit.yosys import run_yosys, yosys_files
from gradloom.rtl.engines.array.feet import Accumulate
from gradloom.rtl.engines.operands import OperandQueue
from gradloom.rtl.stream.queue import LongQueue
from gradloom.sim.run.checks import checked

from .clocked import counted, models

__all__ = ["FILES", "OF", "hear", "subject"]

OF = "cycles"
FILES = ("unisim/RAMB36E1.v", "unisim/RAMB36E2.v", "unisim/URAM288.v", "unisim/glbl.v")
#: By family: the memory of the queue, then that of the sums.
_MODELS = {"xc7": ("RAMB36E1",), "xcup": ("RAMB36E2", "URAM288")}
_CYCLES = 4_000
#: Cycles after which a position may come again.
_GAP = 4
_BENCH = Path(__file__).with_name("memories_bench.v")


def _config():
    """The parameters of ``instantft-kv260``, with four columns."""
    return dataclasses.replace(KNOWN["instantft-kv260"].config, panels=4, rank=1)


def subject():
    """A queue in block RAM, and sums in ultra RAM with their adders, as they are emitted."""
    queue = LongQueue(width=8 * 25, depth=OperandQueue.depth)
    made = convert(queue, name="queue").files | convert(Accumulate(_config()), name="sums").files
    return {f"{name}.v": text for name, text in made.items()}


def _mapped(sources, top, family, cell, folder):
    """Netlist of module ``top``, which becomes ``top_mapped``; the modules that it holds stay as they are."""
    files = {}
    for name, text in sources.items():
        files[name.removesuffix(".v")] = folder / name
        (folder / name).write_text(text, encoding="utf-8")
    run_yosys([*_mapping(files, [top], family), *_kept([top], folder / f"{top}.il")])
    run_yosys(
        [
            f"read_rtlil {folder / f'{top}.il'}",
            f"rename {top} {top}_mapped",
            f"write_verilog -noattr -selected {folder / f'{top}_mapped.v'}",
        ]
    )
    netlist = (folder / f"{top}_mapped.v").read_text(encoding="utf-8")
    if not re.search(rf"^  {cell} #", netlist, re.MULTILINE):
        raise RuntimeError(f"{top}, {family}: the netlist has no {cell}")
    return netlist


def _differing(witness, family, folder, gap=_GAP):
    """Cycles in which a unit and its netlist differ."""
    folder.mkdir()
    texts = subject()
    units = dict(zip(("queue", "sums"), _MODELS[family]))
    own = {unit: {name: text for name, text in texts.items() if name.startswith(unit)} for unit in units}
    cells = (yosys_files() / "share/xilinx/cells_sim.v").read_text(encoding="utf-8")
    # Models of memories and slices are the vendor's, if any.
    cells = re.sub(r"^module (?:RAMB|URAM|DSP)\w+.*?^endmodule", "", cells, flags=re.MULTILINE | re.DOTALL)
    ultra = f"`define ULTRA\n`define GAP {gap}\n`define WIDTH {_config().sum_bits}\n" if "sums" in units else ""
    sources = {
        "cells.v": cells,
        "bench.v": ultra + _BENCH.read_text(encoding="utf-8"),
        **models(witness, _MODELS[family]),
    }
    for unit, parts in own.items():
        sources[f"{unit}_mapped.v"] = _mapped(parts, unit, family, units[unit], folder)
        sources |= {name: checked(text) for name, text in parts.items()}
    # The model of ultra RAM wants its clock while the chip's own reset lasts.
    reset = "repeat (220) #1 clk = ~clk;"
    return counted("memories_bench", sources, cycles=_CYCLES, least=_CYCLES // 4, folder=folder, reset=reset)


def hear(witness, folder):
    """What the models say: by family, cycles in which a unit and its netlist differ, and cycles compared."""
    said = {}
    for family, names in _MODELS.items():
        said[" and ".join(names)] = {"differing": _differing(witness, family, folder / family), "compared": _CYCLES}
    return said
