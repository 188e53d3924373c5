"""Parameters of the Scale engine, and configurations of two machines.

The machines have the engine. They import no Amaranth.
"""
from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.parameters import Parameters, Resources, ShellParameters, parameter


@dataclass(frozen=True, kw_only=True)
class ScaleParameters(Parameters):
    """Trainable factors, one a channel.

    Parameters
    ----------
    factors : int
        Beats of factors: a channel a word.
    kept : int
        Beats of x that FORWARD keeps for BACKWARD.
    """

    factors: int = parameter(4, 2, 64, power=True, known=True)
    kept: int = parameter(128, 16, 4096, power=True)

    def resources(self) -> Resources:
        """Two slices a product, two products a lane."""
        lanes = self.data_bits // 32
        return Resources(dsp={"scale": 4 * lanes}, bits={"kept x": self.kept * lanes * 24})


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(ScaleParameters, ShellParameters):
    """Configuration of a machine whose one engine is Scale."""

    home: ClassVar = "first_engine.spec:ALONE"


@dataclass(frozen=True, kw_only=True)
class ScaleLanguageConfig(ScaleParameters, LanguageConfig):
    """Configuration of the language machine with Scale beside its engines."""

    home: ClassVar = "first_engine.spec:BESIDE"
