"""Outputs: checked before the work, whole or not there after it."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from .json_file import read_json

__all__ = [
    "MARKER",
    "NoRoomError",
    "OutputError",
    "check_file",
    "check_folder",
    "claimed",
    "continuing",
    "grouped",
    "is_full",
    "marked",
    "room",
    "size_of",
    "some",
    "staged",
    "staged_file",
]

#: What marks a folder as ours to write in; its content names the verb and lists our entries.
MARKER = ".gradloom"
#: A write that finds no room: on the disk, in the user's share of it, in the largest file that is allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputError(ValueError):
    """A place where results cannot go."""


class NoRoomError(OutputError):
    """A disk that fills while results are written.

    ``reason`` is the system's, ``at`` the file if it is known, ``written`` the bytes that were.
    """

    def __init__(self, path: Path | str, folder: Path, reason: str, at: str | None, written: int) -> None:
        self.reason, self.at, self.written = reason, at, written
        free = shutil.disk_usage(folder).free
        removed = f"{written:,} bytes were written and removed, " if written else ""
        super().__init__(
            f"output={path}: no room to write {path if at is None else at} ({reason}): {removed}{free:,} bytes are "
            f"free in {folder}, more are needed: make room, or name another place"
        )


def check_folder(path: Path | str, *, name: str = "output", needs: int = 1 << 20, verb: str | None = None) -> None:
    """Refuses a folder that cannot be written, before the work begins.

    Raises :class:`OutputError`.

    The folder need not exist. A file is made in it, or in the nearest folder above it that exists, and removed.
    ``needs``: bytes that must be free there. ``verb``: a folder with content is refused that this verb has not made.
    """
    target = Path(path).absolute()
    if _exists(target, path, name) and not target.is_dir():
        raise OutputError(f"{name}={path}: is a file, a directory is needed: name another one")
    if verb is not None and (target / MARKER).is_file():
        if (maker := _maker(target)[0]) != verb:
            raise OutputError(f"{name}={path}: holds what gradloom {maker} made: name another directory")
    elif verb is not None and target.is_dir() and any(target.iterdir()):
        raise OutputError(f"{name}={path}: is not empty and was not made by gradloom {verb}: name another directory")
    _check_writable(target, path, name, needs)


def marked(folder: Path, *, verb: str) -> Path:
    """Makes a folder a verb's, before there are results in it; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARKER).exists():
        (folder / MARKER).write_text(_mark(verb, []), encoding="utf-8")
    return folder


def _mark(verb: str, entries: list[str]) -> str:
    return json.dumps({"verb": verb, "entries": entries}) + "\n"


def _maker(target: Path) -> tuple[str, list[str]]:
    """The verb that made a folder, and its entries there."""
    try:
        found = read_json(target / MARKER)
        # Earlier versions listed the entries alone; most of their folders are designs.
        verb, entries = ("generate", found) if isinstance(found, list) else (found["verb"], found["entries"])
        return str(verb), [str(each) for each in entries]
    except (ValueError, KeyError, TypeError):
        raise OutputError(f"{target / MARKER}: is damaged: remove it, or name another directory") from None


@contextlib.contextmanager
def claimed(path: Path | str, *, verb: str, needs: int = 1 << 20) -> Iterator[None]:
    """A folder that no other process writes while the block runs.

    :func:`check_folder` comes first. :class:`OutputError` where another process has it.
    """
    check_folder(path, verb=verb, needs=needs)
    target = Path(path).absolute()
    lock = _nearest(target.parent) / f".{target.name[:200]}.lock"
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(_locked(lock))
        except BlockingIOError:
            raise OutputError(
                f"output={path}: another run of gradloom writes there now: wait for its end, or name another directory"
            ) from None
        except OSError:
            pass  # A place beside the folder that cannot be written, or a disk without locks.
        with room(path):
            yield


@contextlib.contextmanager
def continuing(kept: Callable[[], str], how: str = "") -> Iterator[None]:
    """An interrupt of the block says what is ``kept``, if anything is, and ``how`` the same command goes on."""
    try:
        yield
    except BaseException as ended:
        if not isinstance(ended, Exception) and (held := kept()):
            ended.add_note(f"{held}; the same command{how} continues")
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """A lock file that is there while the block runs.

    The lock ends with the process, however it ends.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it in between.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                break
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def is_full(error: OSError) -> bool:
    """Whether a write found no room."""
    return error.errno in _FULL


@contextlib.contextmanager
def room(path: Path | str, stage: Path | None = None) -> Iterator[None]:
    """Says of a disk that fills whose it is and what was written.

    ``path`` is what a user named, ``stage`` what is removed then.
    """
    try:
        yield
    except NoRoomError as error:
        # Of a file of the output: its own place has a name that nobody gave.
        at, written = (None, error.written) if stage is not None else (error.at, error.written)
        raise NoRoomError(path, _above(path), error.reason, at, written + size_of(stage)) from error
    except OSError as error:
        if not is_full(error):
            raise
        raise NoRoomError(path, _above(path), str(error.strerror), error.filename, size_of(stage)) from error


def _above(path: Path | str) -> Path:
    return _nearest(Path(path).absolute().parent)


def size_of(stage: Path | None) -> int:
    """Bytes of a file, or of all files of a folder."""
    if stage is None:
        return 0
    return sum(each.stat().st_size for each in (stage, *stage.rglob("*")) if each.is_file())


def check_file(
    path: Path | str,
    *,
    name: str = "output",
    suffix: str = "",
    needs: int = 1 << 20,
    inputs: Iterable[Path | str | None] = (),
) -> None:
    """Refuses a file that cannot be written.

    It does so as :func:`check_folder` does for a folder. ``suffix``: the required end of its name. ``inputs``: what is
    read; a result must not take the place of one, or of a file in one that is a folder.
    """
    target = Path(path).absolute()
    if not str(path).endswith(suffix):
        raise OutputError(f"{name}={path}: must name a file that ends in {suffix}")
    if _exists(target, path, name) and not target.is_file():
        kind = "directory" if target.is_dir() else "device"
        raise OutputError(f"{name}={path}: is a {kind}, a file is needed: name another one")
    for each in (Path(given) for given in inputs if given is not None):
        if target.is_file() and each.exists() and each.samefile(target.parent if each.is_dir() else target):
            raise OutputError(f"{name}={path}: is read by this run and would be replaced: name another file")
    _check_writable(target.parent, path, name, needs)


def _exists(target: Path, path: Path | str, name: str) -> bool:
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OutputError(f"{name}={path}: no place to write ({reason}): name another one") from None
    return True


def _check_writable(folder: Path, path: Path | str, name: str, needs: int) -> None:
    """Makes a file in ``folder``, or the nearest one above that exists."""
    above = _nearest(folder)
    if not above.is_dir():
        raise OutputError(f"{name}={path}: {above} is no directory: name a place below a directory")
    try:
        with tempfile.NamedTemporaryFile(prefix=".gradloom.", dir=above):
            pass
        free = shutil.disk_usage(above).free
    except OSError as error:
        raise OutputError(
            f"{name}={path}: {above} cannot be written ({error.strerror}): name another place, or get "
            f"the right to write there"
        ) from None
    if free < needs:
        raise OutputError(
            f"{name}={path}: {free:,} bytes are free in {above}, {needs:,} are needed: name another place, or make room"
        )


def _nearest(folder: Path) -> Path:
    """``folder``, or the nearest place above it where there is something."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as ``directory``.

    It is in the nearest place above it that exists, and is removed at the end.
    """
    made = Path(tempfile.mkdtemp(prefix=f".{directory.name[:32]}.", dir=_nearest(directory.parent)))
    try:
        with room(directory, made):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def staged(directory: Path | str, *, verb: str, needs: int = 1 << 20) -> Iterator[Path]:
    """A new folder that replaces ``directory`` when the block ends well.

    Otherwise it is removed.

    Output of an earlier run of ``verb`` there is replaced; other files that somebody put there since stay. A directory
    with content that no earlier run made is refused with :class:`OutputError`.
    """
    target = Path(directory).absolute()
    with claimed(directory, verb=verb, needs=needs):
        with _scratch(target) as stage:
            yield stage
            entries = sorted(entry.name for entry in stage.iterdir())
            (stage / MARKER).write_text(_mark(verb, entries), encoding="utf-8")
            if not target.is_dir():
                _take_place(stage, target)
                return
            before = set(_maker(target)[1]) if (target / MARKER).exists() else set()
            for entry in sorted(before | set(entries)):
                # Only names: a marker that was tampered with must not reach outside.
                if Path(entry).name == entry:
                    _remove(target / entry)
            for entry in [*entries, MARKER]:
                os.replace(stage / entry, target / entry)


def some(count: int, what: str) -> str:
    """``count`` and ``what``, which gets an s unless there is one of it."""
    return f"{count:,} {what}{'s' * (count != 1)}"


@contextlib.contextmanager
def grouped(directory: Path | str, *, verb: str, last: str) -> Iterator[Path]:
    """A new folder whose files go to ``directory``, which is ``verb``'s, at the end.

    They do so when the block ends well, and otherwise none of them does.

    Other files there stay. File ``last`` goes last, and an earlier one is removed first: where it is, the group is
    whole.
    """
    check_folder(directory, verb=verb)
    target = Path(directory).absolute()
    if not target.is_dir():
        with _scratch(target) as stage:
            yield stage
            marked(stage, verb=verb)
            _take_place(stage, target)
        return
    # Within the folder: it may be a disk of its own.
    with _scratch(target / last) as stage:
        yield stage
        (target / last).unlink(missing_ok=True)
        marked(target, verb=verb)
        for entry in sorted(stage.iterdir(), key=lambda each: (each.name == last, each.name)):
            os.replace(entry, target / entry.name)


@contextlib.contextmanager
def staged_file(path: Path | str) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` when the block ends well.

    Otherwise it is removed.

    Anything but a file there, such as a device, is refused with :class:`OutputError`.
    """
    check_file(path)
    target = Path(path).absolute()
    number, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=_nearest(target.parent))
    try:
        with room(path, Path(name)), os.fdopen(number, "w+b") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _take_place(stage: Path, target: Path) -> None:
    """Gives a finished folder its name."""
    stage.chmod(0o777 & ~_umask())
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(stage, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
