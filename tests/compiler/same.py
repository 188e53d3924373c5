"""Runs a step on models of the engines and as a reference of tensors, and compares all memory."""

import numpy as np

from gradloom.compiler.commands.base import Rule
from gradloom.compiler.integers.descent import IntegerDescent, fraction_of
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import lower
from gradloom.program.descent import AdamW
from gradloom.program.progress import check_progress
from gradloom.rtl.formats.tiles.codes import coded
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.reference.tiles.program import TileMachine

CONFIG = DiffusionConfig()
#: LOAD far ahead and STORE far behind, and the other way.
ORDERS = (
    ("load", "product", "element", "norm", "update", "store"),
    ("store", "update", "norm", "element", "product", "load"),
)


def rules_of(exact, lr=1e-2):
    return {name: Rule(AdamW(lr=lr), fraction_of(exact.matrix(name))) for name in exact.learners}


def compare(memory, tiles, values, name, bits=None):
    wanted = coded(values, bits or tiles.bits)
    made = tiles.unpack(memory.read(tiles.offset, tiles.size))
    np.testing.assert_array_equal(made.exponents, wanted.exponents.reshape(made.exponents.shape), err_msg=name)
    np.testing.assert_array_equal(made.codes, wanted.codes.reshape(made.codes.shape), err_msg=name)


def begin(memory, step, exact, rule):
    """Puts a program and what learns into memory; what learns is rounded to masters in ``exact``."""
    for offset, content in step.program.contents():
        memory.write(offset, content)
    for name, each in step.learners.items():
        matrix = rule.begun(name, exact.matrix(name))
        words = np.rint(matrix * 2.0**each.rule.fraction).astype(np.int64)
        memory.write(each.words.words, each.words.pack(words))
        memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
        memory.write(each.codes.offset, each.codes.pack(coded(matrix, each.codes.bits)))
        exact.renewed(name, matrix)
    exact.take_counts()


def steps(
    network, learners=(), *, samples, loss=None, count=1, order=None, whole=True, machine=None, config=CONFIG, scale=1.0
):
    """Steps both ways; returns the program, the machine and the losses.

    ``machine``: simulated RTL of ``config``, of one step whose counters and cycles are compared, too.
    """
    exact = IntegerNetwork(network, learners)
    rules = rules_of(exact)
    step = lower(config, network, samples=samples, loss=loss, rules=rules, whole=whole)
    check_progress(step.program.instructions, config.machine.engines, depth=16)
    memory = machine or TileMachine(config, step.program.length, order)
    rule, losses = IntegerDescent(rules), []
    begin(memory, step, exact, rule)
    places = {value.name: value for value in step.values}
    for number in range(count):
        random = np.random.default_rng(number)
        inputs = {name: random.standard_normal((samples, *t.shape)) * scale for name, t in exact.inputs.items()}
        t = exact.port.tensor
        target = random.standard_normal((samples * t.rows, t.features))
        if loss in ("classes", "weighted"):
            target = np.eye(t.features)[random.integers(0, t.features, samples * t.rows)]
        if loss == "weighted":
            # As smoothed, and then weighted.
            target = (0.9 * target + 0.1 / t.features) * random.uniform(0.1, 4, t.features)
        if loss == "labels":
            target = random.integers(0, 2, target.shape).astype(float)
        for name, written in step.inputs.items():
            if name in inputs:
                x = inputs[name].reshape(-1, exact.inputs[name].features)
            else:
                x = target if name == "target" else np.outer(target.sum(1), np.ones(t.features))
            for tiles in written:
                memory.write(tiles.offset, tiles.pack(coded(x, tiles.bits)))
        ran = memory.run(step.written(number + 1))
        found = exact.forward(inputs)
        for name, held in found.items():
            for bits, tiles in places[name].places.items() if name in places and whole else ():
                compare(memory, tiles, held.exact, f"step {number}: {name}", bits)
        for name, tiles in step.shown.items():
            if name in found:
                compare(memory, tiles, found[name].exact, name)
                assert found[name].wide is not None
        if loss is None:
            continue
        value, last = exact.falling(loss, found[t.name], target)
        losses.append(value)
        gradients = exact.backward(found, last)
        for name, each in step.learners.items():
            compare(memory, each.gradient, gradients[name], f"step {number}: gradient of {name}")
        for name, matrix in rule({name: exact.matrix(name) for name in learners}, gradients).items():
            each = step.learners[name]
            words = each.words.unpack(memory.read(each.words.words, each.words.size)) * 2.0**-each.rule.fraction
            np.testing.assert_array_equal(words.reshape(matrix.shape), matrix, err_msg=name)
            compare(memory, each.codes, matrix, f"codes of {name}")
            exact.renewed(name, matrix)
    counts = exact.take_counts()
    if isinstance(memory, TileMachine):
        assert memory.underflowed == counts.zeroed and memory.saturated == counts.clipped + rule.clipped
        assert memory.models["product"].lost == counts.lost and count * step.stored == counts.stored
    else:
        ran.check(saturated=counts.clipped + rule.clipped, underflowed=counts.zeroed)
    return step, memory, losses
