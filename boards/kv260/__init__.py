"""AMD Kria KV260: Vivado project, bundle, loading over ssh."""

from .facts import KV260 as BOARD
from .flash import build, flash
from .project import project_files

__all__ = ["BOARD", "build", "flash", "project_files"]
