"""A proof: its claim, its method, and the broken units to detect."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .prover import Circuit
from .streams import stream_rules

__all__ = ["FREE_PRODUCTS", "Proof", "outcome", "stream_proof"]

#: A cut: products of numbers are free.
FREE_PRODUCTS = "techmap -map products.v"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """A proof of a claim.

    ``make`` gives the claim; ``depth`` is k, or the number of cycles of a bounded proof, in which ``covers`` are
    searched. ``broken``: claims of the broken unit, by its change; each has to fail within ``found_within``.

    ``quick``: a part of every test run. ``seconds``: after which a prover gives up.
    """

    name: str
    rule: str
    preset: str
    make: Callable[[], Any]
    method: str
    depth: int = 0
    cover_depth: int = 40
    cut: tuple[str, ...] = ()
    broken: Mapping[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    found_within: int = 40
    quick: bool = False
    seconds: int = 600


def stream_proof(name, make, *, rules=stream_rules, preset="library", cut=(), **given):
    """Proof that payloads offered by an output stream stay.

    It holds in the units that ``make()`` lists, for all contents of memories and all results of products.

    ``cut``: wires of ``unit_0``, ``unit_1``, ... that are free besides. ``given``: other fields of :class:`Proof`.
    """
    return Proof(
        name=f"streams-{name}",
        rule="streams: what is offered stays",
        preset=preset,
        method="reach",
        cut=(FREE_PRODUCTS, *(f"cutpoint w:{wire}" for wire in cut)),
        make=functools.partial(rules, make),
        **{"cover_depth": 200} | given,
    )


def outcome(proof, directory):
    """Proves ``proof`` and returns a row of the table.

    Also searches the covered cases, and checks that the broken unit is found.
    """
    begin = time.monotonic()
    circuit = Circuit(proof.make(), Path(directory) / proof.name, proof.cut)
    verdict = circuit.prove(proof.method, proof.depth, proof.seconds)
    row = {
        "name": proof.name,
        "rule": proof.rule,
        "preset": proof.preset,
        "method": proof.method,
        "depth": verdict.depth,
        "unbounded": proof.method != "bounded",
        "holds": verdict.holds,
        "detail": verdict.detail,
        "claims": circuit.claim.names,
        "lemmas": circuit.claim.lemmas,
        "assumes": circuit.claim.assumed,
        "uncovered": circuit.uncovered(proof.cover_depth, proof.seconds) if proof.cover_depth else [],
        "broken": [],
    }
    for number, (change, make) in enumerate(proof.broken.items()):
        found = Circuit(make(), Path(directory) / f"{proof.name}-broken{number}", proof.cut).refute(
            proof.found_within, proof.seconds
        )
        row["broken"].append(
            {"change": change, "found": found.holds is False, "cycle": found.depth, "by": found.detail}
        )
    row["shown"] = bool(verdict.holds and not row["uncovered"] and all(each["found"] for each in row["broken"]))
    return row | {"seconds": round(time.monotonic() - begin, 1)}
