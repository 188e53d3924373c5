"""Digilent Genesys 2: a system on chip, built by Vivado."""

from .checks import checks
from .facts import GENESYS2 as BOARD
from .flash import build, flash
from .project import project_files

__all__ = ["BOARD", "build", "checks", "flash", "project_files"]
