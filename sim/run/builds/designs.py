"""Verilog of configurations, generated once and cached."""

import dataclasses
import fcntl
import functools
import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradloom.rtl
from gradloom.json_file import read_json
from gradloom.output import staged_file
from gradloom.preset import Preset
from gradloom.rtl.shell.parameters import ShellParameters

__all__ = ["Design", "design", "design_entry"]

#: The outermost module, as test benches call it.
_MODULE = "gradloom"


def _sources(config: ShellParameters) -> str:
    """The generator's sources, plug-ins' engines too.

    Another generator makes other Verilog.
    """
    units = {sys.modules[each.spec.unit.__module__.partition(".")[0]] for each in config.machine.engines.own}
    plugins = {str(each.__file__) for each in units - {gradloom}}
    roots = (Path(gradloom.rtl.__file__).parent, *(Path(file).parent for file in sorted(plugins)))
    return "".join(map(_digest, roots))


@functools.cache
def _digest(root: Path) -> str:
    """A hash of the sources in ``root`` as they are at first.

    Files that change while the process runs are not those that it has imported, and do not make what it emits.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def design_entry(name: str, config: ShellParameters) -> dict[str, Any]:
    """The design that a board must have, as jobs and requests name it."""
    from gradloom.rtl.shell.table import needed_table

    return {"name": name, "table": needed_table(config), "data_bits": config.data_bits}


def design(config: ShellParameters) -> list[Path]:
    """Files of the Verilog of ``config``.

    The outermost module is ``gradloom``.
    """
    from gradloom.rtl.emit.verilog import emit
    from gradloom.rtl.machines.accelerator import Accelerator

    from .runner import cache_directory

    key = hashlib.sha256(f"{config!r}{_sources(config)}".encode()).hexdigest()[:20]
    where = cache_directory() / "designs" / key
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "rtl").is_dir():
            emit(Accelerator(config), where, name=_MODULE)
    return sorted((where / "rtl").glob("*.v"))


class Design:
    """The design of an earlier ``generate``, or a preset's own.

    An earlier one is in a directory.

    Parameters
    ----------
    preset : Preset
    directory : Path, optional
        Without, the preset's configuration is generated and kept.

    Attributes
    ----------
    preset : Preset
        With the design's configuration.
    module : str
        The outermost module of the directory's Verilog.
    """

    def __init__(self, preset: Preset, directory: Path | str | None = None) -> None:
        self.directory = directory
        self.preset, self.module = (preset, _MODULE) if directory is None else _described(preset, directory)

    def check(self) -> None:
        """Refuses a directory without Verilog."""
        if self.directory is not None and not self.made:
            raise ValueError(f"design={self.directory}: has no rtl/*.v; name a directory that gradloom generate made")

    def files(self, tell: Callable[[str], object] | None = None) -> list[Path]:
        """Verilog files, whose outermost module is ``gradloom``.

        ``tell`` is called with each long task.
        """
        if self.directory is not None:
            self.check()
            return _simulated(self.made, self.module)
        if tell is not None:
            tell("generating Verilog")
        return design(self.preset.config)

    def chosen(self) -> list[Path]:
        """Verilog files of the directory; none where there is no directory."""
        return [] if self.directory is None else self.files()

    @property
    def made(self) -> list[Path]:
        """Verilog files of the directory as they are there; none where there is no directory."""
        return [] if self.directory is None else sorted((Path(self.directory) / "rtl").glob("*.v"))


def _simulated(files: list[Path], module: str) -> list[Path]:
    """The files with ``module`` called as test benches call it.

    A copy of its file is kept in the cache.
    """
    from .runner import cache_directory

    if module == _MODULE:
        return files
    own = next((each for each in files if each.stem == module), None)
    if own is None:
        raise ValueError(f"design={files[0].parents[1]}: has no rtl/{module}.v; generate the design again")
    text = re.sub(rf"^module {module}\b", f"module {_MODULE}", own.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = cache_directory() / "designs" / f"top-{hashlib.sha256(text.encode()).hexdigest()[:20]}" / f"{_MODULE}.v"
    with staged_file(kept) as file:
        file.write(text.encode())
    return [kept if each is own else each for each in files]


def _described(preset: Preset, directory: Path | str) -> tuple[Preset, str]:
    """The preset with the configuration that a design's ``report.json`` has, and the outermost module."""
    if not (Path(directory) / "report.json").is_file():
        raise ValueError(f"design={directory}: has no report.json; name a directory that gradloom generate made")
    try:
        summary = read_json(Path(directory) / "report.json")
        if "unit" in summary:
            raise ValueError(f"it is of the unit {summary['unit']}, the request is for the preset {preset.name}")
        made, parameters = summary["preset"], summary["parameters"]
        if made != preset.name:
            raise ValueError(f"it is of {made}, the request is for {preset.name}")
        return dataclasses.replace(preset, config=type(preset.config)(**parameters)), str(
            summary.get("module", _MODULE)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"design={directory}: report.json describes no such design ({error}); gradloom generate {preset.name} "
            f"makes one"
        ) from None
