"""AMD ZCU104: the KV260's project with another part and its board files."""

from ..kv260 import build, check, checks, flash, project_files, reached
from .facts import ZCU104 as BOARD

__all__ = ["BOARD", "build", "check", "checks", "flash", "project_files", "reached"]
