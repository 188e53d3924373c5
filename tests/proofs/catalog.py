"""All claims: of which unit and widths, how each is proven, and a broken unit that it finds.

The claims of an engine lie in ``tests/engines/ENGINE/proofs.py``, those of the shell in ``tests/shell/proofs.py``.
"""

import functools
from importlib import import_module

from gradloom.preset import PRESETS
from gradloom.rtl.catalog import UNITS
from gradloom.rtl.engines.words import PRECISION
from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.stream.queue import ShortQueue
from gradloom.rtl.systolic.paired import ChainFeet
from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.rtl.units.lora_forward import LoraForward
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.proofs import streams
from gradloom.sim.proofs.proof import Proof, stream_proof

from ..shell.proofs import PROOFS as SHELL
from . import element, pairs, queues
from .entries import ANY, FREE, GENESYS2, IMAGE_CONFIGS, ULX3S, pair, placed, told

__all__ = ["PROOFS"]

_PRECISIONS = [
    *((_preset, Precision(x=_config.activation.width, sum=_config.sum_bits)) for _preset, _config in IMAGE_CONFIGS),
    (GENESYS2, PRECISION),
]

#: Units that the library offers, with their default parameters; and whether every run of the tests proves them.
_LIBRARY = [
    ("mesh", False),
    ("nf4-decode", True),
    ("lora-forward", True),
    ("lora-gradient", False),
    ("optimizer", True),
]

_ENGINES = dict.fromkeys(engine.name for preset in PRESETS.values() for engine in preset.config.machine.engines.own)

PROOFS = [
    Proof(
        name="short-queue",
        rule="queues lose and double nothing",
        preset=ANY,
        method="induction",
        depth=2,
        quick=True,
        found_within=20,
        **pair(queues.short_queue, ShortQueue, "takes-over-a-word", width=34, depth=8),
    ),
    *SHELL,
    *(
        Proof(
            name=f"element-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=1,
            cut=FREE,
            found_within=8,
            **pair(element.element, PE, "sum-two-bits-short", precision=_precision),
        )
        for _preset, _precision in _PRECISIONS
    ),
    *(
        Proof(
            name=f"chain-{_family}",
            rule="lanes of a pair never spill",
            preset="library",
            method="induction",
            depth=1,
            cut=FREE,
            found_within=8,
            make=functools.partial(pairs.chain, pair=Pair(_apart)),
            broken={
                told(ChainFeet, "unbiased"): lambda _apart=_apart: pairs.chain(
                    mutant(ChainFeet, "unbiased"), pair=Pair(_apart)
                )
            },
        )
        for _family, _apart in Pair.APART.items()
    ),
    *(proof for name in _ENGINES for proof in import_module(f"tests.engines.{name}.proofs").PROOFS),
    *(stream_proof(_name, lambda _name=_name: [UNITS[_name].build()], quick=_quick) for _name, _quick in _LIBRARY),
    # A small one: its sums of tokens are in memory.
    stream_proof(
        "int8-chain", lambda: [UNITS["int8-chain"].build(rows=4, cols=2, tokens=2, family="xc7")], quick=False
    ),
    # All engines of a machine for images, and the results that STORE takes.
    placed(ULX3S, "Fabric"),
    placed("cdm-qta-kv260", "TileStore"),
    Proof(
        name="streams-broken",
        rule="streams: what is offered stays",
        preset="library",
        method="reach",
        cut=FREE,
        cover_depth=0,
        quick=True,
        found_within=30,
        make=lambda: streams.stream_rules(lambda: [LoraForward()]),
        broken={
            told(LoraForward, "ready-ignored"): lambda: streams.stream_rules(
                lambda: [mutant(LoraForward, "ready-ignored")()]
            )
        },
    ),
]
