"""The boards as Amaranth platforms.

A platform takes somebody's own design, as every Amaranth platform does, or a :class:`PresetDesign`, of which it makes
what ``gradloom generate`` and ``gradloom build`` make.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from amaranth.build.run import BuildPlan, BuildProducts, LocalBuildProducts
from amaranth.hdl import Elaboratable
from amaranth_boards.genesys2 import Genesys2Platform as _Genesys2
from amaranth_boards.ulx3s import ULX3S_85F_Platform as _Ulx3s

from . import registry
from .kv260.platform import KV260 as _Kv260

__all__ = ["Genesys2Platform", "KV260Platform", "PresetDesign", "ULX3SPlatform"]


class PresetDesign(Elaboratable):
    """A preset's accelerator, as a design to build on its board.

    In simulation, or inside another design, it is the accelerator without its ports' names: use
    :class:`~gradloom.rtl.machines.accelerator.Accelerator` there.

    Parameters
    ----------
    preset : :class:`str`
        As ``gradloom list presets`` lists them.
    settings : mapping
        Changed parameters by name, as ``gradloom generate --set`` takes them.
    """

    def __init__(self, preset: str, settings: Mapping[str, object] | None = None) -> None:
        from gradloom.cli.design.generate import configured
        from gradloom.preset import find_preset

        self.preset, self.settings = find_preset(preset), dict(settings or {})
        self.config = configured(self.preset.config, self.settings)
        self._MustUse__used = True  # Made to be asked for its files; its elaboration is another object's.

    def elaborate(self, platform: Any) -> Any:
        """The accelerator."""
        from gradloom.rtl.machines.accelerator import Accelerator

        return Accelerator(self.config)

    def write(self, directory: Path | str) -> None:
        """Writes what ``gradloom generate`` writes to ``directory``."""
        from gradloom.cli.design.generate import generate

        generate(self.preset.name, directory, settings=self.settings)


class _Machines:
    """Presets on an Amaranth platform; it takes other designs itself."""

    #: Name of the board.
    board: ClassVar[str]

    def prepare(self, elaboratable: Any, name: str = "top", **options: Any) -> BuildPlan:
        """The files of a design and the script that builds them, in memory.

        Of a :class:`PresetDesign` they are what ``gradloom generate`` writes, and the script is ``gradloom build``.
        """
        if not isinstance(elaboratable, PresetDesign):
            return super().prepare(elaboratable, name, **options)  # type: ignore[misc]
        self._check(elaboratable)
        plan = BuildPlan(script=f"build_{name}")
        with tempfile.TemporaryDirectory() as folder:
            elaboratable.write(Path(folder) / "design")
            for path in sorted((Path(folder) / "design").rglob("*")):
                if path.is_file():
                    plan.add_file(path.relative_to(Path(folder) / "design").as_posix(), path.read_bytes())
        plan.add_file(f"build_{name}.sh", f"set -e\ngradloom build {self.board} .\n")
        plan.add_file(f"build_{name}.bat", f"@gradloom build {self.board} .\r\n")
        return plan

    def build(
        self,
        elaboratable: Any,
        name: str = "top",
        build_dir: Path | str = "build",
        do_build: bool = True,
        program_opts: Mapping[str, Any] | None = None,
        do_program: bool = False,
        **options: Any,
    ) -> BuildPlan | BuildProducts | None:
        """Builds a design; arguments are those of every Amaranth platform.

        A :class:`PresetDesign` is written to ``build_dir`` and built there as by ``gradloom generate`` and ``gradloom
        build``; ``program_opts`` are those of ``gradloom flash``.
        """
        if not isinstance(elaboratable, PresetDesign):
            return super().build(  # type: ignore[misc]
                elaboratable, name, str(build_dir), do_build, program_opts, do_program, **options
            )
        if not do_build:
            return self.prepare(elaboratable, name, **options)
        self._check(elaboratable)
        board = registry.find(self.board)
        elaboratable.write(build_dir)
        registry.build(board, build_dir)
        if do_program:
            registry.flash(board, build_dir, **(program_opts or {}))
            return None
        return LocalBuildProducts(str(build_dir))

    def _check(self, design: PresetDesign) -> None:
        if design.preset.board != self.board:
            raise ValueError(
                f"preset={design.preset.name}: is for the board {design.preset.board}, not {self.board}; "
                f"use that board's platform"
            )


class KV260Platform(_Machines, _Kv260):
    """The Kria KV260, as an Amaranth platform."""

    board = "kv260"


class Genesys2Platform(_Machines, _Genesys2):
    """The Genesys 2, with the resources of amaranth-boards."""

    board = "genesys2"


class ULX3SPlatform(_Machines, _Ulx3s):
    """The ULX3S (LFE5U-85F), with the resources of amaranth-boards."""

    board = "ulx3s"
