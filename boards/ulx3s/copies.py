"""Copies the register of the engines' reset in a placed netlist.

The reset goes to thousands of flip-flops all over the chip. From one register the wire to the farthest takes more than
a cycle. nextpnr copies no register, so each region of the chip gets one here, after placement, when it is known where
the loads lie.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

__all__ = ["LOADS", "copy_reset"]

#: Most loads of a copy. Where one tile has more, they are not divided.
LOADS = 360

_NET = "engines_rst"
_SLICES = "ABCD"
_SITE = re.compile(r"X(\d+)/Y(\d+)/SLICE([A-D])\.(\w+)")
_Load = tuple[int, int, str, str]  # column, row, cell, port


def copy_reset(placed: Path, *, most: int = LOADS) -> int:
    """Gives each region's loads a register of the reset.

    Returns the number of copies: 0 where each reset has at most ``most`` loads, or comes from no register. A copy has
    the clock, the data and the initial value of the register that it stands for, so all of them hold the same bit in
    each cycle. It takes a slice that nothing uses, near the middle of its loads. All loads of a tile have the same
    copy, as they share wires. The register itself stays, without a load.
    """
    content = json.loads(placed.read_text(encoding="utf-8"))
    module = content["modules"]["top"]
    names = [name for name in module.get("netnames", {}) if name.split(".")[-1] == _NET]
    copies = sum(_copy_net(module, name, most) for name in names)
    placed.write_text(json.dumps(content), encoding="utf-8", newline="\n")
    return copies


def _copy_net(module: dict[str, Any], net: str, most: int) -> int:
    cells, nets = module["cells"], module["netnames"]
    (bit,) = nets[net]["bits"]
    sites = {name: found for name, cell in cells.items() if (found := _SITE.match(_place(cell)))}
    ends = [(name, port) for name, cell in cells.items() for port, bits in cell["connections"].items() if bits == [bit]]
    (source,) = (name for name, port in ends if cells[name]["port_directions"][port] == "output")
    loads = sorted((*_tile(sites[name]), name, port) for name, port in ends if name != source)
    register = cells[source]
    if len(loads) <= most or register["type"] != "TRELLIS_FF" or register["connections"].get("LSR"):
        return 0
    free = _free(cells, sites, register["connections"]["CLK"])
    last = max(bit for each in nets.values() for bit in each["bits"] if isinstance(bit, int))
    groups = _regions(loads, most)
    for number, group in enumerate(groups, 1):
        column, row, part = _nearest(free, group)
        free = [site for site in free if site[:2] != (column, row)]
        name = f"{net}_{number}"
        nets[name] = {"hide_name": 0, "bits": [last + number], "attributes": {"ROUTING": " "}}
        cells[name] = _copy(register, last + number, f"X{column}/Y{row}/SLICE{part}.FF0")
        for _, _, load, port in group:
            cells[load]["connections"][port] = [last + number]
    register["connections"]["Q"] = []
    return len(groups)


def _place(cell: dict[str, Any]) -> str:
    return cell["attributes"].get("NEXTPNR_BEL", "")


def _tile(site: re.Match[str]) -> tuple[int, int]:
    return int(site[1]), int(site[2])


def _free(cells: dict[str, Any], sites: dict[str, re.Match[str]], clock: list[int]) -> list[tuple[int, int, str]]:
    """Slices that nothing uses, in tiles whose registers all have ``clock``.

    Those are left out where a register has a reset or a memory is written: a tile has two lines for these, which may
    reset any register in it.
    """
    used = {(*_tile(site), part) for site in sites.values() for part in ("ABC" if site[4] == "RAMW" else site[3])}
    other = {
        _tile(site)
        for name, site in sites.items()
        if cells[name]["type"] == "TRELLIS_RAMW"
        or cells[name]["type"] == "TRELLIS_FF"
        and (cells[name]["connections"]["CLK"] != clock or cells[name]["connections"].get("LSR"))
    }
    tiles = sorted({_tile(site) for site in sites.values()} - other)
    return [(*tile, part) for tile in tiles for part in _SLICES if (*tile, part) not in used]


def _nearest(free: list[tuple[int, int, str]], loads: list[_Load]) -> tuple[int, int, str]:
    """The free slice next to the middle of ``loads``."""
    x, y = sum(load[0] for load in loads) / len(loads), sum(load[1] for load in loads) / len(loads)
    return min(free, key=lambda site: abs(site[0] - x) + abs(site[1] - y))


def _regions(loads: list[_Load], most: int) -> list[list[_Load]]:
    """Halves the loads along their longer side; a tile stays whole."""
    if len(loads) <= most:
        return [loads]
    columns, rows = [load[0] for load in loads], [load[1] for load in loads]
    if max(columns) - min(columns) > max(rows) - min(rows):
        ordered = sorted(loads)
    else:
        ordered = sorted(loads, key=lambda load: (load[1], load[0], *load[2:]))
    half = len(ordered) // 2
    while half < len(ordered) and ordered[half][:2] == ordered[half - 1][:2]:
        half += 1
    if half == len(ordered):
        return [loads]
    return _regions(ordered[:half], most) + _regions(ordered[half:], most)


def _copy(register: dict[str, Any], bit: int, site: str) -> dict[str, Any]:
    made = copy.deepcopy(register)
    # The data comes from outside the slice, not from its own table.
    data = made["connections"].pop("DI", None) or made["connections"]["M"]
    made["parameters"]["SD"] = "0 "
    made["attributes"]["NEXTPNR_BEL"] = site
    made["connections"] |= {"Q": [bit], "M": data}
    made["port_directions"] = {port: "output" if port == "Q" else "input" for port in made["connections"]}
    return made
