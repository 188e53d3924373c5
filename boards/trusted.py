"""The public key that a generated design's firmware trusts."""

from pathlib import Path

from gradloom.firmware.soc_image import trusting

__all__ = ["trust"]


def trust(design: Path, root: bytes) -> None:
    """Puts the key into the firmware's image of a design.

    :class:`ValueError` if the design has no firmware that checks signatures.
    """
    image = design / "board" / "soc" / "soc_image.mem"
    if not image.is_file():
        raise ValueError("trust: the design has no firmware that checks signatures; leave it out")
    image.write_text(trusting(image.read_text(encoding="ascii"), root), encoding="ascii", newline="\n")
