"""The notebook of a KV260 design, by a made-up PYNQ in front of simulated RTL."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from gradloom import boards
from gradloom.boards.firmware_files import firmware_files
from gradloom.boards.integrate.component import EDITIONS, ComponentPart, component
from gradloom.boards.kv260.bundle.notebook import notebook
from gradloom.boards.vivado.project import TopPorts
from gradloom.firmware.device.selftest import CHECKS
from gradloom.firmware.jobs.pynq_driver import NAME
from gradloom.jobs import on_board
from gradloom.preset import find_preset

PRESET = find_preset("instantft-kv260")

#: What PYNQ does with a class that names a core, and its registers and buffers, which lead to the simulated device.
_PYNQ = """
import os
from types import SimpleNamespace

import numpy as np
from gradloom_host.board_device import find_device

_opened = []

def _device():
    if not _opened:
        _opened.append(find_device(at=os.environ["DEVICE"]).open())
    return _opened[0]

class DefaultIP:
    bound = {}

    def __init_subclass__(cls):
        DefaultIP.bound |= dict.fromkeys(cls.bindto, cls)

    def __init__(self, description):
        self.mmio = SimpleNamespace(read=_device().read32, write=_device().write32)

class Overlay:
    def __init__(self, bitfile):
        assert bitfile == "../bundle/gradloom.bit", bitfile
        self.ip_dict = {"accelerator": {"type": os.environ["CORE"]}}
        self.accelerator = DefaultIP.bound.get(os.environ["CORE"], DefaultIP)(self.ip_dict["accelerator"])

class Buffer:
    def __init__(self, size):
        self.device_address, self.size = _device().window_base, size

    def __getitem__(self, where):
        return np.frombuffer(_device().read_memory(where.start, where.stop - where.start), np.uint8)

    def __setitem__(self, where, value):
        _device().write_memory(where.start, value.tobytes())

    def flush(self):
        pass

    invalidate = freebuffer = flush

def allocate(shape, dtype, cacheable):
    assert dtype == np.uint8 and not cacheable
    return Buffer(*shape)

Clocks = SimpleNamespace(fclk0_mhz=199.998)
"""
#: Runs the code of a notebook, cell by cell.
_RUN = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
assert names["results"] and all(ok for _, ok, _ in names["results"]), names["results"]
"""


@pytest.fixture
def jupyter(make_board):
    """``jupyter(core)`` runs the notebook where the overlay holds that core: exit code and what it said."""
    board = make_board(PRESET.config, PRESET.name)
    (board.host / "pynq.py").write_text(_PYNQ)
    (board.host / "gradloom.ipynb").write_text(notebook("gradloom"))
    # A lock of the board's own: other tests run beside this one.
    path = board.host / "gradloom_host/board_device.py"
    path.write_text(path.read_text().replace("/run/lock/gradloom.lock", str(board.home / "lock")))

    # Simulated cycles do not pass at the clock's rate.
    path = board.host / "gradloom_host/pynq_transport.py"
    path.write_text(path.read_text().replace("real_time = True", "real_time = False"))

    def run(core):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, "-c", _RUN, "gradloom.ipynb"],
            cwd=board.host,
            env=environment | {"DEVICE": str(board.socket), "CORE": core},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    run.folder = board.host
    return run


def test_the_notebook_tests_the_machine_and_fine_tunes(jupyter, tmp_path):
    options = PRESET.workload.options(PRESET.name, {"limit": 8, "epochs": 1, "batch": 4})
    on_board.write_job(PRESET, options, jupyter.folder / "job")
    code, said = jupyter(NAME)
    assert code == 0, said
    assert said.count("ok  ") == len(CHECKS) and "FAIL" not in said and "loss" in said
    # Every word is the reference's.
    found = on_board.collect_job(jupyter.folder / "job", output=tmp_path / "run")
    assert np.isfinite(found["loss"]).all()


def test_another_core_is_not_bound(jupyter):
    code, said = jupyter("xilinx.com:ip:axi_gpio:2.0")
    assert code == 1 and "the overlay holds another core" in said


def test_the_notebook_is_one_without_outputs():
    content = json.loads(notebook("gradloom"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    assert all(cell["outputs"] == [] for cell in content["cells"] if cell["cell_type"] == "code")
    assert notebook("gradloom") == notebook("gradloom")


def test_the_notebook_passes_jupyters_schema():
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.reads(notebook("gradloom"), as_version=4))


def test_the_driver_is_bound_to_the_core_of_the_component():
    ports = [{"name": "clk", "direction": "input", "width": 1}]
    top = TopPorts("mine", "clk", "rst", True, "irq", ("m_axi",), 128, 40, 12)
    part = ComponentPart(ports=ports, top=top, family="xcup", synthesis=["rtl/a.v"], simulation=["rtl/a.v"])
    root = ElementTree.fromstring(component(part, EDITIONS["1685-2009"]))
    space = "{" + EDITIONS["1685-2009"].namespace + "}"
    name = ":".join(root.findtext(space + each) for each in ("vendor", "library", "name", "version"))
    text = firmware_files(None, "mine")["gradloom_host/pynq_driver.py"]
    assert f'NAME = "{name}"' in text and boards.find("kv260").family == "xcup"
