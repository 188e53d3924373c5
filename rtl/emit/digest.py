"""Names a design by its Verilog."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["design_digest"]


def design_digest(files: Sequence[Path]) -> str:
    """SHA-256 of names and contents of a design's Verilog files."""
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda each: each.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
