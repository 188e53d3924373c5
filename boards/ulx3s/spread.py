"""Spreads a placed netlist's multipliers, a free site beside each.

A multiplier has some 80 wires to its site. Where two neighbours are used, more nets want the wires between them than
there are, and routing does not end; the placer does not count them.
"""

import json
import re
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["SITES", "spread"]

_CELL = "MULT18X18D"
_COLUMNS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
_ROWS = (10, 34, 58)
_PAIRS = ((0, "MULT18_0", "MULT18_1"), (4, "MULT18_4", "MULT18_5"))
#: Sites of the ECP5-85F's multipliers, the first of each pair and then the second: where nextpnr places 156 of them.
SITES = tuple(
    (column + offset + second, row, names[second])
    for second in (0, 1)
    for row in _ROWS
    for column in _COLUMNS
    for offset, *names in _PAIRS
)


def spread(placed: Path, netlist: Path) -> int:
    """Fixes a netlist's multipliers near their places; returns their number.

    ``placed`` is nextpnr's output for ``netlist``. Sites are the first of each pair where these are enough, else all.
    The assignment has the least sum of distances, in tiles along both axes.
    """
    places = {
        name: cell["attributes"]["NEXTPNR_BEL"]
        for name, cell in json.loads(placed.read_text(encoding="utf-8"))["modules"]["top"]["cells"].items()
        if cell["type"] == _CELL
    }
    content = json.loads(netlist.read_text(encoding="utf-8"))
    (module,) = (each for each in content["modules"].values() if "settings" in each)
    cells = {name: cell for name, cell in module["cells"].items() if cell["type"] == _CELL}
    if cells.keys() != places.keys():
        raise ValueError(f"{netlist.name}: its multipliers are not those of {placed.name}")
    if not cells:
        return 0
    sites = SITES if len(cells) > len(SITES) // 2 else SITES[: len(SITES) // 2]
    found = np.array([[int(part) for part in re.findall(r"^X(\d+)/Y(\d+)/", places[name])[0]] for name in cells])
    wanted = np.array([site[:2] for site in sites])
    distance = np.abs(found[:, None] - wanted[None]).sum(axis=2)
    for name, site in zip(cells, linear_sum_assignment(distance)[1], strict=True):
        column, row, kind = sites[site]
        cells[name].setdefault("attributes", {})["BEL"] = f"X{column}/Y{row}/{kind}"
    netlist.write_text(json.dumps(content), encoding="utf-8", newline="\n")
    return len(cells)
