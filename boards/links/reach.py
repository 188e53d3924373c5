"""How the agent of a board is started from here."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BoardReach", "plain_fault"]


def plain_fault(code: int | None, line: str) -> str:
    """Message for an agent that has ended: its last line or exit code."""
    return line or ("the agent does not answer" if code is None else f"the agent has ended (exit code {code})")


@dataclass(frozen=True, kw_only=True)
class BoardReach:
    """A board, and the command that starts its agent.

    The agent has its frames on standard input and output.

    Parameters
    ----------
    name : str
        As messages call it.
    command : tuple of str
    explain : callable
        ``explain(exit_code, line)``: a line for the user where the command ends early; ``line`` is its last one.
    """

    name: str
    command: tuple[str, ...]
    explain: Callable[[int | None, str], str] = plain_fault
