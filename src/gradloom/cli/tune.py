"""The verb finetune."""

import sys
from pathlib import Path
from typing import Any

import typer

from gradloom.systems.asked import asked_for
from gradloom.systems.request import tuned
from gradloom.words import some

from .app import app
from .faces import FOLDER, face, more
from .output import ONE_LOGIT, counted, print_json, progress_bar, say

__all__: list[str] = []


@app.command(
    "finetune",
    epilog="Example: gradloom finetune lenet5 --epochs 2 --limit 200 -o run\n\n"
    "Example: gradloom finetune mine.onnx --board kv260 --data mine.npz\n\n"
    f"Example: gradloom finetune smollm2-135m --data mine.txt --steps 20 -o run\n\n{more('finetune')}",
)
@face("finetune", output=(FOLDER, Path("finetune")))
def _finetune_verb(model_name: str, *, board: str | None, output: Path, as_json: bool, **options: Any) -> None:
    """Fine-tune adapters on the generated hardware, or in float.

    The hardware is simulated, or is its reference.

    Exit code 4: the fine-tune diverged; its results are saved, and metrics.json says why.
    """
    asked = asked_for(model_name, board=board, method=options.get("method"))
    with progress_bar(as_json, asked.why) as progress:
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


def _say_tuned(metrics: dict[str, Any], output: Path) -> None:
    """Prints the results of a fine-tune."""
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
