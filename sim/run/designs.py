"""Verilog of configurations, generated once and kept beside the built simulations; and earlier designs of a user."""
import dataclasses
import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path

import gradloom.rtl
from gradloom.rtl.config import Config, LinearConfig
from gradloom.rtl.json_file import read_json
from gradloom.rtl.presets import Preset

from .runner import cache_directory

__all__ = ["design", "of_design", "verilog_of"]


def _sources() -> str:
    """What the generator is made of: another generator makes other Verilog."""
    digest = hashlib.sha256()
    root = Path(gradloom.rtl.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def design(config: Config | LinearConfig) -> list[Path]:
    """Files of the Verilog of ``config``, whose outermost module is ``gradloom``."""
    from gradloom.rtl.emit.verilog import emit
    from gradloom.rtl.machines.accelerator import Accelerator

    key = hashlib.sha256(f"{config!r}{_sources()}".encode()).hexdigest()[:20]
    where = cache_directory() / "designs" / key
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "rtl").is_dir():
            emit(Accelerator(config), where, name="gradloom")
    return sorted((where / "rtl").glob("*.v"))


def of_design(preset: Preset, rtl: Path | str | None) -> Preset:
    """The preset with the configuration of an earlier ``generate`` in ``rtl``; as it is where that is None."""
    if rtl is None:
        return preset
    try:
        summary = read_json(Path(rtl) / "report.json")
        made, parameters = summary["preset"], summary["parameters"]
        if made != preset.name:
            raise ValueError(f"it is of {made}, asked was {preset.name}")
        return dataclasses.replace(preset, config=type(preset.config)(**parameters))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"rtl={rtl}: report.json describes no such design ({error}); generate it again") from None


def verilog_of(preset: Preset, rtl: Path | str | None,
               tell: Callable[[str], object] | None = None) -> tuple[Preset, list[Path]]:
    """The preset as :func:`of_design` has it, and its Verilog: that in ``rtl``, or generated and kept."""
    found = of_design(preset, rtl)
    if rtl is None:
        if tell is not None:
            tell("generating Verilog")
        return found, design(found.config)
    files = sorted((Path(rtl) / "rtl").glob("*.v"))
    if not files:
        raise ValueError(f"rtl={rtl}: has no rtl/*.v; generate it again")
    return found, files
