"""What an interrupted choice has found so far, in the output folder."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradloom.json_file import json_text
from gradloom.output import grouped, marked, some, staged_file
from gradloom.systems.results import Chosen

from .points import Point

__all__ = ["FILE", "ChoiceState"]

#: In the output folder, until the choice is complete.
FILE = "unfinished.json"


class ChoiceState:
    """Costs of small programs and losses of finalists that are known.

    Parameters
    ----------
    folder : Path
    request : mapping
        Plain data that the results depend on; what another request left behind is refused.
    budget : mapping
        Plain data that losses depend on, as how long finalists learn does, and costs do not: of another budget, as of
        one that was refused, costs are taken, and losses are not.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any], budget: Mapping[str, Any]) -> None:
        self.path = folder / FILE
        self.request, self.budget = (json.loads(json.dumps(each)) for each in (request, budget))
        self.points: dict[Point, dict[str, int]] = {}
        self.losses: dict[str, float] = {}
        if not self.path.is_file():
            return
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            same, afforded = held["request"] == self.request, held["budget"] == self.budget
            points = {_point(point): figures for point, figures in held["points"]}
            losses = {key: math.inf if loss is None else float(loss) for key, loss in held["losses"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"output={folder}: {FILE} cannot be read ({error}); remove it, or give another -o"
            ) from None
        if not same:
            raise ValueError(
                f"output={folder}: holds the unfinished choice of another request; give another -o, or remove {FILE}"
            )
        self.points, self.losses = points, losses if afforded else {}

    def kept(self) -> str:
        """What the folder has, in words."""
        return f"{self.path} has {some(len(self.points) + len(self.losses), 'figure')}" if self.path.is_file() else ""

    def keep_points(self, points: Mapping[Point, Mapping[str, int]]) -> None:
        """Notes the costs of small programs."""
        self.points |= {point: dict(figures) for point, figures in points.items()}
        self._write()

    def keep_loss(self, key: str, loss: float) -> None:
        """Notes the held-out loss of a finalist."""
        self.losses[key] = loss
        self._write()

    def complete(self, result: Chosen) -> None:
        """Writes a choice and its picture, and removes what is unfinished."""
        from .picture import plot_choice

        with grouped(self.path.parent, verb="choose", last="choose.json") as stage:
            plot_choice(stage / "pareto.png", result)
            (stage / "choose.json").write_text(json_text(result), encoding="utf-8")
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        held = {
            "request": self.request,
            "budget": self.budget,
            "points": [[asdict(point), figures] for point, figures in self.points.items()],
            "losses": {key: loss if math.isfinite(loss) else None for key, loss in self.losses.items()},
        }
        marked(self.path.parent, verb="choose")
        with staged_file(self.path) as file:
            file.write(json.dumps(held).encode())


def _point(held: Mapping[str, Any]) -> Point:
    return Point(**{**held, "targets": tuple(held["targets"])})
