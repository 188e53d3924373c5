"""A register: address, fields, and access rights of software."""

from dataclasses import dataclass

__all__ = ["Field", "Register", "RegisterMap"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """Bits of a register.

    Attributes
    ----------
    lsb, width : :class:`int`
        Place in the register.
    readable, writable : :class:`bool`
        What software may do.
    reset : :class:`int`
        Value after reset, of the fields that the decoder holds.
    stored : :class:`bool`
        The decoder holds the value (software writes it); otherwise the hardware supplies it.
    pulse : :class:`bool`
        Writing 1 gives a pulse of one cycle; reads as 0.
    clear_on_one : :class:`bool`
        Writing 1 clears the bit; the hardware sets it.
    constant : :class:`bool`
        Reads as ``reset`` always.
    description : :class:`str`
        For the manual.
    """

    name: str
    lsb: int
    width: int
    readable: bool
    writable: bool
    reset: int
    stored: bool
    pulse: bool
    clear_on_one: bool
    constant: bool
    description: str

    @property
    def mask(self):
        """Bits of the register that belong to the field."""
        return ((1 << self.width) - 1) << self.lsb


@dataclass(frozen=True, kw_only=True)
class Register:
    """A 32-bit register at a byte ``address``.

    ``locked`` names the state in which it refuses writes: ``program``, ``request``, ``machine`` (either), or nothing.
    """

    name: str
    address: int
    locked: str
    fields: tuple
    title: str
    description: str

    @property
    def readable(self):
        return any(f.readable for f in self.fields)

    @property
    def writable(self):
        return any(f.writable for f in self.fields)


@dataclass(frozen=True, kw_only=True)
class RegisterMap:
    """All registers, in order of address.

    ``map["CONTROL"]`` is a register, ``map.address("CONTROL")`` its address.
    """

    description: str
    registers: tuple

    def __getitem__(self, name):
        try:
            return next(r for r in self.registers if r.name == name)
        except StopIteration:
            raise KeyError(name) from None

    def address(self, name):
        """Byte address of the register called ``name``."""
        return self[name].address

    def __iter__(self):
        return iter(self.registers)
