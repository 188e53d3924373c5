"""Compares the estimate of delays with nextpnr's, path by path.

``python docs/examples/hardware/path_delays.py BUILD [ROUTING]``: ``BUILD`` is ``board/build`` after ``gradloom build
ulx3s``. ``ROUTING`` is the name of a report there, such as ``timed60``; without it, ``routed``, the first one.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

from gradloom.boards.netlist.delays import DELAYS


def loads(netlist):
    """Number of loads of each net, by its name and by ``NAME[INDEX]``."""
    (top,) = (module for module in netlist["modules"].values() if int(module["attributes"].get("top", "0"), 2))
    count = defaultdict(int)
    for cell in top["cells"].values():
        for pin, bits in cell["connections"].items():
            for bit in bits if cell["port_directions"][pin] == "input" else ():
                count[bit] += 1
    found = {}
    for name, entry in top["netnames"].items():
        found |= {f"{name}[{index}]": count[bit] for index, bit in enumerate(entry["bits"])}
        found.setdefault(name, count[entry["bits"][0]])
    return found


def main(build, routing="routed"):
    folder, delays = Path(build), DELAYS["ecp5"]
    known = loads(json.loads((folder / "netlist.json").read_text(encoding="utf-8")))
    report = json.loads((folder / f"{routing}.report").read_text(encoding="utf-8"))
    print("| from | to | nextpnr | estimate | differs |\n| --- | --- | --- | --- | --- |")
    for path in report["critical_paths"]:
        steps = path["path"]
        logic = sum(step["delay"] for step in steps if step["type"] != "routing") + delays.setup
        # A way without delay is the carry chain's own.
        nets = [step["net"] for step in steps if step["type"] == "routing" and step["delay"]]
        wires = sum(delays.net(known.get(net, 1)) for net in nets)
        routed = sum(step["delay"] for step in steps)
        if "<async>" in (path["from"], path["to"]):
            continue  # a lamp or a line
        estimate = logic + wires
        print(f"| {path['from']} | {path['to']} | {routed:.2f} ns | {estimate:.2f} ns | {estimate / routed - 1:+.0%} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
