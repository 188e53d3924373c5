"""A product as jobs for the machine: transfers and their purpose."""

from dataclasses import dataclass

__all__ = ["ProductJob", "Transfer"]


@dataclass(frozen=True)
class Transfer:
    """A transfer between memory and the machine.

    ``offset`` in the window, beats, and the argument of the command.
    """

    offset: int
    beats: int
    argument: int


@dataclass(frozen=True, kw_only=True)
class ProductJob:
    """A product and its inputs on chip.

    ``operands`` and ``lanes`` are there before it starts, ``tables`` before ``tiles``.

    Only tiles of codes need tables. ``stride``: bytes from a tile of ``result`` to the next, where they are not behind
    each other.
    """

    tables: Transfer | None
    operands: Transfer
    lanes: tuple[Transfer, ...]
    tiles: tuple[Transfer, ...]
    result: Transfer
    inner: int
    outer: int
    tokens: int
    rank: int
    backward: bool
    shifts: dict[str, int]
    stride: int | None = None
