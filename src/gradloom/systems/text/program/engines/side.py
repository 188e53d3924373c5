"""Splits side work into pieces between the loads of a product."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gradloom.program.assembler import Assembler, Instruction
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, UPDATE, VECTOR
from gradloom.rtl.shell.engines import LOAD, OPERAND_BEATS, STORE, PortNumber

from ..packed import PackedStore

__all__ = [
    "LEAST",
    "PIECE",
    "SidePiece",
    "SideTensor",
    "append",
    "gradient",
    "load",
    "pack",
    "store",
    "unpack",
    "update",
    "vector",
]

#: Beats that a piece loads at most, unless asked for another number.
PIECE = 384
#: Beats of a piece at least, where there are so many: smaller ones cost more than they hide.
LEAST = 64
#: More could find no room: that of operands, and of results, of which some places are spare.
_MOST = OPERAND_BEATS - 8


@dataclass(frozen=True, kw_only=True)
class SidePiece:
    """Commands of side work that belong together.

    ``instructions`` stay in this order without a LOAD or STORE of others between them. ``stores`` come later, but
    before the next piece of any side work; what they need is loaded by then. With every STORE of a product behind the
    loads that it needs, no program of such pieces blocks, since what a piece loads has room on chip. Pieces of one
    command stay in order, and between those of a vector's command comes no update.

    ``needs``: of each of ``stores``, the number of the load that its first word is made of; without it, the first.

    ``read``, ``written``: beats over the bus.
    """

    instructions: tuple[Instruction, ...]
    stores: tuple[Instruction, ...] = ()
    needs: tuple[int, ...] = ()

    @property
    def read(self) -> int:
        return sum(each.operands["beats"] for each in self.instructions if each.engine == LOAD)

    @property
    def written(self) -> int:
        return sum(each.operands["beats"] for each in (*self.instructions, *self.stores) if each.engine == STORE)


@dataclass(frozen=True, kw_only=True)
class SideTensor:
    """Range of the vector engine's operand or result.

    It begins at byte ``offset`` of the window and is one run of beats.

    ``repeated``: an operand of one tile, which is read for every tile. ``beats``: of a result that leaves behind all
    operands. Other results leave a beat for each beat of operands.
    """

    offset: int
    repeated: bool = False
    beats: int | None = None
    stride: int | None = None


def load(offset: int, beats: int, destination: PortNumber, argument: int = 0) -> Instruction:
    """A LOAD."""
    return Instruction(LOAD, 0, {"offset": offset, "beats": beats, "dest": destination, "arg": argument})


def store(offset: int, beats: int, source: PortNumber, argument: int = 0) -> Instruction:
    """A STORE."""
    return Instruction(STORE, 0, {"offset": offset, "beats": beats, "source": source, "arg": argument})


def append(program: Assembler, work: Sequence[SidePiece | Instruction]) -> None:
    """Writes pieces, and commands of their own, into a program."""
    for each in work:
        for one in (*each.instructions, *each.stores) if isinstance(each, SidePiece) else (each,):
            program.add(
                one.engine, one.opcode, wait=one.wait, post=one.post, phase=one.phase, slots=one.slots, **one.operands
            )


def vector(
    opcode: VectorOpcode,
    operands: Mapping[str, int],
    config: LanguageConfig,
    *,
    a: SideTensor,
    b: SideTensor | None = None,
    c: SideTensor | None = None,
    o: SideTensor | None = None,
    q: SideTensor | None = None,
    limit: int = PIECE,
    wait: tuple[int, ...] = (),
    post: tuple[int, ...] = (),
) -> list[SidePiece]:
    """A command of the vector engine over tensors in memory.

    Its loads and stores are included.

    ``operands``: :data:`VectorOperands`; ``row`` is a tile's unless given. ``limit``: beats that a piece loads at most.
    The first load waits for the tokens ``wait``; the last store, or the command if it has no result, posts ``post``.
    """
    row = operands.get("row", config.edge // config.beat_words)
    tile = row if opcode == VectorOpcode.WEIGHTS else row * operands["tokens"]
    total = tile * operands["tiles"]
    streams = [
        (each, destination)
        for each, destination in ((a, VECTOR.load("a")), (b, VECTOR.load("b")), (c, VECTOR.load("c")))
        if each is not None
    ]
    step = _step(total, min(limit // len(streams), _MOST), row)
    if opcode == VectorOpcode.ROPE and step < row:
        raise ValueError(f"row={row}: a row that is turned is loaded at once, and limit={limit} beats are too few")
    command = Instruction(VECTOR, opcode, {**operands, "row": row})
    beat = config.data_bits // 8
    pieces = []
    for start in range(0, total, step):
        end = min(start + step, total)
        loads = [
            load(offset, count, destination)
            for each, destination in streams
            for offset, count in _runs(each, start, end, tile, beat)
        ]
        stores: list[Instruction] = []
        needs: list[int] = []
        ends = list(accumulate(count for _, count in _runs(a, start, end, tile, beat)))
        for result, source in ((o, VECTOR.store("o")), (q, VECTOR.store("q"))):
            if result is not None and result.beats is None:
                runs = list(_runs(result, start, end, tile, beat))
                stores += [store(offset, count, source) for offset, count in runs]
                # A beat of results is made of the operands' beat of the same number.
                needs += [bisect_right(ends, done) for done in accumulate((n for _, n in runs[:-1]), initial=0)]
            elif result is not None and end == total:
                stores.append(store(result.offset, result.beats or 0, source))
                needs.append(0)
        pieces.append(SidePiece(instructions=tuple(loads), stores=tuple(stores), needs=tuple(needs)))
    if not pieces[-1].stores:
        command = replace(command, post=post)
    return _begun(_ended(pieces, post), command, wait)


def gradient(
    config: LanguageConfig,
    *,
    source: int,
    result: int,
    tiles: int,
    tokens: int,
    rank: int,
    slot: int,
    shift: int,
    stride: int | None = None,
    rest: int | None = None,
    limit: int = PIECE,
    wait: tuple[int, ...] = (),
    post: tuple[int, ...] = (),
) -> list[SidePiece]:
    """A gradient of an adapter, to ``result``.

    It is made of the tensor at ``source`` (``stride``: bytes from a tile to the next, if they have gaps) and the h in
    ``slot``. With ``rest``, only results of the first rank index go to ``result``, and the others' to ``rest``, each
    tile's over the one before.
    """
    beat, parts = config.data_bits // 8, config.edge // config.beat_words
    tile = tokens * parts
    total = tiles * tile
    step = _step(total, min(limit, _MOST), tile)
    pieces, stored = [], 0
    # A tile larger than a piece is cut into equal ones, so that its last piece is its end.
    bounds = (
        [*range(0, total, step)]
        if step >= tile
        else [start + cut for start in range(0, total, tile) for cut in range(0, tile, step)]
    )
    for start, end in zip(bounds, [*bounds[1:], total], strict=True):
        # Results of a tile leave behind its last beat.
        made = end // tile * rank * parts - stored
        stores = (
            _stores(result + stored * beat, made)
            if rest is None
            else tuple(
                each
                for at in range(stored // rank, (stored + made) // rank, parts)
                for each in (*_stores(result + at * beat, parts), *_stores(rest, (rank - 1) * parts))
            )
        )
        stored += made
        runs = _runs(SideTensor(offset=source, stride=stride), start, end, tile, beat)
        loads = tuple(load(offset, count, GRADIENT.load("x")) for offset, count in runs)
        pieces.append(SidePiece(instructions=loads, stores=stores))
    command = Instruction(GRADIENT, 0, {"tiles": tiles, "tokens": tokens, "rank": rank, "slot": slot, "shift": shift})
    return _begun(_ended(pieces, post), command, wait)


def _stores(offset: int, beats: int) -> tuple[Instruction, ...]:
    """Of gradients, if there are any."""
    return (store(offset, beats, GRADIENT.store("gradients")),) if beats else ()


def update(
    opcode: UpdateOpcode,
    operands: Mapping[str, int],
    config: LanguageConfig,
    *,
    words: int,
    directions: int,
    moments: int,
    beats: int,
    limit: int = PIECE,
    start: int | None = None,
    wait: tuple[int, ...] = (),
    post: tuple[int, ...] = (),
) -> list[SidePiece]:
    """New words in place of ``beats`` beats at ``words``.

    They follow from gradients at ``directions`` and, with AdamW, moments at ``moments``; a command a piece. With
    ``start`` each command begins with the words there, in place of those at ``words``.
    """
    adam = opcode == UpdateOpcode.ADAMW
    step = min(UPDATE_BEATS, max(limit // (4 if adam else 2), 1))
    pieces = []
    for first in range(0, beats, step):
        count, offset = min(beats - first, step), first * config.data_bits // 8
        command = Instruction(UPDATE, opcode, {**operands, "beats": count})
        new = store(words + offset, count, UPDATE.store("words"))
        loads = (
            load(directions + offset, count, UPDATE.load("directions")),
            load(words + offset if start is None else start, count, UPDATE.load("words")),
        )
        # The engine keeps new words until their turn, but no moments: they leave while others come.
        pieces.append(
            SidePiece(
                instructions=(
                    command,
                    *loads,
                    store(moments + 2 * offset, 2 * count, UPDATE.store("moments")),
                    new,
                    load(moments + 2 * offset, 2 * count, UPDATE.load("moments")),
                )
            )
            if adam
            else SidePiece(instructions=(command, *loads), stores=(new,))
        )
    begun, *others = _ended(pieces, post)
    head = tuple(replace(each, wait=wait) if n == 1 else each for n, each in enumerate(begun.instructions))
    return [replace(begun, instructions=head), *others]


def pack(stored: PackedStore, number: int, config: LanguageConfig, *, words: int, packed: int) -> list[SidePiece]:
    """Codes at ``packed`` of the words at ``words``.

    It is for update ``number``; a command a group.

    The engine takes beats in pairs and looks at the first of each: both streams bring the same.
    """
    pieces = []
    for (blocks, _, source, plain, target, coded), seed in zip(
        _groups(stored, config, words, packed), stored.seeds(number), strict=True
    ):
        command = Instruction(
            UPDATE, UpdateOpcode.PACK, {"blocks": blocks, "wide": stored.wide, "moments": stored.moments, "seed": seed}
        )
        pieces.append(
            SidePiece(
                instructions=(
                    command,
                    load(source, plain, UPDATE.load("directions")),
                    load(source, plain, UPDATE.load("words")),
                ),
                stores=(store(target, coded, UPDATE.store("words")),),
            )
        )
    return pieces


def unpack(stored: PackedStore, config: LanguageConfig, *, words: int, packed: int) -> list[SidePiece]:
    """Words at ``words`` of the codes at ``packed``.

    A command a group. The second stream is a beat ahead.
    """
    pieces = []
    for blocks, codes, target, plain, source, coded in _groups(stored, config, words, packed):
        beat = config.data_bits // 8
        record = coded - codes
        command = Instruction(
            UPDATE, UpdateOpcode.UNPACK, {"blocks": blocks, "wide": stored.wide, "moments": stored.moments}
        )
        loads = []
        for ahead, destination in enumerate((UPDATE.load("directions"), UPDATE.load("words"))):
            loads += [load(source + codes * beat, record, destination), load(source + ahead * beat, codes, destination)]
        pieces.append(SidePiece(instructions=(command, *loads), stores=(store(target, plain, UPDATE.store("words")),)))
    return pieces


def _groups(
    stored: PackedStore, config: LanguageConfig, words: int, packed: int
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Blocks and beats of each group's codes, and their places.

    Yields blocks and beats of the group's codes; offset and beats of its words; offset and beats of all of its codes.
    """
    beat = config.data_bits // 8
    for blocks in stored.shape.groups:
        codes, plain = stored.shape.codes(blocks), blocks * config.edge // config.beat_words
        yield blocks, codes, words, plain, packed, codes + stored.shape.record
        words += plain * beat
        packed += (codes + stored.shape.record) * beat


def _step(total: int, most: int, unit: int) -> int:
    """Beats of equal pieces of at most ``most``.

    A piece is whole units, or else an equal part of a unit.
    """
    whole = most // unit * unit
    if whole:
        units = total // unit
        count = -(-total // whole)
        return -(-units // count) * unit
    return -(-unit // -(-unit // max(most, 1)))


def _runs(tensor: SideTensor, start: int, end: int, tile: int, beat: int) -> Iterator[tuple[int, int]]:
    """``(offset, count)`` of runs between two beats.

    ``start`` and ``end`` count beats of the tensor; a tile has ``tile``, ``beat`` bytes each.
    """
    stride = 0 if tensor.repeated else tensor.stride
    if stride is None:
        stride, tile = 0, end  # one run
    while start < end:
        number, first = divmod(start, tile)
        count = min(tile - first, end - start)
        yield tensor.offset + number * stride + first * beat, count
        start += count


def _begun(pieces: list[SidePiece], command: Instruction, wait: tuple[int, ...]) -> list[SidePiece]:
    """The command in front, tokens that the first load waits for."""
    first, *others = pieces
    loads = (replace(first.instructions[0], wait=wait), *first.instructions[1:])
    return [replace(first, instructions=(command, *loads)), *others]


def _ended(pieces: list[SidePiece], post: tuple[int, ...]) -> list[SidePiece]:
    """Tokens that the last store posts."""
    *others, last = pieces
    stores = [n for n, each in enumerate(last.instructions) if each.engine == STORE]
    if last.stores:
        last = replace(last, stores=(*last.stores[:-1], replace(last.stores[-1], post=post)))
    elif stores:
        instructions = list(last.instructions)
        instructions[stores[-1]] = replace(instructions[stores[-1]], post=post)
        last = replace(last, instructions=tuple(instructions))
    return [*others, last]
