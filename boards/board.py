"""Facts of a board, as one small frozen record."""

import re
from dataclasses import asdict, dataclass

from .dram import DramFacts

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_RESOURCES = ("lut", "ff", "dsp", "bram36", "uram")


@dataclass(frozen=True, kw_only=True)
class Board:
    """Description of a board for the generator.

    Parameters
    ----------
    name : :class:`str`
        What a user types. Lower case.
    summary : :class:`str`
        One line for ``gradloom list boards``.
    part : :class:`str`
        The vendor's full part number.
    family : :class:`str`
        Family as open synthesis calls it: ``"xc7"`` (DSP48E1), ``"xcup"`` (DSP48E2, URAM) or ``"ecp5"`` (MULT18X18D).
    lut, ff, dsp, bram36, uram : :class:`int`
        What the part has. A BRAM36 holds 36 Kibit, a URAM 288 Kibit.
    clock_hz : :class:`int`
        Clock that a generated design runs at.
    memory_bytes, memory_bandwidth : :class:`int`
        External memory, and its peak rate in bytes a second.
    port_bits : :class:`int`
        Data width of the widest port on that memory that a design gets.
    port_reads : :class:`int`
        Reads that this port keeps in flight, also where a design asks for more; 0: no limit is known. A forecast takes
        it as ``port_reads``.
    dram : :class:`~.dram.DramFacts`
        Times of that memory.
    ports : :class:`int`
        Most ports on that memory that a design gets.
    listens : :class:`int`
        Bits a second of a UART that takes data to learn from; 0: there is none.
    host : :class:`str`
        The processor that rings the bell.
    register_base : :class:`int`
        Physical address of the register block, as the host sees it.
    shell : :class:`str`
        What surrounds a design there: boards of one shell take each other's presets.
    build_time : :class:`str`
        Time of ``gradloom build``, where it was measured.
    """

    name: str
    summary: str
    part: str
    family: str
    lut: int
    ff: int
    dsp: int
    bram36: int
    uram: int
    clock_hz: int
    memory_bytes: int
    memory_bandwidth: int
    port_bits: int
    host: str
    register_base: int = 0
    shell: str = ""
    build_time: str = ""
    port_reads: int = 0
    ports: int = 1
    listens: int = 0
    dram: DramFacts | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name must match {_NAME.pattern}, not {self.name!r}")
        if self.family not in ("xc7", "xcup", "ecp5"):
            raise ValueError(f"family must be 'xc7', 'xcup' or 'ecp5', not {self.family!r}")
        for field in ("lut", "ff", "clock_hz", "memory_bytes", "memory_bandwidth", "port_bits", "ports"):
            if getattr(self, field) <= 0:
                raise ValueError(f"{field} must be positive, not {getattr(self, field)}")
        for field in ("dsp", "bram36", "uram", "register_base", "port_reads", "listens"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must not be negative, not {getattr(self, field)}")

    @property
    def resources(self) -> dict[str, int]:
        """Resources of the part: LUT, FF, DSP, BRAM36, URAM."""
        return {field: getattr(self, field) for field in _RESOURCES}

    @property
    def memory_bits(self) -> int:
        """Bits of all block and ultra RAM on the part."""
        return (self.bram36 * 36 + self.uram * 288) * 1024

    def dram_cycles(self, *, clock_mhz: float, port_bits: int) -> dict[str, int]:
        """:meth:`.dram.DramFacts.cycles` of the board's memory; :class:`ValueError` where its times are not known."""
        if self.dram is None:
            raise ValueError(f"board={self.name}: no DRAM with known times")
        return self.dram.cycles(clock_mhz=clock_mhz, port_bits=port_bits, bandwidth=self.memory_bandwidth)

    def require(self, **need: int) -> None:
        """Refuses a need that is beyond the board's resources.

        :class:`ValueError` for the first resource of which more is needed than there is.
        """
        for field, value in need.items():
            if field not in _RESOURCES:
                raise ValueError(f"resource must be one of {', '.join(_RESOURCES)}, not {field!r}")
            if value > getattr(self, field):
                raise ValueError(
                    f"{field}: the design needs {value}, {self.name} ({self.part}) has {getattr(self, field)}"
                )

    def as_dict(self) -> dict[str, object]:
        """The record as plain values, for JSON."""
        return asdict(self)
