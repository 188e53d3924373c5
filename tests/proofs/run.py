"""``python -m tests.proofs.run [NAME ...] [--quick] [-o FILE]``: proves claims; a table, and the same as JSON.

The exit code is 1 if something is not shown that is claimed: a proof fails, what must be within reach is not, or a
broken unit is not found out.
"""

import argparse
import concurrent.futures
import json
import sys
import tempfile
import warnings
from pathlib import Path

from gradloom.sim.proofs.proof import outcome
from gradloom.sim.proofs.prover import solver_missing

from .catalog import PROOFS


def _line(row):
    how = {
        "induction": f"induction, k = {row['depth']}",
        "reach": "inductive invariant found",
        "bounded": f"first {row['depth']} cycles",
    }[row["method"]]
    broken = "; broken: " * bool(row["broken"]) + ", ".join(
        f"{each['by']} in cycle {each['cycle']}" for each in row["broken"] if each["found"]
    )
    missed = [each["change"] for each in row["broken"] if not each["found"]]
    trouble = "" if row["shown"] else f"  NOT SHOWN {row['detail']} {row['uncovered'] or ''} {missed or ''}"
    return f"{row['name']:28} {how:26} {row['seconds']:7.1f} s{broken}{trouble}"


def _tried(proof, directory):
    """Its row; one that cannot be made is not shown, and the others are tried."""
    try:
        return outcome(proof, directory)
    except Exception as error:
        given = {"name": proof.name, "rule": proof.rule, "preset": proof.preset, "method": proof.method}
        none = {"depth": None, "unbounded": False, "seconds": 0.0, "uncovered": [], "broken": [], "shown": False}
        return {**given, **none, "detail": f"{type(error).__name__}: {error}"}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("names", nargs="*", help="proofs; if none is named, all")
    parser.add_argument("--quick", action="store_true", help="those of every test run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, help="file for the table as JSON")
    given = parser.parse_args(arguments)
    chosen = [
        proof for proof in PROOFS if (proof.name in given.names or not given.names) and (proof.quick or not given.quick)
    ]
    if unknown := set(given.names) - {proof.name for proof in PROOFS}:
        parser.error(
            f"{', '.join(sorted(unknown))}: no such proof; there are {', '.join(proof.name for proof in PROOFS)}"
        )
    if solver_missing() and any(proof.method == "induction" for proof in chosen):
        parser.error("python-sat is not installed, which takes the step of induction: make proofs installs it")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        rows = []
        for row in pool.map(lambda proof: _tried(proof, directory), chosen):
            rows.append(row)
            print(_line(row), flush=True)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(rows, indent=1) + "\n")
    shown = sum(row["shown"] for row in rows)
    print(f"{shown} of {len(rows)} shown, {sum(row['unbounded'] for row in rows)} without a bound on length")
    return shown != len(rows)


if __name__ == "__main__":
    sys.exit(main())
