"""A simulated stand-alone tuner, and its expected UART output."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gradloom.boards.ulx3s.project import tuner_files
from gradloom.models.datasets import Dataset
from gradloom.program.power_up import PowerUp
from gradloom.rtl.emit.yosys import yosys_files
from gradloom.rtl.shell.parameters import ShellParameters
from gradloom.sim.reference import cell
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.device import SimulationError, build_harness, random_start
from gradloom.sim.run.silicon import RANDOM, as_silicon
from gradloom.sim.run.uart import Talker
from gradloom.systems.alone import identity
from gradloom.systems.images.alone import expected_run
from gradloom.systems.images.program.onchip import OnChip
from gradloom.systems.sequences.program.onchip import ChipAnswers

__all__ = ["SimulatedTuner", "build_netlist", "build_tuner", "expected_answers", "expected_lines"]

_BENCH = Path(__file__).resolve().parents[1] / "bench" / "harness"
#: Bits are sent slower than the processor makes characters, so that they follow each other as on the board.
_DIVISOR = 24
_REPEAT = re.compile(r"repeat (\d+) of the lines since power-up:")


def build_tuner(
    config: ShellParameters,
    plan: PowerUp,
    directory: Path,
    *,
    memory_bytes: int,
    silicon: bool = False,
    divisor: int = _DIVISOR,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Builds the board's design and returns the program.

    Contents of its memories are put into ``directory``, where the program must be run. ``silicon``: memories without
    content are random, see :mod:`.silicon`. ``divisor``: cycles of a bit of its UART.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sources = []
    for name, text in tuner_files(plan, mhz=config.clock_mhz, memory_bytes=memory_bytes).items():
        (directory / name).write_text(text, encoding="utf-8", newline="\n")
        if name.endswith(".v"):
            sources.append(directory / name)
    files = design(config)
    if silicon:
        files = [directory / path.name for path in files]
        for path, found in zip(files, design(config), strict=True):
            path.write_text(as_silicon(found.read_text(encoding="utf-8"), reset=False), encoding="utf-8", newline="\n")
    return build_harness(
        "tuner",
        [*files, *sources, _BENCH / "uart_listener.sv"],
        tell=tell,
        parameters={"DIVISOR": divisor},
        arguments=RANDOM if silicon else (),
        tags=not silicon,
    )


def build_netlist(directory: Path, *, divisor: int, tell: Callable[[str], None] | None = None) -> Path:
    """Builds the netlist of ``gradloom build ulx3s``, and the program.

    The netlist is in ``directory`` after synthesis: cells of the chip, in Yosys' models and ours. ``divisor``: of its
    UART. It includes the contents of its memories.
    """
    models = yosys_files() / "share" / "lattice"
    netlist = directory / "board" / "build" / "netlist.v"
    if not netlist.is_file():
        raise ValueError(f"directory {str(directory)!r} has no board/build/netlist.v: run gradloom build ulx3s first")
    return build_harness(
        "tuner",
        [
            netlist,
            _BENCH / "ecp5_blocks.sv",
            _BENCH / "uart_listener.sv",
            models / "common_sim.vh",
            models / "ccu2c_sim.vh",
        ],
        # Without the vendor's own names of registers and pads, which the netlist has none of.
        defines=("NETLIST", "NO_INCLUDES"),
        parameters={"DIVISOR": divisor},
        tell=tell,
    )


class SimulatedTuner(Talker):
    """A simulated tuner.

    Its PLL locks ``lock_after`` cycles after power-up; None: once ``locked`` is set.

    Its inputs are ``locked`` and ``away``: nobody listens to the UART.

    ``bit``: see :class:`~gradloom.sim.run.uart.Talker`, of :func:`build_tuner`'s UART unless given.

    ``seed``: of undefined values, see :class:`~.device.SimulatedDevice`.

    ``program``: what :func:`build_tuner` made; ``directory``: where ``memory.mem`` and ``tuner_image.mem`` are.
    """

    def __init__(
        self,
        program: Path,
        directory: Path,
        *,
        lock_after: int | None = 100,
        seed: int | None = None,
        bit: int = _DIVISOR,
    ) -> None:
        super().__init__(program, directory=directory, arguments=random_start(seed), bit=bit)
        if lock_after is not None:
            self.rest(lock_after)
            self.set("locked", 1)

    def rest(self, cycles: int) -> None:
        """Runs so long; :class:`SimulationError` if a byte is heard meanwhile."""
        self._ask(f"g {cycles:x}")
        spent, state, count = self._answer()
        heard = self._bytes(count)
        self.cycles += spent
        if state or heard:
            raise SimulationError(f"the UART was to rest, and sent {heard!r}" if heard else f"state {state:#x}")

    def join(self) -> None:
        """A listener, who was ``away``, connects to the UART.

        This may be in the middle of a byte, with wrong bytes until the line rests.
        """
        self.set("late", 1)
        self.set("away", 0)

    @property
    def pulses(self) -> int:
        """Pulses of the design's own clock so far.

        The clock stops while the PLL is not locked.
        """
        return self._state()[0]

    @property
    def running(self) -> bool:
        """Whether the lamp is on that says so."""
        return bool(self._state()[1])

    def _state(self) -> list[int]:
        self._ask("c")
        return self._answer()

    def repeated(self, cycles: int = 1 << 28) -> tuple[int, list[str]]:
        """The next repeat that is heard from its first line on.

        Returns its number, and its lines.
        """
        while not (found := _REPEAT.fullmatch(self.hear(cycles))):
            pass
        return int(found[1]), list(self.told(cycles))

    def told(self, cycles: int = 1 << 28) -> Iterable[str]:
        """Lines of the UART up to ``done`` or ``failed``.

        :class:`SimulationError` if one takes ``cycles`` cycles.
        """
        line = ""
        while line not in ("done", "failed"):
            line = self.hear(cycles)
            yield line


def expected_lines(plan: OnChip, data: Dataset) -> list[str]:
    """Lines of the UART for a plan on ``data``.

    They follow from the bit-exact reference; the cycles are not included.
    """
    return list(expected_run(plan, data).lines)


def expected_answers(plan: ChipAnswers, config: ShellParameters) -> list[str]:
    """Lines of the UART for answers, without the cycles.

    The classes are those of the greatest logits in floating point.
    """
    found = cell.logits(plan.network, cell.run(plan.network, plan.codes)).argmax(axis=1)
    return [
        identity(config),
        "class: " + " ".join(map(str, found)),
        f"class: {int((found == plan.labels).sum())} of {len(found)} right",
        "done",
    ]
