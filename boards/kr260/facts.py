"""AMD Kria KR260 robotics starter kit: the module of a KV260 on another carrier."""

import dataclasses

from ..kv260.facts import KV260

KR260 = dataclasses.replace(
    KV260,
    name="kr260",
    summary="AMD Kria KR260: Zynq UltraScale+ XCK26, 4 GB DDR4 shared with four Cortex-A53 under Linux",
)
