"""Write ports by which LOAD's data reach the array engine's memories."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from ...formats.images import SCALE

__all__ = ["logits_write", "write_layout", "writes"]


def write_layout(width, **address):
    """Write port: ``width`` bits of data, and the fields of ``address``."""
    return data.StructLayout({"valid": 1} | address | {"data": width})


def logits_write(config):
    """Layout of the write port of the logits of a sample's record."""
    return write_layout(128, sample=ceil_log2(config.rows), half=1, beat=2)


def writes(config):
    """Layouts of the write ports by name."""
    row, block = ceil_log2(config.rows), ceil_log2(config.blocks)
    return {
        "codes": write_layout(128, row=row, address=block + 3),
        "scales": write_layout(SCALE.shape, row=row, address=block + 1),
        "lanes": write_layout(256, address=ceil_log2(config.adapter_depth)),
        "weights": write_layout(256, address=ceil_log2(config.weight_depth)),
        "biases": write_layout(512, address=ceil_log2(config.bias_depth)),
        "image": write_layout(128, address=ceil_log2(config.image_depth) - 2),
        "books": write_layout(128, beat=5),
    }
