"""The verb choose: a fine-tune by what it costs and by what it learns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.output import claimed
from gradloom.words import some

from .app import app
from .arguments import Json
from .output import print_json, progress_bar, say, table

__all__ = ["choose"]


def choose(
    model: str,
    *,
    board: str | None = None,
    text: Path | str | None = None,
    data: Path | str | None = None,
    time: str | None = None,
    memory: str | None = None,
    update: str | None = None,
    energy: str | None = None,
    steps: int | None = None,
    seq: Sequence[int] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    output: Path | str = "choose",
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Chooses what learns, within budgets of time, memory and update.

    A candidate on text has layers, targets, rank, stored format, windows and accumulation, and costs of all candidates
    are composed of forecasts of small programs. One on images has a rank, a forward cache and epochs, and costs are
    forecasts of whole programs. What at most five of them learn comes from short runs in floating point on the user's
    own data, of which a fifth is held out.

    Parameters
    ----------
    model : str
        With ``text``: smollm2-135m, a file or a folder, with weights. With ``data``: lenet5, or an .onnx file.
    board : str, optional
        Whose preset runs it; default: genesys2 for text, kv260 for images.
    text, data : path
        One of both: text, or .npz with uint8 images ``x_train``, ``x_test`` and labels ``y_train``, ``y_test``; images
        to judge by are not looked at.
    time, memory, update : str, optional
        Budgets with their units: of the whole fine-tune, of the board's memory, of the adapter as it is shipped.
    energy : str, optional
        Always refused: no power of these designs has been measured.
    steps : int, optional
        Updates from one of the longest windows each; others get as many as take the same number of tokens. Default:
        three times through the text, at most 100.
    seq : sequence of int, optional
        Tokens of a window to choose from; default 64 and 32. ``steps``, ``seq`` and ``jobs`` are for text.
    seed : int
        Of the adapters.
    jobs : int, optional
        Processes; default: as many as there are cores.
    output : path
        Folder of ``choose.json`` and ``pareto.png``; what an interrupted choice left there is gone on from.
    progress : callable, optional
        ``progress(done, total, text)``; a ``total`` of 0 is not known.

    Returns
    -------
    dict
        ``command``, ``finalists`` (the chosen one first; ``held_out``: loss after ``short_steps``, nats a token, or
        after ``short_epochs``, nats an image),
        ``held_out_before``, and ``offers``: what each candidate costs.

    Raises
    ------
    ValueError
        The request: field, value, bound; or a budget that no candidate meets, with the nearest that does.
    """
    if energy is not None:
        raise ValueError(
            f"energy={energy}: cannot be a budget, no power of these designs has been measured; give --time instead"
        )
    if (text is None) == (data is None):
        raise ValueError("text, data: one of both must be given, text for a language model, data for images")
    if data is not None:
        for name, value in (("steps", steps), ("seq", seq), ("jobs", jobs)):
            if value is not None:
                raise ValueError(f"{name}={value}: must be left out with data, it is for text")
    with claimed(output, verb="choose"):
        if data is not None:
            from gradloom.choosing.images import choose_images

            return choose_images(
                model,
                board=board or "kv260",
                data=data,
                time=time,
                memory=memory,
                update=update,
                seed=seed,
                output=output,
                progress=progress,
            )
        assert text is not None
        from gradloom.choosing.driver import choose as run
        from gradloom.sweeping.run import cores

        return run(
            model,
            board=board or "genesys2",
            text=text,
            time=time,
            memory=memory,
            update=update,
            steps=steps,
            seq=seq,
            seed=seed,
            jobs=jobs or cores(),
            output=output,
            progress=progress,
        )


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"seq={text}: must be integers between commas") from None


@app.command(
    "choose",
    epilog="Example: gradloom choose smollm2-135m --text mine.txt --time 10s --memory 300MB\n\n"
    "Example: gradloom choose smollm2-135m --text mine.txt --update 300kB --json\n\n"
    "Example: gradloom choose lenet5 --data mine.npz --time 10ms",
)
def _choose_verb(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="smollm2-135m, lenet5, or a file or folder with weights.")
    ],
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text to learn from; a fifth of it is held out.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="D.npz", help="Images in place of a text, as for gradloom finetune.")
    ] = None,
    board: Annotated[
        str | None, typer.Option(help="A board: see gradloom boards.", show_default="genesys2; kv260 for images")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="10s", help="Most time of the whole fine-tune; us, ms, s, min or h.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="300MB", help="Most memory, the frozen model included; kB, MB, GB, MiB.")
    ] = None,
    update: Annotated[
        str | None, typer.Option(metavar="300kB", help="Largest adapter to ship, float32; kB, MB, GB.")
    ] = None,
    energy: Annotated[
        str | None, typer.Option(metavar="50J", help="Refused: no power of these designs has been measured.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates from a longest window each. Default: 3 times the text, at most 100.")
    ] = None,
    seq: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Tokens of a window to choose from.", show_default="64,32")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the adapters.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: as many as there are cores.")] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder; an unfinished choice there goes on.")
    ] = Path("choose"),
    as_json: Json = False,
) -> None:
    """Choose what learns by what it costs and by what your data say.

    It chooses layers, targets, rank, format and windows, or rank and cache for images.

    Costs are forecasts of the board's programs; what is learnt comes from short runs on your data.
    """
    with progress_bar(as_json) as progress:
        result = choose(
            model,
            board=board,
            text=text,
            data=data,
            time=time,
            memory=memory,
            update=update,
            energy=energy,
            steps=steps,
            seq=_numbers(seq),
            seed=seed,
            jobs=jobs,
            output=output,
            progress=progress,
        )
    if as_json:
        print_json(result)
    else:
        _say_choice(result, output)


def _say_choice(result: dict[str, Any], output: Path) -> None:
    rows = [
        _of_images(row)
        if "images" in result
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


def _of_images(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "fine-tune": row["learns"],
        "epochs": row["epochs"],
        "ms": round(1e3 * row["seconds"], 2),
        "memory MB": round(row["memory_bytes"] / 1e6, 2),
        "update kB": round(row["update_bytes"] / 1e3, 1),
        "after": row["short_epochs"],
        "held-out loss": _loss(row),
    }


def _loss(row: dict[str, Any]) -> float | str:
    return "diverged" if row["held_out"] is None else round(row["held_out"], 4)


def _why(first: dict[str, Any], others: Sequence[dict[str, Any]], before: float) -> str:
    """Why the first, and what the next best costs."""
    if first["held_out"] is None or first["held_out"] >= before:
        return "no finalist learnt anything of the held-out part; the first fell least behind"
    if "short_epochs" in first:
        unit = f"nats an image in {some(first['short_epochs'], 'epoch')}"
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
