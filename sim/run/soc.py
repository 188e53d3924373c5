"""A simulated system on chip, with its firmware."""

from collections.abc import Callable
from pathlib import Path

from gradloom.firmware.chip.soc import DONE, JobProgram, JobResult, Run, SocJob, parse_error, parse_run
from gradloom.firmware.chip.soc_image import IMAGE
from gradloom.firmware.device.host import ProgramCounters, ProgramError
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.table import needed_table
from gradloom.rtl.soc import soc_sources

from .builds.designs import design
from .device import SimulationError, build_harness
from .uart import Talker

__all__ = ["CARDS", "SimulatedSoC", "SoCHost", "build_soc"]

_BENCH = Path(__file__).resolve().parents[1] / "bench" / "harness"
#: Where the large memory starts, for processor and accelerator.
MEMORY_BASE = 0x8000_0000
#: Cards that the slot may hold, by their number in ``bench/harness/sd_card.h``.
CARDS = {"none": 0, "large": 1, "standard": 2, "old": 3, "multimedia": 4, "wrong voltage": 5, "stuck": 6}


def build_soc(
    config: LanguageConfig,
    *,
    core: str = "picorv32",
    memory_bytes: int = 1 << 24,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Builds processor, accelerator and memory, and returns the program."""
    return build_harness(
        "soc",
        [*design(config), *soc_sources(core), _BENCH / "soc_bus.sv", _BENCH / "uart_listener.sv"],
        tell=tell,
        parameters={"BYTES": memory_bytes, "DATA_BITS": config.data_bits, "ADDRESS": config.address_bits},
    )


class SimulatedSoC(Talker):
    """A simulated system on chip.

    Parameters
    ----------
    program : Path
        What :func:`build_soc` made.
    memory_bytes : int
        As it was built.
    image : Path
        The firmware; its file must be called ``soc_image.mem``.
    tell : callable, optional
        Told each line of the UART.
    """

    def __init__(
        self,
        program: Path,
        *,
        memory_bytes: int = 1 << 24,
        image: Path = IMAGE,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if image.name != IMAGE.name or not image.is_file():
            raise ValueError(f"image must be a file called {IMAGE.name}, not {str(image)!r}")
        super().__init__(program, directory=image.parent, tell=tell)
        self.memory_bytes = memory_bytes

    def insert(self, content: bytes, **settings: int) -> None:
        """Puts a memory card that holds ``content`` into the slot.

        ``settings`` are those of ``bench/harness/sd_card.h``.
        """
        self._ask(f"c {len(content):x}", content)
        self._answer()
        for name, value in ({"card": CARDS["large"]} | settings).items():
            self.set(name, value)

    def card(self) -> tuple[int, int, int]:
        """Commands and blocks of the card, and violations of its rules.

        Returns the number of commands that it got, of blocks that it sent, and of actions that cards need not accept.
        """
        commands, blocks, violations, *_ = self._card()
        return commands, blocks, violations

    def written(self) -> tuple[int, int]:
        """Blocks that the card has stored.

        Returns also the bytes on its line while a write was under way.
        """
        _, _, _, blocks, length, _ = self._card()
        return blocks, length

    def powered(self) -> bool:
        """Whether the card's slot has power."""
        return bool(self._card()[-1])

    def _card(self) -> list[int]:
        self._ask("k")
        return self._answer()

    def content(self) -> bytes:
        """What the card holds now."""
        self._ask("r")
        (length,) = self._answer()
        return self._bytes(length)

    def run(self, job: SocJob, *, cycles: int = 1 << 24) -> list[str]:
        """Hands over ``job``, and returns all lines up to its end.

        Its data is in memory. The last line is ``done`` or ``failed``.

        ``cycles`` bounds the wait for each line.
        """
        for program in job.programs:
            self.write_memory(job.window_offset + program.offset, program.code)
        header = job.header()
        self.write_memory(4, header[4:])
        self.write_memory(0, header[:4])
        return self.listen(cycles)

    def listen(self, cycles: int = 1 << 24) -> list[str]:
        """All lines of the next job.

        They are from behind ``ready`` up to ``done``, ``failed`` or ``stopped``.
        """
        while self.hear(cycles) != "ready":
            pass
        lines: list[str] = []
        while not lines or lines[-1] not in ("done", "failed", "stopped"):
            lines.append(self.hear(cycles))
        ok = lines[-1] == "done"
        if (self.read_memory(0, 4) == DONE) != ok:
            raise SimulationError("the header's first word does not say what the UART says")
        return lines


class SoCHost:
    """Replaces the host's driver where the firmware rings the bell.

    It stands in for :class:`~gradloom.firmware.device.host.Accelerator`.

    Parameters
    ----------
    soc : SimulatedSoC
    config : LanguageConfig
        Of the machine that programs are made for.
    results : tuple of Result
        What the firmware tells after each run.
    """

    window_offset = 4096

    def __init__(self, soc: SimulatedSoC, config: LanguageConfig, results: tuple[JobResult, ...] = ()) -> None:
        self.soc = soc
        self.machine = needed_table(config)
        self.results = results
        self.window_bytes = soc.memory_bytes - self.window_offset
        #: Lines of the last run, and what they say of it.
        self.lines: list[str] = []
        self.last: Run | None = None

    def store(self, offset: int, values: bytes) -> None:
        """Puts bytes at ``offset`` of the window."""
        self.soc.write_memory(self.window_offset + offset, values)

    def fetch(self, offset: int, length: int) -> bytes:
        """Bytes at ``offset`` of the window."""
        return self.soc.read_memory(self.window_offset + offset, length)

    def run(self, offset: int, commands: int, *, timeout: float | None = None) -> ProgramCounters:
        """Runs a program to its end.

        :class:`ProgramError` if it stops, as the UART reports. Counters that the UART does not report are 0.
        """
        job = SocJob(
            window_bytes=self.window_bytes,
            results=self.results,
            programs=(JobProgram(self.fetch(offset, 32 * commands), offset),),
            machine=self.machine,
        )
        self.lines = self.soc.run(job)
        error = parse_error(self.lines)
        if error is not None:
            raise ProgramError(*error, MEMORY_BASE + self.window_offset)
        if self.lines[-1] != "done":
            raise SimulationError("; ".join(self.lines))
        (self.last,) = parse_run(self.lines)
        return ProgramCounters(
            cycles=self.last.cycles,
            phases={},
            commands_done=0,
            commands_dropped=0,
            cache_hits=0,
            cache_misses=0,
            read_beats=self.last.read_beats,
            write_beats=self.last.write_beats,
            saturated=self.last.saturated,
            underflowed=0,
            gradient_norm=0,
        )
