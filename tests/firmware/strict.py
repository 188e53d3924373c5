"""Sources of the C driver as a library for this machine, with all warnings as errors."""

import ctypes
import shutil
import subprocess

import pytest

from gradloom.firmware.chip.soc_image import includes, source

__all__ = ["strict_library"]

_STRICT = ["gcc", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wconversion", "-std=c99"]


def strict_library(target, *names):
    """The library of the sources of these names, written to ``target``; the test is skipped without gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    sources = [str(source(name)) for name in names]
    subprocess.run([*_STRICT, "-O2", *includes(), "-shared", "-fPIC", "-o", str(target), *sources], check=True)
    return ctypes.CDLL(str(target))
