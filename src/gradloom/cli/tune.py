"""The verb finetune."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.preset import KNOWN, PRESETS, Preset
from gradloom.systems.asked import asked_for
from gradloom.systems.request import tuned
from gradloom.words import some

from .app import app
from .arguments import Asked, Board, Json
from .options import parameters
from .output import ONE_LOGIT, counted, print_json, progress_bar, say, say_card

__all__ = ["take_plugins"]


def _finetune_verb(preset: str, *, board: str | None, output: Path, as_json: bool, **options: Any) -> None:
    """Fine-tune adapters on the generated hardware, or in float.

    The hardware is simulated, or is its reference.

    Exit code 4: the fine-tune diverged; its results are saved, and metrics.json says why.
    """
    asked = asked_for(preset, board=board, method=options.get("method"))
    if asked.why is not None and not as_json:
        say(asked.why)
    with progress_bar(as_json) as progress:
        metrics = tuned(asked, output=output, progress=progress, **options)
    if as_json:
        print_json(metrics)
    else:
        _say_tuned(metrics, output)
    if metrics.get("diverged"):
        smaller = f"--lr than {metrics['lr']:g}"
        if metrics.get("momentum"):
            smaller += f", or --momentum than {metrics['momentum']:g}"
        print(
            f"gradloom: the fine-tune diverged: {'; '.join(metrics['diverged'])}; the results are in {output}; try a "
            f"smaller {smaller}",
            file=sys.stderr,
        )
        raise typer.Exit(4)


def take_plugins(arguments: Sequence[str]) -> None:
    """Gives the verb ``finetune`` the options of plug-ins' presets.

    They are those that ``arguments`` name, or all for its help.

    Others are not imported.
    """
    helps = "--help" in arguments
    named = {name: KNOWN[name] for name in KNOWN if name not in _OWN and (helps or name in arguments)}
    _as_command(_finetune_verb, {**_OWN, **named})


#: The house's own presets.
_OWN = PRESETS


def _as_command(function: Callable[..., None], presets: Mapping[str, Preset] = _OWN) -> Callable[..., None]:
    """The verb with the options of all kinds of workloads of ``presets``."""
    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    folder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")]
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("preset", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Asked),
            keyword("board", default=None, annotation=Board),
            keyword("output", default=Path("finetune"), annotation=folder),
            *parameters(presets),
            keyword("as_json", default=False, annotation=Json),
        ]
    )
    return function


app.command(
    "finetune",
    epilog="Example: gradloom finetune instantft-kv260 --epochs 2 --limit 200 -o run\n\n"
    "Example: gradloom finetune mine.onnx --board kv260 --data mine.npz\n\n"
    "Example: gradloom finetune instantft-kv260 --model mine.onnx --data mine.npz --angle 60\n\n"
    "Example: gradloom finetune edge-qlora-genesys2 --text mine.txt --steps 20 -o run",
)(_as_command(_finetune_verb))


def _say_tuned(metrics: dict[str, Any], output: Path) -> None:
    """Prints the results of a fine-tune, or the contents of its card."""
    if "card_bytes" in metrics:
        what = f"{metrics['model']}, {some(metrics['steps'], 'step')} of {some(metrics['tokens'], 'token')}"
        say_card(metrics["sections"], output / "card.img", what, metrics["card_bytes"])
        say(
            f"the board needs {metrics['memory_bytes']:,} bytes of memory. Offsets and fraction bits are in "
            f"{output / 'job.json'}"
        )
        return
    if metrics.get("one_logit"):
        say(ONE_LOGIT)
    if "accuracy_before" in metrics:
        say(
            f"accuracy {100 * metrics['accuracy_before']:.1f} % before, "
            f"[bold]{100 * metrics['accuracy_after']:.1f} %[/bold] after; results are in {output}"
        )
    else:
        after = "not finite" if metrics["loss_after"] is None else f"{metrics['loss_after']:.4f}"
        say(
            f"loss {metrics['loss_before']:.4f} before, [bold]{after}[/bold] after "
            f"{some(metrics['steps'], 'step')}; results "
            f"are in {output}"
        )
    if metrics.get("tokens_left_out"):
        say(
            f"windows of {some(metrics['seq'], 'token')}: {metrics['windows']:,}; the last "
            f"{metrics['tokens_left_out']:,} of "
            f"the text's {some(metrics['tokens'], 'token')} are left out"
        )
    clipped = metrics.get("saturated") or (metrics.get("health") or {}).get("saturated")
    if clipped:
        say(f"{some(clipped, 'word')} clipped")
    if metrics["cycles"]:
        cycles, mhz = metrics["cycles"]["total"], metrics["clock_mhz"]
        said = counted(cycles, metrics["forecast"]["total"])
        say(f"{said}; {cycles / (1e3 * mhz):.2f} ms at {mhz} MHz")
