"""Digilent Genesys 2: Vivado project of a system on chip around the accelerator, flashing over USB."""
from .facts import GENESYS2 as BOARD
from .flash import build, flash
from .project import project_files

__all__ = ["BOARD", "build", "flash", "project_files"]
