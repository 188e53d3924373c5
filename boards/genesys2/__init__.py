"""Digilent Genesys 2: facts for plans and areas. It has no project yet, and the verbs that need one say so."""
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ..board import Board
from ..flow import NoProjectError
from .facts import GENESYS2 as BOARD

__all__ = ["BOARD", "build", "flash", "write_project"]


def write_project(board: Board, directory: Path | str, report: dict) -> list[Path]:
    """Refuses."""
    _refuse(board)


def build(board: Board, directory: Path | str, *, dry_run: bool = False,
          echo: Callable[[str], object] = print) -> list[str]:
    """Refuses."""
    _refuse(board)


def flash(board: Board, directory: Path | str, *, host: str | None = None, dry_run: bool = False,
          echo: Callable[[str], object] = print) -> list[str]:
    """Refuses."""
    _refuse(board)


def _refuse(board: Board) -> NoReturn:
    raise NoProjectError(f"board={board.name}: has no board project yet; gradloom plan and gradloom report know it")
