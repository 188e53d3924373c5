"""Results of place-and-route, from the report that nextpnr writes."""

from typing import Any

from ..board import Board
from ..flow import FlowError

__all__ = ["TIMING_MODELS", "summary"]

TIMING_MODELS = "nextpnr's model of the ECP5, speed grade 6, worst corner"
_NAMES = {
    "TRELLIS_COMB": "lut",
    "TRELLIS_FF": "ff",
    "MULT18X18D": "mult18",
    "DP16KD": "bram18",
    "TRELLIS_RAMW": "lutram_writers",
}


def summary(report: dict[str, Any], board: Board, settings: dict[str, Any]) -> dict[str, Any]:
    """Results of place-and-route, from nextpnr's own report.

    They are frequency, use of the chip, worst path.
    """
    clocks = {name: clock["achieved"] for name, clock in report["fmax"].items()}
    if not clocks:
        raise FlowError("place-and-route reports no clock: does the design have registers?")
    slowest = min(clocks, key=lambda name: clocks[name])
    path = next(
        (path for path in report["critical_paths"] if path["from"].endswith(slowest) and path["to"].endswith(slowest)),
        None,
    )
    use = {
        _NAMES[kind]: {
            "used": each["used"],
            "available": each["available"],
            "percent": round(100 * each["used"] / max(each["available"], 1), 1),
        }
        for kind, each in report["utilization"].items()
        if kind in _NAMES
    }
    return {
        "part": board.part,
        "seed": settings["seed"],
        "clock_mhz": settings["mhz"],
        "fmax_mhz": round(clocks[slowest], 2),
        "timing": TIMING_MODELS,
        "utilisation": use,
        "worst_path": [] if path is None else _steps(path["path"]),
    }


def _steps(path: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A path as a list of what costs time on it, in ns."""
    return [
        {
            "kind": step["type"],
            "from": f"{step['from']['cell']}.{step['from']['port']}",
            "to": f"{step['to']['cell']}.{step['to']['port']}",
            "ns": round(step["delay"], 3),
        }
        for step in path
    ]
