"""The verbs as Python functions: ``gradloom.generate`` and its sisters, and what the command line calls."""

import contextlib
import dataclasses
import functools
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gradloom import __version__

from ..catalog import UNITS, find_unit
from ..json_file import read_json

if TYPE_CHECKING:
    from ..plan.images.choose import SizesFor

__all__ = ["check_options", "configured", "find_preset", "finetune", "generate", "generate_text", "load", "pack",
           "plan", "predict", "presets", "quantize", "report"]

REPORT = "report.json"
#: What a report tells the share of.
_SHARES = ("lut", "ff", "dsp", "bram36", "uram", "bits")


def presets() -> list[dict[str, str]]:
    """Name, board and summary of each preset."""
    from ..presets import PRESETS

    return [
        {"name": preset.name, "board": preset.board, "summary": preset.summary} for preset in PRESETS.values()
    ]


def generate(
    target: str,
    directory: Path | str,
    *,
    settings: Mapping[str, object] | None = None,
    model: Path | str | None = None,
    rank: int | None = None,
    data: Path | str | None = None,
    samples: int | None = None,
) -> dict[str, Any]:
    """Writes preset or unit ``target`` to ``directory`` and returns what ``report.json`` says of it.

    ``settings`` changes parameters by name. Nothing is written if anything is wrong.

    ``model``, an .onnx file, has a preset's sizes chosen for it: none is below the preset's, and those in ``settings``
    stay. ``rank``: of its adapters; ``samples``: to learn from, or those of ``data``. Unless given, both are the
    preset's.
    """
    from ..output import staged

    asked = _asked(target, model, rank, data, samples)

    if target in UNITS:
        make: Callable[..., dict[str, Any]] = _generate_unit
        kind = "unit"
    else:
        from ..presets import PRESETS

        make, kind = functools.partial(_generate_preset, asked=asked), "preset"
        if target not in PRESETS:
            raise ValueError(
                f"{target}: is neither a preset ({', '.join(PRESETS)}) nor a unit ({', '.join(UNITS)})"
            )
    with staged(directory) as stage:
        summary = {"gradloom": __version__, kind: target} | make(target, dict(settings or {}), stage)
        (stage / REPORT).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8", newline="\n")
    return summary


def _asked(target: str, model: Path | str | None, rank: int | None, data: Path | str | None,
           samples: int | None) -> "SizesFor | None":
    """The network that sizes are chosen for, if there is one."""
    from ..plan.images.choose import SizesFor
    from ..presets import PRESETS

    if model is None:
        for name, value in (("rank", rank), ("data", data), ("samples", samples)):
            if value is not None:
                raise ValueError(f"{name}={value}: chooses sizes for a network only, which --for names")
        return None
    if target in UNITS or (target in PRESETS and PRESETS[target].language):
        raise ValueError(f"for={model}: sizes are chosen for presets for images, not for {target}")
    return SizesFor(model=Path(model), rank=rank, data=None if data is None else Path(data), samples=samples)


def _generate_unit(target: str, settings: dict[str, object], stage: Path) -> dict[str, Any]:
    from ..emit.verilog import convert

    unit = find_unit(target)
    parameters = unit.settings(settings)
    emission = convert(unit.build(**settings), name=target.replace("-", "_"))
    emission.write(stage)
    return _described(emission) | {"parameters": parameters}


def _generate_preset(target: str, settings: dict[str, object], stage: Path, *,
                     asked: "SizesFor | None") -> dict[str, Any]:
    from gradloom import boards

    from ..emit.verilog import convert
    from ..machines.accelerator import Accelerator
    from ..presets import PRESETS
    from ..resources import check_fit
    from ..shell.registers.regmap import markdown
    from ..shell.registers.regtable import REGISTERS

    preset = PRESETS[target]
    board = boards.find(preset.board)
    sizes: dict[str, Any] | None = None
    workload: dict[str, Any] = {}
    config = configured(preset.config, settings)
    if asked is not None:
        config, sizes = asked.choose(preset, config, settings)
        workload = {"model": asked.model, "rank": sizes["rank"], "samples": sizes["samples"]}
    # What is wrong with the request is said before the long part.
    try:
        counted = check_fit(config, board)
        boards.check(board, config)
    except ValueError as error:
        raise ValueError(f"{_said(sizes)}{error}") from None
    # Only images have a workload of the preset's own.
    with contextlib.nullcontext() if preset.language else _Expectation(config, preset.workload, **workload) as expected:
        emission = convert(Accelerator(config), name="gradloom", family=board.family)
        emission.write(stage)
    described = _described(emission)
    summary = described | {
        "board": board.name,
        "parameters": dataclasses.asdict(config),
        "counted": counted,
        "registers": {register.name: register.address for register in REGISTERS},
    } | ({} if expected is None else _expected(expected.result(), board, described["ports"]))
    if sizes is not None:
        _check_window(summary, sizes, preset, board)
        summary["sizes"] = sizes
    folder = stage / "registers"
    folder.mkdir()
    # The C header is the driver's, among the project's files.
    shutil.copyfile(Path(__file__).parents[1] / "shell" / "registers" / "gradloom.xml", folder / "gradloom.xml")
    (folder / "registers.md").write_text(markdown(), encoding="utf-8", newline="\n")
    try:
        boards.write_project(board, stage, summary)
    except boards.NoProjectError as error:
        summary["project"] = {"files": None, "reason": str(error)}
    return summary


def _said(sizes: Mapping[str, Any] | None) -> str:
    """The beginning of a refusal: what was chosen for which network."""
    if sizes is None:
        return ""
    chosen = ", ".join(f"{field}={each['value']}" for field, each in sizes["chosen"].items())
    return f"{sizes['network']} at rank {sizes['rank']} needs {chosen or 'no more than the preset has'}: "


def _check_window(summary: Mapping[str, Any], sizes: Mapping[str, Any], preset: Any, board: Any) -> None:
    """Refuses a fine-tune that the board's memory does not hold."""
    from ..workloads import DIGITS

    # A tuner on its own brings its digits with it; another network runs in simulation.
    if summary["memory_map"] is None or preset.workload is DIGITS:
        return
    needs = summary["memory_map"]["window_bytes"]
    if needs > board.memory_bytes:
        raise ValueError(f"samples={sizes['samples']}: fine-tuning {sizes['network']} needs a window of {needs:,} "
                         f"bytes, {board.name} has {board.memory_bytes:,}")


# Reads a configuration and its workload, writes what is expected of it, as pickles; an interrupt ends it
# without a word.
_EXPECTATION = """\
import pickle, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
from gradloom.sim.workloads.expectation import expectation
config, workload, more = pickle.load(sys.stdin.buffer)
pickle.dump(expectation(config, workload, **more), sys.stdout.buffer)
"""


class _Expectation:
    """``expectation`` of :mod:`gradloom.sim.workloads.expectation` in a process beside the block that makes Verilog."""

    def __init__(self, config: Any, workload: Any, **more: Any) -> None:
        self._asked = config, workload, more

    def __enter__(self) -> "_Expectation":
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _EXPECTATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        pickle.dump(self._asked, self._process.stdin)
        self._process.stdin.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
            self._process.wait()

    def result(self) -> dict[str, Any]:
        """What is expected."""
        with self._process:
            assert self._process.stdout is not None
            result = self._process.stdout.read()
        if self._process.returncode:
            raise RuntimeError(f"the forecast ended with exit code {self._process.returncode}, see above")
        return pickle.loads(result)


def _expected(expected: dict[str, Any], board: Any, ports: list[dict[str, Any]]) -> dict[str, Any]:
    """Forecast and memory map of the preset's own workload."""
    if expected["memory_map"] is not None:
        bits = next(port["width"] for port in ports if port["name"] == "s_axi_awaddr")
        expected["memory_map"] = {
            "registers": {"address": board.register_base, "bytes": 1 << bits},
            "window_base": "any multiple of 4096; registers WINDOW_BASE_LO, WINDOW_BASE_HI and WINDOW_SIZE",
        } | expected["memory_map"]
    return expected


def configured(config: Any, settings: Mapping[str, object], *, check: bool = True) -> Any:
    """``config`` with parameters as texts; :class:`ValueError` names the one that is wrong.

    Without ``check`` only their names and kinds are looked at, and ``config`` comes back as it was.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    changes: dict[str, object] = {}
    for name, value in settings.items():
        if name not in fields:
            raise ValueError(f"{name}: no such parameter; there are {', '.join(fields)}")
        kind = type(getattr(config, name))
        try:
            if kind is bool:
                changes[name] = {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
            else:
                changes[name] = int(str(value), 0) if kind is int else kind(value)
        except (ValueError, KeyError):
            wanted = {int: "an integer", bool: "true or false", float: "a number"}.get(kind, kind.__name__)
            raise ValueError(f"{name}={value}: must be {wanted}") from None
    return dataclasses.replace(config, **changes) if check else config


def _described(emission: Any) -> dict[str, Any]:
    return {
        "name": emission.name,
        "module": emission.name,
        "ports": emission.port_list,
        "modules": sorted(emission.files),
        "bytes": sum(len(text.encode()) for text in emission.files.values()),
    }


def finetune(
    preset: str,
    *,
    output: Path | str = "finetune",
    progress: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fine-tunes adapters and writes ``metrics.json``, the adapter and a plot to ``output``; returns the
    metrics.

    ``options``, as the command line's: ``model, rank, lr, seed, engine``; for images ``data, angle, momentum,
    batch, epochs, limit, cache, rtl``; for language models ``text, adapter, optimizer, steps, seq, accumulate,
    targets, layers, card``.
    """
    found = find_preset(preset)
    check_options(found, options)
    if found.language:
        from gradloom.sim.workloads import language

        return language.finetune(found, output=Path(output), progress=progress, **options)
    from gradloom.sim.workloads import images as images

    return images.finetune(found, output=Path(output), progress=progress, **options)


#: Options of a fine-tune that only one kind of preset takes.
_IMAGE_OPTIONS = ("data", "angle", "momentum", "batch", "epochs", "limit", "cache", "rtl")
_LANGUAGE_OPTIONS = ("text", "adapter", "optimizer", "steps", "seq", "accumulate", "targets", "layers", "store",
                     "card")


def check_options(preset: Any, options: Mapping[str, Any]) -> None:
    """Refuses options of a fine-tune that the preset's kind does not have."""
    kind, strange, own = ("images", _IMAGE_OPTIONS, _LANGUAGE_OPTIONS) if preset.language else (
        "language models", _LANGUAGE_OPTIONS, _IMAGE_OPTIONS)
    for name in strange:
        if name in options:
            raise ValueError(f"{name}={options[name]}: is for presets for {kind} only; {preset.name} takes "
                             f"{', '.join(own)}")


def generate_text(preset: str, **options: Any) -> dict[str, Any]:
    """What a language model with an adapter says after a prompt: greedy decoding in floating point.

    ``options``: ``prompt, model, adapter, tokens, progress``, as the command line's.
    """
    from gradloom.sim.workloads.language import generate_text as run

    return run(find_preset(preset, language=True), **options)


def predict(preset: str, **options: Any) -> dict[str, Any]:
    """Labels of images by the base network and an adapter.

    ``options``: ``data, model, adapter, angle, limit, engine, rtl, output``, as the command line's.
    """
    from gradloom.sim.workloads.images import predict as run

    return run(find_preset(preset, language=False), **options)


def find_preset(name: str, *, language: bool | None = None) -> Any:
    """The preset called ``name``, which must be for language models, or for images, where ``language`` says so."""
    from ..presets import PRESETS

    if name not in PRESETS:
        raise ValueError(f"preset {name!r}: must be one of {', '.join(PRESETS)}")
    found = PRESETS[name]
    if language is not None and found.language != language:
        fit = ", ".join(each.name for each in PRESETS.values() if each.language == language)
        raise ValueError(f"preset {name!r}: is for {'language models' if found.language else 'images'}, must be one "
                         f"for {'language models' if language else 'images'}: {fit}")
    return found


def quantize(
    source: Path | str, output: Path | str, *, double: bool = False, block: int = 64
) -> dict[str, Any]:
    """Quantises every tensor of a file to NF4 in bitsandbytes' layout."""
    from ..models.quantized import quantize_file

    return quantize_file(Path(source), Path(output), double=double, block=block) or {}


def pack(
    source: Path | str,
    output: Path | str,
    *,
    bits: int = 4,
    head: str = "float16",
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes a language model's weights in the board's layout and returns their sizes."""
    from ..models.checkpoint import find_weights, open_checkpoint
    from ..models.pack import write_pack
    from ..output import check_folder, staged

    check_folder(output)
    checkpoint = open_checkpoint(find_weights(source))
    with staged(output) as stage:
        manifest = write_pack(checkpoint, stage, bits=bits, head=head, progress=progress)
    parameters = checkpoint.model.linear_parameters
    return {
        "model": checkpoint.model.name,
        "bits": bits,
        "head": head,
        "linears": len(manifest["linears"]),
        "linear_parameters": parameters,
        "frozen_bytes": manifest["frozen_bytes"],
        "bits_per_parameter": round(8 * manifest["frozen_bytes"] / parameters, 3),
        "bytes": manifest["bytes"],
    }


def load(
    source: Path | str,
    output: Path | str,
    *,
    adapters: Sequence[Path | str] = (),
    offset: int = 1 << 20,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes an image for a memory card: what :func:`pack` wrote, and adapters as PEFT has them, for the memory of
    a system on chip from ``offset`` on. Returns where each section comes to lie."""
    from gradloom import boards
    from gradloom.firmware import card

    from ..models.adapter_words import pack_adapters
    from ..models.lora import load_lora
    from ..models.pack import PackedModel
    from ..output import check_file, staged_file

    check_file(output)
    board = boards.find("genesys2")
    if offset < 4096 or offset % 4096 or offset >= board.memory_bytes:
        raise ValueError(f"offset={offset}: must be a multiple of 4096 below {board.memory_bytes}, at least 4096")
    if len(adapters) >= card.MAX_SECTIONS:
        raise ValueError(f"adapter: at most {card.MAX_SECTIONS - 1}, not {len(adapters)}")
    packed = PackedModel(source)
    blocks = [pack_adapters(packed.model, load_lora(each, packed.model)) for each in adapters]
    sections = [card.place("weights", [packed.weights], offset)]
    for number, block in enumerate(blocks):
        sections.append(card.place(f"adapter {number}", [block], sections[-1].end, kind=card.ADAPTER))
    with staged_file(output) as file:
        packed.check(progress)
        rows = card.write_card(file, sections, memory_bytes=board.memory_bytes)
        size = file.seek(0, 2)
    return {
        "model": packed.model.name,
        "bytes": size,
        "memory_end": sections[-1].end,
        "sections": rows,
    }


def plan(
    model: str,
    *,
    board: str = "genesys2",
    rank: int = 8,
    targets: str | None = None,
    seq: int = 64,
    bits: int = 4,
    optimizer: str = "adamw",
    head: str = "float16",
    store: str = "words",
    axi_bits: int | None = None,
    method: str = "qlora",
) -> dict[str, Any]:
    """Every byte, the traffic and the time of fine-tuning a language model on a board, and whether it fits.

    What does not fit has ``misfits``, one for each bound that fails: see ``planned`` in
    :mod:`~gradloom.rtl.plan.language.fit`.
    ``targets``: of QLoRA, "q,v" unless given. ``preset``: whose machine is checked; None where the board has none, and
    memory alone is checked.
    """
    from gradloom import boards

    from ..models.checkpoint import find_model
    from ..plan.language.budget import Request, parse_targets
    from ..plan.language.fit import planned
    from ..plan.language.instant_budget import METHODS
    from ..presets import find_language

    if method not in METHODS:
        raise ValueError(f"method={method}: must be one of {', '.join(METHODS)}")
    if method == "instantft" and targets is not None:
        raise ValueError(f"targets={targets}: adapters of InstantFT go from every block to the head; leave it out, "
                         f"or give --method qlora")
    if method == "instantft" and store != "words":
        raise ValueError(f"store={store}: must be words for InstantFT; leave it out, or give --method qlora")
    target = boards.find(board)
    request = Request(
        model=find_model(model), rank=rank, targets=parse_targets("q,v" if targets is None else targets), seq=seq,
        bits=bits, optimizer=optimizer, head=head, store=store,
    )
    preset = find_language(target.name, method)
    result = planned(request, target, preset.config if preset else None, method=method, port_bits=axi_bits)
    return result | {"preset": preset.name if preset else None}


def parse_shares(items: Sequence[str]) -> dict[str, float]:
    """``RESOURCE=PERCENT`` strings as a dictionary."""
    shares: dict[str, float] = {}
    for item in items:
        key, _, value = item.partition("=")
        try:
            most = float(value)
        except ValueError:
            most = -1
        if key not in _SHARES or not 0 <= most <= 100:
            raise ValueError(f"--max-share {item}: must be RESOURCE=PERCENT, of {', '.join(_SHARES)}")
        shares[key] = most
    return shares


def report(directory: Path | str, *, board: str | None = None, unit: str | None = None) -> dict[str, Any]:
    """Area and deepest paths of a generated design, or of module ``unit`` of it alone, by open synthesis.

    Units of a preset or stand-alone unit that is as it came, on the board it came for, have the ``budget`` of their
    ``levels`` too; ``beyond`` says which have more.
    """
    from gradloom import boards
    from gradloom.boards.budgets import beyond

    path = Path(directory) / REPORT
    if not path.is_file():
        raise ValueError(f"{directory}: has no {REPORT}; name a directory that gradloom generate made")
    try:
        summary = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error}); generate the design again") from None
    if not isinstance(summary, dict):
        raise ValueError(f"{path}: holds a {type(summary).__name__}, not an object; generate the design again")
    own = summary.get("board") or "kv260"
    found = boards.find(board or own)
    budget = _budget(summary) if found.name == own else None
    result = boards.measure(found, directory, unit=unit)
    if budget is not None:
        for name, entry in result["units"].items():
            entry["budget"] = budget.get(name)
        result["beyond"] = beyond(result["units"], budget)
    return result


def _budget(summary: Mapping[str, Any]) -> dict[str, int] | None:
    """Budgets of the units of a design, from its ``report.json``; None where parameters were changed."""
    from gradloom.boards.budgets import budgets

    from ..presets import PRESETS

    if summary.get("preset") in PRESETS:
        name, parameters = summary["preset"], dataclasses.asdict(PRESETS[summary["preset"]].config)
    elif summary.get("unit") in UNITS:
        name, parameters = summary["unit"], UNITS[summary["unit"]].settings({})
    else:
        return None
    return budgets().get(name) if json.loads(json.dumps(parameters)) == summary.get("parameters") else None
