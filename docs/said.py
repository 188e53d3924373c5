"""Numbers that commands printed, for figures of the pages to stand among.

``docs/said.json`` has, by command, the numbers of its last output. A claim whose commands are all there is checked
figure by figure: each must be a number that one of them printed, rounded or scaled as its unit says. Figures that no
command prints, a bound or a quotient of two, are listed with the command in ``claims.toml``.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

__all__ = ["is_said", "numbers", "outputs"]

_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")
#: What a figure's unit may divide a printed number by.
_UNITS = re.compile(r"[%kMG]|[munµ](?=s\b)")
_SCALES = {"%": 1e-2, "k": 1e3, "M": 1e6, "G": 1e9, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}


def _plain(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def numbers(text: str) -> list[str]:
    """All numbers of a text, each once, in their order of size."""
    found = {match.replace(",", "").replace("−", "-").removeprefix("+") for match in _NUMBER.findall(text)}
    return sorted(found, key=lambda each: (float(each), each))


def is_said(figure: str, said: Collection[str]) -> bool:
    """Whether a figure is one of these numbers, as precise as it is written and in its unit."""
    match = _NUMBER.search(figure.lstrip("±"))
    if match is None:
        return False
    number, unit = match.group(), figure[figure.index(match.group()) + len(match.group()) :].strip()
    places = len(number.partition(".")[2].partition("e")[0])
    wanted = abs(_plain(number))
    scaled = _UNITS.match(unit)
    scales = {1.0, _SCALES[scaled.group()]} if scaled else {1.0}
    half = 0.5000001 * 10.0**-places if "e" not in number else 0.05 * wanted
    return any(abs(abs(float(each)) / scale - wanted) <= half for each in said for scale in scales)


def outputs(commands: Iterable[str], root: Path) -> list[str]:
    """What each of these commands prints; ``DIR`` is a folder of theirs, which is gone afterwards."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            words = [f"{folder}/out" if word == "DIR" else word for word in shlex.split(command)]
            start = {"gradloom": [sys.executable, "-m", "gradloom"], "python": [sys.executable]}[words[0]]
            done = subprocess.run([*start, *words[1:]], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
            found.append(done.stdout)
    return found
