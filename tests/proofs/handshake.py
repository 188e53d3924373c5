"""Which ends of a design's streams wait, in the same cycle, for the other end: a walk through its wires, bit by bit.

No state is asked for and no cycle is counted, so what is not found cannot be, in any state. What is found need not
happen: a way through wires is not yet a condition that can hold.
"""

import json
from collections import defaultdict

from gradloom.rtl.emit.yosys import run_yosys

__all__ = ["Handshakes"]

_BITWISE = {"$and", "$or", "$xor", "$xnor", "$not"}
_REGISTERS = ("$dff", "$sdff", "$adff", "$aldff")


class Handshakes:
    """Streams of a design by their pair of wires; those that stand in several modules have several names.

    Parameters
    ----------
    files : paths
        Verilog of the whole design.
    top : str
    """

    def __init__(self, files, top, folder):
        netlist = folder / "flat.json"
        run_yosys(
            [
                f"read_verilog {' '.join(map(str, files))}",
                f"hierarchy -top {top}",
                "proc",
                "flatten",
                "opt_clean",
                f"write_json {netlist}",
            ]
        )
        module = json.loads(netlist.read_text(encoding="utf-8"))["modules"][top]
        self._drivers = {}
        for cell in module["cells"].values():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self._drivers |= {bit: (cell, port, index) for index, bit in enumerate(bits)}
        names = {name: each["bits"] for name, each in module["netnames"].items()}
        self.streams = defaultdict(list)
        for name, valid in names.items():
            ready = names.get(f"{name[:-5]}ready") if name.endswith("valid") else None
            # A constant waits for nothing.
            if ready and len(valid) == len(ready) == 1 and isinstance(valid[0], int) and isinstance(ready[0], int):
                self.streams[valid[0], ready[0]].append(name[:-5].rstrip("_"))

    def valid_waits(self):
        """Names of the streams whose ``valid`` may depend on their ``ready``."""
        return sorted(
            min(names, key=len) for (valid, ready), names in self.streams.items() if self._depends(valid, ready)
        )

    def ready_waits(self):
        """Names of the streams whose ``ready`` may depend on their ``valid``."""
        return sorted(
            min(names, key=len) for (valid, ready), names in self.streams.items() if self._depends(ready, valid)
        )

    def _depends(self, bit, on):
        waiting, seen = [bit], {bit}
        while waiting:
            for source in self._sources(waiting.pop()):
                if source == on:
                    return True
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return False

    def _sources(self, bit):
        """Bits that may say in the same cycle what ``bit`` is; more than do, where a cell is not looked into."""
        if bit not in self._drivers:
            return []
        cell, port, index = self._drivers[bit]
        kind, wires = cell["type"], cell["connections"]
        if kind.startswith(_REGISTERS):
            return []
        if kind.startswith("$mem"):
            return self._address(cell, port, index)
        if kind in _BITWISE:
            # The shorter operand goes on with its sign; which bit that is, does not matter.
            found = [wires[name][min(index, len(wires[name]) - 1)] for name in ("A", "B") if name in wires]
        elif kind == "$mux":
            found = [wires["A"][index], wires["B"][index], *wires["S"]]
        elif kind == "$pmux":
            found = [wires["A"][index], *wires["B"][index :: len(wires["A"])], *wires["S"]]
        else:
            found = [each for name, bits in wires.items() if cell["port_directions"][name] == "input" for each in bits]
        return [each for each in found if isinstance(each, int)]

    @staticmethod
    def _address(cell, port, index):
        said = cell["parameters"]
        if cell["type"].startswith("$memrd"):
            # A reader of its own.
            waits = not int(said["CLK_ENABLE"], 2)
            return [each for each in cell["connections"]["ADDR"] if waits and isinstance(each, int)]
        reader = index // int(said["WIDTH"], 2)
        if said["RD_CLK_ENABLE"][::-1][reader] == "1":
            return []
        bits = int(said["ABITS"], 2)
        return [
            each
            for each in cell["connections"]["RD_ADDR"][reader * bits : (reader + 1) * bits]
            if isinstance(each, int)
        ]
