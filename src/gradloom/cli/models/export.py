"""The verb that writes what was learnt, or imported, for other tools."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.output import some
from gradloom.systems.results import Exported

from ..app import app
from ..arguments import Json, usual_option
from ..output import print_json, say, working

__all__ = ["export"]

#: Formats by what a source holds, the first one the usual one.
_FORMATS = {
    "recurrent network": ("onnx",),
    "language model's adapter": ("gguf", "mlx", "peft"),
    "network's adapter": ("onnx",),
    "network's weights": ("onnx",),
    "diffusion model's adapter": ("kohya", "comfyui"),
}
#: Ends of files by format; a format that is not here is a folder.
_SUFFIXES = {"onnx": ".onnx", "gguf": ".gguf", "kohya": ".safetensors", "comfyui": ".safetensors"}
_KNOWN = tuple(dict.fromkeys(each for formats in _FORMATS.values() for each in formats))


def export(
    source: Path | str, output: Path | str, *, to: str | None = None, model: Path | str | None = None
) -> Exported:
    """Writes what a fine-tune or an import holds in a format of other tools.

    Parameters
    ----------
    source : path
        Folder of an :func:`import_model`, or an ``.onnx`` file: a recurrent network. Output folder of a fine-tune on
        images: a network's adapter. Output folder of a fine-tune on text, an adapter in PEFT's format or a ``.gguf``
        file of one: a language model's adapter. Output folder of a fine-tune on pictures, or a file of diffusers: a
        diffusion model's adapter.
    output : path
        ``.onnx``, ``.gguf`` or ``.safetensors`` file, else a folder.
    to : str, optional
        Format; without it the one that the output's end names, or the only one.

        ``onnx``, of a recurrent network: a Scan of QuantizeLinear and DequantizeLinear. onnxruntime runs it to the same
        codes if it does not fuse quantisers: set ``graph_optimization_level`` to ``ORT_DISABLE_ALL`` or
        ``ORT_ENABLE_BASIC``. Of a network's adapter: the network with the adapter in its graph, ``pixels`` in,
        ``logits`` out, float32, with the codes of its forward cache; of a recurrent one's, the network as above for
        sequences of the length that it learnt. Of any other network's weights: its file with what was learnt folded
        in. Of a language model's adapter: ``gguf``, which
        llama.cpp takes by ``--lora``; ``mlx``, a folder for mlx-lm's ``--adapter-path``; ``peft``, a folder for PEFT.
        Of a diffusion model's adapter: ``kohya`` or ``comfyui``, the same file, as ComfyUI has kohya's names.
    model : path or str, optional
        Model that the adapter is of: an ``.onnx`` file, or a language model by name, file or folder. That of the run,
        if left out.

    Returns
    -------
    dict
        ``output``, ``format``, ``name`` of the model; of an adapter ``adapters``, the linears that have one, ``rank``
        and ``bytes``; of a network ``hidden`` and ``channels``.

    Raises
    ------
    ValueError
        The key, its value and what it must be. Nothing is written.
    """
    wanted = to or next((name for name, suffix in _SUFFIXES.items() if str(output).endswith(suffix)), None)
    if wanted is None:
        raise ValueError(f"to: is needed, one of {', '.join(_KNOWN)}: output={output} does not end as one of them")
    if wanted not in _KNOWN:
        raise ValueError(f"to={wanted}: must be one of {', '.join(_KNOWN)}")
    _check_output(Path(output), wanted, (source,))
    held = _held(Path(source))
    if wanted not in _FORMATS[held]:
        raise ValueError(f"to={wanted}: must be {' or '.join(_FORMATS[held])}, {source} holds a {held}")
    if held == "recurrent network":
        if model is not None:
            raise ValueError(f"model={model}: must be left out, {source} holds its network")
        return _recurrent(source, output)
    if held == "diffusion model's adapter":
        if model is not None:
            raise ValueError(f"model={model}: must be left out, the names of {source} say enough")
        return _pictures(Path(source), Path(output), wanted)
    if held == "network's weights":
        from gradloom.systems.networks.export import export_network

        return {"output": str(output), "format": "onnx", **export_network(Path(source), output, model)}
    if held == "network's adapter":
        return _images(Path(source), Path(output), model)
    return _text(Path(source), Path(output), wanted, model)


def _check_output(output: Path, wanted: str, inputs: tuple[Path | str, ...]) -> None:
    from gradloom.output import check_file, check_folder

    if wanted in _SUFFIXES:
        check_file(output, suffix=_SUFFIXES[wanted], inputs=inputs)
    else:
        check_folder(output, verb="export")


def _held(source: Path) -> str:
    """What is in a file or a folder, of the keys of ``_FORMATS``."""
    from gradloom.models.adapters.config import TOPOLOGY_KEY
    from gradloom.models.adapters.diffusion_lora import FILE
    from gradloom.models.adapters.language.gguf_lora import is_gguf_adapter
    from gradloom.models.adapters.peft import read_config
    from gradloom.models.adapters.peft_files import CONFIG
    from gradloom.systems.networks.adapter import is_of_network

    if is_gguf_adapter(source):
        return "language model's adapter"
    if source.suffix == ".safetensors" or (source / FILE).is_file():
        return "diffusion model's adapter"
    if not (source / CONFIG).is_file():
        if not source.exists():
            raise ValueError(f"{source}: no such file or folder")
        if source.is_dir() and not (source / "network.json").is_file():
            raise ValueError(f"{source}: has no {CONFIG} of a fine-tune, nor network.json of an import")
        # Another file is refused by the reader of networks, which says what it is.
        return "recurrent network"
    if is_of_network(source):
        return "network's weights"
    config = read_config(source)
    return "network's adapter" if TOPOLOGY_KEY in config else "language model's adapter"


def _recurrent(source: Path | str, output: Path | str) -> Exported:
    from gradloom.models.recurrent.export import export_recurrent
    from gradloom.models.recurrent.stored import load_network

    found = load_network(source)
    export_recurrent(found, output)
    told: Exported = {"output": str(output), "format": "onnx", "name": found.name}
    return told | {"hidden": found.cell.units, "channels": found.channels}


def _images(source: Path, output: Path, model: Path | str | None) -> Exported:
    from gradloom.models.adapters.peft import load_adapters
    from gradloom.models.onnx_network import network_onnx
    from gradloom.output import staged_file
    from gradloom.systems.images.task import network_of_run
    from gradloom.systems.sequences.export import export_adapted, is_of_sequences

    if is_of_sequences(source):
        return {"output": str(output), "format": "onnx", **export_adapted(source, output, model)}
    network = network_of_run(source, model)
    adapters, codes = load_adapters(source, network)
    with staged_file(output) as file:
        file.write(network_onnx(network, adapters, codes))
        size = file.tell()
    told: Exported = {"output": str(output), "format": "onnx", "name": network.name}
    return told | {"adapters": len(adapters), "rank": len(adapters[0][0]), "bytes": size, "codes": codes}


def _pictures(source: Path, output: Path, wanted: str) -> Exported:
    from gradloom.models.adapters.diffusion_lora import layers_in, load_diffusion_lora, save_kohya_lora

    adapters = load_diffusion_lora(source, layers_in(source))
    save_kohya_lora(output, adapters)
    return _told(output, wanted, source.name, adapters, output.stat().st_size)


def _text(source: Path, output: Path, wanted: str, model: Path | str | None) -> Exported:
    from gradloom.models.adapters.language.gguf_lora import write_gguf_lora
    from gradloom.models.adapters.language.mlx_lora import write_mlx_lora
    from gradloom.models.adapters.lora import save_lora
    from gradloom.output import size_of, staged, staged_file
    from gradloom.systems.text.answer import plain_lora

    shapes, adapters = plain_lora(source, model)
    if wanted == "gguf":
        with staged_file(output) as file:
            write_gguf_lora(file, shapes, adapters)
            size = file.tell()
    else:
        with staged(output, verb="export") as stage:
            (write_mlx_lora if wanted == "mlx" else save_lora)(stage, shapes, adapters)
            size = size_of(Path(stage))
    return _told(output, wanted, shapes.name, adapters, size)


def _told(output: Path, wanted: str, name: str, adapters: Mapping[str, Any], size: int) -> Exported:
    """What is said of adapters that were written; several ranks are a list."""
    ranks = sorted({each.rank for each in adapters.values()})
    told: Exported = {"output": str(output), "format": wanted, "name": name, "adapters": len(adapters)}
    return told | {"rank": ranks[0] if len(ranks) == 1 else ranks, "bytes": size}


_TAKES: dict[str, str] = {
    "onnx": "onnxruntime runs it",
    "kohya": "kohya's tools, WebUI and ComfyUI take it",
    "comfyui": "ComfyUI takes it from its folder models/loras",
    "gguf": "llama.cpp takes it by --lora, beside a GGUF file of the model",
    "mlx": "mlx-lm takes it by --adapter-path",
    "peft": "PEFT takes it by PeftModel.from_pretrained",
}


def _inputs(told: Exported) -> str:
    """What a network with adapters to its logits takes."""
    if "steps" in told:
        return f", of {told['steps']} steps, with zeros as h_init and c_init"
    return ", pixels from 0 to 1 in, logits out" if "codes" in told else ""


@app.command(
    "export",
    epilog="Example: gradloom export lstm -o back.onnx\n\nExample: gradloom export run --to gguf -o adapter.gguf\n\n"
    "Example: gradloom export run --to mlx -o adapters\n\nExample: gradloom export lenet-run -o tuned.onnx\n\n"
    "Example: gradloom export pictures-run --to comfyui -o style.safetensors",
)
def _export_verb(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of an import or of a fine-tune, or a file of a network or an adapter."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE|DIR", help="Output file or folder.")],
    to: Annotated[
        str | None,
        usual_option(metavar="FORMAT", help=f"Format: {', '.join(_KNOWN)}.", usual="as the output's name ends"),
    ] = None,
    model: Annotated[
        str | None, usual_option(metavar="M", help="Model of the adapter.", usual="the run's, or smollm2-135m")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what was imported or learnt for other tools.

    A recurrent network becomes ONNX, with the same codes in onnxruntime.
    A fine-tuned network becomes ONNX with its adapter.
    An adapter of a language model becomes one of llama.cpp, mlx-lm or PEFT.
    An adapter of a diffusion model gets the names of kohya and ComfyUI.
    """
    with working("exporting", as_json):
        told = export(source, output, to=to, model=model)
    if as_json:
        print_json(told)
    elif "channels" in told:
        say(
            f"{told['name']} is in {output}; onnxruntime gives the same codes with ORT_DISABLE_ALL or "
            "ORT_ENABLE_BASIC, its other levels fuse quantisers"
        )
    elif "weights" in told:
        say(f"{output} is {told['name']} with {some(told['weights'], 'weight')} changed, {told['bytes']:,} bytes")
    else:
        say(
            f"{output} has {some(told['adapters'], 'adapter')} of {told['name']}, {told['bytes']:,} bytes; "
            f"{_TAKES[told['format']]}{_inputs(told)}"
        )
