"""Runs this bench in the simulator that SIM names, for pytest."""

import os
import subprocess
import sys
from pathlib import Path


def test_the_verilog_equals_the_reference():
    folder = Path(__file__).parent
    done = subprocess.run(
        ["make", "-C", str(folder), f"PYTHON={sys.executable}"], capture_output=True, text=True, check=False
    )
    said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
    assert done.returncode == 0, f"SIM={os.environ.get('SIM', 'verilator')}:\n{said}"
