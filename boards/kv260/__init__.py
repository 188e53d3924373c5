"""AMD Kria KV260: Vivado project, bundle, loading over ssh."""

from .checks import checks
from .facts import KV260 as BOARD
from .flash import build, flash
from .project import project_files

__all__ = ["BOARD", "build", "checks", "flash", "project_files"]
