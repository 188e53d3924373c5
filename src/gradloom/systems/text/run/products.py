"""Forecasts of products of the linear engine."""

from collections.abc import Sequence

from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.forecast import USUAL, MemoryTime, forecast
from gradloom.sim.time.timing import Timing

from ..program.engines.linear import chain
from ..program.jobs import ProductJob

__all__ = ["forecast_products"]


def forecast_products(
    jobs: Sequence[ProductJob], *, config: LanguageConfig | None = None, memory: MemoryTime = USUAL
) -> Timing:
    """Forecasts products back to back, as a program of their own."""
    config = config or LanguageConfig()
    program = Assembler()
    chain(program, jobs, config)
    program.add(CONTROL, ControlOpcode.END)
    return forecast(program, config=config, memory=memory)
