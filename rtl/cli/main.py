"""The command line ``gradloom``.

This room alone imports upwards, and only when a verb runs.
"""

import os
import sys
import warnings
from typing import Annotated

import typer

from gradloom.__main__ import say_version

from . import (
    aggregate,
    choose,
    collect,
    delivery,
    designs,
    diffusion,
    energy,
    generate,
    infer,
    install,
    language,
    lists,
    merge,
    recurrent,
    sweep,
    tune,
    units,
)
from .app import app
from .usage import one_line

__all__ = ["VERBS", "app", "main"]

#: Modules that have added their verbs.
VERBS = (
    lists,
    generate,
    tune,
    infer,
    diffusion,
    designs,
    energy,
    units,
    language,
    recurrent,
    collect,
    delivery,
    install,
    aggregate,
    merge,
    sweep,
    choose,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        say_version()
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; the exit code says whose fault an error was.

    An error becomes one message.

    0: done. 1: a fault of ours. 2: of the request. 3: hardware differs from its reference, or is beyond a budget.
    4: the fine-tune diverged, and its results are saved. 130: interrupted.
    """
    traceback = "--traceback" in (arguments if arguments is not None else sys.argv[1:])
    given = [each for each in (sys.argv[1:] if arguments is None else arguments) if each != "--traceback"]
    # Asking a unit for its shape leaves it unused.
    warnings.filterwarnings("ignore", message=".*created but never used")
    try:
        if given[:1] == ["finetune"]:
            tune.take_plugins(given)
        code = app(given, prog_name="gradloom", standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        # The reader has gone, as with `| head`: nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (ValueError, OSError) as error:
        if traceback:
            raise
        for line in getattr(error, "lines", None) or [_message(error)]:
            print(f"gradloom: {line}", file=sys.stderr)
        counted = sys.modules.get("gradloom.sim.run.counted")
        code = 3 if counted is not None and isinstance(error, counted.MismatchError) else 2
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            # A wrong option or verb; the class is private to typer.
            said = one_line(error)
            print(f"gradloom: {said}", file=sys.stderr) if said else error.show()
            sys.exit(error.exit_code)
        if traceback:
            raise
        print(
            f"gradloom: internal error: {type(error).__name__}: {_message(error)} (run again with --traceback)",
            file=sys.stderr,
        )
        code = 1
    if code == 130:  # typer's own word for an interrupt, too
        print("interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
