"""How the command line speaks: lines, tables, JSON, progress."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["print_json", "progress_bar", "say", "table"]


def say(text: str) -> None:
    """A line with rich's markup."""
    from rich.console import Console

    Console(highlight=False).print(text)


def print_json(value: Any) -> None:
    """``value`` as JSON and nothing else; arrays as lists."""
    # Plain print: rich would wrap and colour what a program is to read.
    print(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def table(
    rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool, title: str | None = None
) -> None:
    """``columns`` of rows for people, or all of them as JSON."""
    if as_json:
        print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        numbers = bool(rows) and all(isinstance(row.get(column), (int, float)) for row in rows)
        grid.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(
            *(
                escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
                for value in (row.get(column, "") for column in columns)
            )
        )
    Console().print(grid)


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """``progress(done, total, text)`` on the error stream: a bar on a terminal, a line a tenth elsewhere.

    A ``total`` of 0: nobody knows.
    """
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        last: tuple[str, int] = ("", -1)

        def lines(done: int, total: int, text: str) -> None:
            nonlocal last
            tenth = 10 * done // total if total else -1
            if (text, tenth) != last:
                last = text, tenth
                print(text if tenth < 0 else f"{text}: {done:,} of {total:,}", file=sys.stderr, flush=True)

        yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total or None, description=text)

        yield update
