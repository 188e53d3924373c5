"""What a configuration takes of a chip, by count: enough to refuse what cannot fit before anything is made."""
from typing import Any

from .config import PARAMETER, VELOCITY, Config, LinearConfig
from .formats import linear
from .formats.vector import TERM

__all__ = ["dsp_slices", "memory_bits", "check_fit"]


def _dsp_of_images(config: Config) -> dict[str, int]:
    """DSP slices of each part: a slice a PE, a row's decoder, a lane's momentum, a channel's sum; three a
    class in the head."""
    return {
        "array": config.rows * config.columns,
        "row decoders": config.rows,
        "adapter lanes": config.columns,
        "sums of channels": config.columns,
        "head": 3 * config.classes + 7,
        "encoders": 2,
    }


def _bits_of_images(config: Config) -> dict[str, int]:
    return {
        "weights": config.weight_depth * config.columns * PARAMETER.width,
        "partial sums": config.positions * config.columns * config.sum_bits,
        "feature maps": config.feature_depth * config.columns * config.activation_bits,
        "images": config.image_depth * config.activation_bits,
        "cached activations": config.rows * 8 * config.blocks * 128,
        "dense activations": config.rows * config.dense_depth * config.activation_bits,
        "adapters": config.columns * config.adapter_depth * (PARAMETER.width + VELOCITY.width),
    }


def _dsp_of_linears(config: LinearConfig) -> dict[str, int]:
    """A slice a PE, a weight of a decoded row, an output's part of the adapter, two a word of a gradient's beat;
    eight a lane of the updates, which take a quarter of a beat a cycle; three a lane of the vector engine, one for
    its roots."""
    return {
        "array": config.edge * (config.columns + 1),
        "weight decoder": config.edge + 1,
        "adapter products": config.dots * config.rank,
        "adapter gradients": 2 * config.beat_words,
        "updates": 8 * max(config.beat_words // 4, 1),
        "vector engine": 3 * config.beat_words + 1,
    }


def _bits_of_linears(config: LinearConfig) -> dict[str, int]:
    return {
        "operands": config.edge * config.depth * linear.ACTIVATION.width,
        "adapters": config.edge * config.lane_depth * linear.WEIGHT.width,
        "weights": 2 * config.edge**2 * linear.WEIGHT.width,
        "second-level scales": config.groups * linear.SCALE.width,
        "vector queues": 512 * config.beat_words * (4 * TERM.width + linear.ACTIVATION.width),
        "sums": (2 * config.columns + 1) * config.tokens * config.subtiles * linear.SUM,
    }


def dsp_slices(config: Config | LinearConfig) -> dict[str, int]:
    """DSP slices of each part."""
    return _dsp_of_linears(config) if isinstance(config, LinearConfig) else _dsp_of_images(config)


def memory_bits(config: Config | LinearConfig) -> dict[str, int]:
    """Bits of each large memory, without what a block's shape wastes."""
    return _bits_of_linears(config) if isinstance(config, LinearConfig) else _bits_of_images(config)


def check_fit(config: Config | LinearConfig, board: Any) -> dict[str, Any]:
    """Counts, after refusing a configuration of which the counts exceed the board, with all that do.

    ``board`` has ``name``, ``dsp``, ``bram36`` and ``uram``.
    """
    slices, bits = dsp_slices(config), memory_bits(config)
    has = board.bram36 * 36 * 1024 + board.uram * 288 * 1024
    beyond = []
    for what, parts, there, keys in (
            ("DSP slices", slices, board.dsp,
             "edge, columns or dots" if isinstance(config, LinearConfig) else "rows, panels or rank"),
            ("bits of block RAM and URAM", bits, has, "the depths")):
        needs = sum(parts.values())
        if needs > there:
            most = max(parts, key=parts.__getitem__)
            beyond.append(f"{board.name} has {there:,} {what}, this design needs {needs:,} ({parts[most]:,} for "
                          f"{most}): make {keys} smaller")
    if beyond:
        raise ValueError("; ".join(beyond))
    return {"dsp": slices, "memory_bits": bits}
