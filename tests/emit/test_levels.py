"""Levels of logic that a unit may have between its registers, and from there to its ports.

Budgets of whole presets, unit by unit, are in ``boards/budgets.toml`` and take minutes; where handshakes pass is held
here. A path through two units has the levels that both have at their ports.
"""

import pytest

from gradloom import boards
from gradloom.boards.netlist.area import area
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.engines.array.intake import ArrayIntake
from gradloom.rtl.engines.linear.pairs import PairQueue
from gradloom.rtl.engines.tile_forward import TileForward
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.bus.read_dma import ReadDMA
from gradloom.rtl.shell.bus.write_dma import WriteDMA
from gradloom.rtl.shell.sequencer.scheduler import Scheduler

from ..deep import deep

#: Unit: board, levels between registers, levels to or from a port. DMA with the widths of both buses.
BUDGETS = {
    "read_dma": (lambda: ReadDMA(addr_bits=40), "kv260", 6, 4),
    "write_dma": (lambda: WriteDMA(addr_bits=40), "kv260", 6, 4),
    "write_dma_that_forwards": (lambda: WriteDMA(addr_bits=40, forwards=1, ahead=True), "kv260", 6, 4),
    "tile_forward": (TileForward, "kv260", 4, 3),
    "read_dma_of_256_bits": (lambda: ReadDMA(data_bits=256, addr_bits=32), "genesys2", 6, 4),
    "write_dma_of_256_bits": (lambda: WriteDMA(data_bits=256, addr_bits=32), "genesys2", 6, 4),
    "pair_queue": (lambda: PairQueue(width=256, depth=256), "genesys2", 4, 4),
    "scheduler": (lambda: Scheduler(LANGUAGE), "genesys2", 7, 7),
    "intake": (lambda: ArrayIntake(ImageConfig()), "kv260", 7, 6),
}


#: Others of their kind are deep, and those that budgets.toml has of a preset, too.
QUICK = ("write_dma_that_forwards", "read_dma_of_256_bits", "pair_queue", "tile_forward")


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in QUICK else deep) for each in BUDGETS])
def test_a_unit_keeps_its_budget_of_levels(name, tmp_path):
    make, board, inside, ports = BUDGETS[name]
    emit(make(), tmp_path / "design", name=name, family=boards.find(board).family)
    result = area(tmp_path / "design", boards.find(board), paths=1 << 20)
    assert result["levels"] <= inside, result["paths"][0]
    deepest = max((path["levels"], path["start"], path["end"]) for path in result["paths"] if path["ends_at_port"])
    assert deepest[0] <= ports, deepest
