"""Verilog of configurations, generated once and kept beside the built simulations."""
import fcntl
import hashlib
from pathlib import Path

import gradloom.rtl
from gradloom.rtl.config import Config, LinearConfig

from .runner import cache_directory

__all__ = ["design"]


def _sources() -> str:
    """What the generator is made of: another generator makes other Verilog."""
    digest = hashlib.sha256()
    root = Path(gradloom.rtl.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def design(config: Config | LinearConfig) -> list[Path]:
    """Files of the Verilog of ``config``, whose outermost module is ``gradloom``."""
    from gradloom.rtl.emit import emit
    from gradloom.rtl.top import Accelerator

    key = hashlib.sha256(f"{config!r}{_sources()}".encode()).hexdigest()[:20]
    where = cache_directory() / "designs" / key
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "rtl").is_dir():
            emit(Accelerator(config), where, name="gradloom")
    return sorted((where / "rtl").glob("*.v"))
