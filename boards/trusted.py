"""The public key that a generated design's firmware trusts."""

import hashlib
from pathlib import Path

from gradloom.firmware.chip.soc_image import trusting

__all__ = ["trust"]


def trust(design: Path, root: bytes) -> str:
    """Puts the key into the firmware's image of a design.

    Returns its SHA-256.

    :class:`ValueError` if the design has no firmware that checks signatures.
    """
    image = design / "board" / "soc" / "soc_image.mem"
    if not image.is_file():
        raise ValueError("trust: the design has no firmware that checks signatures; leave it out")
    image.write_text(trusting(image.read_text(encoding="ascii"), root), encoding="ascii", newline="\n")
    return hashlib.sha256(root).hexdigest()
