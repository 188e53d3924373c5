"""Simulated RTL behind the host's transport."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from gradloom.firmware.device.transport import Transport

from ..time.shell.bus import MemoryTime
from ..time.shell.dram import Dram
from .builds.objects import drop_parts, gather, keep_objects, kept_objects, make_options, reuse_objects
from .builds.runner import cache_directory, verilator_environment, verilator_root, verilator_version
from .checks import checked
from .recording import ARGUMENTS, recording

__all__ = [
    "Harness",
    "MEMORY_BYTES",
    "SimulatedDevice",
    "SimulationError",
    "build_device",
    "build_harness",
    "random_start",
]

_BENCH = Path(__file__).resolve().parents[1] / "bench" / "harness"
_BASE = 0x1_0000
MEMORY_BYTES = 1 << 26
_CHUNK = 1 << 18


class SimulationError(RuntimeError):
    """A simulation could not be built, or ended on its own."""


def build_harness(
    name: str,
    sources: Iterable[Path],
    *,
    parameters: Mapping[str, int | str],
    defines: Iterable[str] = (),
    arguments: Iterable[str] = (),
    tags: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Builds a bench and ``sources``, and returns the program.

    The bench is ``bench/harness/NAME.sv``; ``NAME.cpp`` there drives it; ``sources`` are those with
    :func:`~.checks.checked`, which takes ``tags``.

    ``defines``: macros that are defined; ``arguments``: further ones of Verilator. What was built before from the same
    text is used again.
    """
    defines, arguments = tuple(defines), tuple(arguments)
    texts = {
        path.name: checked(path.read_text(encoding="utf-8"), tags=tags)
        for path in sorted(sources, key=lambda p: p.name)
    }
    files = [_BENCH / "axi_memory.sv", _BENCH / f"{name}.sv"]
    made_by = sys.platform, verilator_version(), make_options(1)
    digest = hashlib.sha256(repr((*made_by, sorted(parameters.items()), *defines, *arguments)).encode())
    for source, text in texts.items():
        digest.update(source.encode() + b"\0" + text.encode() + b"\0")
    for path in (*files, *sorted(_BENCH.glob("*.h")), _BENCH / f"{name}.cpp"):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    where = cache_directory() / name / digest.hexdigest()[:20]
    where.parent.mkdir(parents=True, exist_ok=True)
    program = where / "obj" / name
    with open(where.parent / f"{where.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (where / "built").exists():
            return program
        if tell is not None:
            tell("building the simulation")
        shutil.rmtree(where, ignore_errors=True)
        (where / "rtl").mkdir(parents=True)
        for source, text in texts.items():
            (where / "rtl" / source).write_text(text, encoding="utf-8")
        env = verilator_environment()
        env["MAKEFLAGS"] += make_options(1)
        kept = kept_objects(cache_directory(), verilator_root(), verilator_version(), "harness", arguments)
        (where / "obj").mkdir()
        reuse_objects(kept, where / "obj")
        command = [
            "verilator",
            "--cc",
            "--exe",
            "-O3",
            "--top-module",
            name,
            "-Wno-fatal",
            "-Wno-WIDTH",
            "-Wno-UNOPTFLAT",
            "-Wno-lint",
            "-Wno-style",
            "--x-assign",
            "fast",
            "--x-initial",
            "fast",
            "--noassert",
            "--output-split",
            "4000",
            "-Mdir",
            str(where / "obj"),
            "-o",
            name,
            *(f"-G{key}={value}" for key, value in parameters.items()),
            *(f"+define+{name}" for name in defines),
            *arguments,
            *(str(where / "rtl" / source) for source in texts),
            *map(str, files),
            str(_BENCH / f"{name}.cpp"),
        ]
        code, said = _run_whole(command, env)
        if not code:
            make = ["make", "-C", str(where / "obj"), "-f", f"V{name}.mk", "-j", "2"]
            code, more = _run_whole([*make, *gather(where / "obj", f"V{name}"), name], env)
            said += more
        (where / "build.log").write_text(said)
        if code:
            lines = [line for line in said.splitlines() if "rror" in line][:5]
            raise SimulationError("the Verilog does not build: " + ("; ".join(lines) or f"see {where / 'build.log'}"))
        keep_objects(where / "obj", kept)
        drop_parts(where / "obj")
        (where / "built").touch()
    return program


def _run_whole(command: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output of a program that ends with all that it starts."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    ) as process:
        try:
            said = process.communicate()[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def build_device(
    sources: Iterable[Path],
    *,
    memory_bytes: int = MEMORY_BYTES,
    data_bits: int = 128,
    address_bits: int = 40,
    longest: int = 16,
    ports: int = 1,
    arguments: Iterable[str] = (),
    tags: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Builds the Verilog in ``sources`` and returns the program.

    The outermost module is ``gradloom``.

    ``data_bits`` and ``address_bits`` are those of each of its ``ports`` AXI4 managers, ``longest`` is the most beats
    of a burst; ``arguments`` and ``tags`` see :func:`build_harness`. Within :func:`~.recording.recorded` it can record.
    """
    return build_harness(
        "device",
        map(Path, sources),
        tell=tell,
        arguments=(*arguments, *(ARGUMENTS if recording() is not None else ())),
        tags=tags,
        parameters={
            "BYTES": memory_bytes,
            "BASE": _BASE,
            "DATA_BITS": data_bits,
            "ADDRESS": address_bits,
            "LONGEST": longest,
            "PORTS": ports,
        },
        defines=[name for name, least in (("TWO_PORTS", 2), ("FOUR_PORTS", 4)) if ports >= least],
    )


def random_start(seed: int | None) -> tuple[str, ...]:
    """Arguments of a simulation that starts with random values.

    None without ``seed``.
    """
    return () if seed is None else ("+verilator+rand+reset+2", f"+verilator+seed+{seed}")


class Harness:
    """A simulation that answers requests on its standard output.

    Parameters
    ----------
    program : Path
        What :func:`build_harness` made.
    directory : Path, optional
        Where it runs.
    arguments : iterable of :class:`str`
        Further ones of the program.
    """

    def __init__(self, program: Path, *, directory: Path | None = None, arguments: Iterable[str] = ()) -> None:
        self._messages = tempfile.TemporaryFile()
        self._answering = False
        # As ``harness.h`` starts.
        self._inputs = {"read_latency": 40, "write_latency": 10, "port_reads": 0, "dram": 0, "stall": 0, "spread": 0}
        self._process = subprocess.Popen(
            [str(program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            bufsize=1 << 20,
            cwd=directory,
        )

    def _ended(self) -> SimulationError:
        """Message that the simulation has ended, with its last output."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = self._said()
        return SimulationError(
            f"the simulation has ended: {said}" if said else f"the simulation has ended (exit code {code})"
        )

    def _said(self) -> str:
        """The first line that the simulation wrote to standard error."""
        # The process writes where this file stands, so it must not be moved.
        return os.pread(self._messages.fileno(), 4096, 0).decode(errors="replace").partition("\n")[0].strip()

    def _ask(self, line: str, payload: bytes = b"") -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            self._answering = True
            pipe.write(line.encode() + b"\n" + payload)
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _bytes(self, length: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(length)
        if len(data) != length:
            raise self._ended()
        self._answering = False
        return data

    def _answer(self) -> list[int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        try:
            if line:
                words = [] if line == "ok\n" else [int(word, 16) for word in line.split()]
                self._answering = False
                return words
        except ValueError:
            pass  # Verilator's own words on a simulation that stops
        raise self._ended()

    def read_memory(self, offset: int, length: int) -> bytes:
        """``length`` bytes of the memory."""
        self._ask(f"d {offset:x} {length:x}")
        return self._bytes(length)

    def write_memory(self, offset: int, data: bytes) -> None:
        """Puts bytes into the memory."""
        self._ask(f"l {offset:x} {len(data):x}", data)
        self._answer()

    def set(self, name: str, value: int) -> None:
        """Sets an input.

        It is ``read_latency``, ``write_latency``, ``stall``, ``seed``, ``rst``, or one of the bench's own.
        """
        self._ask(f"s {name} {value:x}")
        self._answer()
        self._inputs[name] = value

    @property
    def memory(self) -> MemoryTime | None:
        """The memory of a forecast; None where it stalls or answers at random, which has none."""
        if self._inputs["stall"] or self._inputs["spread"]:
            return None
        inputs = {name: self._inputs[name] for name in ("read_latency", "write_latency", "port_reads")}
        return MemoryTime(**inputs, dram=Dram.of(self._inputs["dram"]))

    def _alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the simulation; at once where it has not answered yet."""
        if self._answering:
            self._process.kill()
            self._process.wait()
        if self._alive():
            try:
                self._ask("q")
                self._process.wait(timeout=5)
            except (SimulationError, subprocess.TimeoutExpired):
                self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._messages):
            if pipe is not None:
                pipe.close()


class SimulatedDevice(Harness, Transport):
    """A simulated accelerator with its memory.

    Its bench has inputs of its own: ``port_reads``, the reads that a port of the memory keeps in flight, 0 for all;
    ``spread``, by how many cycles a burst's latency may be longer, at random; ``dram``, see
    :attr:`~gradloom.sim.time.shell.dram.Dram.word`;
    ``fail_enable``, ``fail_address``, ``fail_resp``; ``fence_low`` and ``fence_high``, beyond which no burst may go;
    and ``trace`` to record.

    Parameters
    ----------
    program : Path
        What :func:`build_device` made.
    progress : callable, optional
        Called with the cycles simulated, now and then.
    seed : int, optional
        Makes undefined values random, if the device was built so.
    """

    window_base = _BASE
    #: Cycles between two looks at the time while the interrupt is waited for.
    chunk = _CHUNK

    def __init__(
        self,
        program: Path,
        *,
        memory_bytes: int = MEMORY_BYTES,
        progress: Callable[[int], None] | None = None,
        seed: int | None = None,
    ) -> None:
        self.window_size = memory_bytes
        self.cycles = 0
        self._progress = progress
        self._recording = recording()
        if self._recording is not None:
            self._recording.take()
        super().__init__(
            program, arguments=random_start(seed), directory=None if self._recording is None else self._recording.folder
        )
        if self._recording is not None:
            self._ask("b activity")
            self._answer()

    def read32(self, offset: int) -> int:
        self._ask(f"r {offset:x}")
        value, response = self._answer()
        if response:
            raise SimulationError(f"reading register 0x{offset:X}: bus response {response}")
        return value

    def write32(self, offset: int, value: int) -> None:
        self._ask(f"w {offset:x} {value:x}")
        (response,) = self._answer()
        if response:
            raise SimulationError(f"writing register 0x{offset:X}: bus response {response}")

    def advance(self, cycles: int) -> bool:
        """Runs until the interrupt, or for ``cycles``.

        Returns whether the interrupt is high.
        """
        self._ask(f"g {cycles:x}")
        irq, spent, error = self._answer()
        self.cycles += spent
        if error:
            raise SimulationError(": ".join(filter(None, ("the accelerator broke a rule of AXI4", self._said()))))
        if self._progress is not None:
            self._progress(self.cycles)
        return bool(irq)

    def rest(self) -> None:
        """Leaves a DRAM alone for so long that its times are those of a new one: a forecast begins with that."""
        dram = Dram.of(self._inputs["dram"])
        if dram is not None:
            self.advance(dram.refresh_every)

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.advance(self.chunk):
            if end is not None and time.monotonic() >= end:
                return False
        return True

    def close(self) -> None:
        if not self._answering and self._recording is not None and self._recording.cycles is None and self._alive():
            self._ask("e")
            (self._recording.cycles,) = self._answer()
        super().close()

    def write_coverage(self, path: Path) -> None:
        """Writes the counts of ``--coverage-toggle`` so far.

        The simulation must be built with this option of Verilator.
        """
        self._ask(f"c {path}")
        self._answer()

    def take_trace(self) -> np.ndarray:
        """Recorded events as ``uint64``.

        An event is cycle << 32 | done of each engine << 16 | started of each engine.
        """
        self._ask("t")
        (count,) = self._answer()
        return np.frombuffer(self._bytes(8 * count), np.uint64)
