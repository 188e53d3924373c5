"""Radiona ULX3S: a tuner that runs on its own, by open tools from Verilog to bitstream."""
from .facts import ULX3S as BOARD
from .flash import build, flash
from .project import project_files, write_project

__all__ = ["BOARD", "build", "flash", "project_files", "write_project"]
