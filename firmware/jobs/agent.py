"""Serves a board to a program elsewhere, and runs jobs there.

``python3 -m gradloom_host.agent`` answers frames on standard input and output; ``... agent run JOB`` runs a job folder.
Python 3.10 is enough; nothing listens on a port.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..device.host import Accelerator, AcceleratorError, ProgramError
from ..device.machine import own_design
from ..device.transport import Transport
from .answering import answer_folder
from .board_device import BoardDevice, find_device
from .frames import PIECE, PROTOCOL, Channel, FrameError, field
from .job import FILES, JobError, check_name, read_plan, sync_folder
from .job_run import STATE_SECONDS, design_of, is_done, open_machine, run_job, state_of
from .serving import answered, opened

__all__ = ["main", "serve", "unit"]

#: Seconds without a question after which a client is given up, and the board is free for others.
IDLE_SECONDS = 600.0
#: Seconds in which a job that is started must have found its machine.
_START_SECONDS = 50.0
_SPARE = 1 << 20
_RESULTS = ("result.bin", "result.json", "failed.json", "log", "job.json")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Faults that are one line for the user.
FAULTS = (AcceleratorError, ImportError, OSError, ValueError)


def _said(fault: BaseException) -> str:
    if isinstance(fault, OSError) and fault.errno in _FULL:
        return f"no room to write on the board ({fault.strerror}): make room there"
    return " ".join(str(fault).split()) or type(fault).__name__


class _Server:
    """The questions of one client."""

    def __init__(self, channel: Channel, device: BoardDevice, jobs: Path) -> None:
        self.channel, self.device, self.jobs = channel, device, jobs
        self.client = "an unknown client"
        self.transport: Transport | None = None
        self.lock: int | None = None
        self.machine: Accelerator | None = None
        self.coming: Path | None = None
        self.name, self.sizes = "", dict[str, int]()
        self.held = contextlib.ExitStack()
        self.services: dict[str, Callable[[dict[str, Any], bytes], Iterable[tuple[dict[str, Any], bytes]]]] = {
            "hello": self._hello,
            "open": self._open,
            "put": self._put,
            "piece": self._piece,
            "placed": self._placed,
            "start": self._start,
            "follow": self._follow,
            "get": self._get,
            "jobs": self._jobs,
            "remove": self._remove,
        }

    def run(self) -> None:
        """Answers until the client ends."""
        try:
            while True:
                message, data = self.channel.receive(IDLE_SECONDS)
                try:
                    for answer, content in self._answers(message, data):
                        self.channel.send(answer, content)
                except FAULTS as fault:
                    self.channel.send({"error": type(fault).__name__, "message": _said(fault)})
        except (EOFError, BrokenPipeError):
            pass
        finally:
            self._drop()
            self._release()

    def _answers(self, message: dict[str, Any], data: bytes) -> Iterable[tuple[dict[str, Any], bytes]]:
        do = message.get("do")
        if do in self.services:
            return self.services[do](message, data)
        if self.transport is None:
            raise FrameError(f"do={do!r}: is unknown, or the device is not open")
        answer = answered(self.transport, message, data)
        if answer is None:
            raise FrameError(f"do={do!r}: is unknown")
        return (answer,)

    def _hello(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        theirs = field(message, "protocol", int)
        if theirs != PROTOCOL:
            raise FrameError(
                f"the agent on the board speaks protocol {PROTOCOL}, this gradloom {theirs}: run gradloom flash again"
            )
        self.client = field(message, "client", str)[:100]
        own = own_design()
        yield {"protocol": PROTOCOL, "design": None if own is None else own.name}, b""

    # The device

    def _take(self) -> int:
        """Locks the device, unless it is locked for this client already."""
        if self.lock is None:
            self.lock = self.held.enter_context(self.device.held(f"{self.client} (process {os.getpid()})"))
        return self.lock

    def _release(self) -> None:
        """Gives the device back, and stops what nobody waits for any more."""
        with contextlib.suppress(*FAULTS):
            if self.machine is not None and self.machine.busy:
                self.machine.reset(timeout=5)
        if self.transport is not None:
            self.transport.close()
        self.transport = self.machine = self.lock = None
        self.held.close()

    def _open(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        if self.transport is not None:
            raise FrameError("the device is open already")
        design = None if message.get("design") is None else design_of(field(message, "design", dict))
        window = field(message, "window", int, 0)
        self._take()
        try:
            self.transport = self.device.open()
            self.machine = open_machine(self.transport, design, window)
        except BaseException:
            self._release()
            raise
        yield opened(self.transport), b""

    # Jobs

    def _folder(self, message: dict[str, Any]) -> Path:
        folder = self.jobs / check_name(field(message, "name", str))
        if not (folder / "job.json").is_file():
            raise JobError(f"job={folder.name}: there is none of this name on the board")
        return folder

    def _put(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        self._drop()
        self.name = check_name(field(message, "name", str))
        sizes = field(message, "files", dict)
        if set(sizes) != set(FILES):
            raise FrameError(f"files={sorted(sizes)}: must be {', '.join(FILES)}")
        self.sizes = {name: field(sizes, name, int, 0) for name in FILES}
        if (self.jobs / self.name).exists():
            raise JobError(f"job={self.name}: there is one of this name on the board")
        self.jobs.mkdir(parents=True, exist_ok=True)
        needs, free = sum(self.sizes.values()) + _SPARE, shutil.disk_usage(self.jobs).free
        if free < needs:
            raise JobError(f"{self.jobs}: {free:,} bytes are free on the board, the job needs {needs:,}: make room")
        for left in self.jobs.glob(f".{self.name}.*.new"):
            # Of an agent that was killed; the device's lock, which its client had, is this client's now or free.
            if not Path(f"/proc/{left.name.split('.')[-2]}").exists():
                shutil.rmtree(left, ignore_errors=True)
        self.coming = self.jobs / f".{self.name}.{os.getpid()}.new"
        self.coming.mkdir()
        yield {}, b""

    def _piece(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        file, size = field(message, "file", str), field(message, "size", int, 1, PIECE)
        if self.coming is None or file not in FILES:
            raise FrameError(f"file={file!r}: no job comes, or it has no such file")
        unpack = zlib.decompressobj()
        content = unpack.decompress(data, size)
        if len(content) != size or unpack.unconsumed_tail:
            raise FrameError(f"size={size}: the piece has another one")
        try:
            with open(self.coming / file, "ab") as out:
                out.write(content)
                if out.tell() > self.sizes[file]:
                    raise FrameError(f"file={file!r}: is longer than was said")
        except BaseException:
            self._drop()
            raise
        yield {}, b""

    def _placed(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        coming = self.coming
        if coming is None:
            raise FrameError("no job comes")
        try:
            read_plan(coming)
            for name in FILES:
                with open(coming / name, "rb+") as file:
                    os.fsync(file.fileno())
            sync_folder(coming)
            os.rename(coming, self.jobs / self.name)
            self.coming = None
            sync_folder(self.jobs)
        except BaseException:
            self._drop()
            raise
        yield {}, b""

    def _drop(self) -> None:
        """Removes a job that has not come whole."""
        if self.coming is not None:
            shutil.rmtree(self.coming, ignore_errors=True)
            self.coming = None

    def _start(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        folder = self._folder(message)
        if is_done(folder):
            raise JobError(f"job={folder.name}: is done already")
        lock = self._take()
        try:
            # The job opens the device itself, and has the lock from here on.
            if self.transport is not None:
                self.transport.close()
            self.transport = self.machine = None
            self._started(folder, lock)
        finally:
            self._release()
        yield {}, b""

    def _started(self, folder: Path, lock: int) -> None:
        package = __package__ or "gradloom_host"
        command = [sys.executable, "-m", f"{package}.agent", *self.device.options, "--jobs", str(self.jobs)]
        command += ["run", folder.name, "--lock", str(lock), "--by", self.client]
        with open(folder / "said", "wb") as said:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=(lock,),
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            ended = child.poll()
            if state_of(folder).get("process") == child.pid or ended == 0:
                return
            if ended is not None:
                lines = (folder / "said").read_text(encoding="utf-8", errors="replace").strip().splitlines()
                line = lines[-1].removeprefix("gradloom: ") if lines else f"the job ended with {ended}"
                raise AcceleratorError(line)
            time.sleep(0.05)
        child.kill()
        raise AcceleratorError(f"job {folder.name} did not begin within {_START_SECONDS:g} s")

    def _follow(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        folder = self._folder(message)
        at, before, beat = 0, None, 0.0
        while True:
            status = state_of(folder)
            lines, at = _new_lines(folder / "log", at)
            end = status["state"] != "running"
            if lines or end or status != before or time.monotonic() - beat > 2.0:
                before, beat = status, time.monotonic()
                answer = {"status": status, "lines": lines, "end": end}
                if status["state"] == "failed":
                    answer["failed"] = _failed(folder)
                yield answer, b""
            # A question, or the end of the client, ends this too.
            if end or self.channel.waiting(0.2):
                return

    def _get(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        file, at = field(message, "file", str), field(message, "at", int, 0)
        if file not in _RESULTS:
            raise FrameError(f"file={file!r}: must be one of {', '.join(_RESULTS)}")
        path = self._folder(message) / file
        if not path.is_file():
            raise JobError(f"job={path.parent.name}: has no {file}, it is {state_of(path.parent)['state']}")
        with open(path, "rb") as content:
            content.seek(at)
            yield {"size": path.stat().st_size}, content.read(PIECE)

    def _jobs(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        yield {"jobs": {folder.name: state_of(folder) for folder in _jobs_in(self.jobs)}}, b""

    def _remove(self, message: dict[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        folder = self._folder(message)
        if state_of(folder)["state"] == "running":
            raise JobError(f"job={folder.name}: runs, so that it cannot be removed")
        shutil.rmtree(folder)
        yield {}, b""


def _failed(folder: Path) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads((folder / "failed.json").read_text(encoding="utf-8"))
    return found


def _new_lines(path: Path, at: int) -> tuple[list[str], int]:
    """Whole lines of a file from a place on, and the place behind them."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            content = file.read(PIECE)
    except FileNotFoundError:
        return [], at
    content = content[: content.rfind(b"\n") + 1]
    return content.decode("utf-8", "replace").splitlines(), at + len(content)


def _jobs_in(jobs: Path) -> list[Path]:
    return sorted(path.parent for path in jobs.glob("*/job.json") if not path.parent.name.startswith("."))


def serve(source: int, sink: int, device: BoardDevice, jobs: Path) -> None:
    """Answers one client until it ends.

    ``source`` and ``sink``: file descriptors. ``jobs``: folder of jobs.
    """
    _Server(Channel(source, sink), device, jobs).run()


def _run(job: str, device: BoardDevice, jobs: Path, arguments: argparse.Namespace) -> None:
    """Runs a job: a folder, or the name of one of those on the board."""
    folder = Path(job)
    if not (folder / "job.json").is_file() and "/" not in job:
        folder = jobs / check_name(job)
    run_job(
        folder.resolve(),
        device,
        by=arguments.by,
        lock=arguments.lock,
        state_seconds=arguments.state_seconds,
        say=lambda line: print(line, flush=True),
    )


def _answer(folder: Path, prompt: list[int], tokens: int | None, device: BoardDevice) -> None:
    """Prints the tokens of an answer; what they took goes to stderr, as ``gradloom_run`` tells it."""

    def tell(token: int) -> None:
        print(token, end=" ", flush=True)

    loop, reply = answer_folder(folder.resolve(), device, prompt, tokens, tell)
    print()
    print(
        f"{loop.said} tokens by {loop.programs} programs, {reply.cycles} cycles, {reply.clipped} words clipped",
        file=sys.stderr,
    )


def _continue(device: BoardDevice, jobs: Path) -> int:
    """Runs every job that was interrupted; returns how many failed."""
    failed = 0
    for folder in _jobs_in(jobs):
        if state_of(folder)["state"] != "interrupted":
            continue
        try:
            run_job(folder, device, by="the start of the board", say=lambda line: print(line, flush=True))
        except FAULTS as fault:
            print(f"gradloom: job {folder.name}: {_said(fault)}", file=sys.stderr)
            failed += 1
    return failed


def unit(device: BoardDevice, jobs: Path) -> str:
    """A systemd unit that loads the design at boot and continues its jobs.

    Its paths are those of this package, as ``gradloom flash`` has copied it.
    """
    package = Path(__file__).resolve().parent
    load, own = package.parents[1] / "load.sh", own_design()
    words = [sys.executable, "-m", f"{package.name}.agent", *device.options, "--jobs", str(jobs), "continue"]
    before = f"ExecStartPre=/bin/sh {_quoted(str(load))} {own.name}\n" if own is not None and load.is_file() else ""
    return f"""\
[Unit]
Description=Loads a gradloom design, and continues jobs that a power cut has interrupted
# PYNQ's own services load overlays too, and the last one to set a port's width has it.
After=local-fs.target dfx-mgr.service pl_server.service jupyter.service

[Service]
Type=oneshot
WorkingDirectory={package.parent}
{before}ExecStart={" ".join(map(_quoted, words))}

[Install]
WantedBy=multi-user.target
"""


def _quoted(word: str) -> str:
    """A word of a command as systemd reads it."""
    special = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}
    return '"' + "".join(special.get(letter, letter) for letter in word) + '"'


def main(argv: list[str] | None = None) -> int:
    """Serves, or runs jobs; the exit code is 2 where that fails."""
    parser = argparse.ArgumentParser(prog="gradloom-agent", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bitfile", help="load NAME.bit (with NAME.hwh) through PYNQ; without it: UIO and u-dma-buf")
    parser.add_argument("--at", metavar="SOCKET", help="a device that another process serves: a simulation")
    parser.add_argument("--jobs", type=Path, default=Path.home() / "gradloom-jobs", help="folder of jobs")
    verbs = parser.add_subparsers(dest="verb")
    verbs.add_parser("serve", help="answer frames on standard input and output (what happens without a verb)")
    run = verbs.add_parser("run", help="run a job folder to its end; an interrupted one goes on")
    run.add_argument("job")
    run.add_argument("--state-seconds", type=float, default=STATE_SECONDS, help="how old the stored state may be")
    run.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    run.add_argument("--by", default="", help=argparse.SUPPRESS)
    answer = verbs.add_parser("answer", help="answer a prompt of tokens by the model of a folder")
    answer.add_argument("folder", type=Path)
    answer.add_argument("prompt", type=int, nargs="*", metavar="TOKEN", help="none: the folder's own prompt")
    answer.add_argument("--tokens", type=int, metavar="N", help="of the answer, at most")
    verbs.add_parser("continue", help="run every job that was interrupted")
    verbs.add_parser("jobs", help="list jobs")
    verbs.add_parser("unit", help="print a systemd unit that loads the design at boot and continues jobs")
    arguments = parser.parse_args(argv)
    try:
        device = find_device(bitfile=arguments.bitfile, at=arguments.at)
        jobs = arguments.jobs.resolve()
        if arguments.verb == "run":
            _run(arguments.job, device, jobs, arguments)
        elif arguments.verb == "answer":
            _answer(arguments.folder, arguments.prompt, arguments.tokens, device)
        elif arguments.verb == "continue":
            return 2 if _continue(device, jobs) else 0
        elif arguments.verb == "unit":
            print(unit(device, jobs), end="")
        elif arguments.verb == "jobs":
            for folder in _jobs_in(jobs):
                status = state_of(folder)
                print(f"{folder.name}: {status['state']}, {status['done']} of {status['total']} {status['text']}")
        else:
            serve(sys.stdin.fileno(), sys.stdout.fileno(), device, jobs)
    except FAULTS as fault:
        print(f"gradloom: {_said(fault)}", file=sys.stderr)
        return 1 if arguments.verb == "answer" and isinstance(fault, ProgramError) else 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
