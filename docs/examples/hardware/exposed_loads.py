"""Loads of kept tiles, exposed and hidden, in simulated RTL.

``python docs/examples/hardware/exposed_loads.py [--json]``

Runs the product engine with an array of 32×16. For each product of Stable Diffusion's cross-attention layers, see
``dataflows.py``, it has as many kept tiles of the array as the product has on 64×32: sizes are halved. The stream is
one block of as many rows as the array has. The same Verilog runs each twice, with the operand ``exposed`` and without.

Ends with code 1 if a command's cycles are not those of the forecast, if a result differs, or if all exposed cycles
differ by 1 % from SCALE-Sim's law.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dataflows import products

from gradloom.compiler.estimate.products import ShapedProduct
from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.engines.product.parameters import ProductParameters
from gradloom.rtl.engines.product.spec import SPEC
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import CONTROL, Engines
from gradloom.rtl.shell.parameters import ShellParameters
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.run.machine import MachineRunner as Simulated
from gradloom.systems.diffusion.dataflows import DataflowArray, exposed_weight

MACHINE = Machine(Engines(SPEC))
#: Of the array, and of an array with the same tiles and whole products.
ROWS, COLUMNS, WHOLE = 32, 16, (64, 32)


@dataclass(frozen=True, kw_only=True)
class Config(ProductParameters, ShellParameters):
    """The product engine alone."""

    home: ClassVar = "exposed_loads:MACHINE"


CONFIG = Config(array_rows=ROWS, array_columns=COLUMNS)


def shapes() -> dict[str, list[tuple[int, int]]]:
    """Halved K and N of the distinct products, by kind."""
    found: dict[str, set[tuple[int, int]]] = {}
    kinds = {"base": "base and dX", "dX": "base and dX", "hB": "hB and PA", "PA": "hB and PA", "h": "h and P"}
    for each in products():
        k, n = ROWS * -(-each.k // WHOLE[0]), COLUMNS * -(-each.n // WHOLE[1])
        kind = kinds.get(each.part, "h and P" if each.part == "P" else "dA and dB")
        found.setdefault(kind, set()).add((min(k, -(-each.k // 2)) if each.k < WHOLE[0] else k, n))
    return {kind: sorted(some) for kind, some in found.items()}


def program(k: int, n: int, exposed: int) -> tuple[PlacedProgram, Place]:
    """``[ROWS, k] · [k, n]``, a command for 64 columns; and its first tile.

    ``exposed``: cycles, even. All columns are multiplied with the same kept tiles: cycles do not depend on codes.
    """
    made, random = PlacedProgram(CONFIG), np.random.default_rng(k)
    tiles = -(-k // EDGE)
    for port in "xw":
        for slot in range(tiles):
            codes = random.integers(-127, 128, (EDGE, EDGE))
            place = made.put(np.frombuffer(TileRecord(EDGE, EDGE).pack(codes, -5), "<i4"))
            made.load(place, "product", port, arg=tile_argument(slot, EDGE, EDGE))
    made.add(CONTROL, ControlOpcode.FENCE)
    steps = {"x_step": 1, "w_step": 1, "tiles": tiles - 1, "k_to": (k - 1) % EDGE, "rows": ROWS - 1}
    for number, column in enumerate(range(0, n, EDGE)):
        whole = {"fresh": 1, "start": 1, "last": 1, "o": number % 4, "columns": min(EDGE, n - column) - 1}
        made.do("product", ProductOpcode.PRODUCT, exposed=exposed // 2, **steps, **whole)
    made.add(CONTROL, ControlOpcode.FENCE)
    record = TileRecord(ROWS, min(EDGE, n), WIDE)
    place = made.room(record.size // 4)
    made.store(place, "product", "o", arg=tile_argument(0, ROWS, min(EDGE, n), wide=True))
    made.end()
    return made, place


def measured() -> Iterator[dict[str, Any]]:
    """Cycles of each kind of products, and of all."""
    array, drain = DataflowArray(rows=ROWS, columns=COLUMNS), ROWS + COLUMNS - 2
    every = [(kind, shape) for kind, some in shapes().items() for shape in some]
    programs = [program(*shape, exposed) for _, shape in every for exposed in (drain, 0)]
    rows: dict[str, dict[str, Any]] = {}
    ran, left = [], []
    with Simulated.simulated(CONFIG) as machine:
        for made, place in programs:
            ran.append(machine.run(made))
            # Cycles are those of the forecast.
            ran[-1].check()
            left.append(machine.read(place.offset, place.length))
    for number, (kind, (k, n)) in enumerate(every):
        pair = slice(2 * number, 2 * number + 2)
        if len(set(left[pair])) != 1:
            raise SystemExit(f"{kind}, K {k}, N {n}: results differ")
        own = ShapedProduct("", kind, m=ROWS, k=k, n=n)
        exposed, hidden = (one.counters.phases["product"] for one in ran[pair])
        tiles = -(-k // ROWS) * -(-n // COLUMNS)
        for name in (kind, "all"):
            row = rows.setdefault(name, {"products": name, "tiles": 0, "exposed": 0, "law": 0, "hidden": 0, "rows": 0})
            for key, value in {
                "tiles": tiles,
                "exposed": exposed,
                "law": exposed_weight(own, array),
                "hidden": hidden,
                "rows": tiles * ROWS,
            }.items():
                row[key] += value
    rows["all"] = rows.pop("all")
    yield from rows.values()


def main() -> None:
    """Prints a table; exit code 1 if the law is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = list(measured())
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for row in found:
            print(
                f"{row['products']:12} {row['tiles']:5} tiles: exposed {row['exposed']:8,} cycles, law "
                f"{row['law']:8,} ({100 * (row['exposed'] / row['law'] - 1):+.2f} %); hidden {row['hidden']:7,}, "
                f"stream rows {row['rows']:7,}; {row['exposed'] / row['hidden']:.2f}x"
            )
    last = found[-1]
    sys.exit(abs(last["exposed"] / last["law"] - 1) > 0.01)


if __name__ == "__main__":
    main()
