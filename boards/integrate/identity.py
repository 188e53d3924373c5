"""Under which name others find a generated core."""

__all__ = ["LIBRARY", "VENDOR", "VERSION", "core_name"]

VENDOR, LIBRARY, VERSION = "gradloom", "accelerator", "1.0"


def core_name(module: str) -> str:
    """Vendor, library, name and version of a core, as IP-XACT, FuseSoC and PYNQ write them."""
    return f"{VENDOR}:{LIBRARY}:{module}:{VERSION}"
