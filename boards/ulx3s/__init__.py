"""Radiona ULX3S: a tuner that runs on its own, by open tools from Verilog to bitstream."""
from .facts import ULX3S as BOARD
from .netlist import area
from .project import check, project_files
from .tools import build, flash

__all__ = ["BOARD", "area", "build", "check", "flash", "project_files"]
