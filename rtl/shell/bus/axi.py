"""Signatures of AXI4 and AXI4-Lite, as seen from the manager.

``.flip()`` is a subordinate's port.

Member names are the standard's own, in lower case (``awaddr``), so that a port called ``m_axi`` or ``s_axi``
becomes what Vivado's interface inference looks for once the separator is a single underscore.
"""

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..parameters import BURST_BEATS

__all__ = [
    "Resp",
    "Burst",
    "BURST_BEATS",
    "BOUNDARY",
    "AXI4Signature",
    "AXI4ReadSignature",
    "AXI4WriteSignature",
    "AXILiteSignature",
    "check_bursts",
    "check_data_bits",
]

#: No burst crosses a multiple of this many bytes.
BOUNDARY = 4096


class Resp(IntEnum):
    """``bresp`` and ``rresp``."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Burst(IntEnum):
    """``awburst`` and ``arburst``."""

    FIXED = 0
    INCR = 1
    WRAP = 2


def check_data_bits(data_bits, allowed=(64, 128, 256)):
    """Refuses a bus width that the machine cannot be made for."""
    if data_bits not in allowed:
        raise ValueError(f"data_bits is {data_bits!r}, must be one of {', '.join(map(str, allowed))}")


def check_bursts(outstanding, longest):
    """Refuses numbers of bursts in flight, and of their beats, that no DMA is made for."""
    if outstanding not in (1, 2, 4, 8, 16, 32, 64):
        raise ValueError(f"outstanding is {outstanding!r}, must be a power of two from 1 to 64")
    if longest not in (4, 8, 16):
        raise ValueError(f"longest is {longest!r}, must be 4, 8 or 16")


def _address_channel(prefix, addr_bits, id_bits):
    return {
        f"{prefix}id": Out(id_bits),
        f"{prefix}addr": Out(addr_bits),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(2),
        f"{prefix}lock": Out(1),
        f"{prefix}cache": Out(4),
        f"{prefix}prot": Out(3),
        f"{prefix}qos": Out(4),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


def _read(addr_bits, data_bits, id_bits):
    return {
        **_address_channel("ar", addr_bits, id_bits),
        "rid": In(id_bits),
        "rdata": In(data_bits),
        "rresp": In(2),
        "rlast": In(1),
        "rvalid": In(1),
        "rready": Out(1),
    }


def _write(addr_bits, data_bits, id_bits):
    return {
        **_address_channel("aw", addr_bits, id_bits),
        "wdata": Out(data_bits),
        "wstrb": Out(data_bits // 8),
        "wlast": Out(1),
        "wvalid": Out(1),
        "wready": In(1),
        "bid": In(id_bits),
        "bresp": In(2),
        "bvalid": In(1),
        "bready": Out(1),
    }


class _AXI4(wiring.Signature):
    def __init__(self, members, *, addr_bits, data_bits, id_bits):
        if data_bits not in (32, 64, 128, 256, 512, 1024):
            raise ValueError(f"data_bits is {data_bits!r}, must be a power of two from 32 to 1024")
        self.addr_bits = addr_bits
        self.data_bits = data_bits
        self.id_bits = id_bits
        super().__init__(members)


class AXI4ReadSignature(_AXI4):
    """The read channels of an AXI4 manager."""

    def __init__(self, *, addr_bits=64, data_bits=128, id_bits=1):
        super().__init__(
            _read(addr_bits, data_bits, id_bits), addr_bits=addr_bits, data_bits=data_bits, id_bits=id_bits
        )


class AXI4WriteSignature(_AXI4):
    """The write channels of an AXI4 manager."""

    def __init__(self, *, addr_bits=64, data_bits=128, id_bits=1):
        super().__init__(
            _write(addr_bits, data_bits, id_bits), addr_bits=addr_bits, data_bits=data_bits, id_bits=id_bits
        )


class AXI4Signature(_AXI4):
    """All five channels of an AXI4 manager."""

    def __init__(self, *, addr_bits=64, data_bits=128, id_bits=1):
        super().__init__(
            {**_write(addr_bits, data_bits, id_bits), **_read(addr_bits, data_bits, id_bits)},
            addr_bits=addr_bits,
            data_bits=data_bits,
            id_bits=id_bits,
        )


class AXILiteSignature(wiring.Signature):
    """AXI4-Lite, 32 or 64 data bits."""

    def __init__(self, *, addr_bits=12, data_bits=32):
        if data_bits not in (32, 64):
            raise ValueError(f"data_bits is {data_bits!r}, must be 32 or 64")
        self.addr_bits = addr_bits
        self.data_bits = data_bits
        super().__init__(
            {
                "awaddr": Out(addr_bits),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_bits),
                "wstrb": Out(data_bits // 8),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(addr_bits),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(data_bits),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
