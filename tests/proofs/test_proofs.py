"""The quick proofs, each with a unit that is broken on purpose; ``make proofs`` makes all."""
import dataclasses

import pytest

from gradloom.rtl.stream.queue import ShortQueue
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.proofs.claim import Claim
from gradloom.sim.proofs.proof import outcome
from gradloom.sim.proofs.prover import Circuit, solver_missing

from .catalog import PROOFS


@pytest.mark.parametrize("proof", [proof for proof in PROOFS if proof.quick], ids=lambda proof: proof.name)
def test_a_quick_proof_holds_and_finds_the_broken_unit(proof, tmp_path):
    if proof.method == "induction" and solver_missing():
        # What k-induction proves ABC proves as well, by an invariant of its own; that takes longer.
        proof = dataclasses.replace(proof, method="reach")
    row = outcome(proof, tmp_path)
    assert row["shown"], row


def test_every_rule_has_a_broken_unit():
    assert {proof.rule for proof in PROOFS} == {proof.rule for proof in PROOFS if proof.broken}


def test_a_claim_that_is_wrong_is_refuted_and_an_assumption_that_leaves_nothing_is_seen(tmp_path):
    claim = Claim()
    value = claim.past(claim.free(4, "value"), "value")  # ABC refuses what has no register
    claim.assume("small", value < 3)
    claim.check("smaller", value < 2)
    claim.cover("large", value > 5)
    circuit = Circuit(claim, tmp_path / "claim")
    assert circuit.prove("bounded", 3).detail == "smaller"
    assert circuit.uncovered(3) == ["large"]


def test_a_mutant_changes_one_place_only():
    with pytest.raises(ValueError, match="stands there 0 times"):
        mutant(ShortQueue, "nowhere", "there")
