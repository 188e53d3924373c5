"""AMD Kria KR260: the KV260's project with the board files of another carrier."""

from ..kv260 import build, check, checks, flash, measured, project_files, reached
from .facts import KR260 as BOARD

__all__ = ["BOARD", "build", "check", "checks", "flash", "measured", "project_files", "reached"]
