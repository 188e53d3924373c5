"""The verb that merges an adapter into a language model."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from gradloom.output import some

from ..app import app
from ..arguments import Json
from ..output import print_json, progress_bar, say

__all__ = ["MergedModel", "merge"]


class MergedModel(TypedDict):
    """A model that was written; ``learnt``: tensors that an adapter has changed."""

    output: str
    model: str
    weights: str
    learnt: int
    bytes: int
    error: float


def merge(
    adapter: Path | str,
    output: Path | str,
    *,
    model: Path | str | None = None,
    weights: str = "f32",
    progress: Callable[[int, int, str], None] | None = None,
) -> MergedModel:
    """Writes a language model with an adapter merged into its weights.

    ``model`` is that of the run whose folder ``adapter`` is, or SmolLM2-135M, if left out. Linears have the values of
    NF4 codes that the adapter learnt beside. ``output`` is a ``.gguf`` file where the model is one, else a folder of
    Hugging Face's. ``weights`` of linears: ``f32``, which loses nothing of the fine-tuned model, or in a GGUF file
    ``q8_0``; ``error`` is the root mean square of what rounding then changes, as a share.
    """
    from gradloom.models.adapters.language.merged import WEIGHTS, Merged, write_folder, write_gguf
    from gradloom.models.files.language.gguf import GGUF_SUFFIX, GgufCheckpoint
    from gradloom.models.files.language.huggingface import HuggingFaceCheckpoint
    from gradloom.output import check_file, check_folder, size_of, staged, staged_file
    from gradloom.systems.text.answer import learnt_of
    from gradloom.systems.text.base import opened
    from gradloom.workload import silent

    if weights not in WEIGHTS:
        raise ValueError(f"weights={weights}: must be one of {', '.join(WEIGHTS)}")
    one = str(output).endswith(GGUF_SUFFIX)
    if not one and weights != "f32":
        raise ValueError(f"weights={weights}: must be f32 for a folder; or name a {GGUF_SUFFIX} file as the output")
    checkpoint = opened(Path(adapter), model)
    source = checkpoint.source
    if one and not isinstance(source, GgufCheckpoint):
        raise ValueError(
            f"output={output}: must be a folder, {checkpoint.path} is no {GGUF_SUFFIX} file with a tokenizer"
        )
    needs = 5 * checkpoint.model.parameters
    if one:
        check_file(output, needs=needs, inputs=(checkpoint.path, adapter))
    else:
        check_folder(output, needs=needs, verb="merge")
    learnt = learnt_of(Path(adapter), checkpoint)
    config = source.config if isinstance(source, HuggingFaceCheckpoint) else {}
    merged, tell = Merged(checkpoint.model, checkpoint.tensor, learnt, config), progress or silent
    if one:
        assert isinstance(source, GgufCheckpoint)
        with staged_file(output) as file:
            write_gguf(file, source, merged, weights, tell)
            size = file.tell()
    else:
        with staged(output, verb="merge") as stage:
            write_folder(Path(stage), merged, tell)
            size = size_of(Path(stage))
    return {
        "output": str(output),
        "model": checkpoint.model.name,
        "weights": weights,
        "learnt": len(learnt),
        "bytes": size,
        "error": merged.error,
    }


@app.command(
    "merge", epilog="Example: gradloom merge run -o merged.gguf --weights q8_0\n\nExample: gradloom merge run -o merged"
)
def _merge_verb(
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER_DIR", help="An adapter of PEFT, of LoRA-XS, or a .gguf file.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="M.gguf|DIR", help="Output file or folder.")],
    model: Annotated[
        str | None, typer.Option(metavar="M", help="A file, a folder or a name, where it is not that of the run.")
    ] = None,
    weights: Annotated[str, typer.Option(help="Linears of a GGUF file: f32 or q8_0.")] = "f32",
    as_json: Json = False,
) -> None:
    """Merge an adapter into the weights of a language model."""
    with progress_bar(as_json) as progress:
        result = merge(adapter, output, model=model, weights=weights, progress=progress)
    if as_json:
        print_json(result)
        return
    lost = (
        "nothing of the fine-tuned model is lost but the rounding of float32"
        if weights == "f32"
        else f"rounding changes the linears by {result['error']:.2%} (root mean square)"
    )
    say(
        f"{output}: {result['model']} with {some(result['learnt'], 'adapter')} merged, {result['bytes']:,} "
        f"bytes; {lost}"
    )
