"""The verb finetune."""

import sys
from pathlib import Path
from typing import Any

import typer

from gradloom.output import some
from gradloom.systems.asked import asked_for
from gradloom.systems.request import tuned

from ..app import app
from ..faces import FOLDER, face, more
from ..on_board import TUNING, tuned_on
from ..output import ONE_LOGIT, counted, print_json, progress_bar, say, say_left_out

__all__: list[str] = []


@app.command(
    "finetune",
    epilog="Example: gradloom finetune lenet5 --epochs 2 --limit 200 -o run\n\n"
    "Example: gradloom finetune mine.onnx --board kv260 --data mine.npz\n\n"
    "Example: gradloom finetune smollm2-135m --data chat.jsonl --epochs 2 --held-out 0.1 -o run\n\n"
    f"Example: gradloom finetune lenet5 --host ubuntu@kria -o run\n\n{more('finetune')}",
)
@face("finetune", output=(FOLDER, Path("finetune")), **TUNING)
def _finetune_verb(
    model_name: str,
    *,
    board: str | None,
    output: Path,
    host: str | None,
    detach: bool,
    attach: str | None,
    compare: bool,
    job: Path | None,
    port: str | None,
    baud: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fine-tune adapters on the generated hardware, or in float.

    The hardware is simulated, or is its reference; with --host it is a board.

    Exit code 4: the fine-tune diverged; its results are saved, and metrics.json says why.
    """
    asked = asked_for(model_name, board=board, method=options.get("method"), given=options)
    with progress_bar(as_json, asked.why) as progress:
        there = tuned_on(
            asked,
            options,
            output=output,
            host=host,
            detach=detach,
            attach=attach,
            compare=compare,
            job=job,
            port=port,
            baud=baud,
            progress=progress,
            say=None if as_json else (lambda line: print(line, file=sys.stderr)),
        )
        metrics = tuned(asked, output=output, progress=progress, **options) if there is None else there
    if as_json:
        print_json(metrics)
    elif "loss" not in metrics:
        _say_job(metrics, model_name)
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


def _say_job(result: dict[str, Any], model: str) -> None:
    """Prints how a job that was written or started goes on."""
    if "folder" in result:
        say(
            f"{result['folder']}: job {result['name']}, {some(result['stages'], 'program')}, {result['bytes_there']:,} "
            f"bytes of data, {result['memory_bytes']:,} bytes of the board's memory; on the board: python3 -m "
            f"gradloom_host.agent run {Path(result['folder']).name}; then, here: gradloom finetune {model} --job "
            f"{result['folder']} -o DIR"
        )
    else:
        say(
            f"{result['host']} runs job {result['name']}; gradloom finetune {model} --host {result['host']} --attach "
            f"{result['name']} brings the result"
        )


def _say_tuned(metrics: dict[str, Any], output: Path) -> None:
    """Prints the results of a fine-tune."""
    if metrics.get("one_logit"):
        say(ONE_LOGIT)
    say_left_out(metrics)
    if "loss_after" not in metrics:
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
        if metrics.get("accuracy_after") is not None:
            say(
                f"accuracy {100 * metrics['accuracy_before']:.1f} % before, "
                f"[bold]{100 * metrics['accuracy_after']:.1f} %[/bold] after"
            )
        if metrics.get("auc_after") is not None:
            say(f"AUC {metrics['auc_before']:.3f} before, [bold]{metrics['auc_after']:.3f}[/bold] after")
    if metrics.get("tokens_left_out"):
        say(
            f"windows of {some(metrics['seq'], 'token')}: {metrics['windows']:,}; the last "
            f"{metrics['tokens_left_out']:,} of "
            f"the text's {some(metrics['tokens'], 'token')} are left out"
        )
    if bad := (metrics.get("examples") or {}).get("bad_lines"):
        say(f"{some(bad, 'line')} left out, the first: {metrics['examples']['first_bad']}")
    clipped = metrics.get("saturated") or (metrics.get("health") or {}).get("saturated")
    if clipped:
        say(f"{some(clipped, 'word')} clipped")
    if metrics["cycles"]:
        cycles, mhz, told = metrics["cycles"]["total"], metrics["clock_mhz"], metrics["forecast"]
        said = counted(cycles, told["total"]) if told else some(cycles, "cycle")
        say(f"{said}; {cycles / (1e3 * mhz):.2f} ms at {mhz} MHz")
