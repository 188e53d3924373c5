"""The components that the array engine joins."""

from dataclasses import dataclass

from gradloom.rtl.hierarchy import place
from gradloom.rtl.systolic.pe import Precision
from gradloom.rtl.systolic.systolic import SystolicArray

from ..feet import Align, Finish
from .convolve import ConvolveControl
from .dense import DenseControl
from .passes import PassControl

__all__ = ["ArrayParts", "place_parts"]


@dataclass(frozen=True)
class ArrayParts:
    """The array, the controls that feed it, and the feet that take its sums."""

    array: SystolicArray
    passes: PassControl
    convolve: ConvolveControl
    dense: DenseControl
    align: Align
    finish: Finish


def place_parts(m, config, platform):
    """Places the array, the controls that feed it, and the feet that take its sums."""
    rows, rank = config.rows, config.rank
    array = place(
        m,
        "array",
        SystolicArray(
            rows=rows,
            panels=config.panels,
            columns=rank,
            pairs=True,
            precision=Precision(x=config.activation.width, sum=config.sum_bits),
        ),
        platform,
    )
    passes = place(m, "passes", PassControl(config), platform)
    convolve = place(m, "convolve", ConvolveControl(config), platform)
    dense = place(m, "dense", DenseControl(config), platform)
    align = place(m, "align", Align(panels=config.panels, columns=rank, width=config.sum_bits), platform)
    finish = place(m, "finish", Finish(config), platform)
    return ArrayParts(array=array, passes=passes, convolve=convolve, dense=dense, align=align, finish=finish)
