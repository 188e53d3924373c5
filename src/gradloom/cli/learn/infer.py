"""The verb infer."""

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.options import check_request
from gradloom.output import some
from gradloom.systems.asked import asked_for, learnt_by
from gradloom.systems.request import answered, options_of

from ..app import app
from ..faces import face, more
from ..on_board import HOST, board_of, check_engine
from ..output import ONE_LOGIT, counted, print_json, progress_bar, say, table

__all__: list[str] = []

#: Option of a folder that answers.
_JOB = (
    Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a language model that answers on the board by itself.")
    ],
    None,
)


@app.command(
    "infer",
    epilog="Example: gradloom infer lenet5 --adapter run --data digits.npz -o labels.npz\n\n"
    "Example: gradloom infer lstm.onnx --data sequences.npz -o answers.npz\n\n"
    "Example: gradloom infer smollm2-135m --prompt 'A loom weaves' --adapter run\n\n"
    "Example: gradloom infer smollm2-135m --port /dev/ttyUSB0 --prompt 'A loom weaves'\n\n"
    f"Example: gradloom infer digits-unet --prompt 'a plain * .' -o grid.png\n\n{more('infer')}",
)
@face("infer", host=HOST, job=_JOB)
def _infer_verb(
    model_name: str, *, board: str | None, host: str | None, job: Path | None, as_json: bool, **options: Any
) -> None:
    """Label images or sequences, continue a text, or make pictures.

    An adapter of a fine-tune may take part.
    Language models answer in floating point unless --engine says else; a board answers over ssh or by its serial port.
    """
    asked = asked_for(model_name, board=board, method=learnt_by(options.get("adapter")), verb="infer", given=options)
    with progress_bar(as_json, asked.why) as progress:
        result: Any
        if job is not None:
            from gradloom.jobs.on_board import write_answers

            check_request("with --job, which a board answers by itself", needless={"host": host})
            check_engine(options)
            made = options_of("infer", asked, None, options)
            result = asdict(write_answers(asked, made, job, progress=progress)) | {"folder": str(job)}
        elif host is None:
            result = answered("infer", asked, progress=progress, **options)
        else:
            from gradloom.jobs.on_board import infer_on

            check_engine(options)
            made = options_of("infer", asked, None, options)
            result = infer_on(board_of(asked, host, options.get("design")), asked, made, progress=progress)
    if as_json:
        print_json(result)
    elif job is not None:
        say(
            f"{job}: {result['bytes_there']:,} bytes of data, {result['memory_bytes']:,} bytes of the board's memory; "
            f"on the board: gradloom_run answer {job.name}, or python3 -m gradloom_host.agent answer {job.name}; the "
            "tokens of another prompt behind that"
        )
    elif "text" in result:
        _say_text(result, "" if options.get("chat") else str(options["prompt"]))
    elif "samples" in result:
        _say_network(result, written=options.get("output") is not None)
    elif "count" in result:
        say(f"{options['output']} has {some(result['count'], 'picture')}")
        _say_cycles(result)
    else:
        _say_answers(result, written=options.get("output") is not None)


def _say_text(result: dict[str, Any], prompt: str) -> None:
    """Prints a continued text; what a board needed goes to stderr."""
    print(f"{prompt}{result['text']}")
    told = some(len(result["tokens"]), "token")
    if "waited" in result:
        told += (
            f" by the board, adapter {result['adapter']}; of a token, at most {result['cycles']:,} cycles, and "
            f"{result['waited']:,} of waiting"
        )
    elif "clipped" in result:
        told += f" in the machine's integers, {some(result['clipped'], 'word')} clipped"
        told += f", by {some(result['programs'], 'program')}, {result['tokens_a_program']:.2f} a program that gave some"
        told += f"; {_cycles_of(result)}" if result.get("cycles") else ""
    else:
        told += " in floating point"
    print(f"({told})", file=sys.stderr)


def _say_network(result: dict[str, Any], *, written: bool) -> None:
    """Prints labels of a network's samples, or how far its values are."""
    judged = ""
    if "accuracy" in result:
        judged = f", {100 * result['accuracy']:.1f} % as given"
    elif "error" in result:
        judged = f", mean squared error {result['error']:.4g}"
    if "auc" in result:
        judged += f", AUC {result['auc']:.3f}"
    say(f"{some(result['samples'], 'sample')} answered{judged}")
    if "labels" in result and not written:
        _say_labels(result["labels"])
    _say_cycles(result)


def _say_answers(result: dict[str, Any], *, written: bool) -> None:
    """Prints labels of images or sequences, and what they cost."""
    if result.get("one_logit"):
        say(ONE_LOGIT)
    accuracy, steps = result.get("accuracy"), result.get("steps")
    if steps is None:
        text = f"{some(len(result['labels']), 'image')} labelled"
    else:
        done = "labelled" if "labels" in result else "run"
        text = f"{some(result['sequences'], 'sequence')} of {some(steps, 'step')} {done}"
    say(text + (f", {100 * accuracy:.1f} % as given" if accuracy is not None else ""))
    if "labels" in result and not written:
        _say_labels(result["labels"])
    if result.get("saturated"):
        say(f"{100 * result['saturated']:.2f} % of the input lies beyond its codes")
    _say_cycles(result)
    if result.get("cycles_an_answer"):
        say(f"{result['cycles_an_answer']:,} cycles at most from the doorbell of a step to its answer")


def _say_cycles(result: dict[str, Any]) -> None:
    """Prints what a machine took."""
    if result.get("cycles"):
        say(_cycles_of(result))


def _cycles_of(result: dict[str, Any]) -> str:
    """What a machine took, in words."""
    told = (
        f"{result['cycles']:,} cycles" if result["forecast"] is None else counted(result["cycles"], result["forecast"])
    )
    if "cycles_a_step" in result:
        told += f"; {result['cycles_a_step']:.1f} a step of the cell"
    return f"{told}; every word equals the reference"


def _say_labels(found: Any, shown: int = 20) -> None:
    """The first labels, and how often each was given."""
    import numpy as np

    labels = np.ravel(found).tolist()
    more = "" if len(labels) <= shown else f", and {len(labels) - shown:,} more: -o OUT.npz writes all"
    say(f"labels: {' '.join(map(str, labels[:shown]))}{more}")
    counts = sorted(Counter(labels).items())
    table([{"label": str(label), "times": count} for label, count in counts], ("label", "times"), False)
