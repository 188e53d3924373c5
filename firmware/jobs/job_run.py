"""Runs a job folder on a board, with its state on the disk.

A run that was interrupted goes on from the last state that was stored; where a job has none, it begins again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..device import registers
from ..device.host import Accelerator, AcceleratorError, AcceleratorTimeout, ProgramCounters, ProgramError
from ..device.machine import MachineDesign
from ..device.transport import Transport
from .board_device import BoardDevice
from .job import JobError, JobPlan, JobStage, keep, read_plan
from .lock import is_locked, locked

__all__ = ["STATE_SECONDS", "begin", "design_of", "is_done", "open_machine", "run_job", "state_of", "write_stage"]

#: Seconds after which the state of a job is stored again.
STATE_SECONDS = 5.0
#: Seconds without a command that ends, after which a program is stopped.
_PATIENCE = 600.0
#: Seconds that stopping a program may take.
_RESET_SECONDS = 10.0
_RUNS = sum(1 << registers.FIELDS[f"STATUS.{name}"][0] for name in ("busy", "request_busy"))
_PIECE = 1 << 20
_SPARE = 1 << 20
#: A write that finds no room: on the disk, in the user's share of it, in the largest file that is allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_done(folder: Path) -> bool:
    """Whether a job has its result."""
    return (folder / "result.json").is_file()


def state_of(folder: Path) -> dict[str, Any]:
    """How far a job is, as plain data.

    ``state`` is ``new``, ``running``, ``interrupted``, ``failed`` or ``done``; ``done`` of ``total`` steps; ``text``.
    """
    try:
        found: dict[str, Any] = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"state": "new", "done": 0, "total": 0, "text": ""}
    # A run writes its end before it gives the lock back: what is looked at later is later.
    runs = is_locked(folder / ".lock")
    if is_done(folder):
        return {**found, "state": "done"}
    if (folder / "failed.json").is_file():
        return {**found, "state": "failed"}
    return {**found, "state": "interrupted"} if found["state"] == "running" and not runs else found


def design_of(found: dict[str, Any]) -> MachineDesign:
    """The design that a job or a client names."""
    try:
        return MachineDesign(name=str(found["name"]), table=str(found["table"]), data_bits=int(found["data_bits"]))
    except (KeyError, TypeError, ValueError):
        raise JobError("design: must have a name, a table and data_bits") from None


def open_machine(transport: Transport, design: MachineDesign | None, window: int) -> Accelerator:
    """The machine behind a transport, checked.

    It must be the design that is asked for, with ``window`` bytes. Both are looked at before anything is stored.
    """
    if window > transport.window_size:
        raise AcceleratorError(
            f"the job needs {window:,} bytes of memory, the board has reserved {transport.window_size:,}: make the "
            "buffer larger (size of its node in the overlay, cma= on the kernel's command line)"
        )
    _stop_left(transport)
    return Accelerator(transport, design=design)


def _stop_left(transport: Transport) -> None:
    """Stops what a process has left running that was killed.

    Registers are locked meanwhile. Who calls has the device, so that nobody waits for the program.
    """
    status = transport.read32(registers.STATUS) if transport.read32(registers.ID) == registers.CONSTANTS["ID"] else 0
    if not status & _RUNS:
        return
    transport.write32(registers.CONTROL, 1 << registers.FIELDS["CONTROL.reset"][0])
    end = time.monotonic() + _RESET_SECONDS
    while transport.read32(registers.STATUS) & _RUNS:
        if time.monotonic() > end:
            raise AcceleratorTimeout(f"a program that was left running did not stop within {_RESET_SECONDS:g} s")


def begin(machine: Accelerator, plan: JobPlan) -> None:
    """A machine that runs nothing, with a plan's watchdog and memory of zeros."""
    machine.reset()
    machine.clear_cache()
    machine.set_watchdog(plan.watchdog)
    for offset in range(0, plan.window, _PIECE):
        machine.store(offset, bytes(min(_PIECE, plan.window - offset)))


def write_stage(machine: Accelerator, stage: JobStage, data: BinaryIO) -> None:
    """Writes what a stage brings to memory; ``data``: ``data.bin``."""
    for offset, at, length in stage.writes:
        data.seek(at)
        for done in range(0, length, _PIECE):
            machine.store(offset + done, data.read(min(_PIECE, length - done)))


@dataclass
class _State:
    """State of a run on the disk.

    It has stages done, bytes of results, counters of stages, and how often the run was begun.
    """

    stage: int
    result_bytes: int
    counters: list[dict[str, Any]]
    begun: int


def run_job(
    folder: Path,
    device: BoardDevice,
    *,
    by: str = "",
    say: Callable[[str], object] = print,
    state_seconds: float = STATE_SECONDS,
    lock: int | None = None,
) -> None:
    """Runs a job to its end, from where an earlier run was interrupted.

    Raises :class:`~.host.AcceleratorError`, :class:`~.job.JobError` or :class:`OSError` with one line; the state on the
    disk stays.

    Parameters
    ----------
    by : :class:`str`
        Who asked for it, for the message to others.
    say : callable
        Hears each line of the log.
    state_seconds : :class:`float`
        How old the stored state may be.
    lock : :class:`int`, optional
        Descriptor of the device's lock, from who started this process.
    """
    holder = f"job {folder.name}{f' of {by}' if by else ''} (process {os.getpid()})"
    with device.held(holder, lock):
        plan = read_plan(folder)
        if plan.answers is not None:
            raise JobError(f"{folder}: answers prompts: python3 -m gradloom_host.agent answer {folder.name}")
        with locked(folder / ".lock", f"process {os.getpid()}", f"job {folder.name} runs already:"):
            if is_done(folder):
                say(f"job {folder.name} is done already")
                return
            (folder / "failed.json").unlink(missing_ok=True)
            _Run(folder, plan, say, state_seconds).all(device)


class _Run:
    def __init__(self, folder: Path, plan: JobPlan, say: Callable[[str], object], state_seconds: float) -> None:
        self.folder, self.plan, self.tell, self.state_seconds = folder, plan, say, state_seconds
        self.losses = 0
        self.total = len(plan.stages)
        if plan.losses is not None and plan.losses.kind == "sums":
            self.total = plan.losses.count

    def all(self, device: BoardDevice) -> None:
        begun = time.monotonic()
        try:
            self._room()
            self.state = self._stored()
            keep(self.folder / "state.json", json.dumps(asdict(self.state)).encode())
            with device.open() as transport:
                self.machine = open_machine(transport, design_of(self.plan.design), self.plan.window)
                try:
                    self._status("running", 0, "begins")
                    self._stages()
                except BaseException:
                    self._stop()
                    raise
            self._finish(time.monotonic() - begun)
        except (AcceleratorError, OSError, ValueError) as fault:
            told = self._full(fault) if isinstance(fault, OSError) and fault.errno in _FULL else fault
            self._failed(told)
            raise told from fault

    # Stages

    def _stages(self) -> None:
        plan, machine, at = self.plan, self.machine, self.state.stage
        begin(machine, plan)
        self.say(f"goes on at stage {at + 1} of {len(plan.stages)}" if at else f"begins, stages: {len(plan.stages)}")
        with open(self.folder / "data.bin", "rb") as data, open(self.folder / "result.part", "ab") as results:
            for stage in plan.stages[:at]:
                write_stage(machine, stage, data)
            self._restore()
            stored = time.monotonic()
            for number in range(at, len(plan.stages)):
                stage = plan.stages[number]
                write_stage(machine, stage, data)
                counters = None if stage.program is None else self._program(number, *stage.program)
                for offset, length in stage.reads:
                    results.write(machine.fetch(offset, length))
                self.state.counters.append({} if counters is None else counters.as_dict())
                self.state.result_bytes += sum(length for _, length in stage.reads)
                last = number + 1 == len(plan.stages)
                if last or (plan.state is not None and time.monotonic() - stored >= self.state_seconds):
                    self._store(results, number + 1)
                    stored = time.monotonic()

    def _program(self, number: int, offset: int, commands: int) -> ProgramCounters:
        looked = _Progress(self.machine, commands)
        last = 0.0

        def watch() -> None:
            nonlocal last
            looked.check()
            self._new_losses()
            if time.monotonic() - last >= 1.0:
                last = time.monotonic()
                self._status("running", self._done(number), f"{looked.commands:,} of {commands:,} commands")

        self.machine.start(offset, commands)
        counters = self.machine.wait(timeout=float("inf"), watch=watch)
        self._new_losses(ended=True)
        self._status("running", self._done(number + 1), f"{counters.cycles:,} cycles")
        return counters

    def _done(self, stages: int) -> int:
        return self.losses if self.total != len(self.plan.stages) else stages

    def _new_losses(self, ended: bool = False) -> None:
        where = self.plan.losses
        if where is None or (where.kind == "tiles" and not ended):
            return
        found = where.of(self.machine.fetch(where.offset, where.length))
        for loss in found if where.kind == "tiles" else found[self.losses :]:
            self.losses += 1
            self.say(f"step {self.losses} of {self.total}: loss {loss:.6f}")

    def _stop(self) -> None:
        """Stops what still runs: nobody waits for its end."""
        try:
            if self.machine.busy:
                self.machine.reset(timeout=5)
        except (AcceleratorError, OSError, ValueError):
            pass

    # The disk

    def _room(self) -> None:
        plan = self.plan
        part = self.folder / "result.part"
        needs = plan.result_bytes + 2 * plan.state_bytes + _SPARE - (part.stat().st_size if part.exists() else 0)
        free = shutil.disk_usage(self.folder).free
        if free < needs:
            raise JobError(
                f"{self.folder}: {free:,} bytes are free, the run needs {needs:,} for its results and state: make room"
            )

    def _stored(self) -> _State:
        """The state on the disk.

        It is that of a new run where there is none, or where a job cannot go on.
        """
        state = _State(0, 0, [], 1)
        try:
            found = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = None
        if found is not None:
            state.begun = found["begun"] + 1
            if self.plan.state is not None or found["stage"] == len(self.plan.stages):
                state = _State(found["stage"], found["result_bytes"], found["counters"], state.begun)
        part = self.folder / "result.part"
        with open(part, "ab") as file:
            file.truncate(state.result_bytes)
        self.losses = state.stage if self.plan.losses is not None and self.plan.losses.kind == "tiles" else 0
        return state

    def _store(self, results: BinaryIO, stage: int) -> None:
        """Stores results and state.

        The state before is there until the new one is.
        """
        results.flush()
        os.fsync(results.fileno())
        if stage < len(self.plan.stages):
            content = b"".join(self.machine.fetch(offset, length) for offset, length in self.plan.state or ())
            keep(self.folder / f"state-{stage}.bin", content)
        self.state.stage = stage
        keep(self.folder / "state.json", json.dumps(asdict(self.state)).encode())
        for other in self._state_files():
            if other.name != f"state-{stage}.bin":
                other.unlink()

    def _restore(self) -> None:
        if not 0 < self.state.stage < len(self.plan.stages):
            return
        path = self.folder / f"state-{self.state.stage}.bin"
        content = path.read_bytes()
        if len(content) != self.plan.state_bytes:
            raise JobError(f"{path}: has {len(content)} bytes, must have {self.plan.state_bytes}: copy the job again")
        at = 0
        for offset, length in self.plan.state or ():
            self.machine.store(offset, content[at : at + length])
            at += length

    def _state_files(self) -> Iterator[Path]:
        return self.folder.glob("state-*.bin*")

    def _finish(self, seconds: float) -> None:
        digest, size = hashlib.sha256(), 0
        with open(self.folder / "result.part", "rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
        if size != self.plan.result_bytes:
            raise JobError(f"{self.folder}: result.part has {size} bytes, must have {self.plan.result_bytes}")
        os.replace(self.folder / "result.part", self.folder / "result.bin")
        told = {
            "counters": self.state.counters,
            "result_bytes": size,
            "result_sha256": digest.hexdigest(),
            "data_sha256": self.plan.data_sha256,
            "begun": self.state.begun,
        }
        keep(self.folder / "result.json", json.dumps(told).encode())
        for each in (*self._state_files(), self.folder / "state.json"):
            each.unlink(missing_ok=True)
        self.say(f"done after {seconds:.1f} s")
        self._status("done", self.total, "done")

    def _full(self, fault: OSError) -> JobError:
        free = shutil.disk_usage(self.folder).free
        return JobError(
            f"{self.folder}: no room to write ({fault.strerror}), {free:,} bytes are free: make room and run it again, "
            "it goes on from what is stored"
        )

    def _failed(self, fault: Exception) -> None:
        told: dict[str, Any] = {"error": type(fault).__name__, "message": " ".join(str(fault).split())}
        if isinstance(fault, ProgramError):
            told |= {"code": fault.code, "name": fault.name, "command": fault.command, "address": fault.address}
        try:
            self.say(f"failed: {told['message']}")
            keep(self.folder / "failed.json", json.dumps(told).encode())
        except OSError:
            pass  # The disk is full: the caller says so.

    def _status(self, state: str, done: int, text: str) -> None:
        path = self.folder / "status.json"
        made = path.with_name("status.json.new")
        found = {"state": state, "done": done, "total": self.total, "text": text, "process": os.getpid()}
        try:
            made.write_text(json.dumps(found), encoding="utf-8")
            os.replace(made, path)
        except OSError:
            made.unlink(missing_ok=True)
            raise

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            log.write(line + "\n")
        self.tell(line)


class _Progress:
    """Whether a program's commands go on."""

    def __init__(self, machine: Accelerator, total: int) -> None:
        self.machine, self.total = machine, total
        self.commands, self.since = 0, time.monotonic()

    def check(self) -> None:
        """Raises :class:`AcceleratorTimeout` where none has ended for long."""
        done, now = self.machine.read("COMMANDS_DONE"), time.monotonic()
        if done != self.commands:
            self.commands, self.since = done, now
        elif now - self.since > _PATIENCE:
            raise AcceleratorTimeout(f"no command of the program has ended for {_PATIENCE:g} s, after {done:,}")
