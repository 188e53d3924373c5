"""CPU time of tests, theirs and that of all they start: other work on the machine does not change it much.

A test that takes more than its bound in budgets.toml fails. Simulations are built by whichever test is the first to
need them, so their builds have a bound of their own; so have fixtures that several tests share.
"""

import os
import tomllib
from collections import Counter

import pytest

__all__ = ["BUILDS", "Budgets", "Clock", "slowest", "spent"]

#: What builds of simulations are counted as.
BUILDS = "builds"
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def _read(path):
    """A small file of the system; None where its process or thread has just ended. It is read for each test."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, 1 << 16)
        finally:
            os.close(file)
    except OSError:
        return None


def _running(process):
    """Seconds of a process that runs, of those that it waited for and of those that it runs."""
    found = _read(f"/proc/{process}/stat")
    if found is None:
        return 0.0  # who waits for it counts it
    # The name in parentheses may have spaces.
    return sum(map(int, found.rpartition(b")")[2].split()[11:15])) / _TICKS + _started(process)


def _started(process):
    """Seconds of what a process has started and what still runs; none where the system does not tell."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return 0.0
    found = (_read(f"/proc/{process}/task/{each}/children") or b"" for each in threads)
    return sum(_running(int(each)) for children in found for each in children.split())


def spent():
    """CPU seconds of this process and of all that it started, whether they run or have ended."""
    return sum(os.times()[:4]) + _started(os.getpid())


class Budgets:
    """Bounds of CPU seconds: ``most`` of a test or a shared fixture, ``builds``, and ``tests`` that may take longer.

    Times differ between machines, and with what else runs: a test fails at more than ``margin`` times its bound.
    """

    def __init__(self, text):
        found = tomllib.loads(text)
        self.most, self.builds, self.margin = found["most"], found["builds"], found["margin"]
        self.tests = found["tests"]

    def bound(self, name):
        """Seconds of a test by its id, with or without its parameters, of a fixture, or of :data:`BUILDS`."""
        if name == BUILDS:
            return self.builds
        return self.tests.get(name, self.tests.get(name.partition("[")[0], self.most))

    def beyond(self, seconds):
        """A line for each name that takes too long; ``seconds`` by name."""
        return [
            f"{name}: {taken:.1f} s of CPU time, {self.margin} x {self.bound(name)} s are allowed; make it cheaper, "
            "leave it to GRADLOOM_DEEP=1, or name its bound in tests/budgets.toml"
            for name, taken in seconds.items()
            if taken > self.margin * self.bound(name)
        ]


class Clock:
    """A pytest plug-in: the report of a teardown has ``cpu``, seconds of the test, of fixtures and of builds by name.

    ``budgets``: what is beyond them fails; None fails nothing.
    """

    def __init__(self, budgets=None):
        self._budgets = budgets
        self._seconds = Counter()
        self._names = [""]
        self._last = 0.0

    def lap(self):
        """Counts the time since the last call as that of what runs now."""
        now = spent()
        self._seconds[self._names[-1]] += max(now - self._last, 0.0)
        self._last = now

    def counted(self, name, function):
        """``function``, whose time counts as that of ``name``."""

        def call(*arguments, **named):
            self.lap()
            self._names.append(name)
            try:
                return function(*arguments, **named)
            finally:
                self.lap()
                self._names.pop()

        return call

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self._seconds.clear()
        self._names = [item.nodeid]
        self._last = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef):
        if fixturedef.scope == "function":
            return (yield)
        self.lap()
        self._names.append(f"{fixturedef.baseid}::{fixturedef.argname}")
        try:
            return (yield)
        finally:
            self.lap()
            self._names.pop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if call.when == "teardown":
            self.lap()
            report.cpu = {name: round(seconds, 2) for name, seconds in self._seconds.items()}
            beyond = self._budgets.beyond(report.cpu) if self._budgets is not None else []
            if beyond and report.passed:
                report.outcome, report.longrepr = "failed", "\n".join(beyond)
        return report


def slowest(reports, count):
    """Lines: the ``count`` largest times, what each folder takes, and the sum. ``reports`` have ``cpu`` by name."""
    whole, folders = Counter(), Counter()
    for report in reports:
        for name, seconds in report.cpu.items():
            whole[f"{name} before {report.nodeid}" if name != report.nodeid else name] += seconds
            folders["builds" if name == BUILDS else "/".join(report.nodeid.split("::")[0].split("/")[:2])] += seconds
    yield f"slowest {min(count, len(whole))} by CPU seconds"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in whole.most_common(count))
    yield "CPU seconds by folder"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in folders.most_common())
    yield f"{folders.total():8.1f} in all"
