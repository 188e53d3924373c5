"""Job folders: programs, data and results of a board without a PC.

``job.json`` has the :class:`JobPlan`, ``data.bin`` all bytes that go to memory. A run adds ``log``, ``status.json``,
while it lasts ``state.json`` with ``state-N.bin`` and ``result.part``, and at the end ``result.bin`` and
``result.json``, or ``failed.json``. A folder whose plan has :class:`AnswerPlan` answers prompts, and nothing is added.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device.registers import COMMAND_BYTES

__all__ = [
    "FILES",
    "FORMAT",
    "AnsweringProgram",
    "AnswerPlan",
    "JobError",
    "JobPlan",
    "Losses",
    "JobStage",
    "check_name",
    "keep",
    "read_plan",
    "sync_folder",
]

FORMAT = 2
#: Files of a job before it has run, in the order in which they are copied.
FILES = ("data.bin", "job.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WINDOW = 1 << 32
_MOST_COMMANDS = (1 << 24) - 1
#: Bytes of a step's entry of ``sums``: loss of 8 bytes, samples of 4, and 4 that others use.
SUM_BYTES = 16
#: Bytes in front of the rows of a record of ``tiles``, of which the first is the exponent.
HEADER_BYTES = 32
#: Words of a row of a tile in memory.
TILE = 64
#: Positions, and tokens of a vocabulary, that answers may have.
_MOST_POSITIONS, _MOST_TOKENS = 1 << 20, 1 << 20


class JobError(ValueError):
    """A job folder that cannot be run, or one that another run has."""


def check_name(name: str) -> str:
    """A job's name, which is a folder's."""
    if not _NAME.fullmatch(name):
        raise JobError(
            f"job={name!r}: must be 1 to 64 letters, digits, dots, - and _, and begin with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class JobStage:
    """Writes to memory, a program, and reads of its results.

    ``writes``: offset in the window, place in ``data.bin`` and length of each. ``program``: offset and commands;
    None: none runs. ``reads``: offset and length of each.
    """

    writes: tuple[tuple[int, int, int], ...]
    program: tuple[int, int] | None
    reads: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Losses:
    """Where losses lie in memory, for the log.

    ``sums``: ``count`` entries of 16 bytes from ``offset`` on, which the program fills one after another: the sum of
    losses, ``1 / scale`` each, and the number of samples. ``tiles``: after each program ``count`` records of ``rows``
    rows of ``row_bytes`` bytes, codes of ``bits`` bits, whose mean square over ``scale`` numbers is the loss.
    """

    kind: str
    offset: int
    count: int
    scale: int
    rows: int = 0
    row_bytes: int = 0
    bits: int = 0

    @property
    def length(self) -> int:
        """Bytes in memory."""
        return self.count * (SUM_BYTES if self.kind == "sums" else HEADER_BYTES + self.rows * self.row_bytes)

    def of(self, content: bytes) -> list[float]:
        """Losses that have been made so far, in their order."""
        if self.kind == "tiles":
            return [self._mean_square(content)]
        found = []
        for at in range(0, len(content), SUM_BYTES):
            samples = int.from_bytes(content[at + 8 : at + 12], "little")
            if not samples:
                break
            found.append(int.from_bytes(content[at : at + 8], "little") / self.scale / samples)
        return found

    def _mean_square(self, content: bytes) -> float:
        total, size, step = 0.0, HEADER_BYTES + self.rows * self.row_bytes, self.bits // 8
        for at in range(0, len(content), size):
            exponent = int.from_bytes(content[at : at + 1], "little", signed=True)
            codes = content[at + HEADER_BYTES : at + size]
            total += 4.0**exponent * sum(
                int.from_bytes(codes[n : n + step], "little", signed=True) ** 2 for n in range(0, len(codes), step)
            )
        return total / self.scale


@dataclass(frozen=True)
class AnsweringProgram:
    """A program of ``count`` tokens that follow each other, for each position of a tile of the cache.

    ``position``: the tile's first. ``program``: offset and commands, which are in ``data.bin`` from ``code`` on.
    ``table``: place and length there of what patches them by a row of 0, position, and offset of the row in the cache
    (:mod:`..chip.steps`). Offsets of the tokens' rows, of their ``angles`` by name, and of the ``logits`` behind them:
    each has tiles of 64 words, of ``count`` rows.
    """

    position: int
    count: int
    program: tuple[int, int]
    code: int
    table: tuple[int, int]
    input: int
    angles: tuple[int, ...]
    logits: int


@dataclass(frozen=True)
class AnswerPlan:
    """A model that answers prompts, after the stages of a plan, which have no program.

    ``prompt``: the tokens that its exponents follow from, ``tokens`` of an answer at most, which one of ``ends`` ends:
    of a request that names no others. ``positions``: of prompt and answer, but for the last token; ``rows``: of a tile
    of the cache. ``embedding``: place in ``data.bin`` of the rows of ``features`` words of ``vocabulary`` tokens;
    ``angles``: of ``angle_words`` words a position and name.
    """

    prompt: tuple[int, ...]
    tokens: int
    ends: tuple[int, ...]
    positions: int
    rows: int
    vocabulary: int
    features: int
    embedding: int
    angles: int
    angle_words: int
    programs: tuple[AnsweringProgram, ...]

    @property
    def logit_tiles(self) -> int:
        """Tiles of a row of logits."""
        return -(-self.vocabulary // TILE)

    def at(self, position: int, most: int = TILE) -> AnsweringProgram:
        """The program of the most tokens from a position on that has room there, and has not more than ``most``."""
        start = position // self.rows * self.rows
        room = min(start + self.rows, self.positions) - position
        fitting = [each for each in self.programs if each.position == start and each.count <= min(room, most)]
        return max(fitting, key=lambda each: each.count)


@dataclass(frozen=True)
class JobPlan:
    """What a job does.

    ``design``: name, table and data bits that the board must have. ``window``: bytes of memory that it needs, from the
    window's start. ``state``: offset and length of what later stages need of earlier ones beside their writes; None: an
    interrupted job begins again. ``watchdog``: cycles without progress after which the board stops a program.
    ``about``: the request, which only the writer reads. ``answers``: None of a fine-tune.
    """

    design: dict[str, Any]
    window: int
    stages: tuple[JobStage, ...]
    state: tuple[tuple[int, int], ...] | None
    losses: Losses | None
    watchdog: int
    data_bytes: int
    data_sha256: str
    about: dict[str, Any]
    answers: AnswerPlan | None = None

    @property
    def result_bytes(self) -> int:
        """Bytes of ``result.bin``."""
        return sum(length for stage in self.stages for _, length in stage.reads)

    @property
    def state_bytes(self) -> int:
        """Bytes of a ``state-N.bin``."""
        return sum(length for _, length in self.state or ())

    def text(self) -> str:
        """``job.json``."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, separators=(",", ":")) + "\n"

    @classmethod
    def parse(cls, text: str | bytes) -> JobPlan:
        """The plan that :meth:`text` wrote.

        :class:`JobError` names the field at fault.
        """
        try:
            found = json.loads(text)
        except ValueError:
            raise JobError("job.json: is no JSON") from None
        if not isinstance(found, dict):
            raise JobError("job.json: is no object")
        form = found.pop("format", None)
        if form != FORMAT:
            raise JobError(f"job.json: format={form!r}: this agent reads format {FORMAT}: write the job again")
        names = {each.name for each in dataclasses.fields(cls)}
        for name in sorted(names ^ set(found)):
            raise JobError(f"job.json: {name}: is {'missing' if name in names else 'unknown'}")
        window = _integer("window", found["window"], 1, _WINDOW - 1)
        size = _integer("data_bytes", found["data_bytes"], 0, 1 << 40)
        if not isinstance(found["stages"], list) or not found["stages"]:
            raise JobError("job.json: stages: must be a list of one or more")
        for name in ("design", "about"):
            if not isinstance(found[name], dict):
                raise JobError(f"job.json: {name}: must be an object")
        if not isinstance(found["data_sha256"], str):
            raise JobError("job.json: data_sha256: must be a text")
        state, answers = found["state"], found["answers"]
        stages = tuple(_stage(f"stages[{n}]", each, window, size) for n, each in enumerate(found["stages"]))
        if answers is not None and any(each.program for each in stages):
            raise JobError("job.json: stages: must have no program beside answers")
        return cls(
            design=found["design"],
            window=window,
            stages=stages,
            state=None if state is None else tuple(_places("state", state, window)),
            losses=None if found["losses"] is None else _losses(found["losses"], window),
            watchdog=_integer("watchdog", found["watchdog"], 0, (1 << 32) - 1),
            data_bytes=size,
            data_sha256=found["data_sha256"],
            about=found["about"],
            answers=None if answers is None else _answers(answers, window, size),
        )


def read_plan(folder: Path) -> JobPlan:
    """The plan of a job folder, whose data are whole.

    Raises :class:`JobError` where they are not.
    """
    try:
        plan = JobPlan.parse((folder / "job.json").read_bytes())
        digest, size = hashlib.sha256(), 0
        with open(folder / "data.bin", "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
                size += len(piece)
    except FileNotFoundError as error:
        raise JobError(f"{folder}: is no job: {Path(error.filename).name} is missing") from None
    except NotADirectoryError:
        raise JobError(f"{folder}: is no job, but a file") from None
    if (size, digest.hexdigest()) != (plan.data_bytes, plan.data_sha256):
        raise JobError(f"{folder}: data.bin has {size} bytes that are not those of job.json: copy the job again")
    return plan


def keep(path: Path, content: bytes) -> None:
    """Replaces a file; power cuts leave the old one or the new one."""
    made = path.with_name(path.name + ".new")
    try:
        with open(made, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except OSError:
        made.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise JobError(f"job.json: {name}={value!r}: must be an integer from {low} to {high}")
    return value


def _list(name: str, value: Any, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise JobError(f"job.json: {name}: must be a list of {length}")
    return value


def _places(name: str, values: Any, window: int) -> Iterator[tuple[int, int]]:
    if not isinstance(values, list):
        raise JobError(f"job.json: {name}: must be a list")
    for number, each in enumerate(values):
        offset, length = _list(f"{name}[{number}]", each, 2)
        _integer(f"{name}[{number}].offset", offset, 0, window)
        yield offset, _integer(f"{name}[{number}].length", length, 0, window - offset)


def _stage(name: str, value: Any, window: int, data: int) -> JobStage:
    if not isinstance(value, dict) or set(value) != {"writes", "program", "reads"}:
        raise JobError(f"job.json: {name}: must have writes, program and reads")
    if not isinstance(value["writes"], list):
        raise JobError(f"job.json: {name}.writes: must be a list")
    writes = []
    for number, each in enumerate(value["writes"]):
        where = f"{name}.writes[{number}]"
        offset, at, length = _list(where, each, 3)
        _integer(f"{where}.offset", offset, 0, window)
        _integer(f"{where}.length", length, 0, window - offset)
        writes.append((offset, _integer(f"{where}.at", at, 0, data - length), length))
    program = None if value["program"] is None else _program(f"{name}.program", value["program"], window)
    return JobStage(tuple(writes), program, tuple(_places(f"{name}.reads", value["reads"], window)))


def _program(name: str, value: Any, window: int) -> tuple[int, int]:
    offset, commands = _list(name, value, 2)
    _integer(f"{name}.commands", commands, 1, _MOST_COMMANDS)
    return _integer(f"{name}.offset", offset, 0, window - commands * COMMAND_BYTES), commands


def _check_fields(name: str, value: Any, kind: type) -> None:
    names = [each.name for each in dataclasses.fields(kind)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise JobError(f"job.json: {name}: must have {', '.join(names)}")


def _tokens(name: str, values: Any, low: int, most: int, vocabulary: int) -> tuple[int, ...]:
    if not isinstance(values, list) or not low <= len(values) <= most:
        raise JobError(f"job.json: {name}: must be a list of {low} to {most}")
    return tuple(_integer(f"{name}[{number}]", each, 0, vocabulary - 1) for number, each in enumerate(values))


def _answers(found: Any, window: int, data: int) -> AnswerPlan:
    _check_fields("answers", found, AnswerPlan)
    limits = {"positions": _MOST_POSITIONS, "rows": TILE, "vocabulary": _MOST_TOKENS, "angle_words": 1 << 16}
    limits |= {"features": 1 << 16, "tokens": _MOST_POSITIONS}
    for name, most in limits.items():
        _integer(f"answers.{name}", found[name], 1, most)
    positions, rows, features, words = (found[each] for each in ("positions", "rows", "features", "angle_words"))
    vocabulary = found["vocabulary"]
    for name, size in (("features", features), ("angle_words", words)):
        if size % TILE:
            raise JobError(f"job.json: answers.{name}={size}: must be a multiple of {TILE}")
    if not isinstance(found["programs"], list) or not found["programs"]:
        raise JobError("job.json: answers.programs: must be a list of one or more")
    tiles = -(-vocabulary // TILE)
    made = []
    for number, own in enumerate(found["programs"]):
        where = f"answers.programs[{number}]"
        _check_fields(where, own, AnsweringProgram)
        row = 4 * _integer(f"{where}.count", own["count"], 1, rows)
        program = _program(f"{where}.program", own["program"], window)
        at, length = _list(f"{where}.table", own["table"], 2)
        _integer(f"{where}.table.length", length, 1, data)
        if not isinstance(own["angles"], list):
            raise JobError(f"job.json: {where}.angles: must be a list")
        made.append(
            AnsweringProgram(
                position=_integer(f"{where}.position", own["position"], 0, positions - 1),
                count=own["count"],
                program=program,
                code=_integer(f"{where}.code", own["code"], 0, data - program[1] * COMMAND_BYTES),
                table=(_integer(f"{where}.table.at", at, 0, data - length), length),
                input=_integer(f"{where}.input", own["input"], 0, window - row * features),
                angles=tuple(_integer(f"{where}.angles", angle, 0, window - row * words) for angle in own["angles"]),
                logits=_integer(f"{where}.logits", own["logits"], 0, window - row * tiles * TILE),
            )
        )
    kept = {each.position for each in made if each.count == 1}
    if kept != set(range(0, positions, rows)) or len({len(each.angles) for each in made}) != 1:
        raise JobError("job.json: answers.programs: must have one of one token for each tile of the cache")
    angles = 4 * positions * len(made[0].angles) * words
    return AnswerPlan(
        prompt=_tokens("answers.prompt", found["prompt"], 1, positions, vocabulary),
        tokens=found["tokens"],
        ends=_tokens("answers.ends", found["ends"], 0, vocabulary, vocabulary),
        positions=positions,
        rows=rows,
        vocabulary=vocabulary,
        features=features,
        embedding=_integer("answers.embedding", found["embedding"], 0, data - 4 * features * vocabulary),
        angles=_integer("answers.angles", found["angles"], 0, data - angles),
        angle_words=words,
        programs=tuple(made),
    )


def _losses(value: Any, window: int) -> Losses:
    names = {each.name for each in dataclasses.fields(Losses)}
    if not isinstance(value, dict) or set(value) != names or value["kind"] not in ("sums", "tiles"):
        raise JobError("job.json: losses: must be sums or tiles, with their places")
    for name in names - {"kind"}:
        _integer(f"losses.{name}", value[name], 1 if name in ("count", "scale") else 0, window)
    made = Losses(**value)
    if made.kind == "tiles" and made.bits not in (8, 16):
        raise JobError(f"job.json: losses.bits={made.bits}: must be 8 or 16")
    _integer("losses.offset", made.offset, 0, window - made.length)
    return made
