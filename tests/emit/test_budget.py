"""What generating takes: processor time in units of plain Python work, so that a slow machine is no failure."""

import json
import resource
import subprocess
import sys
import time

import pytest

from gradloom import boards
from gradloom.preset import PRESETS


def unit():
    """Processor seconds of some Python work, mostly objects and tables, as a generator's is."""

    def once():
        begin = time.process_time()
        table = {number: (number, str(number)) for number in range(400_000)}
        sorted(table.values(), key=lambda pair: pair[1])
        return time.process_time() - begin

    return min(once() for _ in range(3))


def generated(tmp_path, *arguments):
    """Units of processor time of ``gradloom generate`` and of every process it starts, and its report."""

    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before, begin = unit(), spent()
    subprocess.run(
        [sys.executable, "-m", "gradloom", "generate", *arguments, "-o", tmp_path / "out"],
        check=True,
        capture_output=True,
    )
    return (spent() - begin) / max(before, unit()), json.loads((tmp_path / "out" / "report.json").read_text())


@pytest.mark.parametrize(
    "arguments, units, modules, size",
    [
        # Measured: 7 and 33 units, 51,822 and 1,099,785 bytes.
        (("mesh", "--set", "rows=32", "--set", "cols=32"), 20, 40, 100_000),
        (("instantft-kv260",), 70, 46, 1_400_000),
    ],
)
def test_generation_stays_within_its_budget(arguments, units, modules, size, tmp_path):
    took, report = generated(tmp_path, *arguments)
    assert took <= units, f"{took:.1f} units of processor time"
    assert len(report["modules"]) <= modules
    assert report["bytes"] <= size


def test_the_language_models_machine_leaves_slices_of_its_board():
    """85 %; synthesis, which ``make evidence`` holds to that, to 25 % of the LUTs and to 40 % of the block RAMs, finds
    as many."""
    config = PRESETS["edge-qlora-genesys2"].config
    assert sum(config.counted.dsp.values()) <= 0.85 * boards.find("genesys2").dsp
