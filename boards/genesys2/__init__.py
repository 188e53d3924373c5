"""Digilent Genesys 2: a system on chip, built by Vivado."""

from .checks import checks
from .facts import GENESYS2 as BOARD
from .flash import build, flash
from .project import check, project_files

__all__ = ["BOARD", "build", "check", "checks", "flash", "project_files"]
