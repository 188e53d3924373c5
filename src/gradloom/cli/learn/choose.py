"""The verb choose: a fine-tune by what it costs and by what it learns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.output import some
from gradloom.systems.asked import asked_for
from gradloom.systems.request import answered

from ..app import app
from ..faces import face, more
from ..output import print_json, progress_bar, say, table

__all__: list[str] = []


@app.command(
    "choose",
    epilog="Example: gradloom choose smollm2-135m --data mine.txt --time 10s --memory 300MB\n\n"
    "Example: gradloom choose smollm2-135m --data mine.txt --update 300kB --json\n\n"
    f"Example: gradloom choose lenet5 --data mine.npz --time 10ms\n\n{more('choose')}",
)
@face("choose")
def _choose_verb(model_name: str, *, board: str | None, as_json: bool, **options: Any) -> None:
    """Choose what learns by what it costs and by what your data say.

    It chooses layers, targets, rank, format and windows, or rank and cache for images.

    Costs are forecasts of the board's programs; what is learnt comes from short runs on your data.
    """
    asked = asked_for(model_name, board=board, verb="choose", given=options)
    with progress_bar(as_json, asked.why) as progress:
        result = answered("choose", asked, progress=progress, **options)
    if as_json:
        print_json(result)
    else:
        _say_choice(result, Path(options["output"] or "choose"))


def _say_choice(result: dict[str, Any], output: Path) -> None:
    rows = [
        _of_epochs(row)
        if "short_epochs" in row
        else {
            "fine-tune": f"{row['learns']}, {row['store']}, {row['seq']} x {row['accumulate']}",
            "steps": row["steps"],
            "seconds": round(row["seconds"], 2),
            "memory MB": round(row["memory_bytes"] / 1e6, 1),
            "beside frozen MB": round(row["beside_frozen_bytes"] / 1e6, 1),
            "update kB": round(row["update_bytes"] / 1e3, 1),
            "after": row["short_steps"],
            "held-out loss": _loss(row),
        }
        for row in result["finalists"]
    ]
    table(
        rows,
        tuple(rows[0]),
        False,
        title=f"{result['model']} on {result['board']}: {result['within']} of "
        f"{some(result['candidates'], 'candidate')} are "
        f"within the budgets; held-out loss before: {result['held_out_before']:.4f}",
    )
    first, *others = result["finalists"]
    say(_why(first, others, result["held_out_before"]))
    say(f"all costs and a picture are in {output}")
    print(result["command"])


def _of_epochs(row: Mapping[str, Any]) -> dict[str, object]:
    return {
        "fine-tune": row["learns"],
        "epochs": row["epochs"],
        "ms": round(1e3 * row["seconds"], 2),
        "memory MB": round(row["memory_bytes"] / 1e6, 2),
        "update kB": round(row["update_bytes"] / 1e3, 1),
        "after": row["short_epochs"],
        "held-out loss": _loss(row),
    }


def _loss(row: Mapping[str, Any]) -> float | str:
    return "diverged" if row["held_out"] is None else round(row["held_out"], 4)


def _why(first: dict[str, Any], others: Sequence[dict[str, Any]], before: float) -> str:
    """Why the first, and what the next best costs."""
    if first["held_out"] is None or first["held_out"] >= before:
        return "no finalist learnt anything of the held-out part; the first fell least behind"
    if "short_epochs" in first:
        unit = f"a sample in {some(first['short_epochs'], 'epoch')}"
    else:
        unit = f"nats a token in {some(first['short_steps'], 'step')}"
    why = f"the cheapest of those that learn best: held-out loss falls by {before - first['held_out']:.4f} {unit}"
    if not others:
        return why + "; no other finalist"
    other = others[0]
    fall = "it diverged" if other["held_out"] is None else f"{before - other['held_out']:.4f}"
    times = {
        what: f"{other[name] / first[name]:.2f} times the {what}"
        for what, name in (("time", "seconds"), ("memory", "memory_bytes"), ("update", "update_bytes"))
    }
    return (
        f"{why}. The next best, {other['learns']}: {fall}, for {times['time']}, {times['memory']} and {times['update']}"
    )
