"""How the command line speaks: lines, tables, JSON, progress."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.json_file import json_text

__all__ = ["ONE_LOGIT", "print_json", "progress_bar", "say", "say_card", "say_left_out", "table", "working"]

#: Of a network for images with one logit.
ONE_LOGIT = "one logit: class 1 where it is above 0"


def say(text: str) -> None:
    """Prints a line with rich's markup.

    A path that is longer than the terminal stays in one piece.
    """
    from rich.console import Console

    console = Console(highlight=False)
    long = any(len(word) > console.width for word in text.split())
    console.print(text, overflow="ignore" if long else None, crop=not long)


def counted(cycles: int, forecast: int) -> str:
    """Cycles of simulated RTL beside their forecast, in words."""
    if cycles == forecast:
        return f"{cycles:,} cycles, the forecast to the cycle"
    return f"{cycles:,} cycles, the forecast {forecast:,} ({100 * (forecast / cycles - 1):+.2f} %)"


def print_json(value: Any) -> None:
    """``value`` as JSON and nothing else; arrays as lists.

    A number that is not finite, which JSON does not have, is null.
    """
    # Plain print: rich would wrap and colour what a program is to read.
    print(json_text(value), end="")


def table(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...], as_json: bool, title: str | None = None) -> None:
    """``columns`` of rows for people, or all of them as JSON.

    No word is broken: where not all columns find room, a second table with the first column follows. Only a word that
    is wider than half of the terminal may be.
    """
    if as_json:
        print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    texts = {name: [_text(row.get(name, "")) for row in rows] for name in columns}
    natural = {name: max(map(len, (name, *texts[name]))) for name in columns}
    least = {
        name: max(min(natural[name], _PROSE), *map(len, " ".join(("-", name, *texts[name])).split()))
        for name in columns
    }
    if title:
        say(f"[italic]{escape(title)}[/italic]")
    for group in _groups(columns, least, console.width):
        widths = _shrunk({name: natural[name] for name in group}, least, console.width)
        grid = Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), show_edge=False, pad_edge=False)
        for name in group:
            numbers = bool(rows) and all(isinstance(row.get(name), (int, float)) for row in rows)
            grid.add_column(escape(name), justify="right" if numbers else "left", overflow="fold", width=widths[name])
        for number in range(len(rows)):
            grid.add_row(*(escape(texts[name][number]) for name in group))
        console.print(grid)
        print()


def say_card(sections: Sequence[Mapping[str, Any]], image: Path, what: str, size: int) -> None:
    """Prints the sections of a memory card's image, and how to write it."""
    table(
        sections,
        ("name", "kind", "offset", "bytes", "capacity", "crc32"),
        False,
        title=f"{what} on {image}, {size:,} bytes",
    )
    say(f"to a card: dd if={image} of=/dev/CARD bs=1M conv=fsync, which overwrites what is on it")


def say_left_out(result: Mapping[str, Any]) -> None:
    """Prints layers of the kind of the targets that do not learn, if there are some."""
    if names := result.get("left_out"):
        say(f"do not learn, since their channels are in groups or they are transposed: {', '.join(names)}")


#: Characters between columns, and those that a text of several words keeps at least for a line.
_GAP, _PROSE = 2, 20


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _groups(columns: tuple[str, ...], least: dict[str, int], room: int) -> Iterator[tuple[str, ...]]:
    """Groups of columns that fit side by side with all their words whole.

    The first column leads each group.
    """
    lead, *others = columns
    group = [lead]
    for name in others:
        if len(group) > 1 and _width(least, [*group, name]) > room:
            yield tuple(group)
            group = [lead]
        group.append(name)
    yield tuple(group)


def _width(widths: dict[str, int], names: Iterable[str]) -> int:
    return sum(widths[name] + _GAP for name in names) - _GAP


def _shrunk(widths: dict[str, int], least: dict[str, int], room: int) -> dict[str, int]:
    """Widths within the room: the widest column shrinks first.

    No column breaks a word while another has room.
    """
    widths = dict(widths)
    while _width(widths, widths) > room:
        givers = [name for name in widths if widths[name] > least[name]] or list(widths)
        widths[max(givers, key=lambda name: widths[name])] -= 1
    return widths


@contextlib.contextmanager
def progress_bar(quiet: bool, first: str | None = None) -> Iterator[Callable[[int, int, str], None] | None]:
    """``progress(done, total, text)`` on the error stream.

    It is a bar on a terminal, a line a tenth elsewhere, and dots where nothing is reported for some seconds. Both
    estimate the time that is left from the time of what is done. ``first`` is a line that stands before the first of
    them: a request that is refused has none.

    A ``total`` of 0: nobody knows.
    """
    if quiet:
        yield None
        return
    head = [] if first is None else [first]
    if not sys.stderr.isatty():
        last: tuple[str, int] = ("", -1)
        begun: dict[str, tuple[float, int]] = {}

        def lines(done: int, total: int, text: str) -> None:
            nonlocal last
            while head:
                pulse.line(head.pop())
            tenth = 10 * done // total if total else -1
            if (text, tenth) != last:
                last = text, tenth
                now = time.monotonic()
                # What begins again, such as the judging of each epoch, is estimated from there.
                if text not in begun or done <= begun[text][1]:
                    begun[text] = now, done
                since, first = begun[text]
                left = _left((now - since) * (total - done) / (done - first)) if done > first else ""
                pulse.line(text if tenth < 0 else f"{text}: {done:,} of {total:,}{left}")

        with _Pulse() as pulse:
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, text: str) -> None:
            while head:
                bar.console.print(head.pop(), markup=False, highlight=False, soft_wrap=True)
            bar.update(task, completed=done, total=total or None, description=text)

        yield update


def _left(seconds: float) -> str:
    """The time that is left, in words; nothing for a few seconds."""
    if seconds < 10:
        return ""
    return f", about {seconds:.0f} s left" if seconds < 90 else f", about {seconds / 60:.0f} min left"


@contextlib.contextmanager
def working(text: str, quiet: bool) -> Iterator[None]:
    """Prints ``text`` on the error stream while the block runs.

    It does so at once on a terminal, elsewhere if the block takes long.
    """
    if quiet:
        yield
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(text):
            yield
    else:
        with _Pulse(text):
            yield


class _Pulse:
    """Lines on the error stream, and dots in long silences.

    After each silence of some seconds comes a dot: a reader of a log sees that work goes on.

    ``first`` is said before the first dot, if there is one.
    """

    seconds = 4.0

    def __init__(self, first: str = "") -> None:
        self._first, self._open = first, False
        self._said, self._over = threading.Event(), False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "_Pulse":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self._said.set()
        self._thread.join()
        self._end()

    def line(self, text: str) -> None:
        with self._lock:
            self._end()
            print(text, file=sys.stderr, flush=True)
        self._said.set()

    def _beat(self) -> None:
        while not self._over:
            if self._said.wait(self.seconds):
                self._said.clear()
                continue
            with self._lock:
                print(self._first or ".", end="", file=sys.stderr, flush=True)
                self._first, self._open = "", True

    def _end(self) -> None:
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False
