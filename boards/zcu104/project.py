"""The ZCU104 has no project: verbs that need one say so."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ..board import Board
from ..flow import FlowError, NoProjectError

__all__ = ["build", "flash", "project_files"]


def _reason(board: Board) -> str:
    return (
        f"board={board.name}: no board project, only area by gradloom report; take rtl/*.v into a project of yours, or "
        "choose a preset of another board"
    )


def project_files(board: Board, report: Mapping) -> dict[str, str]:
    """Always :class:`NoProjectError`."""
    raise NoProjectError(_reason(board))


def build(
    board: Board, directory: Path | str, *, dry_run: bool = False, echo: Callable[[str], object] = print
) -> list[str]:
    """Always :class:`FlowError`."""
    raise FlowError(_reason(board))


def flash(
    board: Board,
    directory: Path | str,
    *,
    host: str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Always :class:`FlowError`."""
    raise FlowError(_reason(board))
