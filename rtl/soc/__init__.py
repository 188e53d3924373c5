"""An open system on chip around an accelerator, in Verilog.

It has a processor, firmware memory, UART, a memory card's SPI port and SHA-256. ``soc.v`` defines the address map; the
processor comes from a package of its own, and ``sha256.v`` is the unit of that name: ``python -m gradloom.rtl.soc``
writes it.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["CORES", "DIGEST", "Core", "soc_sources", "tuner_sources"]

_HERE = Path(__file__).parent
#: The file of the unit, and of its module.
DIGEST = "sha256.v"


@dataclass(frozen=True, kw_only=True)
class Core:
    """A processor, which ``wrapper`` (in this folder) adapts.

    ``wrapper`` defines ``gradloom_cpu`` by a module in ``file`` of ``package``.

    ``distribution`` is the package to install, ``licence`` the core's own.
    """

    wrapper: str
    package: str
    distribution: str
    file: str
    licence: str


CORES = {
    "picorv32": Core(
        wrapper="cpu_picorv32.v",
        package="pythondata_cpu_picorv32",
        distribution="pythondata-cpu-picorv32",
        file="verilog/picorv32.v",
        licence="ISC",
    )
}


def soc_sources(core: str = "picorv32") -> list[Path]:
    """The Verilog of ``gradloom_soc`` around ``core``.

    :class:`ValueError` names a missing file or package.
    """
    if core not in CORES:
        raise ValueError(f"core must be one of {', '.join(CORES)}, not {core!r}")
    chosen = CORES[core]
    spec = find_spec(chosen.package)
    if spec is None or spec.origin is None:
        raise ValueError(f"core={core}: its Verilog is not installed: pip install {chosen.distribution}")
    own = ("soc.v", "uart.v", "spi.v", "digest.v", DIGEST, "multiplier.v", chosen.wrapper)
    return [*(_HERE / name for name in own), Path(spec.origin).parent / chosen.file]


def tuner_sources(core: str = "picorv32") -> list[Path]:
    """The Verilog of ``gradloom_tuner``.

    It is that of ``gradloom_soc`` without a card's line and SHA-256, and memory in block RAM.
    """
    return [
        _HERE / "tuner.v",
        _HERE / "onchip_memory.v",
        _HERE / "onchip_ram.v",
        *(path for path in soc_sources(core) if path.name not in ("spi.v", "digest.v", DIGEST)),
    ]
