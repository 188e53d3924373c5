"""A board on this machine: simulated RTL on a socket, and ``ssh`` and ``sudo`` that are shells here."""

import contextlib
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.boards.firmware_files import firmware_files
from gradloom.firmware.jobs.remote import Connection
from gradloom.preset import find_preset
from gradloom.sim.run.builds.designs import design, design_entry
from gradloom.sim.run.device import MEMORY_BYTES, build_device

from ..tools import pythons

#: The board's Python is that of Ubuntu 22.04, where there is one here.
PYTHON = str(pythons.find("3.10") or sys.executable)

_SERVE = """
import sys
from pathlib import Path
from gradloom.sim.run.board import serve
serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
"""


def put_host(folder: Path, design) -> None:
    """Writes the package ``gradloom_host`` to a folder, as ``gradloom flash`` does."""
    for path, text in firmware_files(design).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


class Board:
    """A home on the board with a flashed design, and the device.

    ``memory_bytes``: size of the reserved buffer.
    """

    def __init__(self, folder: Path, config, name: str, memory_bytes: int) -> None:
        self.folder, self.config, self.memory_bytes = folder, config, memory_bytes
        self.home, self.socket = folder / "home", folder / "device"
        self.design = design_entry(name, config)
        self.program = build_device(design(config), **config.bus)
        put_host(self.host, self.design)
        self.server = None
        self.power_up()

    @property
    def host(self) -> Path:
        """Folder of the package ``gradloom_host``."""
        return self.home / "gradloom-designs" / "gradloom" / "firmware"

    @property
    def jobs(self) -> Path:
        return self.home / "gradloom-jobs"

    def power_up(self) -> None:
        """Starts the device, with memory as it is then: all zero."""
        self.socket.unlink(missing_ok=True)
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(self.program), str(self.socket), str(self.memory_bytes)]
        )
        end = time.monotonic() + 30
        while not self.socket.exists():
            assert self.server.poll() is None and time.monotonic() < end
            time.sleep(0.02)

    def power_off(self) -> None:
        self.server.kill()
        self.server.wait()

    @contextlib.contextmanager
    def halted(self):
        """The device stands still, so that what runs on it does not end meanwhile."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)

    def command(self, *arguments: str) -> list[str]:
        """The agent on the board, in :attr:`host`."""
        package = [PYTHON, "-m", "gradloom_host.agent"]
        return [*package, "--at", str(self.socket), "--jobs", str(self.jobs), *arguments]

    def agent(self, *arguments: str, **more):
        """The agent's outcome, run on the board."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.host,
            # The board has its own Python packages.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **more,
        )

    @property
    def reach(self):
        return boards.reached(boards.find("kv260"), host="ubuntu@kria", name="gradloom")


@pytest.fixture
def make_board(tmp_path, monkeypatch):
    """``make_board(config, name, memory_bytes, before)`` makes a board that ``ssh ubuntu@kria`` reaches."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")

    def put(name, text):
        path = tools / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    with contextlib.ExitStack() as stack:

        def make(config, name, memory_bytes=MEMORY_BYTES, before=":"):
            made = Board(tmp_path, config, name, memory_bytes)
            stack.callback(made.power_off)
            home, python = shlex.quote(str(made.home)), shlex.quote(PYTHON)
            put("ssh", f'for last; do :; done; cd {home} && HOME={home} exec sh -c "$last"')
            put(
                "sudo",
                'test "$1 $2 $3 $4" = "-n python3 -m gradloom_host.agent" || exit 9\n'
                f"shift 4; unset PYTHONPATH\n{before}\n"
                f'exec {python} -m gradloom_host.agent --at {shlex.quote(str(made.socket))} "$@"',
            )
            return made

        yield make


@pytest.fixture
def machine_served(make_board):
    """``machine_served(message, data)``: the answer of a simulated board's device."""
    preset = find_preset("instantft-kv260")
    board = make_board(preset.config, preset.name)
    other = socket.socket(socket.AF_UNIX)
    other.connect(str(board.socket))
    with contextlib.closing(other):
        yield Connection(other.fileno(), other.fileno(), timeout=30, close=lambda: None).ask
