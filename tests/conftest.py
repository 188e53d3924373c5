"""What tests of several rooms share."""

import contextlib
import dataclasses
import gc
import importlib
import re
from collections import Counter
from pathlib import Path

import pytest
from cocotb_tools.runner import Runner

from gradloom.cli.main import main
from gradloom.cli.output import _Pulse
from gradloom.sim.bench import engine
from gradloom.sim.bench.pauses import pauses
from gradloom.sim.run import device
from gradloom.sim.run.builds import objects
from gradloom.sim.run.counted import MismatchError

from .cpu import BUILDS, Budgets, Clock, slowest
from .deep import DEEP
from .laws import verdicts

BUDGETS = Budgets(Path(__file__).with_name("budgets.toml").read_text(encoding="utf-8"))


def pytest_configure(config):
    """Counts CPU time. Bounds are those of what ``make test`` runs, without a record of lines that are reached."""
    free = DEEP or config.getoption("cov_source", None)
    clock = Clock(None if free else BUDGETS)
    config.pluginmanager.register(clock, "cpu-clock")
    # Files would come by their number of tests, those of one long test last.
    config.option.loadscopereorder = False
    if DEEP:
        # Amaranth's own engine is a witness of ours.
        engine.ENGINE = "pysim"
    # The cores run other tests: what a build takes in all is what counts.
    objects.PARTS = 1
    device._run_whole = clock.counted(BUILDS, device._run_whole)
    Runner.build = clock.counted(BUILDS, Runner.build)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with long tests come first: a process that takes the last file is not to take minutes for it."""
    longest = Counter()
    for name, seconds in BUDGETS.tests.items():
        longest[name.partition("::")[0]] += seconds
    items.sort(key=lambda item: -longest[item.nodeid.partition("::")[0]])


def pytest_collection_finish():
    """What is collected stays: the collector of garbage need not look at it again and again, nor at the end.

    Designs and models are many objects of which hardly any is garbage, so it looks at new ones seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def skipped(reasons):
    """Lines that count skipped tests by reason, the most frequent first; all that take minutes are one reason."""
    found = Counter(
        "takes minutes, make evidence runs it" if "GRADLOOM_DEEP" in each else re.sub(r"^Skipped: ", "", each)
        for each in reasons
    )
    return [f"skipped {count}: {reason}" for reason, count in found.most_common()]


def pytest_terminal_summary(terminalreporter, config):
    if config.option.durations:
        timed = [each for some in terminalreporter.stats.values() for each in some if hasattr(each, "cpu")]
        for line in slowest(timed, config.option.durations):
            terminalreporter.write_line(line)
    reports = terminalreporter.stats.get("skipped", [])
    for line in skipped([each.longrepr[2] if isinstance(each.longrepr, tuple) else "" for each in reports]):
        terminalreporter.write_line(line)


class Bench:
    """Plays words into streams and collects what comes out, with random stalls and long holds on every side."""

    @staticmethod
    def words(bits, width, count, is_signed=True):
        """The ``count`` elements packed in an integer, lowest first."""
        mask, sign = (1 << width) - 1, (1 << (width - 1)) if is_signed else 0
        return [((bits >> (n * width) & mask) ^ sign) - sign for n in range(count)]

    def __call__(self, dut, inputs, outputs, *, stall=0.0, hold=0, seed=0, watch=None, limit=200_000):
        """``inputs``: payloads by port; ``outputs``: how many words each gives; ``stall``: chance of an idle cycle;
        ``hold``: length of the long holds, as :func:`~gradloom.sim.bench.pauses.pauses` has them.

        Returns payload constants by output port, the cycle of each transfer by port, and, if ``watch`` names a
        signal, its sum over all cycles.
        """
        moves = pauses(outputs, inputs, stall=stall, hold=hold, seed=seed)
        total = 0
        got = {name: [] for name in outputs}
        times = {name: [] for name in (*inputs, *outputs)}
        done = []

        async def process(ctx):
            nonlocal total
            pending = {name: list(values) for name, values in inputs.items()}
            shown = dict.fromkeys(inputs, False)
            rest = 24
            # One trigger for all cycles: to make one takes as long as to run a small unit for a cycle.
            ticks = aiter(ctx.tick())
            for cycle in range(limit):
                for name, values in pending.items():
                    if next(moves[name]) and not shown[name] and values:
                        ctx.set(getattr(dut, name).payload, values[0])
                        ctx.set(getattr(dut, name).valid, 1)
                        shown[name] = True
                ready = {name: next(moves[name]) for name in outputs}
                for name, value in ready.items():
                    ctx.set(getattr(dut, name).ready, value)
                moved = [name for name in inputs if shown[name] and ctx.get(getattr(dut, name).ready)]
                for name in outputs:
                    if ready[name] and ctx.get(getattr(dut, name).valid):
                        got[name].append(ctx.get(getattr(dut, name).payload))
                        times[name].append(cycle)
                if watch is not None:
                    total += ctx.get(watch)
                await anext(ticks)
                for name in moved:
                    times[name].append(cycle)
                    pending[name].pop(0)
                    shown[name] = False
                    ctx.set(getattr(dut, name).valid, 0)
                # A little longer than needed: nothing may follow the last word.
                if all(len(got[name]) >= n for name, n in outputs.items()) and not any(pending.values()):
                    rest -= 1
                    if not rest:
                        done.append(True)
                        return

        engine.simulate(dut, process)
        assert done, f"{ {name: len(values) for name, values in got.items()} } of {outputs} after {limit} cycles"
        assert {name: len(values) for name, values in got.items()} == outputs
        return (got, times) if watch is None else (got, times, total)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture(scope="session")
def law_holds(tmp_path_factory):
    """``law_holds(law, module=..., where=..., top=..., **environment)``: a law of a file of cocotb tests holds."""
    ran = {}

    def holds(law, *, module, where, top, **environment):
        key = module, where, *environment.items()
        if key not in ran:
            ran[key] = verdicts(
                tmp_path_factory.mktemp("laws"), module=module, where=where, top=top, environment=environment
            )
        if why := ran[key].get(law, "it was not run"):
            pytest.fail(f"{law}: {why}", pytrace=False)

    return holds


@pytest.fixture
def run(capsys, monkeypatch):
    """Calls the command line: ``(exit code, output, error output)``.

    Signs of life are off: they depend on the machine's speed, and have tests of their own.
    """
    monkeypatch.setattr(_Pulse, "seconds", 3600.0)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


def _vectors(arrays, rng):
    """Random arrays within what a unit's description says."""
    sizes = {}
    found = {}
    for array in arrays:
        if array.optional:
            continue
        shape = [
            extent if isinstance(extent, int) else sizes.setdefault(extent, int(rng.integers(3, 9)))
            for extent in array.shape
        ]
        found[array.name] = rng.integers(array.low, array.high + 1, shape)
    return found


@pytest.fixture
def vectors():
    """Arrays that fit what a unit asks for: ``vectors(arrays, rng)``."""
    return _vectors


@pytest.fixture
def off_by_one():
    """A context in which a constant of a model of time, ``MODULE.NAME`` or ``MODULE.CLASS.NAME``, is one more."""

    @contextlib.contextmanager
    def off(where):
        module, *path, name = where.split(".")
        held = importlib.import_module(f"gradloom.sim.time.{module}")
        for each in path:
            held = getattr(held, each)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(held, name, getattr(held, name) + 1)
            yield

    return off


@pytest.fixture
def forecast_is_compared(off_by_one):
    """A run is no longer equal to its forecast where one of these constants is another."""

    def compared(ran, *constants, **health):
        ran.check(**health)
        for each in constants:
            with off_by_one(each), pytest.raises(MismatchError, match="RTL and forecast differ"):
                dataclasses.replace(ran).check(**health)

    return compared
