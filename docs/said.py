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

__all__ = ["is_said", "numbers", "printed"]

_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")
#: What a unit divides a number by, perhaps.
_SCALES = {
    "": (1.0, 0.01),
    "k": (1e3,),
    "M": (1e6,),
    "G": (1e9,),
    "%": (0.01,),
    "m": (1e-3,),
    "u": (1e-6,),
    "µ": (1e-6,),
    "n": (1e-9,),
}


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
    # Powers of two count bytes of memories.
    scales = {1.0, *_SCALES.get(unit[:1], ()), *({1024.0} if unit[:2] in ("KB", "KiB") else ())}
    half = 0.5000001 * 10.0**-places if "e" not in number else 0.05 * wanted
    return any(abs(abs(float(each)) / scale - wanted) <= half for each in said for scale in scales)


def printed(command: str, root: Path, steps: Iterable[str] = ()) -> list[str]:
    """Numbers that a command prints, or these ``steps`` in its place; ``DIR`` is a folder of their own."""
    text = ""
    with tempfile.TemporaryDirectory() as folder:
        for part in steps or command.split("; "):
            words = [f"{folder}/out" if word == "DIR" else word for word in shlex.split(part)]
            start = {"gradloom": [sys.executable, "-m", "gradloom"], "python": [sys.executable]}[words[0]]
            done = subprocess.run([*start, *words[1:]], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
            text += done.stdout
    return numbers(text)
