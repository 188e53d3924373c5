"""A simulated stand-alone tuner, and its expected UART output."""

import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from gradloom.boards.ulx3s.project import tuner_files
from gradloom.models.datasets import Dataset
from gradloom.program.power_up import PowerUp
from gradloom.rtl.emit.yosys import yosys_files
from gradloom.rtl.shell.parameters import ShellParameters
from gradloom.sim.reference import cell
from gradloom.sim.reference.loss import softmax_cross_entropy
from gradloom.sim.run.designs import design
from gradloom.sim.run.device import SimulationError, build_harness, random_start
from gradloom.sim.run.silicon import RANDOM, as_silicon
from gradloom.sim.run.uart import Talker
from gradloom.systems.images.integers import FineTune, fill_cache, fine_tune, logits
from gradloom.systems.images.program.lowered import head_words, words16
from gradloom.systems.images.program.onchip import OnChip
from gradloom.systems.images.program.program import Settings
from gradloom.systems.sequences.program.onchip import ChipAnswers

__all__ = ["SimulatedTuner", "build_netlist", "build_tuner", "expected_answers", "expected_lines"]

_BENCH = Path(__file__).resolve().parents[1] / "bench"
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
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Builds the board's design and returns the program.

    Contents of its memories are put into ``directory``, where the program must be run. ``silicon``: memories without
    content are random, see :mod:`.silicon`.
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
        parameters={"DIVISOR": _DIVISOR},
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

    ``seed``: of undefined values, see :class:`~.device.SimulatedDevice`.

    ``program``: what :func:`build_tuner` made; ``directory``: where ``memory.mem`` and ``tuner_image.mem`` are.
    """

    def __init__(
        self, program: Path, directory: Path, *, lock_after: int | None = 100, seed: int | None = None
    ) -> None:
        super().__init__(program, directory=directory, arguments=random_start(seed))
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


def _identity(config: ShellParameters) -> str:
    return "gradloom: " + ",".join(f"{name}={value}" for name, value in config.known.items())


def _losses(name: str, loss: int, right: int, samples: int) -> str:
    mean = loss // samples
    return f"{name}: loss {mean >> 16}.{(mean & 0xFFFF) * 10**6 >> 16:06d}, {right} of {samples} right"


def expected_lines(plan: OnChip, data: Dataset) -> list[str]:
    """Lines of the UART for a plan on ``data``.

    They follow from the bit-exact reference; the cycles are not included.
    """
    lowered, config = plan.lowered, plan.lowered.config
    train, test = (
        fill_cache(lowered, lowered.network.pixel_map.words(images, config.activation))
        for images in (data.x_train, data.x_test)
    )

    def judged(name: str, a: list[np.ndarray], b: list[np.ndarray]) -> str:
        entropy = softmax_cross_entropy(logits(lowered, test, a, b), data.y_test, max_length=config.classes)
        return _losses(name, int(entropy.loss.sum()), int(entropy.correct.sum()), len(data.y_test))

    start_a, start_b = plan.adapters
    reference = fine_tune(
        lowered, Settings(samples=len(data.y_train)), train, data.y_train, start_a, start_b, steps=plan.steps()
    )
    lines = [
        _identity(config),
        judged("before", [m[:, tap.order] for m, tap in zip(start_a, lowered.taps)], list(start_b)),
    ]
    steps = plan.train_blocks
    for epoch in range(plan.epochs):
        part = slice(epoch * steps, (epoch + 1) * steps)
        lines.append(
            _losses(
                f"epoch {epoch + 1}" if plan.epochs > 1 else "epoch",
                sum(reference.losses[part]),
                sum(reference.correct[part]),
                sum(reference.counts[part]),
            )
        )
    lines.append(judged("after", reference.a, reference.b))
    words = adapter_words(plan, reference)
    lines.append(f"adapter: {len(words) // 4} words, sum 0x{zlib.crc32(words):08x}")
    return [*lines, "done"]


def expected_answers(plan: ChipAnswers, config: ShellParameters) -> list[str]:
    """Lines of the UART for answers, without the cycles.

    The classes are those of the greatest logits in floating point.
    """
    found = cell.logits(plan.network, cell.run(plan.network, plan.codes)).argmax(axis=1)
    return [
        _identity(config),
        "class: " + " ".join(map(str, found)),
        f"class: {int((found == plan.labels).sum())} of {len(found)} right",
        "done",
    ]


def adapter_words(plan: OnChip, reference: FineTune) -> bytes:
    """The adapter as the machine leaves it in memory."""
    lowered = plan.lowered
    lanes = np.concatenate(
        [
            lowered.lanes_of(tap, a).reshape(-1, lowered.config.columns)
            for tap, (a, _) in enumerate(reference.adapters())
        ]
    )
    return words16(lanes) + head_words(lowered, [b for _, b in reference.adapters()])
