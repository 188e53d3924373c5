"""Memory, traffic and time of InstantFT of a language model.

Arithmetic like that of :mod:`~gradloom.systems.text.costs.budget`; what this plan says of memory and steps takes
the place of what that one says of QLoRA's, and of decoded tokens it says nothing.
"""

from collections.abc import Iterator
from dataclasses import replace

from gradloom.models.filled import filled
from gradloom.systems.results import Planned

from .budget import ADAPTER_COPIES, WORD, Target, _head_bytes, _Part, _stream, _timed, cached_texts, fill_of, memory
from .request import OPTIMIZERS, BudgetRequest

__all__ = ["METHODS", "instant_memory", "instant_plan"]

#: What ``plan`` plans; all but InstantFT run on the same presets.
METHODS = ("qlora", "instantft", "lora-xs", "layernorm", "ia3")


def _filled(request: BudgetRequest) -> BudgetRequest:
    """The same in whole tiles; ranks are rows of them."""
    return replace(request, model=filled(request.model))


def _cache_bytes(request: BudgetRequest) -> int:
    """Bytes of a text's forward cache.

    It holds the input of each block's attention, and the output of the last block.
    """
    return WORD * request.seq * request.model.hidden * (request.model.layers + 1)


def _parameters(request: BudgetRequest) -> int:
    return 2 * request.rank * request.model.hidden * request.model.layers


def _blocks(request: BudgetRequest) -> Iterator[_Part]:
    """A text through the blocks, once."""
    model = request.model
    for linear in model.linears:
        size = _stream(linear.outputs, linear.inputs, request.bits).bytes
        yield _Part("blocks forward", size, request.seq * linear.outputs * linear.inputs)
    yield _Part(
        "attention and activations",
        _cache_bytes(request) + memory(request)["activations"],
        model.layers * model.attention * request.seq * (request.seq + 1),
    )


def _step(request: BudgetRequest) -> Iterator[_Part]:
    """A step from the cache.

    The cache is read going forward and for the gradients.
    """
    model, parameters, moments = request.model, _parameters(request), OPTIMIZERS[request.optimizer]
    yield _Part("adapters", 2 * _cache_bytes(request) + 3 * WORD * parameters, 4 * request.seq * parameters)
    yield _Part("update", WORD * parameters * (1 + 2 + 2 * moments))
    yield _Part(
        "head",
        2 * _head_bytes(request) + 3 * WORD * request.seq * model.vocab,
        2 * request.seq * model.vocab * model.hidden,
    )


def instant_memory(request: BudgetRequest) -> dict[str, int]:
    """Bytes by purpose, with the forward cache of one text."""
    request = _filled(request)
    parameters = _parameters(request)
    return memory(request) | {
        "adapters": ADAPTER_COPIES * WORD * parameters,
        "gradients": WORD * parameters,
        "optimizer": OPTIMIZERS[request.optimizer] * WORD * parameters,
        "forward_cache": _cache_bytes(request),
    }


def instant_plan(request: BudgetRequest, board: Target, planned: Planned, port_bits: int) -> Planned:
    """``planned``, of QLoRA, with what differs.

    ``cache``: ``bytes_per_text``, ``texts`` that fit beside all else, ``base_bytes`` that a step reads of frozen
    matrices in the first epoch, and ``base_bytes_later``. ``first_step``: with the blocks, ``step``: without.
    ``total_bytes`` has one text's cache.
    """
    asked, request = request, _filled(request)
    held = instant_memory(request)
    size = held.pop("forward_cache")
    total = sum(held.values())
    later = 2 * _head_bytes(request)
    blocks = sum(_stream(each.outputs, each.inputs, request.bits).bytes for each in request.model.linears)
    found: Planned = planned | {
        "method": "instantft",
        "adapter_parameters": _parameters(asked),
        "targets_of_adapters": ["head"],
        "memory": held,
        "total_bytes": total + size,
        "cache": {
            "bytes_per_text": size,
            "texts": cached_texts(instant_memory(request), board),
            "base_bytes": blocks + later,
            "base_bytes_later": later,
        },
        "first_step": _timed([*_blocks(request), *_step(request)], board, port_bits, planned["multipliers"]),
        "step": _timed(list(_step(request)), board, port_bits, planned["multipliers"]),
    }
    del found["token"], found["learning_bytes"]
    found.pop("fill", None)
    return found | fill_of(asked, request, lambda each: [*_blocks(each), *_step(each)])
