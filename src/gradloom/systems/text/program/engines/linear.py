"""Programs of a quantised linear layer, and their memory map."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradloom.program.assembler import Assembler, Instruction, pack
from gradloom.program.descent import AdamW, command
from gradloom.program.memory import PAGE, MemoryMap
from gradloom.rtl.engines.gradient.commands import HIDDEN_ARG
from gradloom.rtl.engines.linear.commands import TABLE_ARG, TILE_ARG, TileKind
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.codebook import Codebook
from gradloom.rtl.formats.weights.linear import ACTIVATION, DOT_GUARD, MASTER, SCALE_GUARD, WEIGHT, level_table
from gradloom.rtl.formats.weights.weight_stream import StreamShape
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, LINEAR
from gradloom.rtl.shell.engines import CONTROL, LOAD, PortNumber
from gradloom.rtl.shell.signature import ControlOpcode

from ..jobs import ProductJob, Transfer, in_panels
from ..sections import cut
from .inputs import FREE, READY, Inputs, passes, with_tokens
from .side import PIECE, SidePiece, append, gradient, load, store, update

__all__ = [
    "Exponents",
    "LayerMap",
    "LayerPlan",
    "LayerShape",
    "chain",
    "codebook_table",
    "codebook_words",
    "codes",
    "dense_tile",
    "hidden",
    "joined",
    "product_command",
]


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """A linear ``W [outputs, inputs]`` with an adapter of ``rank``.

    It serves ``tokens`` tokens a step.
    """

    outputs: int
    inputs: int
    rank: int
    tokens: int

    def check(self, config: LanguageConfig) -> None:
        """Refuses a layer that ``config`` cannot run.

        :class:`ValueError` names field, value and bound.
        """
        for field, value, bound in self.misfits(config):
            raise ValueError(f"{field}={value}: {bound}")

    def misfits(self, config: LanguageConfig) -> Iterator[tuple[str, int, str]]:
        """Fields with their values and the bounds of ``config`` that they fail.

        A failure that follows from another one is left out.
        """
        edge = config.edge
        odd = [
            (name, value, f"must be a multiple of {edge}, at most {255 * edge}")
            for name, value in (("outputs", self.outputs), ("inputs", self.inputs))
            if value < edge or value % edge or value > 255 * edge
        ]
        yield from odd
        if odd:
            return
        tiles = self.outputs // edge, self.inputs // edge
        # Operands that do not fit pass through, if they may.
        through = max(tiles) * self.tokens > config.depth
        room = not through or passes(self.tokens, 0, config)
        if not 1 <= self.tokens <= config.tokens:
            yield "tokens", self.tokens, f"must be 1 to {config.tokens}"
        elif not room:
            yield (
                "tokens",
                self.tokens,
                (
                    f"{max(tiles)} tiles of so many tokens need {max(tiles) * self.tokens} words "
                    f"of operand memory, there are {config.depth}"
                ),
            )
        if not 2 <= self.rank <= config.rank or self.rank % 2:
            yield "rank", self.rank, f"must be even, 2 to {config.rank}"
        elif self.rank > (most := -(-min(tiles) // config.span) * config.subtiles):
            yield ("rank", self.rank, (f"a layer of {self.outputs} x {self.inputs} carries at most {most}"))
        elif through and room and not passes(self.tokens, self.rank, config):
            yield "rank", self.rank, f"beside {max(tiles)} tiles that pass through it is at most {config.subtiles}"
        elif sum(tiles) * self.rank > config.lane_depth:
            yield (
                "rank",
                self.rank,
                (
                    f"adapters of {sum(tiles)} tiles need {sum(tiles) * self.rank} words of adapter "
                    f"memory, there are {config.lane_depth}"
                ),
            )
        groups = self.stream(config).groups
        if groups > config.groups:
            yield (
                "outputs",
                self.outputs,
                (
                    f"with inputs={self.inputs} there are {groups} second-level scales, the "
                    f"machine holds {config.groups}"
                ),
            )

    def stream(self, config: LanguageConfig) -> StreamShape:
        """Its weights as they lie in memory."""
        return StreamShape(outputs=self.outputs, inputs=self.inputs, tile=config.edge, span=config.span)


@dataclass(frozen=True, kw_only=True)
class Exponents:
    """Fraction bits of each tensor's words.

    A tensor's largest value decides them.

    ``a``, ``b`` are those of 18-bit adapter words (their masters have 14 more), ``ga``, ``gb`` of 24-bit gradients.
    """

    x: int
    w: int
    a: int
    b: int
    h: int
    y: int
    dy: int
    dh: int
    dx: int
    ga: int
    gb: int

    def product(self, *, backward: bool) -> dict[str, int]:
        """Shifts of a product's command."""
        x, a, h, b, y = (
            (self.dy, self.b, self.dh, self.a, self.dx) if backward else (self.x, self.a, self.h, self.b, self.y)
        )
        shifts = {"hidden_shift": x + a - h, "dot_shift": DOT_GUARD + h + b - x - self.w, "shift": x + self.w - y}
        return _checked(shifts)

    def gradient(self, which: str) -> int:
        """Shift of the command that makes ``ga`` or ``gb``."""
        x, h, g = (self.x, self.dh, self.ga) if which == "ga" else (self.dy, self.h, self.gb)
        return _checked({f"shift of {which}": x + h - (ACTIVATION.width - WEIGHT.width) - g})[f"shift of {which}"]


def _checked(shifts: dict[str, int]) -> dict[str, int]:
    for name, value in shifts.items():
        if not 0 <= value < 64:
            raise ValueError(f"{name}={value}: the exponents of this layer are too far apart, must be 0 to 63")
    return shifts


@dataclass(frozen=True, kw_only=True)
class LayerMap:
    """Byte offsets of a layer's tensors in the window.

    All are multiples of a beat.

    ``ma``, ``mb``: AdamW's moments of ``a`` and ``b``, all bits 0 before the first step.
    """

    tables: int
    tiles: int
    a: int
    b: int
    x: int
    y: int
    dy: int
    dx: int
    ga: int
    gb: int
    ma: int
    mb: int
    h: int
    end: int

    @classmethod
    def place(cls, shape: LayerShape, config: LanguageConfig, start: int = 0) -> "LayerMap":
        """Places one tensor after the other from ``start`` on.

        Each is at a multiple of 4 KB.
        """
        beat, stream = config.data_bits // 8, shape.stream(config)
        sizes = {
            "tables": stream.header_bytes,
            "tiles": stream.bytes - stream.header_bytes,
            "a": 4 * shape.rank * shape.inputs,
            "b": 4 * shape.rank * shape.outputs,
            "x": 4 * shape.tokens * shape.inputs,
            "y": 4 * shape.tokens * shape.outputs,
            "dy": 4 * shape.tokens * shape.outputs,
            "dx": 4 * shape.tokens * shape.inputs,
            "ga": 4 * shape.rank * shape.inputs,
            "gb": 4 * shape.rank * shape.outputs,
            "ma": 8 * shape.rank * shape.inputs,
            "mb": 8 * shape.rank * shape.outputs,
            "h": -(-4 * shape.tokens * shape.rank // beat) * beat,
        }
        space = MemoryMap(start, align=PAGE)
        for name, size in sizes.items():
            space.place(name, size)
        return cls(**space.offsets, end=space.end)


class LayerPlan:
    """Writes the commands of a layer's training step into a program.

    Parameters
    ----------
    shape, exponents : of the layer.
    place : :class:`LayerMap`
    config : of the machine.

    The tensors x, dy and the results y, dx are tiled by features (:func:`tile_rows`), ``a`` and ``b`` (transposed:
    ``[rank, outputs]``) likewise. Each method ends with what it made in memory.
    """

    def __init__(self, *, shape: LayerShape, exponents: Exponents, place: LayerMap, config: LanguageConfig) -> None:
        shape.check(config)
        self.shape, self.exponents, self.place, self.config = shape, exponents, place, config
        self.beat = config.data_bits // 8
        self.stream = shape.stream(config)
        self.rows, self.columns = self.stream.tiles

    def job(self, *, backward: bool = False) -> ProductJob:
        """The product that makes ``y`` from ``x``, or ``dx`` from ``dy``.

        h stays under slot 0, or 1 backward.
        """
        shape, at = self.shape, self.place
        inner, outer = (self.rows, self.columns) if backward else (self.columns, self.rows)
        source, result = (at.dy, at.dx) if backward else (at.x, at.y)
        first, second = (at.b, at.a) if backward else (at.a, at.b)
        tables, tiles = codes(self.stream, at.tables, at.tiles, self.exponents.w, self.config, backward=backward)
        return ProductJob(
            tables=tables,
            operands=(Transfer(source, self._beats(inner, shape.tokens), 0),),
            lanes=(
                Transfer(first, self._beats(inner, shape.rank), 0),
                Transfer(second, self._beats(outer, shape.rank), inner * shape.rank),
            )
            if shape.rank
            else (),
            tiles=in_panels(tiles, inner, self.config.span),
            result=Transfer(result, self._beats(outer, shape.tokens), 0),
            inner=inner,
            outer=outer,
            tokens=shape.tokens,
            rank=shape.rank,
            backward=backward,
            shifts=self.exponents.product(backward=backward),
        )

    def product(self, program: Assembler, *, backward: bool = False) -> None:
        """The product alone; its result is in memory when the program goes on."""
        chain(program, [self.job(backward=backward)], self.config)

    def keep_hidden(self, program: Assembler) -> None:
        """Stores h of the forward product in memory.

        It waits there for the gradients while other layers run.
        """
        kept = self._hidden
        append(program, [store(kept.offset, kept.beats, GRADIENT.store("hidden"), kept.argument)])
        program.add(CONTROL, ControlOpcode.FENCE)

    def restore_hidden(self, program: Assembler) -> None:
        """That h back."""
        append(program, [_load(self._hidden, GRADIENT.load("hidden"))])
        program.add(CONTROL, ControlOpcode.FENCE)

    @property
    def _hidden(self) -> Transfer:
        return hidden(self.place.h, self.config, slot=0, tokens=self.shape.tokens, rank=self.shape.rank)

    def gradients(self, program: Assembler) -> None:
        """``ga = dh' x`` and ``gb = h' dy``, in memory."""
        append(program, self.gradient_pieces())
        program.add(CONTROL, ControlOpcode.FENCE)

    def gradient_pieces(self, *, limit: int = PIECE) -> list[SidePiece]:
        """The same in pieces."""
        pieces = []
        for which, source, result, tiles, slot in (
            ("gb", self.place.dy, self.place.gb, self.rows, 0),
            ("ga", self.place.x, self.place.ga, self.columns, 1),
        ):
            pieces += gradient(
                self.config,
                source=source,
                result=result,
                tiles=tiles,
                tokens=self.shape.tokens,
                rank=self.shape.rank,
                slot=slot,
                shift=self.exponents.gradient(which),
                limit=limit,
            )
        return pieces

    def update(self, program: Assembler, rule: float | AdamW, *, step: int = 1) -> None:
        """New ``a`` and ``b`` by their gradients.

        The rule is SGD with a learning rate, or update ``step`` of AdamW.
        """
        append(program, self.update_pieces(rule, step=step, limit=4 * UPDATE_BEATS))
        program.add(CONTROL, ControlOpcode.FENCE)

    def update_pieces(self, rule: float | AdamW, *, step: int = 1, limit: int = PIECE) -> list[SidePiece]:
        """The same in pieces."""
        spare = MASTER.width - WEIGHT.width
        at, e = self.place, self.exponents
        pieces = []
        for words, directions, moments, tiles, frac, gradient_frac in (
            (at.a, at.ga, at.ma, self.columns, e.a + spare, e.ga),
            (at.b, at.gb, at.mb, self.rows, e.b + spare, e.gb),
        ):
            opcode, operands = command(rule, step, gradient_frac, frac)
            pieces += update(
                opcode,
                operands,
                self.config,
                words=words,
                directions=directions,
                moments=moments,
                beats=self._beats(tiles, self.shape.rank),
                limit=limit,
            )
        return pieces

    def _beats(self, tiles: int, rows: int) -> int:
        return tiles * rows * self.config.edge // self.config.beat_words


def codes(
    stream: StreamShape, tables: int, tiles: int, frac: int, config: LanguageConfig, *, backward: bool
) -> tuple[Transfer, tuple[Transfer, ...]]:
    """Transfers of a linear's tables, and of its tiles, those of an output behind each other.

    They are in the linear's stream, from the offsets ``tables`` and ``tiles`` on. ``frac``: fraction bits of its
    weights.
    """
    beat, (rows, columns), places = config.data_bits // 8, stream.tiles, stream.places.tolist()
    order = (
        [(row, column) for column in range(columns) for row in range(rows)]
        if backward
        else [(row, column) for row in range(rows) for column in range(columns)]
    )
    header = pack(TABLE_ARG, {"groups": stream.groups, "bias": 150 - frac - SCALE_GUARD})
    return Transfer(tables, stream.header_bytes // beat, header), tuple(
        Transfer(
            tiles + places[row][column] * stream.tile_bytes,
            stream.tile_bytes // beat,
            pack(TILE_ARG, {"block": row * config.edge * columns + column, "blocks_per_row": columns}),
        )
        for row, column in order
    )


def joined(steps: Iterable[Instruction], config: LanguageConfig) -> Iterator[Instruction]:
    """The same steps, with one LOAD for tiles of codes that follow each other in memory.

    They must be those that the machine takes for the next ones of a command.
    """
    last = None
    for step in steps:
        if last is not None and (both := _both(last, step, config)):
            last = both
            continue
        if last is not None:
            yield last
        last = step
    if last is not None:
        yield last


def _both(before: Instruction, after: Instruction, config: LanguageConfig) -> Instruction | None:
    if (before.engine, after.engine) != (LOAD, LOAD) or before.post or after.wait:
        return None
    offset, beats, port = (before.operands[each] for each in ("offset", "beats", "dest"))
    if port != LINEAR.load("tiles") or port != after.operands["dest"]:
        return None
    if after.operands["offset"] != offset + beats * config.data_bits // 8:
        return None
    first, then = (TILE_ARG.from_bits(each.operands["arg"]) for each in (before, after))
    along, number = divmod(beats // (config.edge + 2), config.span)
    block = first.block + along + number * config.edge * first.blocks_per_row
    if first.kind != TileKind.CODES or (then.kind, then.block) != (first.kind, block):
        return None
    return replace(before, operands=before.operands | {"beats": beats + after.operands["beats"]}, post=after.post)


def hidden(offset: int, config: LanguageConfig, *, slot: int, tokens: int, rank: int) -> Transfer:
    """h of a slot, to or from memory."""
    return Transfer(
        offset, -(-tokens * rank // config.beat_words), pack(HIDDEN_ARG, {"slot": slot, "tokens": tokens, "rank": rank})
    )


def codebook_table(offset: int, config: LanguageConfig) -> Transfer:
    """The load that changes the codebook of all later tiles.

    :func:`codebook_words` are in memory from ``offset`` on.
    """
    return Transfer(offset, -(-16 * MASTER.width // config.data_bits), pack(TABLE_ARG, {"levels": 1}))


def codebook_words(book: Codebook) -> bytes:
    """A codebook's levels in the form that memory has.

    No level is beyond +-1, which the machine would refuse.
    """
    return level_table(book).astype("<i4").tobytes()


def dense_tile(offset: int, config: LanguageConfig, *, rows: int, kind: TileKind = TileKind.WORDS) -> Transfer:
    """A tile of dense words from ``offset`` on.

    It has ``rows`` rows of ``edge`` words; the others are 0.

    Activations as :func:`tile_rows` lays them, ``rows`` tokens of a tile of features, are :attr:`TileKind.WORDS`.
    Raises :class:`ValueError` that names field, value and bound.
    """
    if not 1 <= rows <= config.edge:
        raise ValueError(f"rows={rows}: a tile has 1 to {config.edge}")
    if kind == TileKind.CODES:
        raise ValueError(f"kind={kind.name}: must be WORDS or HALVES")
    return Transfer(offset, rows * kind.row_beats, pack(TILE_ARG, {"kind": kind}))


def product_command(
    job: ProductJob,
    bases: tuple[int, int],
    *,
    slot: int,
    early: bool,
    wait: tuple[int, ...] = (),
    post: tuple[int, ...] = (),
) -> Instruction:
    """The array's command.

    ``bases``: first word of the operands, and of the adapter's words. ``slot`` takes h. ``early``: it does not wait for
    all operands.
    """
    x_base, lane_base = bases
    return Instruction(
        LINEAR,
        0,
        {
            "inner": job.inner,
            "outer": job.outer,
            "tokens": job.tokens,
            "rank": job.rank,
            "by_column": job.backward,
            "slot": slot,
            "x_base": x_base,
            "a_base": lane_base,
            "b_base": lane_base + job.inner * job.rank,
            "early": int(early),
            **job.shifts,
        },
        wait=wait,
        post=post,
        phase="backward" if job.backward else "forward",
    )


def chain(program: Assembler, jobs: Sequence[ProductJob], config: LanguageConfig) -> None:
    """Products back to back.

    The results are in memory when the program goes on.

    Inputs are loaded between the tiles of products before, as far as operand and adapter memory have room, and the rest
    between the first tiles of their own product. They must be in memory before the chain: no product may use the
    result of another.
    """
    # What the array leaves of the bus while it works on a tile, with a quarter to spare. If it leaves nothing, the bus
    # is what counts, and long transfers use it best.
    spare = config.tile_cycles(jobs[0].tokens) - jobs[0].tiles[0].beats
    piece = spare * 3 // 4 if spare > 16 else 1 << 23
    slots = [(each, (job.backward + index) % 2) for index, job in enumerate(jobs) for each in cut(job, config)]
    jobs = [job for job, _ in slots]
    inputs = Inputs(jobs, config)
    loads, ended = with_tokens(inputs.loads(index, piece) for index in range(len(jobs)))

    steps: list[Instruction] = []

    def bring(index: int) -> None:
        steps.append(loads[index].popleft().step)

    for index, job in enumerate(jobs):
        while loads[index] and not loads[index][0].words:
            bring(index)
        steps.append(
            product_command(
                job,
                inputs.bases(index),
                slot=slots[index][1],
                early=True,
                wait=(READY,) if job.lanes else (),
                post=(FREE,) if index in ended else (),
            )
        )
        steps.append(store(job.result.offset, job.result.beats, LINEAR.store("outputs")))
        if job.tables is not None:
            steps.append(_load(job.tables, LINEAR.load("tables")))
        settled = _settled(jobs[index - 1], job, config) if index else 0
        for number, tile in enumerate(job.tiles):
            # Two tiles are on chip: if the operands of one came behind the next but one, none would go on.
            inputs_used = number // min(config.span, job.outer) + 1
            while loads[index] and loads[index][0].words - loads[index][0].size < inputs_used * job.tokens:
                bring(index)
            steps.append(_load(tile, LINEAR.load("tiles")))
            ahead = next((n for n in range(index, len(jobs)) if loads[n]), None)
            if ahead is None or loads[ahead][0].behind > (index, number + 1):
                continue
            if loads[ahead][0].freed < index + (number >= settled):
                bring(ahead)
    append(program, [*joined(steps, config)])
    program.add(CONTROL, ControlOpcode.FENCE)


def _settled(before: ProductJob, job: ProductJob, config: LanguageConfig) -> int:
    """Tiles of a product until the earlier product's sums are in memory.

    This is an estimate.
    """
    reading = before.tokens * config.edge // (config.dots if before.rank else config.outputs)
    if before.inner * config.subtiles * before.tokens // config.span < reading:
        reading *= 2
    return -(-(reading + 4 * config.edge) // config.tile_cycles(job.tokens))


def _load(transfer: Transfer, destination: PortNumber) -> Instruction:
    return load(transfer.offset, transfer.beats, destination, transfer.argument)
