"""The site builds without a warning, the same each time, and refers to nothing outside."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..deep import deep

pytest.importorskip("material")
ROOT = Path(__file__).parents[2]


def _build(folder):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"SOURCE_DATE_EPOCH": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return folder, _build(folder)


@deep
def test_two_builds_are_equal(site, tmp_path):
    assert _build(tmp_path) == site[1]


def test_pages_made_from_code_have_it(site):
    text = {
        f"{path.parent.name}/{path.stem}": path.read_text(encoding="utf-8")
        for path in [*(site[0] / "reference").glob("*.html"), *(site[0] / "evidence").glob("*.html")]
    }
    assert 'id="finetune"' in text["reference/command-line"] and "--engine" in text["reference/command-line"]
    assert "gradloom.finetune" in text["reference/python"] and "CONVOLVE" in text["reference/instructions"]
    assert "int32_t" in text["reference/formats"]
    assert "NF4Decoder" in text["reference/components"] and "<li>latency 4</li>" in text["reference/components"]
    assert "WINDOW_BASE_LO" in text["reference/registers"] and "array.record" in text["reference/program"]
    assert (
        "<code>outstanding</code>" in text["reference/parameters"] and "last_epoch.words" in text["reference/results"]
    )
    assert "94.3 (94.0 to 94.6)" in text["evidence/results"] and 'id="card-write"' in text["reference/command-line"]
    assert "gradloom_head" in text["evidence/timing"] and "place-and-route" in text["evidence/ledger"]
    assert not any("made by make docs" in each for each in text.values())


def test_entries_of_the_python_api_stand_apart(site):
    text = (site[0] / "reference" / "python.html").read_text(encoding="utf-8")
    assert "-----" not in text
    finetune = text[text.index('id="gradloomfinetune"') :]
    entries = re.findall(r"<li><code>(\w+)</code> : ", finetune[: finetune.index("<strong>Returns</strong>")])
    assert entries == ["model", "request", "board", "output", "progress", "callbacks"]


def test_nothing_is_fetched(site):
    for page in site[0].rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]*)', page.read_text(encoding="utf-8")
        )
        assert fetched == [], page.name
