"""Description of the Scale engine, and two machines that have it.

Programs, shell and tools read the description.
"""
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.machines.language import LANGUAGE, LANGUAGE_MACHINE
from gradloom.rtl.shell.engines import Engines, EngineSpec, LoadPort, Loop, StorePort

from .commands import ScaleOpcode, ScaleOperands
from .engine import ScaleEngine
from .parameters import ScaleParameters

SPEC = EngineSpec(
    name="scale", opcodes=ScaleOpcode, default=ScaleOperands, phases=("scale",), operand_bits=32,
    loads=(LoadPort("x", "activations or gradients"), LoadPort("factors", "factors, from the first on")),
    stores=(StorePort("y", "results"), StorePort("factors", "factors from beat ``arg`` on")),
    parameters=ScaleParameters, unit=ScaleEngine,
    loop=lambda config: Loop(load="factors", store="factors", beats=config.factors, bits=32, kept=1, group=1))

ALONE = Machine(Engines(SPEC))
BESIDE = Machine(Engines(*(each.spec for each in LANGUAGE.own), SPEC), LANGUAGE_MACHINE.wires)
