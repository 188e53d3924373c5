"""Sweeps: measures many points and keeps each result.

A *point* is a dict of plain values, a *row* is a point and what was measured of it. Rows are kept in one CSV file,
which is replaced as a whole after each point: whatever ends a sweep, the file is complete up to a row.
"""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradloom.output import marked
from gradloom.sim.run.workers import processes

__all__ = ["SweepTable", "cores", "pareto", "sweep"]

Measure = Callable[[dict[str, Any]], Mapping[str, Any]]


class SweepTable:
    """Rows in a CSV file ``path``.

    Columns are ``keys``, which name a point, then ``figures``.

    A file with other columns is refused with :class:`ValueError`; a last row that was cut short does not count.
    """

    def __init__(self, path: Path, keys: Sequence[str], figures: Sequence[str]) -> None:
        self.path, self.keys, self.figures = Path(path), tuple(keys), tuple(figures)
        self.rows: list[dict[str, str]] = []
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != self.columns:
                raise ValueError(
                    f"{self.path}: is no table of this sweep: its columns are "
                    f"{', '.join(reader.fieldnames or ['none'])}; name another directory"
                )
            self.rows = [row for row in reader if None not in row.values() and None not in row]

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them, in order."""
        return self.keys + self.figures

    def has(self, point: dict[str, Any]) -> bool:
        """Whether the point was measured already."""
        return self.row(point) is not None

    def row(self, point: dict[str, Any]) -> dict[str, str] | None:
        """The measured figures of a point, as text; None if there are none."""
        wanted = tuple(_text(point[key]) for key in self.keys)
        return next((row for row in self.rows if tuple(row[key] for key in self.keys) == wanted), None)

    def add(self, row: dict[str, Any]) -> None:
        """Keeps a row: the file has it, or is as it was."""
        self.rows.append({name: _text(row.get(name)) for name in self.columns})
        marked(self.path.parent, verb="sweep")
        part = self.path.with_name(self.path.name + ".part")
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sweep(
    points: Sequence[dict[str, Any]],
    measure: Measure,
    table: SweepTable,
    *,
    jobs: int,
    scheduler: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Measures the points that ``table`` does not have.

    It keeps each as it comes.

    ``measure`` must be a function of a module. ``jobs``: processes here; ``scheduler``: address of a Dask scheduler
    whose workers do it instead, and must have this package.
    """
    left = [point for point in points if not table.has(point)]
    done = len(points) - len(left)
    if progress:
        progress(done, len(points), "points")
    if not left:
        return
    workers = _cluster(scheduler) if scheduler else processes(min(jobs, len(left)))
    with workers as measured:
        for point, figures in measured(measure, left):
            table.add({**point, **figures})
            done += 1
            if progress:
                progress(done, len(points), "points")


_Measured = Callable[[Measure, list[dict[str, Any]]], Iterator[tuple[dict[str, Any], Mapping[str, Any]]]]


@contextmanager
def _cluster(address: str) -> Iterator[_Measured]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError(
            f"scheduler={address}: needs the package distributed: make cluster in the clone, or pip install distributed"
        ) from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ValueError(f"scheduler={address}: no Dask scheduler answers there ({error})") from None

    def measured(measure: Measure, points: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        running = {
            future.key: (future, point) for point in points for future in [client.submit(measure, point, pure=False)]
        }
        for future in as_completed([each for each, _ in running.values()]):
            yield running[future.key][1], future.result()

    with client:
        yield measured


def pareto(pairs: Iterable[tuple[float, float]]) -> list[int]:
    """Indices of the pairs that no other pair dominates.

    A pair dominates if it is as good in both and better in one; less is better. By the first.
    """
    order = sorted(enumerate(pairs), key=lambda each: each[1])
    front: list[int] = []
    best = float("inf")
    for index, (_, second) in order:
        if second < best:
            front.append(index)
            best = second
    return front
