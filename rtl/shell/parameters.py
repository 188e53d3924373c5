"""Parameters of hardware: frozen, checked, merged by inheritance.

Importing them takes no Amaranth.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

__all__ = ["Parameters", "Resources", "ShellParameters", "block_rams", "parameter", "port_bits", "ultra_rams"]

#: Longest burst that is ever issued: what a Zynq UltraScale+ PS port takes without splitting it.
BURST_BEATS = 16
#: Shapes of half a block RAM: bits and words.
_HALVES = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))


def port_bits(data_bits: int, ports: int) -> int:
    """Bits of each of ``ports`` AXI4 managers of a machine with beats of ``data_bits``.

    A lone one is as wide as a beat; of several each has at most the 128 bits of a processing system's port.
    """
    return data_bits if ports == 1 else min(data_bits, 128)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one engine by count.

    Parameters
    ----------
    dsp : mapping
        DSP slices of each part.
    bits : mapping
        Bits of each large memory, without the unused part of its blocks.
    block_rams, ultra_rams : mapping
        Blocks of memories of UltraScale+ and 7 series, where an engine counts them.
    """

    dsp: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    block_rams: Mapping[str, float] = dataclasses.field(default_factory=dict)
    ultra_rams: Mapping[str, int] = dataclasses.field(default_factory=dict)


def block_rams(bits: int, words: int) -> float:
    """Block RAMs of 36 Kibit of a memory that has a port to read and one to write."""
    return min(-(-bits // wide) * -(-words // deep) for wide, deep in _HALVES) / 2


def ultra_rams(bits: int, words: int) -> int:
    """The same of ultra RAMs."""
    return -(-bits // 72) * -(-words // 4096)


def parameter(
    default: int,
    low: int,
    high: int,
    *,
    power: bool = False,
    known: bool = False,
    least: bool = False,
    usual: int | None = None,
    mesh: bool = False,
    fraction: bool = False,
) -> Any:
    """A field of :class:`Parameters`: an integer from ``low`` to ``high``.

    ``power``: a power of two. ``known``: the driver reads it from the machine, and a program runs where it is the same;
    ``least``: or where it is more. ``usual``: it is known too, and is this where the machine does not name it. A
    parameter that two machines take the same program with must be known, unless only time depends on it, or an engine
    refuses what is beyond it. ``mesh``: it sets the number of DSP slices, and a refusal names it. ``fraction``: a
    number that need not be whole.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "low": low,
            "high": high,
            "power": power,
            "known": known or least or usual is not None,
            "least": least,
            "usual": usual,
            "mesh": mesh,
            "fraction": fraction,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of the parameters of an engine, a shell or a machine.

    A machine's parameters are its configuration.

    A machine's configuration inherits the parameters of the shell and of its engines, so a parameter that several
    engines declare is one field with one value. Each class may define ``check``, which refuses (:class:`ValueError`)
    values that do not go together, and ``resources``; neither calls the others': all are called.

    Attributes
    ----------
    home : str
        ``module:name`` of the machine, in a machine's configuration.
    """

    home: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._in_bounds(field)
        for part in self._parts("check"):
            part.check(self)

    def _in_bounds(self, field: "dataclasses.Field[Any]") -> None:
        value, bound = getattr(self, field.name), field.metadata
        low, high, power = bound["low"], bound["high"], bound["power"]
        whole = isinstance(value, int) and not isinstance(value, bool) and not (power and value & value - 1)
        if (whole or bound["fraction"] and isinstance(value, float)) and low <= value <= high:
            return
        if low == high:
            raise ValueError(f"{field.name}={value!r}: must be {low}")
        raise ValueError(
            f"{field.name}={value!r}: must be "
            f"{'a power of two' if power else 'a number' if bound['fraction'] else 'an integer'} from {low} to {high}"
        )

    @classmethod
    def _parts(cls, method: str) -> Iterator[Any]:
        """The classes that define a method, those inherited first."""
        return (each for each in reversed(cls.__mro__) if each is not Parameters and method in vars(each))

    @classmethod
    def largest(cls, field: str) -> int:
        """The largest value that a field takes in any design."""
        high: int = cls._bound(field)["high"]
        return high

    @classmethod
    def smallest(cls, field: str, least: int) -> int | None:
        """The smallest legal value of a field, at least ``least``.

        None if there is none.
        """
        bound = cls._bound(field)
        value = max(least, bound["low"])
        if bound["power"]:
            value = 1 << (value - 1).bit_length()
        return value if value <= bound["high"] else None

    @classmethod
    def _bound(cls, field: str) -> Mapping[str, Any]:
        return next(each.metadata for each in dataclasses.fields(cls) if each.name == field)

    @property
    def machine(self) -> Any:
        """The :class:`~gradloom.rtl.machines.fabric.Machine` that it configures."""
        module, _, name = self.home.partition(":")
        return getattr(importlib.import_module(module), name)

    @property
    def known(self) -> dict[str, int]:
        """Parameters that the driver reads from the machine, without those that are as usual."""
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self) if field.metadata["known"])
        return {field.name: value for field, value in values if value != field.metadata["usual"]}

    @property
    def least(self) -> frozenset[str]:
        """Those of which a program runs on a machine with more, too."""
        return frozenset(field.name for field in dataclasses.fields(self) if field.metadata["least"])

    @property
    def counted(self) -> Resources:
        """Resources of all engines."""
        counted: dict[str, dict[str, Any]] = {field.name: {} for field in dataclasses.fields(Resources)}
        for part in self._parts("resources"):
            for name, parts in vars(part.resources(self)).items():
                counted[name] |= parts
        return Resources(**counted)

    def replace(self, **changes: float) -> Self:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class ShellParameters(Parameters):
    """Parameters of the shell, which surrounds every machine's engines.

    Parameters
    ----------
    address_bits : int
        Bits of an address of the AXI4 manager.
    cache_slots : int
        Valid bits, one a kept sample.
    queue_depth : int
        Commands that wait at an engine.
    outstanding : int
        Bursts in flight of each port: more of them hide more of the memory's latency.
    requests : int
        1: a second program runs between parts of the first, where that yields; 0 saves its registers.
    forwards : int
        1: STORE may send records to load ports, too, which take them as LOAD's. 0 where no port of the machine takes
        them.
    ports : int
        AXI4 managers, which share the addresses by stripes of a burst: 1, 2 or 4.
    clock_mhz : float
        Clock of the board's project, and of forecasts in seconds.
    """

    address_bits: int = parameter(32, 32, 64)
    cache_slots: int = parameter(64, 64, 32768)
    queue_depth: int = parameter(16, 2, 16, power=True)
    outstanding: int = parameter(16, 1, 16, power=True)
    requests: int = parameter(0, 0, 1)
    forwards: int = parameter(0, 0, 0)
    ports: int = parameter(1, 1, 4, power=True)
    clock_mhz: float = parameter(200, 1, 1000, fraction=True)

    @property
    def data_bits(self) -> int:
        """Bits of a beat of LOAD and STORE.

        An engine's parameters may overrule it.
        """
        return 128

    @property
    def port_bits(self) -> int:
        """Bits of each AXI4 manager, see :func:`port_bits`."""
        return port_bits(self.data_bits, self.ports)

    @property
    def bus(self) -> dict[str, int]:
        """AXI4 managers, as :func:`~gradloom.sim.run.device.build_device` has them."""
        return {"data_bits": self.port_bits, "address_bits": self.address_bits, "ports": self.ports}

    @property
    def shell(self) -> dict[str, Any]:
        """Arguments of :class:`~gradloom.rtl.shell.shell.Shell`."""
        return {
            "data_bits": self.data_bits,
            "addr_bits": self.address_bits,
            "slots": self.cache_slots,
            "outstanding": self.outstanding,
            "depth": self.queue_depth,
            "requests": self.requests,
            "forwards": self.forwards,
            "ports": self.ports,
            "port_bits": self.port_bits,
        }

    def resources(self) -> Resources:
        """Of several ports, each has a queue of what it reads."""
        words = self.outstanding * BURST_BEATS * self.port_bits // self.data_bits
        return Resources(
            block_rams={"port queues": self.ports * block_rams(self.data_bits + 2, words)} if self.ports > 1 else {}
        )
