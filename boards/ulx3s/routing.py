"""What nextpnr's second router is told, and when it is stopped.

A placed netlist is routed several times. The first time a net stays once nobody contends for its wires, so the
conflicts fall to none, and some paths are late. Each later time begins with the wires of the time before and aims at a
clock. The router rips up the nets on paths that are late for it, and goes on until none is late. With both aims at
once, or with a clock far above the one that is reached, it rips up thousands of nets again and again, and the conflicts
need not end.
"""

import json
import re
from pathlib import Path

from gradloom.rtl.emit.yosys import yosys_files

from ..flow import FlowError

__all__ = ["AGAIN", "ITERATIONS", "SETTINGS", "check_inputs", "check_progress", "keep_sites", "tell_router"]

#: Settings of the router that have no option; nextpnr reads them in a netlist. A wire may leave the box around its net
#: by so many tiles: nextpnr's own 3 were not enough. The weight of a wire that several nets want grows by so much at
#: each iteration: with nextpnr's own 2, nets take long detours, and use up the wires of others.
SETTINGS = {"router2/bbMargin/x": "6", "router2/bbMargin/y": "6", "router2/currCongWeightMult": "1.25"}

#: Most iterations of the router. All netlists that were routed to the end took fewer.
ITERATIONS = 400
#: The same of a later routing. Those that reached their clock took up to 130.
AGAIN = 160
#: It is stopped where more than so many wires are contended, and their number has not fallen for so many iterations. Of
#: those that reached their clock none took half of that.
_MANY, _STUCK = 50, 40

_TABLE, _MULTIPLIER = "TRELLIS_COMB", "MULT18X18D"
_OPTIONS = ("target_freq", "auto_freq", "placer", "place", "router", "router/tmg_ripup", "route")
_SITE = re.compile(r"(X\d+/Y\d+)/SLICE([A-D])\.(?:COMB|K)(\d)")
#: A wire that enters a table: tile, input of the tile, table, input of the table.
_INPUT = re.compile(r"(X\d+/Y\d+)/\d+_\d+_([A-D])(\d)->\d+_\d+_([A-D])\d_SLICE")
_LINE = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+)(?:.*?tmgfail=(\d+))?")


def tell_router(netlist: Path, top: str = "gradloom_ulx3s") -> None:
    """Writes the router's settings into its netlist.

    Some names in there begin with Yosys' folder; the wires that are found depend on names, and must not depend on the
    place where somebody has installed it.
    """
    content = json.loads(netlist.read_text(encoding="utf-8").replace(str(yosys_files()), "yosys"))
    content["modules"][top]["settings"] = SETTINGS
    netlist.write_text(json.dumps(content), encoding="utf-8", newline="\n")


def keep_sites(netlist: Path) -> None:
    """Tells nextpnr to place each table of ``netlist`` where it is.

    nextpnr also finds the sites of a netlist that it has written. But then it binds the cells before it knows which of
    their tables are memories or carries, and the router exchanges the inputs of these, too: the bitstream would compute
    something else. A cell with a site of its own is bound when this is known. Options of the run before are removed, as
    they would have precedence.
    """
    content = json.loads(netlist.read_text(encoding="utf-8"))
    for module in content["modules"].values():
        for name in _OPTIONS:
            module["settings"].pop(name, None)
        # It has nothing to place, and makes a step or two instead of seventy.
        module["settings"]["placer1/startTemp"] = "0.0000001"
        for cell in module["cells"].values():
            for port, bits in cell["connections"].items() if cell["type"] == _MULTIPLIER else ():
                # A port without a wire is none for nextpnr where no bit stands for it, and it looks for the clocks'.
                cell["connections"][port] = bits or ["x"]
            if cell["type"] == _TABLE and (site := cell["attributes"].pop("NEXTPNR_BEL", None)):
                cell["attributes"].pop("BEL_STRENGTH", None)
                cell["attributes"]["BEL"] = site
    netlist.write_text(json.dumps(content), encoding="utf-8", newline="\n")


def check_inputs(netlist: Path) -> None:
    """Refuses a routed table that has inputs of others.

    :class:`FlowError` names their number.

    The router may exchange the inputs of a table, whose content follows. It must not do so for a memory, and for a
    carry within the first two and the last two inputs alone.
    """
    module = json.loads(netlist.read_text(encoding="utf-8"))["modules"]["top"]
    modes = {
        (found[1], 2 * "ABCD".index(found[2]) + int(found[3])): cell["parameters"].get("MODE", "LOGIC").strip()
        for cell in module["cells"].values()
        if cell["type"] == _TABLE and (found := _SITE.match(cell["attributes"].get("NEXTPNR_BEL", "")))
    }
    wrong = sum(
        _exchanged(modes.get((tile, int(table)), "LOGIC"), wire, pin)
        for net in module["netnames"].values()
        for tile, wire, table, pin in _INPUT.findall(net["attributes"].get("ROUTING", ""))
    )
    if wrong:
        raise FlowError(f"nextpnr exchanged {wrong} inputs of memories or carries: the bitstream would be wrong")


def _exchanged(mode: str, wire: str, pin: str) -> bool:
    if mode == "LOGIC" or wire == pin:
        return False
    return mode != "CCU2" or {wire, pin} not in ({"A", "B"}, {"C", "D"})


def check_progress(log: Path, most: int = ITERATIONS) -> None:
    """:class:`FlowError` where the router has made ``most`` iterations, or gets no further.

    ``log`` is the router's, which may still be written, or not be there yet.
    """
    found = _LINE.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
    if not found:
        return
    count, twice, late = found[-1]
    wires = [int(each[1]) for each in found]
    stuck = wires[-1] > _MANY and min(wires[-_STUCK:]) > min(wires)
    if int(count) >= most or stuck:
        ends = f", and {late} ends of paths are late" if late else ""
        raise FlowError(f"routing has not ended after {count} iterations: {twice} wires are used twice{ends}")
