"""Clocks that presets reach by open tools, beside what is asked."""

from collections.abc import Mapping
from typing import Any, TypedDict

__all__ = ["REACHED", "ReachedClock", "asked_mhz", "reached"]

_ESTIMATE = "open synthesis, without placement"
_ROUTED = "place-and-route by open tools"
_FREQUENCIES: Mapping[str, Mapping[str, float]] = {
    _ESTIMATE: {
        "instantft-kv260": 206,
        "lstm-kv260": 200,
        "cdm-qta-kv260": 202,
        "tile-kv260": 202,
        "edge-qlora-kv260": 189,
        "edge-qlora-genesys2": 178,
        "instantft-llm-genesys2": 178,
    },
    _ROUTED: {"digits-ulx3s": 75.43, "lstm-ulx3s": 75.23},
}
#: MHz that a preset reaches as it comes, and the kind of evidence. The commands are in docs/evidence/timing.md and
#: docs/guides/boards/ulx3s.md; a test compares the figures.
REACHED: Mapping[str, tuple[float, str]] = {
    preset: (mhz, kind) for kind, found in _FREQUENCIES.items() for preset, mhz in found.items()
}


class ReachedClock(TypedDict):
    """A clock that is asked for, beside the one that a preset reaches."""

    asked_mhz: float
    reached_mhz: float
    evidence: str
    short: str | None


def reached(preset: str, clock_mhz: float) -> ReachedClock | None:
    """A preset's asked clock beside the one that it reaches.

    ``asked_mhz``, ``reached_mhz``, ``evidence`` (its kind), and ``short``, a sentence if more is asked than is reached,
    else None. None for a preset whose clock is not known.
    """
    if preset not in REACHED:
        return None
    mhz, kind = REACHED[preset]
    short = (
        f"clock_mhz={clock_mhz:g}: {preset} as it comes reaches {mhz:g} MHz by {kind}; no vendor's tool has timed it "
        f"(docs/evidence/timing.md)"
    )
    return {"asked_mhz": clock_mhz, "reached_mhz": mhz, "evidence": kind, "short": short if clock_mhz > mhz else None}


def asked_mhz(report: Mapping[str, Any], usual_hz: int) -> float:
    """Clock of a design in MHz, from its report.

    ``usual_hz`` where the report has no parameters.
    """
    mhz: float = report.get("parameters", {}).get("clock_mhz", usual_hz / 1e6)
    return mhz
