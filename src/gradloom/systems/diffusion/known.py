"""Models of pictures, by name."""

__all__ = ["known"]


def known(model: str) -> None:
    """None: a fine-tune has the shipped UNet, which its preset names."""
    return
