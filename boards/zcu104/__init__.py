"""AMD ZCU104: facts for area by open synthesis; there is no project."""

from .facts import ZCU104 as BOARD
from .project import build, flash, project_files

__all__ = ["BOARD", "build", "flash", "project_files"]
