"""Proofs of the shell: registers, memory, scheduling, tokens, errors."""

from gradloom.preset import PRESETS
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.bus.read_dma import ReadDMA
from gradloom.rtl.shell.bus.write_dma import WriteDMA
from gradloom.rtl.shell.counters import Counters
from gradloom.rtl.shell.registers.axilite import RegisterFile
from gradloom.rtl.shell.sequencer.fetch import Fetch
from gradloom.rtl.shell.sequencer.scheduler import Scheduler
from gradloom.rtl.shell.sequencer.sequencer import Sequencer
from gradloom.rtl.shell.sequencer.valid import ValidBits
from gradloom.rtl.shell.sequencer.watch import Watch
from gradloom.sim.proofs.proof import Proof

from ..proofs.entries import ANY, CONFIGS, GENESYS2, KV260, ULX3S, pair
from ..proofs.shell import axi, control, counters, fetch, sequencer, valid

__all__ = ["PROOFS"]

PROOFS = [
    Proof(
        name="register-file",
        rule="AXI4-Lite subordinate",
        preset=ANY,
        method="reach",
        quick=True,
        found_within=20,
        **pair(axi.register_file, RegisterFile, "without-data", "clear-first", "without-strobes"),
    ),
    Proof(
        name="phase-counters",
        rule="sums never wrap",
        preset=ANY,
        method="induction",
        depth=1,
        found_within=20,
        **pair(counters.phase_counters, Counters, "keeps-a-phase"),
    ),
    Proof(
        name="watchdog",
        rule="a watchdog expires in time",
        preset=ANY,
        method="induction",
        depth=2,
        found_within=20,
        **pair(counters.watchdog, Watch, "despite-movement", "a-cycle-early", "deadlock-early"),
    ),
]

_WINDOW, _ANSWERS = "AXI4 manager: 4 KB, length, window", "AXI4 manager: every burst is answered, idle means idle"
_RETURNS = "after any error back to idle"

#: Of the two ways to memory: name, rule, depth, cycles within which the broken unit is found, claim, unit, its mutant.
_MEMORY = [
    ("load-window", _WINDOW, 4, 20, axi.read_window, ReadDMA, "window-unchecked"),
    ("load-answers", _ANSWERS, 3, 30, axi.read_protocol, ReadDMA, "idle-too-early"),
    ("store-window", _WINDOW, 4, 20, axi.write_window, WriteDMA, "window-unchecked"),
    ("load-returns", _RETURNS, 5, 30, axi.load_returns, ReadDMA, "error-stays"),
    ("store-returns", _RETURNS, 5, 30, axi.store_returns, WriteDMA, "more-stays"),
    ("store-answers", _ANSWERS, 4, 30, axi.write_protocol, WriteDMA, "burst-too-long"),
]

#: Its STORE forwards and tells ahead; mutants of that.
_CDM = "cdm-qta-kv260"
_FORWARDING = {("store-answers", _CDM): ("out-of-order", "ahead-of-none")}

PROOFS += [
    Proof(
        name=f"{_name}-{_preset}",
        rule=_rule,
        preset=_preset,
        method="induction",
        depth=_depth,
        found_within=_within,
        **pair(
            _claim,
            _unit,
            _mutant,
            *_FORWARDING.get((_name, _preset), ()),
            data_bits=_config.data_bits,
            address_bits=_config.address_bits,
            outstanding=_config.outstanding,
            **({"forwards": _config.forwards, "ahead": _config.machine.engines.ahead} if _unit is WriteDMA else {}),
        ),
    )
    for _preset, _config in {**CONFIGS, _CDM: PRESETS[_CDM].config}.items()
    for _name, _rule, _depth, _within, _claim, _unit, _mutant in _MEMORY
    if _preset in CONFIGS or _unit is WriteDMA
]

#: Presets: their engines, and the commands that a queue holds.
_DEPTHS = [(KV260, IMAGES, 16), (GENESYS2, LANGUAGE, 16), (ULX3S, IMAGES, 4)]

PROOFS += [
    *(
        Proof(
            name=f"scheduler-{_engine.name}-{_preset}",
            rule="queues lose and double nothing",
            preset=_preset,
            method="induction",
            depth=1,
            found_within=30,
            **pair(
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
            **pair(control.scheduler_turns, Scheduler, "waits-for-none", engines=_engines, depth=_depth),
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
            **pair(
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
            **pair(fetch.fetch_window, Fetch, "never-final", "room-for-one-less", "from-elsewhere", data_bits=_bits),
        )
        for _preset, _bits in ((f"{KV260}, {ULX3S}", 128), (GENESYS2, 256))
    ),
    *(
        Proof(
            name=f"sequencer-returns-{_preset}",
            rule=_RETURNS,
            preset=_preset,
            method="induction",
            depth=6,
            found_within=30,
            **pair(
                sequencer.returns,
                Sequencer,
                "never-held",
                "bus-goes-on",
                "window-wraps",
                engines=_config.machine.engines,
                shell=_config.shell,
            ),
        )
        for _preset, _config in CONFIGS.items()
    ),
    *(
        Proof(
            name=f"valid-bits-{_slots}",
            rule="the cache loses and doubles nothing",
            preset=_preset,
            method="induction",
            depth=10,
            found_within=30,
            **pair(
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
        for _preset, _slots in (
            (KV260, CONFIGS[KV260].cache_slots),
            (f"{GENESYS2}, {ULX3S}", CONFIGS[ULX3S].cache_slots),
        )
    ),
]
