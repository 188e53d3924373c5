"""AMD Kria KV260: Vivado project, bundle, loading over ssh."""

from .checks import checks
from .facts import KV260 as BOARD
from .flash import build, flash
from .measured import measured
from .project import project_files

__all__ = ["BOARD", "build", "checks", "flash", "measured", "project_files"]
