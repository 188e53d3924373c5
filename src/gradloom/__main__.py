"""Entry point of ``gradloom`` and ``python -m gradloom``.

``--version`` needs no further import; all else is the command line's.
"""

import gc
import sys

from gradloom import __version__

__all__ = ["main", "say_version"]


def main() -> None:
    """Runs the command line, which takes half a second to load."""
    if sys.argv[1:] == ["--version"]:
        say_version()
        return
    from gradloom.cli.main import main as run

    try:
        run()
    finally:
        # The process ends: nobody is to look through a large design for garbage.
        gc.freeze()


def say_version() -> None:
    """Prints name and version."""
    print("gradloom", __version__)


if __name__ == "__main__":
    main()
