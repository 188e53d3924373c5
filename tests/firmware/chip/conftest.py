"""A small language model, for the tables of its fine-tunes, and the firmware's C on this machine."""

import shutil
import subprocess

import pytest

from gradloom.firmware.chip.soc_image import includes, source

from ...systems.text.conftest import adapters, frozen, model, tensors

__all__ = ["adapters", "frozen", "host_program", "model", "tensors"]


@pytest.fixture(scope="module")
def host_program(tmp_path_factory):
    """Builds the firmware's C for this machine: ``host_program(main, header, names)``, of a board's header."""

    def build(main, header, names):
        if shutil.which("gcc") is None:
            pytest.skip("gcc is not installed")
        folder = tmp_path_factory.mktemp(main.stem)
        (folder / "board.h").write_text(header)
        made, sources = folder / main.stem, [main, *(source(f"{name}.c") for name in names)]
        command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", *includes()]
        command += [f'-DGL_BOARD_HEADER="{folder / "board.h"}"', *map(str, sources), "-o", str(made)]
        subprocess.run(command, check=True)
        return made

    return build
