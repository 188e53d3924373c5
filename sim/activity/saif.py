"""Switching activity of a simulated design, and its SAIF file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

__all__ = ["Instance", "Net", "read_activity", "write_saif"]

_NET = re.compile(r"\s*\((\S+) \(T0 (\d+)\) \(T1 (\d+)\) \(TZ 0\) \(TX 0\) \(TB 0\) \(TC (\d+)\)\)")
_INSTANCE = re.compile(r"\s*\(INSTANCE (\S+)")
_BIT = re.compile(r"(.*?)(?:\\\[(\d+)\\\])?$")


@dataclass(frozen=True, slots=True)
class Net:
    """A bit of a signal.

    ``high``: half periods of the clock in which it was 1; ``toggles``: its transitions.
    """

    signal: str
    bit: int | None
    high: int
    toggles: int


@dataclass
class Instance:
    """A module's instance: the nets that it declares, and its submodules."""

    name: str
    nets: list[Net] = field(default_factory=list)
    parts: dict[str, "Instance"] = field(default_factory=dict)

    def find(self, *names: str) -> "Instance":
        """The instance below this one by the path of ``names``."""
        found = self
        for name in names:
            found = found.parts[name]
        return found

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Instance"]]:
        """Path and instance of this one and of all below it."""
        yield path, self
        for name, part in self.parts.items():
            yield from part.walk((*path, name))


def read_activity(folder: Path) -> Instance:
    """The bench in a :class:`~gradloom.sim.run.recording.Recording`.

    Transitions are those that happened: a bit that was 1 at first has not risen.
    """
    with (
        (folder / "activity").open(encoding="latin-1") as counts,
        (folder / "activity.start").open(encoding="latin-1") as start,
    ):
        bench = _read(counts)
        first = _read(start)
    _take_off(bench, first)
    return bench.find("device")


def _read(lines: Iterable[str]) -> Instance:
    root = Instance("")
    open_: list[Instance | None] = [root]
    for line in lines:
        if net := _NET.match(line):
            bit = _BIT.match(net[1])
            instance = open_[-2]
            assert bit is not None and instance is not None
            instance.nets.append(Net(bit[1], None if bit[2] is None else int(bit[2]), int(net[3]), int(net[4])))
        elif begun := _INSTANCE.match(line):
            instance = open_[-1]
            assert instance is not None
            open_.append(instance.parts.setdefault(begun[1], Instance(begun[1])))
        elif line.strip() == "(NET":
            open_.append(None)
        elif line.strip() == ")" and len(open_) > 1:
            open_.pop()
    return root.find("TOP")


def _take_off(bench: Instance, start: Instance) -> None:
    """Removes the transition of each bit that was 1 at the start."""
    bench.nets = [
        Net(net.signal, net.bit, net.high, net.toggles - first.toggles)
        for net, first in zip(bench.nets, start.nets, strict=True)
    ]
    for name, part in bench.parts.items():
        _take_off(part, start.parts[name])


def write_saif(
    file: BinaryIO, found: Instance, *, cycles: int, clock_mhz: float, design: tuple[str, str], path: Sequence[str]
) -> None:
    """Writes a SAIF 2.0 file in picoseconds.

    Parameters
    ----------
    file : binary file
    found : Instance
        The design.
    cycles, clock_mhz
        Recorded cycles, and the clock of the design.
    design : tuple of str
        Its name and :func:`~gradloom.rtl.emit.digest.design_digest`, for the header.
    path : sequence of str
        Instances from the outermost to the design's own, as the project has them.
    """
    half = 5e5 / clock_mhz
    whole = round(2 * cycles * half)
    file.write(
        b'(SAIFILE\n(SAIFVERSION "2.0")\n(DIRECTION "backward")\n'
        + f'(DESIGN "{design[0]} {design[1]}")\n(VENDOR "gradloom")\n(PROGRAM_NAME "gradloom energy")\n'.encode()
        + f"(DIVIDER / )\n(TIMESCALE 1 ps)\n(DURATION {whole})\n".encode()
    )
    for depth, instance in enumerate(path):
        file.write(b" " * depth + f"(INSTANCE {instance}\n".encode())
    _write(file, found, len(path), half, whole)
    for depth in reversed(range(len(path))):
        file.write(b" " * depth + b")\n")
    file.write(b")\n")


def _write(file: BinaryIO, instance: Instance, depth: int, half: float, whole: int) -> None:
    space = " " * depth
    if instance.nets:
        lines = [f"{space}(NET\n"]
        for net in instance.nets:
            high = min(round(net.high * half), whole)
            bit = "" if net.bit is None else f"\\[{net.bit}\\]"
            lines.append(
                f"{space} ({net.signal}{bit} (T0 {whole - high}) (T1 {high}) (TX 0) (TC {net.toggles}) (IG 0))\n"
            )
        file.write("".join([*lines, f"{space})\n"]).encode())
    for name, part in instance.parts.items():
        file.write(f"{space}(INSTANCE {name}\n".encode())
        _write(file, part, depth + 1, half, whole)
        file.write(f"{space})\n".encode())
