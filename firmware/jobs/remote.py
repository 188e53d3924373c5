"""Transport to a board's agent, and the agent's other services.

The agent is a process whose standard input and output carry frames: on a board over ssh, or here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..device.host import AcceleratorError, AcceleratorTimeout
from ..device.transport import Transport
from .frames import PIECE, PROTOCOL, Channel, FrameError
from .job import FILES, JobError
from .lock import InUseError

__all__ = ["LARGE", "Agent", "AgentTransport", "Connection", "ConnectionLost", "JobFailed", "RemoteError"]

#: Seconds in which the agent must answer, or tell how a job goes on.
TIMEOUT = 60.0
#: Bytes from which a digest of what is there pays: a frozen model stays in memory from one answer to the next.
LARGE = 1 << 16


class RemoteError(AcceleratorError):
    """The agent refuses, or something fails where it is."""


class ConnectionLost(RemoteError):
    """The way to the agent has ended; what runs there goes on."""


class JobFailed(RemoteError):
    """A job has ended with an error.

    ``error``, and where a program stopped ``code``, ``name``, ``command`` and ``address``, are those of the board.
    """

    def __init__(self, told: dict[str, Any]):
        super().__init__(str(told.get("message", "the job has failed")))
        self.error = told.get("error")
        self.code, self.name = told.get("code"), told.get("name")
        self.command, self.address = told.get("command"), told.get("address")


_KINDS: dict[str, Callable[[str], AcceleratorError | ValueError]] = {
    "InUseError": InUseError,
    "AcceleratorTimeout": AcceleratorTimeout,
    "JobError": JobError,
}


class Connection:
    """Questions and answers over a channel.

    Parameters
    ----------
    source, sink : :class:`int`
        See :class:`~.frames.Channel`.
    timeout : :class:`float`
        Seconds in which an answer must come.
    close : callable
        Ends the channel.
    explain : callable
        What a user is told of a channel that has ended: takes what is known, returns a line.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        *,
        timeout: float = TIMEOUT,
        close: Callable[[], object],
        explain: Callable[[str], str] = lambda text: text,
    ):
        self.channel = Channel(source, sink, timeout=timeout)
        self._close, self._explain = close, explain

    def ask(self, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The answer; an error that it tells is raised here."""
        try:
            self.channel.send(message, data)
        except (OSError, FrameError) as error:
            raise self._lost(error) from None
        return self.next()

    def next(self) -> tuple[dict[str, Any], bytes]:
        """A further answer to the last question."""
        try:
            answer, data = self.channel.receive()
        except (EOFError, OSError, FrameError) as error:
            raise self._lost(error) from None
        if "error" in answer:
            kind = _KINDS.get(str(answer["error"]), RemoteError)
            raise kind(str(answer.get("message", "the agent has failed")))
        return answer, data

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(self._explain(str(error) if isinstance(error, FrameError) else ""))

    def close(self) -> None:
        """Ends the channel."""
        self._close()


class AgentTransport(Transport):
    """Registers and window of a device that an agent has opened.

    ``opened``: the agent's answer to ``open``. :meth:`close` ends the connection.
    """

    def __init__(self, connection: Connection, opened: dict[str, Any]):
        self.connection = connection
        self.window_base, self.window_size = int(opened["base"]), int(opened["size"])
        self.clock_hz = None if opened["clock_hz"] is None else float(opened["clock_hz"])
        self.real_time = bool(opened.get("real_time"))

    def read32(self, offset: int) -> int:
        return int(self.connection.ask({"do": "read", "offset": offset})[0]["value"])

    def write32(self, offset: int, value: int) -> None:
        self.connection.ask({"do": "write", "offset": offset, "value": value})

    def read_memory(self, offset: int, length: int) -> bytes:
        return b"".join(
            self.connection.ask({"do": "fetch", "offset": at, "length": min(PIECE, offset + length - at)})[1]
            for at in range(offset, offset + length, PIECE)
        )

    def write_memory(self, offset: int, data: bytes) -> None:
        """Writes what is not there already."""
        for at in range(0, len(data), PIECE):
            piece, place = data[at : at + PIECE], offset + at
            if len(piece) < LARGE or self._digest(place, len(piece)) != hashlib.sha256(piece).digest():
                self.connection.ask({"do": "store", "offset": place}, piece)

    def _digest(self, offset: int, length: int) -> bytes:
        return self.connection.ask({"do": "digest", "offset": offset, "length": length})[1]

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        # An answer comes after some seconds at most; the caller asks again.
        return bool(
            self.connection.ask({"do": "wait", "seconds": 10.0 if timeout is None else float(timeout)})[0]["high"]
        )

    def close(self) -> None:
        self.connection.close()


class Agent:
    """The agent of a board, started by a command that ends with this object.

    Parameters
    ----------
    command : sequence of :class:`str`
        Starts it, with its frames on standard input and output.
    client : :class:`str`
        Who asks, as others are told.
    explain : callable
        ``explain(exit_code, line)``: what a user is told where it ends early; ``line`` is its last one, or ``""``.
    timeout : :class:`float`
        Seconds in which it must answer.

    Raises :class:`RemoteError` where there is none, or one of another version.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        client: str,
        explain: Callable[[int | None, str], str] | None = None,
        timeout: float = TIMEOUT,
    ):
        self._told = explain or _plainly
        self._messages = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, bufsize=0
            )
        except OSError as error:
            self._messages.close()
            raise RemoteError(f"{command[0]} does not start: {error.strerror}") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self.connection = Connection(
            self._process.stdout.fileno(),
            self._process.stdin.fileno(),
            timeout=timeout,
            close=self.close,
            explain=self._explained,
        )
        try:
            hello, _ = self.connection.ask({"do": "hello", "protocol": PROTOCOL, "client": client})
        except BaseException:
            self.close()
            raise
        #: Name of the design that the agent came with; None: any.
        self.design: str | None = hello.get("design")

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _explained(self, text: str) -> str:
        code: int | None
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            code = None
        said = os.pread(self._messages.fileno(), 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        return text or self._told(code, said[-1].removeprefix("gradloom: ") if said else "")

    def close(self) -> None:
        """Ends the process; jobs go on."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._messages.close()

    # Services

    def open(self, design: dict[str, Any] | None, window: int = 0) -> AgentTransport:
        """The device, if it has the design and ``window`` bytes.

        Others are kept away until this object is closed.
        """
        return AgentTransport(
            self.connection, self.connection.ask({"do": "open", "design": design, "window": window})[0]
        )

    def put(self, folder: Path, name: str) -> None:
        """Copies a job folder there, whole or not at all."""
        sizes = {file: (folder / file).stat().st_size for file in FILES}
        self.connection.ask({"do": "put", "name": name, "files": sizes})
        for file in FILES:
            with open(folder / file, "rb") as content:
                while piece := content.read(PIECE):
                    self.connection.ask({"do": "piece", "file": file, "size": len(piece)}, zlib.compress(piece, 1))
        self.connection.ask({"do": "placed"})

    def start(self, name: str) -> None:
        """Starts a job, which goes on when the agent ends.

        Returns when its machine is found to be the right one.
        """
        self.connection.ask({"do": "start", "name": name})

    def follow(self, name: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Status and new lines of the log, until the job has ended.

        Raises :class:`JobFailed` where it has failed or was interrupted.
        """
        answer, _ = self.connection.ask({"do": "follow", "name": name})
        while True:
            yield answer["status"], answer["lines"]
            if answer["end"]:
                break
            answer, _ = self.connection.next()
        state = answer["status"]["state"]
        if state == "failed":
            raise JobFailed(answer["failed"])
        if state != "done":
            raise RemoteError(f"job {name} is {state}: start it again, it goes on from what is stored")

    def fetch(self, name: str, file: str, target: Path) -> None:
        """Copies a file of a job from there."""
        with open(target, "wb") as out:
            size = 1
            while out.tell() < size:
                answer, data = self.connection.ask({"do": "get", "name": name, "file": file, "at": out.tell()})
                size = int(answer["size"])
                if not data and size > out.tell():
                    raise RemoteError(f"{file} of job {name} ended early")
                out.write(data)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Status of each job there, by name."""
        return dict(self.connection.ask({"do": "jobs"})[0]["jobs"])

    def remove(self, name: str) -> None:
        """Removes a job there that does not run."""
        self.connection.ask({"do": "remove", "name": name})


def _plainly(code: int | None, line: str) -> str:
    return line or ("the agent does not answer" if code is None else f"the agent has ended (exit code {code})")
