"""Small programs, of whose costs those of whole models are composed.

Layers are alike, and so are pieces of the head: a program of one layer more costs as much more, wherever that layer is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from gradloom.models.language import LanguageModel
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.workers import processes
from gradloom.sim.time.forecast import forecast, without_collections
from gradloom.systems.text.card.layout import lowered, planned_job
from gradloom.systems.text.operations.tensors import EDGE

from .candidates import Candidate

__all__ = ["PIECE", "SHORT", "Point", "measured", "reduced_tiles"]

#: Tiles of logits that a command of the head makes: its program repeats with each.
PIECE = 128
#: Tiles of the head of programs whose layers are looked at.
SHORT = 16


@dataclass(frozen=True, kw_only=True)
class Point:
    """A small program.

    It has ``trunk`` layers without adapters, ``learning`` ones with them, and ``tiles`` of 64 logits.

    ``updates``: whether adapters change behind it; ``timed``: whether cycles are wanted, which take most of the work.
    """

    targets: tuple[str, ...]
    rank: int
    seq: int
    method: str = "lora"
    trunk: int = 0
    learning: int = 1
    tiles: int = PIECE
    store: str = "words"
    texts: int = 1
    updates: bool = True
    timed: bool = True


def reduced_tiles(tiles: int) -> int:
    """Tiles of the shortest head that ends like one of ``tiles``."""
    return tiles if tiles <= 2 * PIECE else PIECE + tiles % PIECE


@without_collections()
def measure(model: LanguageModel, config: LanguageConfig, point: Point) -> dict[str, int]:
    """Cycles, commands, bytes of shared places and table of a program.

    Cycles are 0 where they are not wanted.
    """
    small = replace(model, layers=point.trunk + point.learning, vocab=point.tiles * EDGE)
    each = Candidate(method=point.method, targets=point.targets, rank=point.rank, from_layer=point.trunk, seq=point.seq)
    shape = each.shape(small, store=point.store, accumulate=point.texts)
    found = {"step_table": 0}
    if shape.on_card:
        job = planned_job(shape, config)
        program, shared = job.programs[0].program, job.shared
        found["step_table"] = len(job.table)
    else:
        made = lowered(shape, config, updates=point.updates)
        program, shared = made.program, made.layout.shared_bytes
    return found | {
        "cycles": forecast(program, config=config).total if point.timed else 0,
        "commands": len(program.instructions),
        "step_tensors": shared,
    }


def measured(
    model: LanguageModel,
    config: LanguageConfig,
    points: Iterable[Point],
    *,
    jobs: int,
    progress: Callable[[int, int, str], None] | None = None,
    known: Mapping[Point, Mapping[str, int]] = MappingProxyType({}),
    keep: Callable[[Mapping[Point, Mapping[str, int]]], None] | None = None,
) -> dict[Point, Mapping[str, int]]:
    """Figures of all points, on ``jobs`` processes.

    Those that are ``known`` are not measured; ``keep`` gets those there are after each.
    """
    found = {point: figures for point in set(points) if (figures := known.get(point))}
    # The longest first, so that no process waits for another's last.
    left = sorted(set(points) - set(found), key=lambda point: (-point.timed, -point.tiles, -point.trunk, repr(point)))
    total = len(found) + len(left)

    def add(point: Point, figures: Mapping[str, int]) -> None:
        found[point] = figures
        if keep is not None:
            keep(found)
        if progress is not None:
            progress(len(found), total, "costs of small programs")

    if progress is not None and left:
        progress(len(found), total, "costs of small programs")
    if jobs == 1 or len(left) < 2:
        for point in left:
            add(point, measure(model, config, point))
        return found
    with processes(min(jobs, len(left))) as run:
        for point, figures in run(partial(measure, model, config), left):
            add(point, figures)
    return found
