"""Entry point of ``gradloom`` and ``python -m gradloom``."""

import gc
import sys

from gradloom import __version__

__all__ = ["main"]


def main() -> None:
    """Runs the command line, which takes a while to load; ``--version`` alone waits for nothing."""
    if sys.argv[1:] == ["--version"]:
        print("gradloom", __version__)
        return
    from gradloom.cli.main import main as run

    try:
        run()
    finally:
        # The process ends: nobody is to look through a large design for garbage.
        gc.freeze()


if __name__ == "__main__":
    main()
