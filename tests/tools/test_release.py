"""Bitstreams of a release: built, named, summed and attached, or nothing of it."""

import hashlib
import json
import subprocess
import sys

import pytest

from gradloom import __version__

from . import release

PRESETS = ("digits-ulx3s", "lstm-ulx3s")


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """``asked(*arguments, fails=None)`` runs the script with builds that take no time, and gives their commands."""

    def run(*arguments, fails=None):
        commands = []

        def done(command, check):
            commands.append(command)
            if fails is not None and fails in command:
                raise subprocess.CalledProcessError(3, command)
            if "build" in command:
                board, name = tmp_path / command[-1] / "board", command[-1].rpartition("/")[2]
                board.mkdir(parents=True)
                (board / "gradloom.bit").write_bytes(name.encode())
                report = {"preset": name, "parameters": {"rows": 4}, "place_and_route": {"fmax_mhz": 72}, "tools": "x"}
                (board.parent / "report.json").write_text(json.dumps(report))

        monkeypatch.setattr(release.subprocess, "run", done)
        monkeypatch.setattr(release.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(sys, "argv", ["release.py", *map(str, arguments)])
        release.main()
        return commands

    return run


def test_every_preset_of_open_tools_is_built_and_attached(asked, tmp_path):
    commands = asked(tmp_path / "out", "--tag", "v1")
    assert [each[3:-1] for each in commands[:4]] == [
        step for name in PRESETS for step in (["generate", name, "-o"], ["build", "ulx3s"])
    ]
    files = [tmp_path / "out" / f"gradloom-{__version__}-{name}.{end}" for name in PRESETS for end in ("bit", "json")]
    sums = tmp_path / "out" / "SHA256SUMS"
    assert commands[4:] == [["gh", "release", "upload", "v1", *map(str, files), str(sums)]]
    assert files[2].read_bytes() == b"lstm-ulx3s" and json.loads(files[2 + 1].read_text())["place_and_route"]
    told = dict(reversed(line.split("  ")) for line in sums.read_text().splitlines())
    assert told == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_nothing_is_attached_without_a_tag_or_after_a_build_that_fails(asked, tmp_path):
    assert all("gh" not in each for each in asked(tmp_path / "out"))
    with pytest.raises(SystemExit, match="generate lstm-ulx3s -o .*: exit code 3"):
        asked(tmp_path / "other", "--tag", "v1", fails=str(tmp_path / "other/build/lstm-ulx3s"))
    assert not (tmp_path / "other" / "SHA256SUMS").exists()
    with pytest.raises(SystemExit, match="out: is there already: name another folder"):
        asked(tmp_path / "out")


def test_a_tag_without_its_tool_is_refused_before_anything_is_built(monkeypatch, tmp_path):
    monkeypatch.setattr(release.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["release.py", str(tmp_path / "out"), "--tag", "v1"])
    with pytest.raises(SystemExit, match="tag=v1: gh is not on PATH"):
        release.main()
    assert not (tmp_path / "out").exists()
