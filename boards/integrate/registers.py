"""The register map in IP-XACT."""

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

from gradloom.rtl.shell.registers.register import Field, Register, RegisterMap

__all__ = ["Edition", "add_memory_map"]


@dataclass(frozen=True, kw_only=True)
class Edition:
    """An edition of IEEE 1685.

    ``qualified``: attributes have the prefix too, and the order of elements is that of 2009.
    """

    name: str
    prefix: str
    namespace: str
    qualified: bool

    def tag(self, name: str) -> str:
        """Name of an element."""
        return f"{self.prefix}:{name}"

    def add(
        self, parent: ElementTree.Element, element: str, content: object = None, **attributes: str
    ) -> ElementTree.Element:
        """A new last child of ``parent``."""
        named = {self.tag(key) if self.qualified else key: value for key, value in attributes.items()}
        child = ElementTree.SubElement(parent, self.tag(element), named)
        child.text = None if content is None else str(content)
        return child


def add_memory_map(
    e: Edition, parent: ElementTree.Element, name: str, registers: RegisterMap, range_bytes: int
) -> None:
    """A memory map ``name`` with one block that has every register."""
    memory = e.add(parent, "memoryMap")
    e.add(memory, "name", name)
    block = e.add(memory, "addressBlock")
    e.add(block, "name", "registers")
    e.add(block, "description", registers.description)
    e.add(block, "baseAddress", 0)
    e.add(block, "range", range_bytes)
    e.add(block, "width", 32)
    e.add(block, "usage", "register")
    for register in registers:
        _register(e, block, register)
    e.add(memory, "addressUnitBits", 8)


def _register(e: Edition, parent: ElementTree.Element, register: Register) -> None:
    entry = e.add(parent, "register")
    e.add(entry, "name", register.name)
    e.add(entry, "displayName", register.title)
    e.add(entry, "description", register.description)
    e.add(entry, "addressOffset", register.address)
    e.add(entry, "size", 32)
    e.add(entry, "access", _access(register))
    held = [field for field in register.fields if _held(field)]
    if e.qualified and held:
        reset = e.add(entry, "reset")
        e.add(reset, "value", sum(field.reset << field.lsb for field in held))
        e.add(reset, "mask", sum(field.mask for field in held))
    for field in register.fields:
        _field(e, entry, field)


def _field(e: Edition, parent: ElementTree.Element, field: Field) -> None:
    entry = e.add(parent, "field")
    e.add(entry, "name", field.name)
    e.add(entry, "description", field.description)
    e.add(entry, "bitOffset", field.lsb)
    if not e.qualified and _held(field):
        e.add(e.add(e.add(entry, "resets"), "reset"), "value", field.reset)
    e.add(entry, "bitWidth", field.width)
    if field.readable and (field.clear_on_one or not (field.stored or field.constant)):
        e.add(entry, "volatile", "true")
    e.add(entry, "access", _access(field))
    if field.clear_on_one:
        e.add(entry, "modifiedWriteValue", "oneToClear")


def _held(field: Field) -> bool:
    """Whether the value after a reset is known."""
    return field.stored or field.constant or field.pulse


def _access(what: Register | Field) -> str:
    if what.readable:
        return "read-write" if what.writable else "read-only"
    return "write-only"
