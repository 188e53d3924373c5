"""Serves simulated RTL on a Unix socket, in place of a board.

``python -m gradloom.sim.run.board DESIGN SOCKET``; then ``python -m gradloom.firmware.jobs.agent --at SOCKET ...``.
"""

import argparse
import contextlib
import select
import socket
import sys
from pathlib import Path

from gradloom.firmware.device import registers
from gradloom.firmware.jobs.frames import Channel, FrameError
from gradloom.firmware.jobs.serving import answered, opened
from gradloom.json_file import read_json
from gradloom.rtl.shell.parameters import port_bits

from .device import MEMORY_BYTES, SimulatedDevice, SimulationError, build_device

__all__ = ["SimulatedBoard", "main", "serve"]

#: Cycles that the device goes on by between two looks for a question.
_CYCLES = 1 << 14
#: Cycles of a store at most; a beat of 16 bytes has one.
_STORE_CYCLES = 1 << 10
_RUNS = sum(1 << registers.FIELDS[f"STATUS.{name}"][0] for name in ("busy", "request_busy"))


class SimulatedBoard:
    """A simulated device that one client after another asks over a socket.

    What runs goes on while nobody asks, and memory stays, as on a board.

    Parameters
    ----------
    device : SimulatedDevice
    path : Path
        Of the socket, which is made.
    """

    def __init__(self, device: SimulatedDevice, path: Path) -> None:
        self.device = device
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(1)

    def serve(self) -> None:
        """Serves clients for ever."""
        while True:
            self._until_asked(self._listening)
            client, _ = self._listening.accept()
            with client:
                self._client(client)

    def _client(self, client: socket.socket) -> None:
        channel = Channel(client.fileno(), client.fileno())
        while True:
            self._until_asked(client)
            try:
                message, data = channel.receive()
                try:
                    if message.get("do") == "open":
                        answer: tuple[dict[str, object], bytes] | None = (opened(self.device), b"")
                    else:
                        answer = answered(self.device, message, data)
                    if answer is None:
                        raise FrameError(f"do={message.get('do')!r}: is unknown")
                    if message.get("do") == "store":
                        # Time passes while a host writes, such as that of clearing valid bits.
                        self.device.advance(min(len(data) // 16, _STORE_CYCLES))
                    channel.send(*answer)
                except ValueError as error:
                    channel.send({"error": type(error).__name__, "message": str(error)})
            except (EOFError, OSError, FrameError):
                return

    def _until_asked(self, asked: socket.socket) -> None:
        """Lets the device go on until a socket has something to read."""
        while not select.select([asked], [], [], 0)[0]:
            if not self.device.read32(registers.STATUS) & _RUNS:
                select.select([asked], [], [])
                return
            self.device.advance(_CYCLES)


def serve(program: Path, path: Path, memory_bytes: int = MEMORY_BYTES) -> None:
    """Serves a simulated device at a Unix socket, for ever.

    ``program``: of :func:`~.device.build_device`.
    """
    device = SimulatedDevice(program, memory_bytes=memory_bytes)
    device.chunk = _CYCLES
    with contextlib.closing(device):
        SimulatedBoard(device, path).serve()


def main(argv: list[str] | None = None) -> int:
    """Serves the design of a folder that ``gradloom generate`` made."""
    parser = argparse.ArgumentParser(
        prog="python -m gradloom.sim.run.board", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("design", type=Path, help="folder of a design")
    parser.add_argument("socket", type=Path, help="Unix socket that is made")
    parser.add_argument("--memory-bytes", type=int, default=MEMORY_BYTES, help="size of the buffer")
    arguments = parser.parse_args(argv)
    try:
        found = read_json(arguments.design / "report.json")
        ports = found["parameters"]["ports"]
        program = build_device(
            sorted((arguments.design / "rtl").glob("*.v")),
            memory_bytes=arguments.memory_bytes,
            data_bits=port_bits(found["machine"]["data_bits"], ports),
            address_bits=found["parameters"]["address_bits"],
            ports=ports,
        )
        print(f"serving {arguments.design} at {arguments.socket}", flush=True)
        serve(program, arguments.socket, arguments.memory_bytes)
    except (OSError, KeyError, ValueError, SimulationError) as error:
        print(f"gradloom: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
