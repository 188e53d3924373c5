"""Utilisation of a mesh, counted in simulated RTL.

``python docs/examples/hardware/mesh_utilisation.py``

64 tiles of random words, as many activation rows in each as the mesh has rows, on a mesh of 16 x 16. Cycles count
from the first word offered to the last result taken. The vectors are left in a file, so that the same can be asked
of ``gradloom run mesh --input mesh-in.npz --output mesh-out.npz``.
"""

import argparse
from pathlib import Path

import numpy as np

from gradloom.rtl.catalog import find_unit
from gradloom.sim.units.run import run_unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=16, help="rows and columns of the mesh")
    parser.add_argument("--tiles", type=int, default=64)
    asked = parser.parse_args()
    random, size, tiles = np.random.default_rng(0), asked.size, asked.tiles
    source, output = Path("mesh-in.npz"), Path("mesh-out.npz")
    np.savez(
        source,
        x=random.integers(-1 << 23, 1 << 23, (tiles, size, size)),
        w=random.integers(-1 << 17, 1 << 17, (tiles, size, size)),
    )
    found = run_unit(find_unit("mesh"), source, output, settings={"rows": size, "cols": size})
    print(
        f"{size} x {size}, {tiles} tiles of {size} rows: {found['cycles']:,} cycles, "
        f"{100 * found['utilisation']:.2f} % of PE cycles used; equal to the reference: {found['equal']}"
    )


if __name__ == "__main__":
    main()
