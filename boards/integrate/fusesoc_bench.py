"""The bench as FuseSoC runs it: a test that fails ends the simulator with exit code 1.

Neither FuseSoC nor a simulator looks at cocotb's results by itself. As a program, before the build, this says what
cocotb needs and FuseSoC does not set.
"""

import atexit
import importlib
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

_SETTING = 'export GPI_USERS="$(cocotb-config --libpython);$(cocotb-config --pygpi-entry-point)"'


def _look() -> None:
    """Ends the process where no test is in results.xml, or one that failed."""
    results = Path("results.xml")
    cases = list(ElementTree.parse(results).iter("testcase")) if results.is_file() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    if failed or not cases:
        print(f"results.xml: {len(failed)} of {len(cases)} tests failed", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    if "GPI_USERS" not in os.environ:
        sys.exit(f"GPI_USERS is not set, and cocotb 2.1 would run no test: {_SETTING}")
    # Results of a run before this one say nothing of the next.
    Path("results.xml").unlink(missing_ok=True)
else:
    # cocotb finds the tests by the names of this module.
    globals().update(vars(importlib.import_module("bench")))
    atexit.register(_look)
