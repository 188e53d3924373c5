"""AMD Kria KV260: Vivado project, bundle, loading over ssh."""

from .bundle.flash import build, flash
from .checks import checks
from .facts import KV260 as BOARD
from .measured import measured
from .project import check, project_files
from .reached import reached

__all__ = ["BOARD", "build", "check", "checks", "flash", "measured", "project_files", "reached"]
