"""What is claimed, of which unit and with which widths, how it is proven, and a broken unit that the claim finds."""
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import axi
import control
import queues
import streams
import sums
import valid
import vector
from mutants import mutant

from gradloom.rtl.array.encode import EncodeEngine
from gradloom.rtl.array.feet import Accumulate
from gradloom.rtl.array.pe import PE, Precision
from gradloom.rtl.control.axilite import RegisterFile
from gradloom.rtl.control.scheduler import Scheduler
from gradloom.rtl.control.signature import ENGINES
from gradloom.rtl.control.valid import ValidBits
from gradloom.rtl.linear.drain import Drain
from gradloom.rtl.linear.engine import LinearEngine
from gradloom.rtl.linear.feet import Foot, HiddenFoot
from gradloom.rtl.linear.gradient import GradientEngine
from gradloom.rtl.linear.hidden import HiddenMemory
from gradloom.rtl.linear.pairs import PairQueue
from gradloom.rtl.linear.operands import OperandQueue
from gradloom.rtl.linear.words import PRECISION
from gradloom.rtl.lora.forward import LoraForward
from gradloom.rtl.lora.head import Head, _ClassLane
from gradloom.rtl.memory.collector import Collector
from gradloom.rtl.memory.packer import TapPacker
from gradloom.rtl.memory.read_dma import ReadDMA
from gradloom.rtl.memory.write_dma import WriteDMA
from gradloom.rtl.presets import PRESETS
from gradloom.rtl.stream.queue import ShortQueue
from gradloom.rtl.units import UNITS
from gradloom.rtl.vector.engine import VectorEngine

__all__ = ["PROOFS", "Proof"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """``make`` gives the claim; ``depth`` is k, or the cycles of a bounded proof, whose ``covers`` are looked for in
    as many. ``broken`` is the claim of a unit in which ``change`` was made; it has to fail within ``found_within``.

    ``quick``: a part of every test run. ``seconds``: after which a prover gives up.
    """

    name: str
    rule: str
    preset: str
    make: Callable[[], Any]
    method: str
    depth: int = 0
    cover_depth: int = 40
    cut: tuple[str, ...] = ()
    broken: Callable[[], Any] | None = None
    change: str = ""
    found_within: int = 40
    quick: bool = False
    seconds: int = 600


def _pair(factory, unit, old, new, **given):
    """Claim, and the claim of the unit that is broken by saying ``new`` where it says ``old``."""
    return {"make": functools.partial(factory, unit, **given),
            "broken": lambda: factory(mutant(unit, old, new), **given), "change": f"{old} -> {new}"}


#: Units of streams by name: how they are made, and whether every run of the tests proves them.
_ANY, _KV260, _GENESYS2 = "both", "instantft-kv260", "edge-qlora-genesys2"
_IMAGES, _LANGUAGE = PRESETS[_KV260].config, PRESETS[_GENESYS2].config
_FREE = ("techmap -map products.v",)

_STREAMS = [
    *((name, _ANY, UNITS[name].build) for name in (
        "mesh", "nf4-decode", "nf4-encode", "lora-forward", "lora-gradient", "softmax-cross-entropy", "optimizer",
        "window", "post-process")),
    ("head", _KV260, lambda: Head(rows=_IMAGES.rows, rank=_IMAGES.rank, max_taps=_IMAGES.taps,
                                  max_classes=_IMAGES.classes)),
    ("collector", _KV260, lambda: Collector(_IMAGES)),
    ("encode-engine", _KV260, lambda: EncodeEngine(_IMAGES)),
    ("tap-packer", _KV260, lambda: TapPacker(blocks=_IMAGES.blocks)),
    ("pair-queue", _GENESYS2, lambda: PairQueue(width=_LANGUAGE.beat_bits, depth=16)),
]

#: Units of which all that leaves comes out of queues: the rules hold whatever is put into these, and whenever.
_QUEUED_STREAMS = [
    ("drain", _GENESYS2, lambda: Drain(_LANGUAGE), "unit.queue.push"),
    ("hidden-memory", _GENESYS2, lambda: HiddenMemory(_LANGUAGE), "unit.queue.push"),
    ("gradient-engine", _GENESYS2, lambda: GradientEngine(_LANGUAGE), "unit.*queue.push"),
    ("linear-engine", _GENESYS2, lambda: LinearEngine(_LANGUAGE), "unit.drain.queue.push"),
]

PROOFS = [
    Proof(name="short-queue", rule="queues lose and double nothing", preset=_ANY, method="induction", depth=2,
          quick=True, found_within=20,
          **_pair(queues.short_queue, ShortQueue, "take.eq(fill[0] & (~self.r_rdy | self.r_en))",
                  "take.eq(fill[0])", width=34, depth=8)),
    Proof(name="register-file", rule="AXI4-Lite subordinate", preset=_ANY, method="reach", quick=True, found_within=20,
          **_pair(axi.register_file, RegisterFile, "decoded.eq(have_aw & have_w & ~act & ~bus.bvalid)",
                  "decoded.eq(have_aw & ~act & ~bus.bvalid)")),
]

for _preset, _bits, _address, _outstanding, _depth in (
        (_KV260, _IMAGES.axi_bits, _IMAGES.address_bits, _IMAGES.outstanding, _IMAGES.queue_depth),
        (_GENESYS2, _LANGUAGE.beat_bits, _LANGUAGE.address_bits, _LANGUAGE.outstanding, _LANGUAGE.queue_depth)):
    _widths = {"data_bits": _bits, "address_bits": _address, "outstanding": _outstanding}
    PROOFS += [
        Proof(name=f"load-window-{_bits}", rule="AXI4 manager: 4 KB, length, window", preset=_preset,
              method="induction", depth=4, found_within=20,
              **_pair(axi.read_window, ReadDMA, "check.misaligned | check.outside):", "check.misaligned):", **_widths)),
        Proof(name=f"load-answers-{_bits}", rule="AXI4 manager: every burst is answered, idle means idle",
              preset=_preset, method="induction", depth=3, found_within=30,
              **_pair(axi.read_protocol, ReadDMA, "self.idle.eq(~bursts.r_rdy & ~axi.arvalid)",
                      "self.idle.eq(~axi.arvalid)", **_widths)),
        Proof(name=f"store-window-{_bits}", rule="AXI4 manager: 4 KB, length, window", preset=_preset,
              method="induction", depth=4, found_within=20,
              **_pair(axi.write_window, WriteDMA, "check.misaligned | check.outside):", "check.misaligned):",
                      **_widths)),
        Proof(name=f"load-returns-{_bits}", rule="after any error back to idle", preset=_preset, method="induction",
              depth=5, found_within=30,
              **_pair(axi.load_returns, ReadDMA, "m.d.sync += [failed.eq(0), port.error.valid.eq(0), port.done.eq(0), "
                      "index.eq(0)]", "m.d.sync += [failed.eq(0), port.done.eq(0), index.eq(0)]", **_widths)),
        Proof(name=f"store-returns-{_bits}", rule="after any error back to idle", preset=_preset, method="induction",
              depth=5, found_within=30,
              **_pair(axi.store_returns, WriteDMA, "                more.eq(0),\n", "", **_widths)),
        Proof(name=f"store-answers-{_bits}", rule="AXI4 manager: every burst is answered, idle means idle",
              preset=_preset, method="induction", depth=4, found_within=30,
              **_pair(axi.write_protocol, WriteDMA, "lengths.w_data.eq(length - 1)", "lengths.w_data.eq(length)",
                      **_widths)),
    ]

for _engine in ENGINES:
    PROOFS.append(
        Proof(name=f"scheduler-{_engine.name.lower()}", rule="queues lose and double nothing", preset=_ANY,
              method="induction", depth=1, found_within=30,
              **_pair(control.scheduler_order, Scheduler, "offered.eq(0), s.eq(s + 1)", "s.eq(s + 1)",
                      engine=_engine, depth=_IMAGES.queue_depth)))

PROOFS += [
    *(Proof(name=f"valid-bits-{_slots}", rule="the cache loses and doubles nothing", preset=_preset, method="induction",
            depth=10, found_within=20,
            **_pair(valid.valid_bits, ValidBits, "Mux(address == stop, high, ~0)", "Mux(address == stop, low, ~0)",
                    slots=_slots))
      for _preset, _slots in ((_KV260, _IMAGES.cache_slots), (_GENESYS2, _LANGUAGE.shell["slots"]))),
    Proof(name="scheduler-turns", rule="arbiters starve nobody", preset=_ANY, method="induction", depth=2,
          cover_depth=0, found_within=30,
          **_pair(control.scheduler_turns, Scheduler, '~(out["wait"] & ~nonzero).any()',
                  '(out["wait"] & nonzero).any()', depth=_IMAGES.queue_depth)),
    *(Proof(name=f"element-{_name}", rule="sums never wrap", preset=_preset, method="induction", depth=1, cut=_FREE,
            found_within=8,
            **_pair(sums.element, PE, "own = Mux(mode.from_self, self.p_o, 0)",
                    f"own = Mux(mode.from_self, self.p_o[:{_precision.sum - 2}].as_signed(), 0)",
                    precision=_precision))
      for _name, _preset, _precision in (("mesh", _KV260, Precision()), ("linear", _GENESYS2, PRECISION))),
    Proof(name="sums-tiles", rule="sums never wrap", preset=_GENESYS2, method="induction", depth=5, found_within=16,
          **_pair(sums.tiles, Foot, "Mux(later.first, 0, before)", "Mux(later.first, 0, before[:46].as_signed())",
                  config=_LANGUAGE)),
    Proof(name="sums-hidden", rule="sums never wrap", preset=_GENESYS2, method="induction", depth=5, found_within=16,
          **_pair(sums.tiles, HiddenFoot, "Mux(later.first, 0, kept)", "Mux(later.first, 0, kept[:46].as_signed())",
                  config=_LANGUAGE)),
    Proof(name="sums-class", rule="sums never wrap", preset=_KV260, method="induction", depth=6, cut=_FREE,
          cover_depth=80, found_within=16,
          **_pair(sums.class_lane, _ClassLane, "tag[3].first", "tag[2].first", classes=_IMAGES.classes,
                  depth=_IMAGES.rank * _IMAGES.taps, rows=_IMAGES.rows, activation=_IMAGES.activation)),
    Proof(name="sums-channels", rule="sums never wrap", preset=_KV260, method="induction", depth=5, found_within=16,
          **_pair(sums.channels, Accumulate, "write.en.eq(later.valid & ~later.last)",
                  "write.en.eq(later.valid & later.first)", config=_IMAGES)),
    *(Proof(name=f"streams-{_name}", rule="streams: what is offered stays", preset=_preset, method="reach", cut=_FREE,
            cover_depth=0, quick=_name in ("nf4-decode", "lora-forward", "optimizer"),
            make=functools.partial(streams.stream_rules, _make))
      for _name, _preset, _make in _STREAMS),
    *(Proof(name=f"streams-{_name}", rule="streams: what is offered stays", preset=_preset, method="reach",
            cut=(*_FREE, f"cutpoint w:{_wires}"), cover_depth=0, make=functools.partial(streams.stream_rules, _make))
      for _name, _preset, _make, _wires in _QUEUED_STREAMS),
    Proof(name="streams-vector", rule="streams: what is offered stays", preset=_GENESYS2, method="induction", depth=2,
          cut=_FREE, cover_depth=0, found_within=60,
          **_pair(vector.vector_rules, VectorEngine, "(told | (telling & self.q.ready))", "(told | telling)",
                  lanes=_LANGUAGE.beat_words, tokens=_LANGUAGE.tokens, features=_LANGUAGE.features,
                  head=_LANGUAGE.head, depth=OperandQueue.depth)),
    Proof(name="streams-broken", rule="streams: what is offered stays", preset=_ANY, method="reach", cut=_FREE,
          cover_depth=0, quick=True, found_within=30, make=lambda: streams.stream_rules(LoraForward),
          broken=lambda: streams.stream_rules(
              mutant(LoraForward, "results.r_en.eq(self.o.ready)", "results.r_en.eq(1)")),
          change="results.r_en.eq(self.o.ready) -> results.r_en.eq(1)"),
]
