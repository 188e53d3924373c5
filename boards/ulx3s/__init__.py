"""Radiona ULX3S: a tuner that runs on its own, by open tools from Verilog to bitstream."""
from .facts import ULX3S as BOARD
from .project import check, project_files
from .tools import build, flash

__all__ = ["BOARD", "build", "check", "flash", "project_files"]
