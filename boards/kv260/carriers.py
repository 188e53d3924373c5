"""Boards with a Zynq UltraScale+ under Linux that share one project, and what differs between them."""

import dataclasses

from .ps_clock import Pll, PsClock

__all__ = ["CARRIERS", "Carrier"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carrier:
    """What a board's project has of its own.

    Parameters
    ----------
    title : str
        As its vendor calls it.
    store : str
        Pattern of its board files' name in Vivado's board store, whose preset sets up the processing system.
    tree : tuple of str
        Words of which the board's device tree has one in ``compatible`` or ``model``.
    host : str
        Its Linux's user and name, where it is not told.
    usual : PsClock
        200 MHz, which is no fraction of the IOPLL.
    """

    title: str
    store: str
    tree: tuple[str, ...]
    host: str
    usual: PsClock


#: By the name of the board. The memory of a K26 has a PLL of 1,200 MHz, that of a ZCU104 a slower one.
CARRIERS = {
    "kv260": Carrier(
        title="KV260",
        store="*:kv260*",
        tree=("kv260", "k26"),
        host="ubuntu@kria",
        usual=PsClock(Pll("DPLL", 36), (6, 1)),
    ),
    "kr260": Carrier(
        title="KR260", store="*:kr260*", tree=("kr260",), host="ubuntu@kria", usual=PsClock(Pll("DPLL", 36), (6, 1))
    ),
    "zcu104": Carrier(
        title="ZCU104",
        store="*:zcu104*",
        tree=("zcu104",),
        host="petalinux@zcu104",
        usual=PsClock(Pll("RPLL", 36), (6, 1)),
    ),
}
