"""Units of the numbers of ``metrics.json``."""

from collections.abc import Mapping
from typing import Any

__all__ = ["UNITS", "units", "units_table"]

#: By the path of an entry; it holds for all below that have none of their own.
UNITS: Mapping[str, str] = {
    "adapter_parameters": "words",
    "accuracy_before": "share of the images to judge by",
    "accuracy_after": "share of the images to judge by",
    "base_bytes": "bytes read of frozen matrices, by step",
    "cache": "samples looked up",
    "cache_bytes_per_text": "bytes",
    "cached_texts": "texts",
    "clock_mhz": "MHz",
    "cycles": "clock cycles; of a language model by step",
    "equal_to_reference": "counters compared",
    "equal_to_reference.adapter_words": "words compared",
    "equal_to_reference.cached_bytes": "bytes compared",
    "equal_to_reference.losses": "steps compared",
    "first_epoch.loss": "nats a sample or token, mean",
    "forecast": "clock cycles",
    "health.gradient_norm": "2**-23, sum of magnitudes of gradients that updates took",
    "health.saturated": "words clipped, of the whole program",
    "health.underflowed": "words that an update other than zero did not move",
    "last_epoch.loss": "nats a sample or token, mean",
    "last_epoch.saturated": "words clipped, of the last epoch's steps",
    "last_epoch.words": "words made by the last epoch's steps",
    "loss": "nats a sample or token, mean of a step",
    "loss_after": "nats a token",
    "loss_before": "nats a token",
    "saturated": "words clipped, of the whole fine-tune",
    "tokens": "tokens of the whole text",
    "tokens_left_out": "tokens behind the last whole window",
    "windows": "windows of seq tokens",
}


def units(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Those of :data:`UNITS` whose entries are there and have a value."""
    return {path: unit for path, unit in UNITS.items() if _at(metrics, path) is not None}


def _at(metrics: Any, path: str) -> Any:
    for name in path.split("."):
        metrics = metrics.get(name) if isinstance(metrics, Mapping) else None
    return metrics


def units_table() -> str:
    """Markdown of all."""
    return "".join(f"| `{path}` | {unit} |\n" for path, unit in UNITS.items())
