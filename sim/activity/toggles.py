"""Bits of ports and named registers that change in a preset's runs.

``python -m gradloom.sim.activity.toggles PRESET``.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from .covered import RUNS, measured

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds, runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", choices=sorted(RUNS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the configuration")
    parser.add_argument("--json", action="store_true", help="all of it, holes too")
    parser.add_argument("--least", type=float, default=0.0, help="percent below which it fails")
    asked = parser.parse_args(arguments)
    changes = {key: int(value) for key, _, value in (each.partition("=") for each in asked.set)}

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    said = {"preset": asked.preset, **measured(asked.preset, changes, tell)}
    if asked.json:
        print(json.dumps(said, indent=2))
    else:
        for name, unit in said["units"].items():
            print(f"{name:44} {unit['covered']:6} of {unit['points']:6}  {' '.join(unit['holes'])[:120]}")
        print(f"{said['covered']} of {said['points']} bits, {said['share']} %; left out: {said['excluded']}")
    return int(said["share"] < asked.least)


if __name__ == "__main__":
    sys.exit(main())
