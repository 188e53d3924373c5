"""Memory, traffic and time of fine-tuning a language model.

Arithmetic on shapes, before anything is generated. It takes memory and array at their full rate, so its
times are lower bounds; what a design really takes, its counters say.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gradloom.models.adapters.language.methods import LORA
from gradloom.models.filled import filled_shapes
from gradloom.models.language import EMBEDDING, HEAD, PROJECTIONS
from gradloom.models.pack import raw_parts
from gradloom.rtl.formats.weights.weight_stream import BOOKS, TILE, StreamShape
from gradloom.systems.results import Planned, PlannedChange, PlannedPart, PlannedTime

from ..program import packed
from ..program.packed import STORES
from .request import LEARNT, OPTIMIZERS, STAGE, TARGETS, BudgetRequest

__all__ = ["Target", "cached_texts", "checked_port", "fill_of", "memory", "nearest", "plan"]

#: Adapters, gradients, moments, activations and logits in memory: float32, or 24 bits in a word.
WORD = 4
#: Keys and values of a decoded text: float16.
KV_WORD = 2
#: The last complete adapter stays while the next is written, so that a lost supply loses neither.
ADAPTER_COPIES = 2
#: Firmware, programs of two queues, tokens, and what the UART and the card read into.
BUFFERS = 1 << 20
#: Bits of an activation, and of a sum of a gradient, on the chip; and the part of block memory that they get.
ON_CHIP, SUM_ON_CHIP, SHARE = 24, 32, 1 / 3
#: Part of the DSP slices that the array may take.
DSP_SHARE = 0.85


class Target(Protocol):
    """Properties required of a board. :class:`gradloom.boards.Board` is one."""

    @property
    def name(self) -> str: ...
    @property
    def dsp(self) -> int: ...
    @property
    def bram36(self) -> int: ...
    @property
    def uram(self) -> int: ...
    @property
    def memory_bits(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def memory_bandwidth(self) -> int: ...
    @property
    def port_bits(self) -> int: ...
    @property
    def clock_hz(self) -> int: ...


def _stream(outputs: int, inputs: int, bits: int) -> StreamShape:
    """The stream of a linear, with padded columns.

    Columns are padded where its inputs are no multiple of a block.
    """
    return StreamShape(outputs=outputs, inputs=-(-inputs // TILE) * TILE, bits=bits)


def _head(request: BudgetRequest) -> StreamShape:
    return _stream(request.model.vocab, request.model.hidden, request.bits)


def memory(request: BudgetRequest) -> dict[str, int]:
    """Bytes by purpose; together, all that the board's memory holds."""
    request = request.filled
    model, seq = request.model, request.seq
    streams = [_stream(*model.shape(name), request.bits) for name in PROJECTIONS]
    codes = model.layers * sum(-(-n * k * request.bits // 8) for n, k in map(model.shape, PROJECTIONS))
    scales = model.layers * sum(shape.blocks + 4 * (shape.groups + 1) for shape in streams)
    raw = dict(raw_parts(model, request.head))
    head = raw.pop(HEAD, 0) + (_head(request).bytes if request.head == "nf" else 0)
    embedding = raw.pop(EMBEDDING)
    adapters = WORD * request.adapter_parameters
    kept = 2 * model.hidden + 2 * model.attention + 2 * model.kv + 2 * model.inter
    cache = {"forward_cache": WORD * seq * model.hidden} if request.from_layer else {}
    parts = -(-seq // TILE)
    # Of more than a block of tokens; those of one are soon made again.
    pairs = model.heads * TILE**2 * parts * (parts + 1) // 2 if parts > 1 else 0
    return {
        "codes": codes,
        "scales": scales,
        "padding": model.layers * sum(shape.bytes for shape in streams) - codes - scales,
        "embedding": embedding,
        "head": head,
        "norms": sum(raw.values()),
        "tables": 4 * (1 << request.bits)
        + 4 * 256
        + WORD * seq * (model.head_dim + model.layers * model.bias_elements)
        + WORD * request.frozen_parameters,
        "adapters": ADAPTER_COPIES * _stored(request, moments=False),
        "working": _working(request),
        "gradients": adapters,
        "optimizer": _stored(request, moments=True),
        # Both residuals, queries, keys, values, attention's result, gate and up; the rest is computed again.
        "activations": WORD * request.learning_layers * (seq * kept + pairs),
        "logits": WORD * seq * model.vocab,
        "kv_cache": KV_WORD * 2 * seq * model.layers * model.kv,
        "buffers": BUFFERS,
        **cache,
    }


def cached_texts(held: Mapping[str, int], board: Target, texts: int = 1) -> int:
    """Texts whose forward cache fits the board's memory.

    ``held``: a plan of the memory with the caches of so many ``texts``.
    """
    # Where a job is laid out, a text also has its embeddings and targets there.
    size = (held["forward_cache"] + held.get("texts", 0)) // texts
    return max(board.memory_bytes - sum(held.values()) + texts * size, 0) // size


def _linears(request: BudgetRequest) -> Iterator[packed.PackedStore]:
    """What an adapter's moments are stored as; those of a layer."""
    for name in request.targets:
        n, k = (-(-size // TILE) * TILE for size in request.model.shape(name))
        yield from packed.tensors(name, request.rank, k, n, wide=STORES[request.store] is True, moments=True)


def _stored(request: BudgetRequest, *, moments: bool) -> int:
    """Bytes of all adapters, or of their moments, from step to step."""
    if request.store == "words":
        return WORD * request.adapter_parameters * (OPTIMIZERS[request.optimizer] if moments else 1)
    if moments and not OPTIMIZERS[request.optimizer]:
        return 0
    return request.learning_layers * sum(
        dataclasses.replace(each, moments=moments).shape.bytes for each in _linears(request)
    )


def _working(request: BudgetRequest) -> int:
    """Bytes of the working words of tensors that are stored as codes.

    They are the words that products read, and the largest adapter's moments.
    """
    if request.store == "words":
        return 0
    sizes = [each.bytes for each in _linears(request)]
    moments = max(map(sum, zip(sizes[::2], sizes[1::2]))) if OPTIMIZERS[request.optimizer] else 0
    return WORD * request.adapter_parameters + moments


@dataclass(frozen=True)
class _Part:
    """Work whose traffic runs under its arithmetic.

    It has bytes through the port, and multiply-accumulates.
    """

    name: str
    bytes: int
    macs: int = 0


def _token_parts(request: BudgetRequest) -> Iterator[_Part]:
    model = request.model
    for name in PROJECTIONS:
        n, k = model.shape(name)
        yield _Part("linears", model.layers * _stream(n, k, request.bits).bytes, model.layers * n * k)
    adapters = request.adapter_parameters + request.frozen_parameters
    yield _Part("adapters", WORD * adapters, adapters)
    raw = dict(raw_parts(model, request.head))
    yield _Part(
        "embedding and norms",
        2 * model.hidden + sum(size for name, size in raw.items() if name not in (EMBEDDING, HEAD)),
    )
    cached = model.layers * request.seq
    yield _Part("keys and values", KV_WORD * 2 * model.kv * (cached + model.layers), 2 * model.attention * cached)
    yield _Part("head", _head_bytes(request), model.vocab * model.hidden)


def _head_bytes(request: BudgetRequest) -> int:
    return _head(request).bytes if request.head == "nf" else 2 * request.model.vocab * request.model.hidden


def _step_parts(request: BudgetRequest, board: Target, *, cached: bool = False) -> Iterator[_Part]:
    """One text forward, backward and an update.

    A linear is read again for each group of tokens whose inputs (or sums of its input's gradient) fill the chip's
    memory. ``cached``: the input of the lowest layer with adapters is in memory.
    """
    model, seq = request.model, request.seq
    room = int(board.memory_bits * SHARE)
    first = min(LEARNT[request.method][name] for name in request.targets)
    for name in PROJECTIONS:
        n, k = model.shape(name)
        size, macs = _stream(n, k, request.bits).bytes, seq * n * k
        forward, backward = (-(-seq // max(room // (k * width), 1)) for width in (ON_CHIP, SUM_ON_CHIP))
        forwards = request.learning_layers if cached else model.layers
        yield _Part("linears forward", forwards * size * forward, forwards * macs)
        # In the lowest layer nothing learns upstream of the first adapter.
        layers = request.learning_layers - (STAGE[name] <= first)
        yield _Part("linears backward", layers * size * backward, layers * macs)
    adapters, beside = request.adapter_parameters, request.frozen_parameters
    yield _Part("adapters", WORD * 3 * (adapters + beside), 3 * seq * (adapters + beside))
    moments = OPTIMIZERS[request.optimizer]
    yield _Part("update", WORD * adapters * (1 + 2 + 2 * moments))
    if request.store != "words":
        # PACK reads words twice, since its engine takes them in pairs; UNPACK its codes too.
        stored = sum(_stored(request, moments=each) for each in (False, True))
        yield _Part("pack and unpack", 3 * WORD * adapters * (1 + moments) + 3 * stored)
    pairs = request.learning_layers * model.attention * seq * (seq + 1) // 2
    frozen = 0 if cached else request.from_layer * model.attention * seq * (seq + 1)
    kept = memory(request)["activations"]
    yield _Part("attention and activations", 2 * kept, (2 + 5) * pairs + frozen)
    yield _Part("head", 2 * _head_bytes(request) + 3 * WORD * seq * model.vocab, 2 * seq * model.vocab * model.hidden)
    yield _Part("embedding", 2 * seq * model.hidden)


def multipliers(board: Target) -> int:
    """Size of the array that the plan assumes.

    It is the largest power of two within 85 % of the DSP slices.
    """
    return 1 << max(int(board.dsp * DSP_SHARE), 1).bit_length() - 1


def _timed(parts: Sequence[_Part], board: Target, port_bits: int, array: int) -> PlannedTime:
    rate, port = _bandwidth(board, port_bits)
    macs_a_second = array * board.clock_hz
    of: dict[str, PlannedPart] = {}
    for part in parts:
        entry = of.setdefault(part.name, {"bytes": 0, "macs": 0, "seconds": 0.0})
        entry["bytes"] += part.bytes
        entry["macs"] += part.macs
        entry["seconds"] += max(part.bytes / rate, part.macs / macs_a_second)
    waiting = sum(max(part.bytes / rate - part.macs / macs_a_second, 0) for part in parts)
    computing = sum(max(part.macs / macs_a_second - part.bytes / rate, 0) for part in parts)
    return {
        "bytes": sum(part.bytes for part in parts),
        "macs": sum(part.macs for part in parts),
        "seconds": sum(entry["seconds"] for entry in of.values()),
        "limit": port if waiting >= computing else f"array of {array} multipliers at {board.clock_hz / 1e6:g} MHz",
        "parts": of,
    }


def _bandwidth(board: Target, port_bits: int) -> tuple[float, str]:
    port = port_bits / 8 * board.clock_hz
    if port <= board.memory_bandwidth:
        return port, f"AXI port, {port_bits} bits at {board.clock_hz / 1e6:g} MHz ({port / 1e9:.1f} GB/s)"
    return board.memory_bandwidth, f"memory of {board.name}, {board.memory_bandwidth / 1e9:.1f} GB/s peak"


#: Uses of memory that the frozen model has.
_BASE = ("codes", "scales", "padding", "embedding", "head", "norms")


def checked_port(bits: int) -> int:
    """The bits of a memory port, if there can be one so wide."""
    if bits not in (32, 64, 128, 256, 512):
        raise ValueError(f"axi_bits={bits}: must be one of 32, 64, 128, 256, 512")
    return bits


def plan(
    request: BudgetRequest,
    board: Target,
    *,
    port_bits: int | None = None,
    held: Mapping[str, int] | None = None,
    texts: int = 1,
    array: int | None = None,
) -> Planned:
    """Everything as plain values; bytes, seconds.

    ``array``: multipliers of the preset's machine; those of :func:`multipliers` unless given.
    ``held``: bytes of the memory by class, with so many ``texts``; those of :func:`memory`, with one, unless given.

    Returns
    -------
    dict
        ``frozen_bytes`` (codes and scales of the linears), ``learning_bytes`` (all but the frozen
        model), ``memory`` by use with ``total_bytes`` and ``available_bytes``, ``token`` and ``step`` (``bytes``,
        ``macs``, ``seconds``, ``limit``, ``parts``) and ``assumptions``. Where the lowest layers have no adapters,
        ``step`` is one of a later epoch, ``first_step`` of the first, and ``cache`` has the forward cache's figures.
        ``fill``, where zeros fill whole tiles: ``shapes`` by name, of the files and filled, which memory and times are
        of, and the ``share`` of a step's multiplications.
        Whether it fits: :mod:`~.fit`.
    """
    asked, request = request, request.filled
    port_bits = checked_port(board.port_bits if port_bits is None else port_bits)
    counted, own = held is None, array
    array = multipliers(board) if array is None else array
    held = memory(request) if held is None else dict(held)
    total = sum(held.values())
    rate, port = _bandwidth(board, port_bits)
    step = _timed(list(_step_parts(request, board)), board, port_bits, array)
    cached: Planned = {}
    if request.from_layer:
        cached = {
            "cache": {
                "bytes_per_text": held["forward_cache"] // (1 if counted else texts),
                "texts": cached_texts(held, board, 1 if counted else texts),
            },
            "first_step": step,
        }
        step = _timed(list(_step_parts(request, board, cached=True)), board, port_bits, array)
    found: Planned = {
        "model": request.model.name,
        "board": board.name,
        "rank": asked.rank if asked.known.ranked else None,
        "targets_of_adapters": list(request.targets),
        "seq": request.seq,
        "bits": request.bits,
        "optimizer": request.optimizer,
        "head": request.head,
        "store": request.store,
        "from_layer": request.from_layer,
        "parameters": asked.model.parameters,
        "linear_parameters": asked.model.linear_parameters,
        "adapter_parameters": asked.adapter_parameters,
        "frozen_bytes": held["codes"] + held["scales"],
        "learning_bytes": total - sum(held.get(name, 0) for name in _BASE),
        "memory": held,
        "total_bytes": total,
        "available_bytes": board.memory_bytes,
        "bandwidth": rate,
        "bandwidth_limit": port,
        "clock_hz": board.clock_hz,
        "multipliers": array,
        "token": _timed(list(_token_parts(request)), board, port_bits, array),
        **cached,
        "step": step,
        "assumptions": _assumptions(request, board, counted, own),
    }
    found |= fill_of(asked, request, lambda each: _step_parts(each, board))
    return found if request.method == LORA.name else found | {"method": request.method}


def fill_of(asked: BudgetRequest, whole: BudgetRequest, step: Callable[[BudgetRequest], Iterable[_Part]]) -> Planned:
    """``fill`` of a plan: what a request lacks of whole tiles; nothing where it lacks nothing."""
    shapes = filled_shapes(asked.model)
    if whole.rank != asked.rank:
        shapes["rank"] = [asked.rank, whole.rank]
    if not shapes:
        return {}
    own, every = (sum(part.macs for part in step(each)) for each in (asked, whole))
    return {"fill": {"shapes": shapes, "share": 1 - own / every}}


def _halves(value: int) -> tuple[int, ...]:
    """``value`` and its halves, down to 1."""
    return tuple(value >> i for i in range(value.bit_length()))


def nearest(
    request: BudgetRequest, room: int, *, total: Callable[[BudgetRequest], int], runs: Callable[[BudgetRequest], bool]
) -> PlannedChange | None:
    """The fewest changes that make a request fit, the mildest first.

    A shorter text comes before fewer bits.

    ``room``: bytes; ``total``: bytes that a request takes; ``runs``: whether the machine can run one. Returns
    ``change``, by field, and ``total_bytes``, or None.
    """
    choices: dict[str, tuple[Any, ...]] = {
        "seq": _halves(request.seq),
        "head": (request.head, *(each for each in ("nf",) if each != request.head)),
        "optimizer": (request.optimizer, *(each for each in ("sgd",) if each != request.optimizer)),
        "rank": _halves(request.rank) if request.known.ranked else (request.rank,),
        "targets": (request.targets, *(each for each in (TARGETS["q,v"],) if set(each) < set(request.adapted))),
        "bits": tuple(bits for bits in BOOKS if bits <= request.bits),
    }
    fields = list(choices)
    if total(dataclasses.replace(request, **{field: choices[field][-1] for field in fields})) > room:
        return None
    steps = sorted(
        itertools.product(*(range(len(choices[field])) for field in fields)),
        key=lambda at: (sum(each > 0 for each in at), at[::-1]),
    )
    for at in steps:
        change = {field: choices[field][each] for field, each in zip(fields, at) if each}
        other = dataclasses.replace(request, **change)
        if total(other) <= room and runs(other):
            return {"change": change, "total_bytes": total(other)}
    return None


def _assumptions(request: BudgetRequest, board: Target, counted: bool, array: int | None) -> list[str]:
    notes = [
        "port and array at their full rate, traffic under arithmetic: times are lower bounds",
        f"array: {array} multipliers of the preset's machine"
        if array is not None
        else f"array: {multipliers(board)} multipliers, the largest power of two within {DSP_SHARE:.0%} of {board.dsp} "
        f"DSP slices",
        f"a third of block memory holds a linear's inputs at {ON_CHIP} bits, or their gradient at {SUM_ON_CHIP}",
        "kept for the backward pass: residuals, queries, keys, values, attention's result, gate and up; nothing else"
        if request.seq <= TILE
        else "kept for the backward pass: residuals, queries, keys, values, probabilities by blocks of 64 tokens, "
        "attention's result, gate and up; nothing else",
    ]
    if counted:
        notes.append("memory is counted by shapes, and not from the layout of a job")
        notes.append(f"{WORD} bytes a word of adapters, moments and logits; {ADAPTER_COPIES} copies of the adapters")
    return notes
