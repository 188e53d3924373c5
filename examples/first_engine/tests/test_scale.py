"""The Scale engine on a bench, proved, budgeted, and in two machines."""
import numpy as np
import pytest
from first_engine.commands import FACTOR
from first_engine.engine import ScaleEngine
from first_engine.parameters import ScaleConfig, ScaleLanguageConfig
from first_engine.reference import ScaleReference
from first_engine.spec import SPEC

import gradloom
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.bench.words import beats
from gradloom.sim.proofs.proof import outcome, stream_proof
from gradloom.sim.proofs.streams import stream_rules

CONFIG = ScaleConfig(kept=64)
HOLD = 100


def play(bench, config, most=1 << 23, **pressure):
    """Every command, beside the reference, on words of at most ``most``."""
    rows, groups, bits = 12, 3, config.data_bits
    channels, size, rng = groups * bits // 32, {"beats": rows * groups, "groups": groups}, np.random.default_rng(7)
    s = rng.integers(FACTOR.lo, FACTOR.hi + 1, channels)
    x, dy, more = rng.integers(-most, most, (3, rows, channels))
    reference = ScaleReference(s)
    y, dx = reference.forward(x), reference.backward(dy)
    reference.backward(more, add=True, dx=False)
    reference.update(20)
    apart = [FENCE] * bool(pressure)    # so that each command has holds of its own
    run = bench.check(
        BenchLoad("factors", beats(s, bits)), FENCE,
        BenchCommand(0, size), BenchLoad("x", beats(x, bits)), BenchStore("y", rows * groups), *apart,
        BenchCommand(1, size), BenchLoad("x", beats(more, bits)), *apart,
        BenchCommand(1, size | {"dx": 1}), BenchLoad("x", beats(dy, bits)), BenchStore("y", rows * groups), *apart,
        BenchCommand(1, size | {"add": 1}), BenchLoad("x", beats(more, bits)),
        BenchCommand(2, {"groups": groups, "shift": 20}), FENCE, BenchStore("factors", groups),
        words={"y": beats(np.concatenate([y, dx]), bits), "factors": beats(reference.factors, bits)}, **pressure)
    assert run.total("saturated") == reference.saturated and (reference.saturated > 0) == (most == 1 << 23)


@pytest.mark.parametrize("config", [CONFIG, ScaleLanguageConfig(kept=64)], ids=["128 bits", "256 bits"])
def test_rtl_is_the_reference(config):
    bench = EngineBench(SPEC, config)
    for most in (1 << 12, 1 << 23):
        for pressure in pressures(HOLD):
            play(bench, config, most, **pressure)


@pytest.mark.parametrize("opcode, operands, code", [
    (3, {}, Error.UNKNOWN_OPCODE), (0, {"beats": 4, "groups": 0}, Error.BAD_OPERAND),
    (0, {"beats": 0, "groups": 1}, Error.BAD_OPERAND), (1, {"beats": 65, "groups": 1}, Error.BAD_OPERAND),
    (2, {"groups": 5}, Error.BAD_OPERAND)])
def test_an_operand_is_refused(opcode, operands, code):
    EngineBench(SPEC, CONFIG).check(BenchCommand(opcode, operands), errors=[code])


@pytest.mark.parametrize("steps", [[BenchLoad("factors", [1] * 5)], [BenchStore("factors", 5)],
                                   [BenchCommand(2, {"groups": 4}), BenchLoad("factors", [1] * 4)]])
def test_factors_that_are_not_there_are_refused(steps):
    assert EngineBench(SPEC, CONFIG).run(*steps).refused


@pytest.mark.parametrize("name", ["full", "grows", "adds", "counts"])
def test_a_mutant_fails_the_bench(name):
    bench = EngineBench(SPEC, component=mutant(ScaleEngine, name)(SPEC, CONFIG))
    with pytest.raises(AssertionError):
        play(bench, CONFIG, hold=HOLD, patience=300)


def test_what_streams_offer_stays(tmp_path):
    row = outcome(stream_proof("scale", lambda: [ScaleEngine(SPEC, CONFIG)], broken={
        "lost": lambda: stream_rules(lambda: [mutant(ScaleEngine, "lost")(SPEC, CONFIG)])}), tmp_path)
    assert row["shown"], row


def test_levels_are_within_the_budget(tmp_path):
    gradloom.generate("scale", tmp_path / "scale")
    assert gradloom.report(tmp_path / "scale")["beyond"] == []


@pytest.mark.parametrize("preset, small", [
    ("scale-genesys2", {"kept": 64}),
    ("scale-language-genesys2", {"kept": 64, "edge": 16, "columns": 4, "outputs": 2, "dots": 1, "rank": 4, "tokens": 8,
                                 "features": 256, "head": 16})])
def test_a_fine_tune_in_rtl_lowers_the_loss_on_other_samples(preset, small, tmp_path):
    gradloom.generate(preset, tmp_path / "design", settings=small)
    tuned = gradloom.finetune(preset, design=tmp_path / "design", output=tmp_path / "run", steps=6)
    assert tuned["loss_after"] < tuned["loss_before"] / 10 and not tuned["diverged"]
    assert tuned["cycles"] == tuned["forecast"] and tuned["equal_to_reference"]["words"] > 0
    exact = gradloom.finetune(preset, design=tmp_path / "design", output=tmp_path / "float", steps=6, engine="float")
    np.testing.assert_allclose(tuned["loss"], exact["loss"], rtol=0.01)
