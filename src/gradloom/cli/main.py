"""The command line ``gradloom``.

This room alone imports upwards, and only when a verb runs.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Annotated

import typer

from gradloom import __version__
from gradloom.output import is_full

from . import faces, lists
from .app import Interrupted, app
from .design import designs, energy, generate, sweep, units
from .field import card, package
from .learn import choose, digits, infer, plan, tune
from .models import export, merge, pack, recurrent
from .usage import one_line

__all__ = ["app", "main"]

#: Modules that have added their verbs.
_VERBS = (
    *(tune, plan, choose, infer, generate, designs, energy, units, sweep),
    *(recurrent, export, merge, pack, digits, card, package, lists),
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print("gradloom", __version__)
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


class _Terminated(BaseException):
    """A request to end, by SIGTERM: what is unfinished is removed."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Within the block SIGTERM raises, once, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; the exit code says whose fault an error was.

    An error becomes one message.

    0: done. 1: a fault of ours. 2: of the request. 3: hardware differs from its reference, or is beyond a budget.
    4: the fine-tune diverged, and its results are saved. 130: interrupted. 143: terminated.
    """
    traceback = "--traceback" in (arguments if arguments is not None else sys.argv[1:])
    given = [each for each in (sys.argv[1:] if arguments is None else arguments) if each != "--traceback"]
    # Asking a unit for its shape leaves it unused.
    warnings.filterwarnings("ignore", message=".*created but never used")
    notes: list[str] = []
    try:
        with _terminable():
            faces.take(_completed() or given)
            code = app(given, prog_name="gradloom", standalone_mode=False)
            sys.stdout.flush()
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Interrupted as ended:
        code, notes = 130, getattr(ended.__cause__, "__notes__", [])
    except _Terminated as ended:
        code, notes = 143, getattr(ended, "__notes__", [])
    except SystemExit as ended:
        # Where the reader has gone, rich and typer end with 1.
        code = 0 if isinstance(ended.__context__, BrokenPipeError) else ended.code
    except BrokenPipeError:
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
        remote = sys.modules.get("gradloom.firmware.jobs.remote")
        if remote is not None and isinstance(error, remote.AcceleratorError):
            # A board that is not reached, is in use, or has stopped.
            print(f"gradloom: {_message(error)}", file=sys.stderr)
            sys.exit(2)
        print(
            f"gradloom: internal error: {type(error).__name__}: {_message(error)} (run again with --traceback)",
            file=sys.stderr,
        )
        code = 1
    if code in (130, 143):  # 130 is typer's own word for an interrupt, too
        print("; ".join(("interrupted" if code == 130 else "terminated", *notes)), file=sys.stderr)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone, as with `| head`: nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code if isinstance(code, int) else 0)


def _completed() -> list[str]:
    """Words of a command line that a shell asks to complete.

    Bash has them in one variable, zsh, fish and PowerShell in another.
    """
    if "_GRADLOOM_COMPLETE" not in os.environ:
        return []
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and is_full(error):
        where = f"the output and {tempfile.gettempdir()} are" if error.filename is None else "it is"
        at = "" if error.filename is None else f"{error.filename} "
        return f"no room to write {at}({error.strerror}): make room where {where}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
