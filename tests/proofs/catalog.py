"""What is claimed, of which unit and with which widths, how it is proven, and a broken unit that the claim finds."""

import functools

from gradloom.rtl.catalog import UNITS
from gradloom.rtl.engines.array.feet import Accumulate
from gradloom.rtl.engines.gradient.engine import GradientEngine
from gradloom.rtl.engines.head.engine import Head, _ClassLane
from gradloom.rtl.engines.linear.feet import Foot, HiddenFoot
from gradloom.rtl.engines.operands import OperandQueue
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.engines.vector.maxima import Maxima
from gradloom.rtl.engines.vector.roots import RowSums
from gradloom.rtl.engines.words import PRECISION
from gradloom.rtl.machines.engines import IMAGES, LANGUAGE
from gradloom.rtl.machines.presets import PRESETS
from gradloom.rtl.shell.bus.read_dma import ReadDMA
from gradloom.rtl.shell.bus.write_dma import WriteDMA
from gradloom.rtl.shell.counters import Counters
from gradloom.rtl.shell.fetch import Fetch
from gradloom.rtl.shell.registers.axilite import RegisterFile
from gradloom.rtl.shell.scheduler import Scheduler
from gradloom.rtl.shell.sequencer import Sequencer
from gradloom.rtl.shell.valid import ValidBits
from gradloom.rtl.shell.watch import Watch
from gradloom.rtl.stream.queue import ShortQueue
from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.rtl.units.lora_forward import LoraForward
from gradloom.rtl.units.softmax import SoftmaxCrossEntropy
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.proofs import streams
from gradloom.sim.proofs.proof import FREE_PRODUCTS, Proof, stream_proof

from . import axi, control, counters, fetch, language_sums, queues, sequencer, softmax, sums, valid, vector, vector_sums
from .placed import units_of

__all__ = ["PROOFS"]


def _pair(factory, unit, *names, **given):
    """Claim, and the claim of the unit that is broken as each of the mutants in its file of these names."""
    return {
        "make": functools.partial(factory, unit, **given),
        "broken": {_told(unit, name): lambda name=name: factory(mutant(unit, name), **given) for name in names},
    }


def _told(unit, name):
    """A mutant in the table of proofs."""
    return f"{unit.__module__.removeprefix('gradloom.rtl.')}: {name}"


_ANY, _KV260, _GENESYS2, _ULX3S = "all", "instantft-kv260", "edge-qlora-genesys2", "digits-ulx3s"
_IMAGES, _LANGUAGE, _DIGITS = (PRESETS[name].config for name in (_KV260, _GENESYS2, _ULX3S))
_FREE = (FREE_PRODUCTS,)
_ARRAY = {
    preset: Precision(x=config.activation.width, sum=config.sum_bits)
    for preset, config in ((_KV260, _IMAGES), (_ULX3S, _DIGITS))
}

_LANES = {"lanes": _LANGUAGE.beat_words, "tokens": _LANGUAGE.tokens}
_VECTOR = {**_LANES, "features": _LANGUAGE.features, "head": _LANGUAGE.head, "depth": OperandQueue.depth}

#: Units that the library offers, as it makes them if nothing is asked for; every run of the tests proves the second.
_LIBRARY = [
    ("mesh", False),
    ("nf4-decode", True),
    ("lora-forward", True),
    ("lora-gradient", False),
    ("optimizer", True),
]

#: What the machines are made of, by class.
_STREAMS = [
    *(
        (preset, each)
        for preset in (_KV260, _ULX3S)
        for each in (
            "WindowGenerator",
            "PostProcess",
            "TapEncoder",
            "NF4Encoder",
            "TapPacker",
            "Head",
            "SoftmaxCrossEntropy",
            "EncodeEngine",
            "LaneOutlet",
            "TapQueue",
        )
    ),
    # All engines of a machine for images, and what STORE takes of them.
    (_ULX3S, "Fabric"),
    *((_GENESYS2, each) for each in ("PairQueue", "OperandQueue")),
]

#: Units of which all that leaves comes out of queues: the rules hold whatever is put into these, and whenever.
_QUEUED_STREAMS = [
    ("BeatQueue", "unit_*.push"),
    ("Drain", "unit_*.queue.push"),
    ("HiddenMemory", "unit_*.queue.push"),
    ("GradientEngine", "unit_*queue.push"),
    ("LinearEngine", "unit_*.drain.queue.push"),
]


def _placed(preset, unit, **given):
    """Of a unit in a preset's machine, as it is made there."""
    return stream_proof(f"{unit.lower()}-{preset}", lambda: units_of(preset)[unit], preset=preset, **given)


PROOFS = [
    Proof(
        name="short-queue",
        rule="queues lose and double nothing",
        preset=_ANY,
        method="induction",
        depth=2,
        quick=True,
        found_within=20,
        **_pair(queues.short_queue, ShortQueue, "takes-over-a-word", width=34, depth=8),
    ),
    Proof(
        name="register-file",
        rule="AXI4-Lite subordinate",
        preset=_ANY,
        method="reach",
        quick=True,
        found_within=20,
        **_pair(axi.register_file, RegisterFile, "without-data", "clear-first", "without-strobes"),
    ),
    Proof(
        name="phase-counters",
        rule="sums never wrap",
        preset=_ANY,
        method="induction",
        depth=1,
        quick=True,
        found_within=20,
        **_pair(counters.phase_counters, Counters, "keeps-a-phase"),
    ),
    Proof(
        name="watchdog",
        rule="a watchdog expires in time",
        preset=_ANY,
        method="induction",
        depth=2,
        found_within=20,
        **_pair(counters.watchdog, Watch, "despite-movement", "a-cycle-early", "deadlock-early"),
    ),
]

for _preset, _config, _bits in (
    (_KV260, _IMAGES, _IMAGES.data_bits),
    (_ULX3S, _DIGITS, _DIGITS.data_bits),
    (_GENESYS2, _LANGUAGE, _LANGUAGE.data_bits),
):
    _widths = {"data_bits": _bits, "address_bits": _config.address_bits, "outstanding": _config.outstanding}
    PROOFS += [
        Proof(
            name=f"load-window-{_preset}",
            rule="AXI4 manager: 4 KB, length, window",
            preset=_preset,
            method="induction",
            depth=4,
            found_within=20,
            **_pair(axi.read_window, ReadDMA, "window-unchecked", **_widths),
        ),
        Proof(
            name=f"load-answers-{_preset}",
            rule="AXI4 manager: every burst is answered, idle means idle",
            preset=_preset,
            method="induction",
            depth=3,
            found_within=30,
            **_pair(axi.read_protocol, ReadDMA, "idle-too-early", **_widths),
        ),
        Proof(
            name=f"store-window-{_preset}",
            rule="AXI4 manager: 4 KB, length, window",
            preset=_preset,
            method="induction",
            depth=4,
            found_within=20,
            **_pair(axi.write_window, WriteDMA, "window-unchecked", **_widths),
        ),
        Proof(
            name=f"load-returns-{_preset}",
            rule="after any error back to idle",
            preset=_preset,
            method="induction",
            depth=5,
            found_within=30,
            **_pair(axi.load_returns, ReadDMA, "error-stays", **_widths),
        ),
        Proof(
            name=f"store-returns-{_preset}",
            rule="after any error back to idle",
            preset=_preset,
            method="induction",
            depth=5,
            found_within=30,
            **_pair(axi.store_returns, WriteDMA, "more-stays", **_widths),
        ),
        Proof(
            name=f"store-answers-{_preset}",
            rule="AXI4 manager: every burst is answered, idle means idle",
            preset=_preset,
            method="induction",
            depth=4,
            found_within=30,
            **_pair(axi.write_protocol, WriteDMA, "burst-too-long", **_widths),
        ),
    ]

#: Presets: their engines, and the commands that a queue holds.
_DEPTHS = [(_KV260, IMAGES, 16), (_GENESYS2, LANGUAGE, 16), (_ULX3S, IMAGES, 4)]

PROOFS += [
    *(
        Proof(
            name=f"scheduler-{_engine.name}-{_preset}",
            rule="queues lose and double nothing",
            preset=_preset,
            method="induction",
            depth=1,
            found_within=30,
            **_pair(
                control.scheduler_order,
                Scheduler,
                "offered-twice",
                "written-elsewhere",
                engines=_engines,
                engine=_engine,
                depth=_depth,
            ),
        )
        for _preset, _engines, _depth in _DEPTHS
        for _engine in _engines.queued
    ),
    *(
        Proof(
            name=f"scheduler-turns-{_preset}",
            rule="arbiters starve nobody",
            preset=_preset,
            method="induction",
            depth=2,
            cover_depth=0,
            found_within=30,
            **_pair(control.scheduler_turns, Scheduler, "waits-for-none", engines=_engines, depth=_depth),
        )
        for _preset, _engines, _depth in _DEPTHS
    ),
    *(
        Proof(
            name=f"scheduler-tokens-{_preset}",
            rule="a token is given once and taken once",
            preset=_preset,
            method="induction",
            depth=3,
            found_within=12,
            **_pair(
                control.scheduler_tokens,
                Scheduler,
                "grant-forgotten",
                "own-grant-only",
                "control-grant-forgotten",
                "wait-of-the-oldest",
                engines=_engines,
                depth=_depth,
            ),
        )
        for _preset, _engines, _depth in _DEPTHS
    ),
    *(
        Proof(
            name=f"fetch-{_bits}",
            rule="the program's fetch: window, order, room",
            preset=_preset,
            method="induction",
            depth=4,
            found_within=12,
            **_pair(fetch.fetch_window, Fetch, "never-final", "room-for-one-less", "from-elsewhere", data_bits=_bits),
        )
        for _preset, _bits in ((f"{_KV260}, {_ULX3S}", 128), (_GENESYS2, 256))
    ),
    *(
        Proof(
            name=f"sequencer-returns-{_preset}",
            rule="after any error back to idle",
            preset=_preset,
            method="induction",
            depth=6,
            found_within=30,
            **_pair(
                sequencer.returns,
                Sequencer,
                "never-held",
                "bus-goes-on",
                "window-wraps",
                engines=_config.machine.engines,
                shell=_config.shell,
            ),
        )
        for _preset, _config in ((_KV260, _IMAGES), (_ULX3S, _DIGITS), (_GENESYS2, _LANGUAGE))
    ),
    *(
        Proof(
            name=f"valid-bits-{_slots}",
            rule="the cache loses and doubles nothing",
            preset=_preset,
            method="induction",
            depth=10,
            found_within=30,
            **_pair(
                valid.valid_bits,
                ValidBits,
                "wrong-end",
                "never-marked",
                "marked-too-late",
                # Of CLEAR where it is soon over.
                *["never-cleared", "cleared-to-ones"][: 2 * (_slots == 64)],
                slots=_slots,
            ),
        )
        for _preset, _slots in ((_KV260, _IMAGES.cache_slots), (f"{_GENESYS2}, {_ULX3S}", _DIGITS.cache_slots))
    ),
    *(
        Proof(
            name=f"element-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=1,
            cut=_FREE,
            found_within=8,
            **_pair(sums.element, PE, "sum-two-bits-short", precision=_precision),
        )
        for _preset, _precision in (*_ARRAY.items(), (_GENESYS2, PRECISION))
    ),
    Proof(
        name="sums-tiles",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=5,
        found_within=16,
        **_pair(sums.tiles, Foot, "sum-of-46-bits", config=_LANGUAGE),
    ),
    Proof(
        name="sums-hidden",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=5,
        found_within=16,
        **_pair(sums.tiles, HiddenFoot, "hidden-sum-of-46-bits", config=_LANGUAGE),
    ),
    Proof(
        name="sums-gradients",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=8,
        cut=_FREE,
        found_within=30,
        **_pair(language_sums.gradients, GradientEngine, "sum-of-40-bits", config=_LANGUAGE),
    ),
    Proof(
        name="sums-rows",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=8,
        found_within=30,
        **_pair(vector_sums.row_sums, RowSums, "one-sum-for-two", **_LANES),
    ),
    Proof(
        name="sums-rows-order",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=4,
        cut=(*_FREE, "cutpoint w:unit.room"),
        cover_depth=80,
        found_within=30,
        **_pair(vector_sums.rows_in_order, VectorEngine, "rows-of-one-beat", **_VECTOR),
    ),
    Proof(
        name="sums-rows-units",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=7,
        found_within=20,
        **_pair(vector_sums.units, Maxima, "starts-at-0", **_LANES),
    ),
    Proof(
        name="sums-losses",
        rule="sums never wrap",
        preset=_GENESYS2,
        method="induction",
        depth=4,
        cut=(*_FREE, "cutpoint w:unit.room", "cutpoint w:unit.lane_*.exponent"),
        cover_depth=80,
        found_within=80,
        **_pair(vector_sums.losses, VectorEngine, "exponents-above-0", **_VECTOR),
    ),
    *(
        Proof(
            name=f"sums-class-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=6,
            cut=_FREE,
            cover_depth=80,
            found_within=16,
            **_pair(
                sums.class_lane,
                _ClassLane,
                "first-too-early",
                classes=_config.classes,
                depth=_config.rank * _config.taps,
                rows=_config.rows,
                activation=_config.activation,
            ),
        )
        for _preset, _config in ((_KV260, _IMAGES), (_ULX3S, _DIGITS))
    ),
    Proof(
        name=f"sums-softmax-{_IMAGES.classes}",
        rule="sums never wrap",
        preset=f"{_KV260}, {_ULX3S}",
        method="induction",
        depth=8,
        cut=_FREE,
        found_within=24,
        **_pair(softmax.softmax, SoftmaxCrossEntropy, "sum-a-bit-short", max_length=_IMAGES.classes),
    ),
    *(
        Proof(
            name=f"sums-losses-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=2,
            cut=(*_FREE, "cutpoint w:unit.softmax.o_loss__*"),
            found_within=12,
            **_pair(softmax.losses, Head, "loss-of-26-bits", config=_config),
        )
        for _preset, _config in ((_KV260, _IMAGES), (_ULX3S, _DIGITS))
    ),
    *(
        Proof(
            name=f"sums-channels-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=5,
            found_within=16,
            **_pair(sums.channels, Accumulate, "first-channel-only", config=_config),
        )
        for _preset, _config in ((_KV260, _IMAGES), (_ULX3S, _DIGITS))
    ),
    *(stream_proof(_name, lambda _name=_name: [UNITS[_name].build()], quick=_quick) for _name, _quick in _LIBRARY),
    *(_placed(_preset, _unit) for _preset, _unit in _STREAMS),
    *(_placed(_GENESYS2, _unit, cut=(_wire,)) for _unit, _wire in _QUEUED_STREAMS),
    _placed(_GENESYS2, "UpdateEngine", rules=streams.update_rules, cut=("unit.words.w_en", "unit.moments.w_en")),
    Proof(
        name=f"streams-vectorengine-{_GENESYS2}",
        rule="streams: what is offered stays",
        preset=_GENESYS2,
        method="induction",
        depth=2,
        cut=_FREE,
        found_within=60,
        **_pair(vector.vector_rules, VectorEngine, "report-not-taken", **_VECTOR),
    ),
    Proof(
        name="streams-broken",
        rule="streams: what is offered stays",
        preset="library",
        method="reach",
        cut=_FREE,
        cover_depth=0,
        quick=True,
        found_within=30,
        make=lambda: streams.stream_rules(lambda: [LoraForward()]),
        broken={
            _told(LoraForward, "ready-ignored"): lambda: streams.stream_rules(
                lambda: [mutant(LoraForward, "ready-ignored")()]
            )
        },
    ),
]
