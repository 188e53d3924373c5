"""Counted things in words."""

__all__ = ["some"]


def some(count: int, what: str) -> str:
    """``count`` and ``what``, which gets an s unless there is one of it."""
    return f"{count:,} {what}{'s' * (count != 1)}"
