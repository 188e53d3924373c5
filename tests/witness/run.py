"""``python -m tests.witness.run DIR [NAME ...]``: holds what is emitted against others' files, and keeps what they say.

``DIR`` holds the vendors' files; none of them is part of the project. ``docs/witnesses.json`` keeps, for each witness,
what it said, a hash of its files and one of what it was asked about. A test compares the latter with what is emitted.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

from . import axilite, graphs, overlay, pins
from .verilog import memories, slices

__all__ = ["KEPT", "WITNESSES", "digest"]

KEPT = Path(__file__).parents[2] / "docs" / "witnesses.json"
WITNESSES = {
    "slices": slices,
    "memories": memories,
    "axilite": axilite,
    "pins": pins,
    "overlay": overlay,
    "graphs": graphs,
}


def digest(texts: dict[str, str]) -> str:
    """A hash of texts by their names."""
    found = hashlib.sha256()
    for name, text in sorted(texts.items()):
        found.update(f"{name}\0{len(text)}\0{text}".encode())
    return found.hexdigest()


def hear(name, witness):
    """What ``docs/witnesses.json`` keeps of a witness."""
    module = WITNESSES[name]
    # Binary files have a hash of what can be read in them.
    read = ((path, (witness / path).read_bytes().decode("utf-8-sig", errors="replace")) for path in module.FILES)
    files = {path: text.replace("\r\n", "\n") for path, text in read}
    with tempfile.TemporaryDirectory() as folder:
        said = module.hear(witness, Path(folder))
    return {"of": module.OF, "witness": digest(files), "unit": digest(module.subject()), "said": said}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("witness", type=Path, help="folder with the vendors' files")
    parser.add_argument("names", nargs="*", help="witnesses; if none is named, all")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # units that are made to be emitted, not simulated
    if unknown := set(given.names) - set(WITNESSES):
        parser.error(f"{', '.join(sorted(unknown))}: no such witness; there are {', '.join(WITNESSES)}")
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    differing = 0
    for name in given.names or WITNESSES:
        if missing := [path for path in WITNESSES[name].FILES if not (given.witness / path).is_file()]:
            parser.error(f"{given.witness} has no {missing[0]}: name the folder with the vendors' files")
        kept[name] = hear(name, given.witness)
        print(name, json.dumps(kept[name]["said"]), flush=True)
        differing += sum(each["differing"] for each in kept[name]["said"].values())
    KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n", encoding="utf-8", newline="\n")
    return differing != 0


if __name__ == "__main__":
    sys.exit(main())
