"""Digilent Genesys 2: a system on chip, built by Vivado."""

from .facts import GENESYS2 as BOARD
from .flash import build, flash
from .project import project_files

__all__ = ["BOARD", "build", "flash", "project_files"]
