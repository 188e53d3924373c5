"""The adapter in memory is the last complete one, wherever a write is cut, by the C driver and by the host."""

import ctypes
import zlib

import pytest

from gradloom.firmware.chip.adapter_store import HEADER_BYTES, AdapterStore
from gradloom.firmware.device.host import Accelerator

from ..strict import strict_library

OFFSET, CAPACITY = 128, 192
OLD, NEW, NEWER = (bytes(range(start, start + 160)) for start in (1, 50, 90))
READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)


class PowerCut(Exception):
    pass


class Ram:
    """A memory on a bus of 32 bits whose power is cut after so many writes."""

    def __init__(self, content=None):
        self.bytes = bytearray(content or bytes([0xA5] * 1024))
        self.left = -1
        self.writes = 0

    def write(self, offset, word):
        assert offset % 4 == 0 and OFFSET <= offset < OFFSET + 2 * (HEADER_BYTES + CAPACITY)
        if self.left == 0:
            raise PowerCut
        self.left -= 1
        self.writes += 1
        self.bytes[offset : offset + 4] = word

    def store(self, offset, values):
        for at in range(0, len(values), 4):
            self.write(offset + at, values[at : at + 4])

    def fetch(self, offset, length):
        return bytes(self.bytes[offset : offset + length])


class Host:
    """The host's own side."""

    def __init__(self, ram):
        self.store = AdapterStore(ram, OFFSET, CAPACITY)

    def write(self, data):
        self.store.write(data)

    def find(self):
        found = self.store.find()
        return None if found is None else (found.sequence, found.data)


class Firmware:
    """The C driver on the same memory. A callback cannot raise: writes after the cut are dropped instead."""

    class Device(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("read", READ), ("write", WRITE), ("context", ctypes.c_void_p)]

    class Adapter(ctypes.Structure):
        _fields_ = [("offset", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("sequence", ctypes.c_uint32)]

    def __init__(self, library, ram):
        class Store(ctypes.Structure):
            _fields_ = [("memory", self.Device), ("offset", ctypes.c_uint32), ("capacity", ctypes.c_uint32)]

        self.library, self.ram, self.cut = library, ram, False
        self.store = Store(self.Device(None, READ(self._read), WRITE(self._write), None), OFFSET, CAPACITY)

    def _read(self, _, offset):
        return int.from_bytes(self.ram.bytes[offset : offset + 4], "little")

    def _write(self, _, offset, value):
        try:
            self.ram.write(offset, value.to_bytes(4, "little"))
        except PowerCut:
            self.cut = True

    def write(self, data):
        self.cut = False
        at = self.library.gl_store_begin(ctypes.byref(self.store))
        for offset in range(0, len(data), 4):
            self._write(None, at + offset, int.from_bytes(data[offset : offset + 4], "little"))
        status = self.library.gl_store_commit(ctypes.byref(self.store), len(data))
        if self.cut:
            raise PowerCut
        assert status == 0

    def find(self):
        found = self.Adapter()
        status = self.library.gl_store_find(ctypes.byref(self.store), ctypes.byref(found))
        return None if status else (found.sequence, self.ram.fetch(found.offset, found.bytes))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    names = (f"gradloom{part}.c" for part in ("", "_store", "_sum"))
    return strict_library(tmp_path_factory.mktemp("store") / "libstore.so", *names)


@pytest.fixture(params=["host", "firmware"])
def make(request):
    """Makes the side that writes, or reads, a memory."""
    if request.param == "host":
        return Host
    library = request.getfixturevalue("library")
    return lambda ram: Firmware(library, ram)


@pytest.fixture(params=[b"\0", b"\xff", b"\xa5"], ids=["zeros", "ones", "rubbish"])
def ram(request):
    return Ram(1024 * request.param)


def test_nothing_is_found_where_nothing_was_written(make, ram):
    assert make(ram).find() is None


def test_adapters_follow_each_other(make, ram):
    side = make(ram)
    for number, data in enumerate((OLD, NEW[:4], NEWER, b"", OLD), 1):
        side.write(data)
        assert side.find() == (number, data)


def test_a_write_cut_anywhere_leaves_the_older_one(make, ram):
    """After each single write on the bus, on the first place and on the second, and again after another cut."""
    for before in ([OLD], [NEWER, OLD], []):
        start = Ram(bytes(ram.bytes))
        for data in before:
            make(start).write(data)
        whole = Ram(bytes(start.bytes))
        make(whole).write(NEW)
        assert make(whole).find() == (len(before) + 1, NEW) and whole.writes == 1 + len(NEW) // 4 + 6
        expected = (len(before), before[-1]) if before else None
        for writes in range(whole.writes):
            torn = Ram(bytes(start.bytes))
            torn.left = writes
            with pytest.raises(PowerCut):
                make(torn).write(NEW)
            assert make(torn).find() == expected, writes
            torn.left = writes // 2
            with pytest.raises(PowerCut):
                make(torn).write(NEWER)
            assert make(torn).find() == expected, writes
            torn.left = -1
            make(torn).write(NEWER)
            assert make(torn).find() == (len(before) + 1, NEWER)


def test_either_side_reads_what_the_other_wrote(library, ram):
    sides = Host(ram), Firmware(library, ram)
    for number, data in enumerate((OLD, NEW, NEWER, OLD), 1):
        sides[number % 2].write(data)
        assert sides[0].find() == sides[1].find() == (number, data)


def test_either_side_leaves_the_same_bytes(library, ram):
    other = Ram(bytes(ram.bytes))
    for data in (OLD, NEW, NEWER):
        Host(ram).write(data)
        Firmware(library, other).write(data)
        assert ram.bytes == other.bytes


@pytest.mark.parametrize("byte", range(0, 64))
def test_damage_leaves_the_older_one(make, byte):
    """One flipped bit anywhere in what is used of the newer place."""
    ram = Ram()
    for data in (OLD, NEW):
        make(ram).write(data)
    second = OFFSET + HEADER_BYTES + CAPACITY
    ram.bytes[second + (byte if byte < 24 else byte + HEADER_BYTES - 24)] ^= 1 << byte % 8
    assert make(ram).find() == (1, OLD)


def test_sequence_numbers_go_round(make):
    ram = Ram()
    make(ram).write(OLD)
    header = bytearray(ram.fetch(OFFSET, 24))
    header[8:12] = b"\xff" * 4
    header[20:] = zlib.crc32(header[4:20]).to_bytes(4, "little")
    ram.bytes[OFFSET : OFFSET + 24] = header
    assert make(ram).find() == (0xFFFFFFFF, OLD)
    make(ram).write(NEW)
    assert make(ram).find() == (0, NEW)
    make(ram).write(NEWER)
    assert make(ram).find() == (1, NEWER)


def test_an_accelerators_window_is_such_a_memory(machine):
    store = AdapterStore(Accelerator(machine), OFFSET, CAPACITY)
    for number, data in enumerate((OLD, NEW), 1):
        assert store.write(data) == store.find() and store.find().sequence == number
    assert store.find().data == machine.read_memory(store.find().offset, len(NEW)) == NEW


def test_what_does_not_fit_is_refused(library):
    with pytest.raises(ValueError, match="data has 196 bytes: must be a multiple of 4 up to 192"):
        Host(Ram()).write(bytes(196))
    with pytest.raises(ValueError, match="data has 3 bytes"):
        Host(Ram()).write(bytes(3))
    with pytest.raises(ValueError, match="offset=8: must be a multiple of 64"):
        AdapterStore(Ram(), 8, 64)
    with pytest.raises(ValueError, match="capacity=0: must be a multiple of 64, at least 64"):
        AdapterStore(Ram(), 64, 0)
    firmware = Firmware(library, Ram())
    for size in (3, 196):
        assert library.gl_store_commit(ctypes.byref(firmware.store), size) == -3
    assert firmware.ram.writes == 0


@pytest.mark.parametrize(
    ("offset", "capacity", "said"),
    [
        (-64, 64, "offset=-64: must be a multiple of 64, at least 0"),
        (32, 64, "offset=32: must be a multiple of 64, at least 0"),
        (0, 0, "capacity=0: must be a multiple of 64, at least 64"),
        (0, 65, "capacity=65: must be a multiple of 64, at least 64"),
    ],
)
def test_places_begin_and_end_on_lines(offset, capacity, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        AdapterStore(Ram(), offset, capacity)
    assert AdapterStore(Ram(), 0, 64).size == 2 * (HEADER_BYTES + 64)
