"""Where a design lands: board facts, vendor projects, flashing."""

from .board import Board
from .flow import FlowError, MissingToolError, NoProjectError
from .links.reach import BoardReach
from .registry import (
    all_boards,
    build,
    check,
    checkup,
    find,
    flash,
    measure,
    measured,
    reached,
    require_agent,
    require_sensor,
    write_project,
)

__all__ = [
    "Board",
    "FlowError",
    "MissingToolError",
    "NoProjectError",
    "BoardReach",
    "all_boards",
    "build",
    "check",
    "checkup",
    "find",
    "flash",
    "measure",
    "measured",
    "reached",
    "require_agent",
    "require_sensor",
    "write_project",
]
