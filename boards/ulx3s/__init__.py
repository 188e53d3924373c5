"""Radiona ULX3S: a stand-alone tuner, built by open tools."""

from .checks import checks
from .facts import ULX3S as BOARD
from .netlist import area
from .project import check, project_files
from .tools import build, flash

__all__ = ["BOARD", "area", "build", "check", "checks", "flash", "project_files"]
