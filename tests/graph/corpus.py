"""Networks for tests, each as some exporter writes it: ``CORPUS`` has a maker for each name."""

from . import networks, operators  # noqa: F401 - they put themselves down
from .listed import CORPUS

__all__ = ["CORPUS"]
