"""What goes to a board runs on Python 3.10, that of Kria's Ubuntu 22.04, and all but arrays without numpy."""

import json
import subprocess

import pytest

from gradloom.boards.firmware_files import firmware_files
from gradloom.firmware.device.selftest import CHECKS

from ..tools import pythons

#: What the older Python runs: a transport that asks this process for each access.
_BOARD = """
import json, sys
from gradloom_host.host import Accelerator
from gradloom_host.selftest import run_selftest
from gradloom_host.transport import Transport

def ask(*request):
    print(json.dumps(request), flush=True)
    return json.loads(sys.stdin.readline())

class Pipe(Transport):
    window_base, window_size, clock_hz = ask("window")
    poll_interval = 0.0
    def read32(self, offset):
        return ask("read32", offset)
    def write32(self, offset, value):
        ask("write32", offset, value)
    def read_memory(self, offset, length):
        return bytes.fromhex(ask("read_memory", offset, length))
    def write_memory(self, offset, data):
        ask("write_memory", offset, data.hex())

accelerator = Accelerator(Pipe())
print(json.dumps(["done", run_selftest(accelerator)]))
if sys.argv[1:]:
    import numpy
    values = numpy.arange(-6, 6, dtype=">i2").reshape(3, 4).T
    accelerator.store(48, values)
    assert (accelerator.fetch_array(48, (4, 3), "i2") == values).all(), numpy.__version__
    print(json.dumps(["arrays"]))
"""


@pytest.fixture
def host(tmp_path):
    """Folder with the package ``gradloom_host``, as a project for a board has it."""
    for name, text in firmware_files().items():
        if name.startswith("gradloom_host/"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return tmp_path


def find(version, imports="sys"):
    return pythons.find(version, imports=imports) or pytest.skip(f"no Python {version} that imports {imports}")


def test_every_module_of_the_host_package_is_imported(host):
    modules = sorted(f"gradloom_host.{path.stem}" for path in (host / "gradloom_host").glob("*.py"))
    assert "gradloom_host.uio_transport" in modules and "gradloom_host.pynq_transport" in modules
    subprocess.run([find("3.10"), "-W", "error", "-c", f"import {', '.join(modules)}"], cwd=host, check=True)


@pytest.mark.parametrize("imports", ["sys", "numpy"])
def test_the_self_test_passes_on_the_boards_python(host, machine, imports):
    """Every check, against the model of the registers; arrays where that Python has numpy."""
    board = subprocess.Popen(
        [find("3.10", imports), "-W", "error", "-c", _BOARD, *["arrays"] * (imports == "numpy")],
        cwd=host,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    done = {}
    with board:
        for line in board.stdout:
            name, *values = json.loads(line)
            if name in ("done", "arrays"):
                done[name] = values
                continue
            board.stdin.write(json.dumps(_answer(machine, name, *values)) + "\n")
            board.stdin.flush()
    assert board.returncode == 0
    (checks,) = done["done"]
    assert [(name, ok) for name, ok, _ in checks] == [(name, True) for name, _ in CHECKS]
    assert ("arrays" in done) == (imports == "numpy")


def _answer(machine, name, *values):
    if name == "window":
        return machine.window_base, machine.window_size, machine.clock_hz
    if name == "write_memory":
        return machine.write_memory(values[0], bytes.fromhex(values[1]))
    found = getattr(machine, name)(*values)
    return found.hex() if isinstance(found, bytes) else found
