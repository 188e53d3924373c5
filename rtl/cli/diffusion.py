"""What ``gradloom plan`` does with diffusion models."""

from pathlib import Path
from typing import Any

from .output import say, table

__all__ = ["plan_unet", "say_unet"]

#: The preset that is to fine-tune diffusion models; its RTL is not there.
COMING = "cdm-qta-kv260"


def plan_unet(
    model: Path | str,
    *,
    preset: str | None = None,
    only: str = "all",
    rank: int | None = None,
    targets: str | None = None,
    seq: int | None = None,
) -> dict[str, Any]:
    """Products, memory and cycles of a LoRA step of a UNet.

    ``rank``: 8 unless given; ``seq``: tokens of the prompt, 77 unless given. ``targets``: cross-attention unless given.
    """
    from ..models.unet import find_unet
    from ..plan.diffusion.plan import planned

    if preset not in (None, COMING):
        raise ValueError(f"preset={preset}: does not fine-tune diffusion models; leave it out, or give {COMING}")
    return planned(
        find_unet(model),
        only=only,
        rank=8 if rank is None else rank,
        targets="cross-attention" if targets is None else targets,
        text=77 if seq is None else seq,
    )


def say_unet(result: dict[str, Any]) -> None:
    """Prints products by kind, memory and sums."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in result["products"]:
        shape = tuple(row[key] for key in ("way", "part", "m", "k", "n", "times"))
        kind = kinds.setdefault(
            shape,
            {
                "product": f"{row['way']} {row['part']}",
                "M": row["m"],
                "K": row["k"],
                "N": row["n"],
                "count": 0,
                "M MAC": 0.0,
                "cycles": 0,
                "kB": 0.0,
                "busy %": round(100 * row["utilisation"], 1),
            },
        )
        kind["count"] += row["times"]
        kind["M MAC"] = round(kind["M MAC"] + row["macs"] / 1e6, 1)
        kind["cycles"] += row["cycles"]
        kind["kB"] = round(kind["kB"] + row["bytes"] / 1e3, 1)
    rows = list(kinds.values())
    high, wide = result["array"]
    table(
        rows, tuple(rows[0]), False, title=f"{result['model']}: products by shape on {high}×{wide}, of {result['only']}"
    )
    memory = [{"memory": name.replace("_", " "), "bytes": size} for name, size in result["memory"].items()]
    total = sum(result["memory"].values())
    table([*memory, {"memory": "together", "bytes": total}], ("memory", "bytes"), False)
    say(
        f"{result['parameters']:,} parameters; forward {result['forward_macs'] / 1e9:,.2f} GMAC an image, "
        f"without adapters; "
        f"these products of a LoRA step, rank {result['rank']}: {result['step_macs'] / 1e9:,.2f} GMAC, "
        f"{result['bytes'] / 1e6:,.0f} MB, {result['cycles'] / 1e6:,.2f} M cycles, "
        f"array {100 * result['utilisation']:.1f} % busy"
    )
    say(
        f"- {COMING} has no RTL yet: cycles are by shape, loads under compute; no vector engine and no memory port "
        f"are counted"
    )
