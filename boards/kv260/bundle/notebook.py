"""A notebook for a board with PYNQ: self-test, registers, a job."""

import json

__all__ = ["notebook"]

_TITLE = """\
# {name} with PYNQ

Copy the folders `bundle` and `firmware` of the design to the board (`gradloom flash` does), and open this notebook in
`firmware` as root of PYNQ's environment. Nobody has run it on a board: here it ran against simulated RTL.
"""
_LOAD = """\
import pynq
from gradloom_host.pynq_driver import GradloomIP  # before the overlay is loaded, which then binds it

overlay = pynq.Overlay("../bundle/{name}.bit")
accelerator = overlay.accelerator
assert isinstance(accelerator, GradloomIP), "the overlay holds another core"
"""
_SELFTEST = """\
results = accelerator.selftest()
for check, ok, detail in results:
    print("ok  " if ok else "FAIL", check, detail, sep="  ")
"""
_PROGRAM = """\
from gradloom_host import program

with accelerator.accelerator() as machine:
    print(machine.configuration.table.parameters)
    counters = machine.run_program([program.end()])  # put commands of your own before the end
    print(counters.cycles, "cycles,", machine.seconds(counters.cycles), "s")
"""
_JOB_TEXT = """\
## Fine-tune

`gradloom finetune ... --job job -o run` on your computer writes the folder `job`. Copy it beside this notebook;
afterwards copy it back, and the same command makes the adapter.
"""
_JOB = """\
from pathlib import Path

from gradloom_host.job import read_plan
from gradloom_host.job_run import run_job

job = Path("job")
if job.is_dir():
    window = -(-read_plan(job).window // 4096) * 4096
    run_job(job, accelerator.device(window_size=window))
else:
    print("there is no folder job")
"""


def notebook(name: str) -> str:
    """Text of ``NAME.ipynb``, without outputs."""
    cells = [
        ("markdown", _TITLE.format(name=name)),
        ("code", _LOAD.format(name=name)),
        ("code", _SELFTEST),
        ("code", _PROGRAM),
        ("markdown", _JOB_TEXT),
        ("code", _JOB),
    ]
    content = {
        "cells": [_cell(number, kind, text) for number, (kind, text) in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    code: dict[str, object] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    source = text.rstrip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "id": f"gradloom-{number}", "metadata": {}, "source": source, **code}
