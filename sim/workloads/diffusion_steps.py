"""LoRA steps of a diffusion model in RTL, or on models of its engines."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradloom.firmware.host import Accelerator
from gradloom.rtl.formats.tile_codes import NARROW, Coded, coded
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.plan.diffusion.layout import Tiles
from gradloom.rtl.plan.diffusion.writer import Step
from gradloom.rtl.plan.program.assembler import Instruction

from ..reference.tile_program import Machine
from ..run.counted import MismatchError, check_forecast, counted, differing
from ..run.device import MEMORY_BYTES, SimulatedDevice, build_device
from ..run.programs import Ran
from ..time.timing import Timing

__all__ = ["Device", "Memory", "Models", "Stepper", "check_size", "check_step"]

Factors = Mapping[str, Adapter]


class Memory(Protocol):
    """Memory of a machine that runs steps."""

    def write(self, offset: int, content: bytes, /) -> None: ...

    def read(self, offset: int, length: int, /) -> bytes: ...

    def run(self, step: Step, number: int, /) -> None: ...


class Models:
    """Memory and models of the engines.

    ``eager``: see :meth:`~..reference.tile_program.Machine.run`.
    """

    def __init__(self, config: Any, size: int, eager: Sequence[str] | None = None) -> None:
        self.machine, self.eager = Machine(config, size), eager

    def write(self, offset: int, content: bytes) -> None:
        """Puts bytes into memory."""
        self.machine.memory[offset : offset + len(content)] = content

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of memory."""
        return bytes(self.machine.memory[offset : offset + length])

    def run(self, step: Step, number: int) -> None:
        """Step ``number``, from 1 on."""
        self.machine.run(step.instructions(number), self.eager)


class Device:
    """Simulated RTL behind the host's own driver.

    ``ran``: counters and trace of each step. Use it in a ``with``.

    Parameters
    ----------
    files : sequence of Path
        Verilog whose outermost module is ``gradloom``.
    tell : callable
        ``tell(done, total, text)``. ``expected``: cycles of all steps, for the total.
    """

    def __init__(
        self,
        config: Any,
        files: Sequence[Path],
        tell: Callable[[int, int, str], None],
        *,
        expected: int = 0,
        timing: Mapping[str, int] | None = None,
    ) -> None:
        built = build_device(
            files, data_bits=config.data_bits, address_bits=config.address_bits, tell=lambda text: tell(0, 0, text)
        )
        self.device = SimulatedDevice(built, progress=lambda cycles: tell(cycles, max(expected, cycles), "cycles"))
        self.timing, self.ran = timing or {}, list[Ran]()

    def __enter__(self) -> "Device":
        self.device.__enter__()
        for name, value in {**self.timing, "trace": 1}.items():
            self.device.set(name, value)
        self.host = Accelerator(self.device)
        return self

    def __exit__(self, *error: Any) -> None:
        self.device.__exit__(*error)

    def write(self, offset: int, content: bytes) -> None:
        """See :class:`Memory`."""
        self.host.store(offset, content)

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`Memory`."""
        return self.host.fetch(offset, length)

    def run(self, step: Step, number: int) -> None:
        """Step ``number``, from 1 on."""
        self.write(step.program.offset, step.code(number))
        counters = self.host.run(step.program.offset, len(step.program), timeout=36000)
        self.ran.append(Ran(counters=counters, memory=b"", trace=self.device.take_trace()))


class Stepper:
    """Steps in a machine's memory, adapters and moments included.

    ``adapters``: as :meth:`~.diffusion_integers.IntegerDescent.begun` has them.
    """

    def __init__(self, step: Step, memory: Memory, adapters: Factors) -> None:
        check_size(step)
        self.step, self.memory, self.first = step, memory, adapters
        self.number = 0
        for offset, content in step.program.contents():
            memory.write(offset, content)
        for (layer, part), each in step.adapted.items():
            values = adapters[layer].parts[part]
            words = np.rint(values * 2.0**each.fraction).astype(np.int64)
            memory.write(each.words.words, each.words.pack(words))
            memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
            memory.write(each.codes.offset, each.codes.pack(coded(values, NARROW)))

    def __call__(self, data: Mapping[str, np.ndarray], noise: np.ndarray) -> tuple[float, dict[str, Adapter]]:
        """One step: the loss before it, and the adapters after it."""
        self.number += 1
        for name, tiles in self.step.inputs.items():
            x = np.asarray(noise if name == "noise" else data[name], np.float64)
            self.memory.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))
        self.memory.run(self.step, self.number)
        loss = float(np.mean(np.square(self.codes(self.step.error).values)))
        return loss, self.adapters()

    def codes(self, tiles: Tiles) -> Coded:
        """A tensor in memory."""
        return tiles.unpack(self.memory.read(tiles.offset, tiles.size))

    def adapters(self) -> dict[str, Adapter]:
        """The adapters in memory."""
        parts: dict[str, dict[str, np.ndarray]] = {}
        for (layer, part), each in self.step.adapted.items():
            words = each.words.unpack(self.memory.read(each.words.words, each.words.size))
            parts.setdefault(layer, {})[part] = words * 2.0**-each.fraction
        return {layer: self.first[layer].taking(both) for layer, both in parts.items()}


def check_size(step: Step) -> None:
    """Refuses a step that needs more memory than there is."""
    if step.program.length > MEMORY_BYTES:
        raise ValueError(f"a step needs {step.program.length:,} bytes of memory, the simulation has {MEMORY_BYTES:,}")


def check_step(ran: Ran, commands: Sequence[Instruction], timing: Timing, **health: int) -> None:
    """Raises :class:`MismatchError` where RTL is not as expected.

    Counters, and the cycles of every command, are compared.

    ``health``: ``saturated`` and ``underflowed`` of the reference.
    """
    expected = counted(commands, beat_bytes=16) | {"gradient_norm": 0} | health
    wrong = differing(ran.counters, expected)
    if wrong:
        raise MismatchError(f"RTL and reference differ: the counter {wrong}")
    check_forecast(ran.counters, timing, ran.trace)
