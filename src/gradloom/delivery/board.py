"""Signed packages of a board's words, which its firmware installs."""

import hashlib
from pathlib import Path

import numpy as np

from . import words as coding
from .keys import Signer
from .manifest import SIGNED, SIZE, WORDS, Manifest
from .package import signed_package

__all__ = ["make_board_package", "read_parent"]


def make_board_package(
    words: np.ndarray,
    signer: Signer,
    *,
    base: bytes,
    version: int,
    bits: int,
    exact: int,
    least: int = 0,
    bound: float = 0.0,
    parent: np.ndarray | None = None,
) -> tuple[bytes, np.ndarray]:
    """A signed package, and the int32 words that it makes.

    ``base`` is the SHA-256 of the card's first block. ``bits``: of each word or, with ``parent``, of each difference;
    words from ``exact`` on are kept as they are. ``bound``: share by which the loss on the card's held-out text may
    grow; 0: any.
    """
    if not 0 <= bound < float("inf"):
        raise ValueError(f"bound={bound}: must be at least 0 and finite")
    if parent is not None and len(parent) != len(words):
        raise ValueError(f"parent: has {len(parent)} words, the card {len(words)}; name a package of this card")
    with np.errstate(over="ignore"):
        before = np.zeros(len(words), np.int32) if parent is None else parent.astype(np.int32)
        payload = coding.encode(words.astype(np.int32) - before, bits, exact)
        result = before + coding.decode(payload, len(words))
    package = signed_package(
        payload,
        signer,
        kind=WORDS,
        version=version,
        least=least,
        bound=bound,
        bits=bits,
        block=coding.GROUP,
        base=base,
        parent=bytes(32) if parent is None else _hash(before),
        result=_hash(result),
    )
    return package, result


def read_parent(path: Path | str, count: int) -> np.ndarray:
    """Words of a package that is no change of another.

    Its signature is not checked. :class:`ValueError` if it is of another kind, or has other words.
    """
    content = Path(path).read_bytes()
    manifest = Manifest.read(content[:SIGNED]) if len(content) > SIZE else None
    if manifest is None or manifest.kind != WORDS or any(manifest.parent):
        raise ValueError(f"parent={path}: must be a package of gradloom package sign --card, no change of another one")
    found = coding.decode(content[SIZE:], count)
    if _hash(found) != manifest.result:
        raise ValueError(f"parent={path}: is damaged; get it again")
    return found


def _hash(words: np.ndarray) -> bytes:
    return hashlib.sha256(words.astype("<i4").tobytes()).digest()
