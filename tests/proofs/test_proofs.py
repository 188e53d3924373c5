"""The quick proofs, each with a unit that is broken on purpose; ``make proofs`` makes all."""

import dataclasses
import re
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from amaranth.lib import data

import gradloom.rtl
from gradloom.rtl.engines.vector.command import take_command
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.stream.queue import ShortQueue
from gradloom.sim.bench.mutants import holder, mutant, mutants
from gradloom.sim.proofs.claim import Claim
from gradloom.sim.proofs.proof import outcome
from gradloom.sim.proofs.prover import Circuit, check_claim, solver_missing

from ..engines.cell import claims as cell_claims
from .catalog import PROOFS
from .entries import FREE
from .pairs import chain


@pytest.mark.parametrize("proof", [proof for proof in PROOFS if proof.quick], ids=lambda proof: proof.name)
def test_a_quick_proof_holds_and_finds_the_broken_unit(proof, tmp_path):
    if proof.method == "induction" and solver_missing():
        # What k-induction proves ABC proves as well, by an invariant of its own; that takes longer.
        proof = dataclasses.replace(proof, method="reach")
    row = outcome(proof, tmp_path)
    assert row["shown"], row


@pytest.mark.parametrize("proof", [proof for proof in PROOFS if not proof.quick], ids=lambda proof: proof.name)
def test_the_claim_of_every_other_proof_can_be_made_and_read(proof, tmp_path):
    check_claim(proof.make(), tmp_path)


def test_a_claim_that_cannot_be_read_is_seen(tmp_path):
    claim = Claim()
    claim.check("small", claim.free(4, "value") < 3)
    claim.rtlil = lambda: "module \\claim\n  cell \\nowhere \\one\n  end\nend\n"
    with pytest.raises(RuntimeError, match="Yosys: .*nowhere"):
        check_claim(claim, tmp_path)


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


def test_a_field_may_be_called_as_what_yosys_reads(tmp_path):
    claim = Claim()
    # Amaranth names a signal without a name of its own.
    (value,) = [Signal(data.StructLayout({"cell": 2, "wire": 2}))]
    claim.m.d.sync += value.eq(claim.free(4, "value"))
    claim.check("small", value.cell < 3)
    assert Circuit(claim, tmp_path / "claim").refute(4).detail == "small"


@pytest.mark.parametrize("family", Pair.APART)
def test_a_chain_of_pairs_with_a_row_more_spills(family, tmp_path):
    claim = chain(pair=Pair(Pair.APART[family]), more=1)
    assert Circuit(claim, tmp_path / "claim", FREE).refute(6).detail in ("low_lane", "high_lane")


def test_a_slice_of_the_cell_engine_spills_one_beyond_its_bound(tmp_path):
    claim = cell_claims.chain(more=1)
    assert Circuit(claim, tmp_path / "claim", FREE).refute(14).detail in ("low_lane", "high_lane")


def test_every_mutant_of_a_unit_can_be_made_and_is_tried():
    """A proof finds it, or the bench of its engine has its name."""
    root, named = Path(gradloom.rtl.__file__).parent, set()
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name, (number, line) in mutants(text).items():
            lines = text.splitlines()
            compile("\n".join([*lines[:number], line, *lines[number + 1 :]]), path, "exec")
            named.add(f"{'.'.join(path.relative_to(root).with_suffix('').parts)}: {name}")
    proven = {change for proof in PROOFS for change in proof.broken}
    assert proven <= named
    tests = Path(__file__).parents[1]
    for change in named - proven:
        place, name = re.fullmatch(r"(engines(?:\.\w+)?|units|systolic)\.\w+: (.*)", change).groups()
        # The array of pairs has its bench in that of its unit.
        folder = tests / ("units" if place == "systolic" else place.replace(".", "/"))
        benches = folder.glob("test_*.py")
        assert any(f'"{name}"' in bench.read_text(encoding="utf-8") for bench in benches), change


def test_a_mutant_is_the_line_of_its_name():
    text = "a = [\n    # mutant one: 2,\n    # mutant none:\n    1,\n]\n"
    assert mutants(text) == {"one": (3, "    2,"), "none": (3, "")}
    with pytest.raises(ValueError, match="mutant one: changes nothing"):
        mutants("# mutant one: a\na")
    with pytest.raises(ValueError, match="mutant one: stands there twice"):
        mutants("# mutant one: a\n# mutant one: b\nc")
    with pytest.raises(ValueError, match="has no mutant nowhere, but takes-over-a-word"):
        mutant(ShortQueue, "nowhere")


def test_a_mutant_may_stand_in_a_part_of_its_unit():
    broken = mutant(VectorEngine, "rows-of-one-beat")
    assert holder(VectorEngine, "rows-of-one-beat").take_command is take_command
    used = broken.elaborate.__globals__
    assert used["take_command"].__code__ != take_command.__code__
    assert used["take_beat"] is VectorEngine.elaborate.__globals__["take_beat"]
