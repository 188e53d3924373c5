"""Files for those who put a generated design into a system of their own."""

from .files import integration_files, write_integration

__all__ = ["integration_files", "write_integration"]
