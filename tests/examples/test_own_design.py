"""The guide "Amaranth designs" is whole: its text alone runs, and its design becomes Verilog on a platform."""

import re
import runpy
import subprocess
import sys

import pytest

from ..tools.installed import ROOT

PAGE = ROOT / "docs/guides/amaranth.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Text of the page as the site has it, and a folder with the files that it shows."""
    text = runpy.run_path(str(ROOT / "docs/site.py"))["on_page_markdown"](PAGE.read_text(encoding="utf-8"))
    folder = tmp_path_factory.mktemp("own")
    for name, code in re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```', text, re.MULTILINE | re.DOTALL):
        (folder / name.split("/")[-1]).write_text(code, encoding="utf-8")
    return text, folder


def run(folder, *args):
    done = subprocess.run([sys.executable, *args], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_design_simulates_as_the_page_says(page):
    text, folder = page
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert run(folder, "simulate.py") == shown


def test_the_design_becomes_verilog(page):
    program = """
from gradloom.rtl.emit.verilog import convert
from range_meter import RangeMeter
print(sorted(port.name for port in convert(RangeMeter(), name="range_meter").ports))
"""
    ports = run(page[1], "-c", program)
    assert "'codes_ready'" in ports and "'high'" in ports and "'low'" in ports


def test_the_preset_is_built_by_the_platform(page):
    (code,) = re.findall(r"^```python\n(.*?)^```", page[0], re.MULTILINE | re.DOTALL)
    assert '"device": "85k"' in run(page[1], "-c", code)
