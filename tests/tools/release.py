"""Bitstreams for a release: of each preset whose board is built by open tools.

``python tests/tools/release.py DIR`` generates and builds them, and puts ``gradloom-VERSION-PRESET.bit`` with its
report and ``SHA256SUMS`` into DIR. With ``--tag TAG`` GitHub's own ``gh``, which must be logged in, attaches them to
the release TAG. A build that fails ends it; nothing is attached then.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from gradloom import __version__, boards
from gradloom.preset import PRESETS


def made(preset, folder: Path) -> list[Path]:
    """Bitstream and report of a preset, by the tools' own commands."""
    design = folder / "build" / preset.name
    for verb in (["generate", preset.name, "-o", str(design)], ["build", preset.board, str(design)]):
        subprocess.run([sys.executable, "-m", "gradloom", *verb], check=True)
    told = json.loads((design / "report.json").read_text(encoding="utf-8"))
    target = folder / f"gradloom-{__version__}-{preset.name}.bit"
    shutil.copyfile(design / "board" / "gradloom.bit", target)
    about = {name: told[name] for name in ("preset", "parameters", "place_and_route")}
    report = target.with_suffix(".json")
    report.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return [target, report]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tag")
    asked = parser.parse_args()
    if asked.tag is not None and shutil.which("gh") is None:
        raise SystemExit(f"tag={asked.tag}: gh is not on PATH: install GitHub's command line, or leave the tag out")
    if asked.folder.exists():
        raise SystemExit(f"{asked.folder}: is there already: name another folder")
    try:
        files = [
            path for each in PRESETS.values() if boards.find(each.board).listens for path in made(each, asked.folder)
        ]
        sums = asked.folder / "SHA256SUMS"
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        sums.write_text("".join(lines), encoding="utf-8")
        if asked.tag is not None:
            subprocess.run(["gh", "release", "upload", asked.tag, *map(str, [*files, sums])], check=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{' '.join(map(str, error.cmd))}: exit code {error.returncode}") from None


if __name__ == "__main__":
    main()
