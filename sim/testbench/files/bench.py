"""Sends vectors.json through a unit and compares every word.

The same vectors run three times: without a pause, with random pauses on all ports, and with long holds of one port
after the other. A stalled output must keep its word. Needs cocotb only.
"""

import json
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

PLAN = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
#: Cycles without a beat on any port, pauses aside, after which the unit counts as stuck.
PATIENCE = PLAN["patience"]
#: Length of a hold, and cycles of random pauses before the first.
HOLD, LEAD = PLAN["hold"], 16
#: Cycles that are watched after the last word.
REST = 64


class Stream:
    """One port and its words.

    ``lead``: cycles for which a payload is there before its valid.
    """

    def __init__(self, dut, name, words, lead=0):
        self.name, self.words, self.lead, self.at, self.offered = name, words, lead, 0, None
        self.payload, self.valid, self.ready = (
            getattr(dut, f"{name}_{part}", None) for part in ("payload", "valid", "ready")
        )

    @property
    def over(self):
        return self.at == len(self.words)


def bits(handle):
    """``(value, unknown)``: an unknown bit is 0 in the value."""
    text = str(handle.value).lower()
    return int(text.translate(str.maketrans("xzuw-", "00000")), 2), int("".join("01"[c not in "01"] for c in text), 2)


def high(handle):
    return str(handle.value) == "1"


def differs(handle, wanted, mask):
    """The difference of a word from the wanted one, or None."""
    value, unknown = bits(handle)
    if (value ^ wanted) & mask or unknown & mask:
        return f"{str(handle.value)} is not {wanted & mask:x} under the mask {mask:x}"
    return None


def free(kind, outputs, inputs):
    """For each port an endless iterator: whether it may move in a cycle."""
    names = [*outputs, *inputs]
    closed = [set(outputs), set(), *({name} for name in names)]

    def moves(name):
        chance = random.Random(f"{kind} {name}")
        if kind == "holds":
            for _ in range(LEAD):
                yield chance.random() >= 0.3
            for each in closed:
                for _ in range(HOLD):
                    yield name not in each
        while True:
            yield kind == "plain" or chance.random() >= 0.3

    return {name: moves(name) for name in names}


async def reset(dut):
    if hasattr(dut, "rst"):
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
    await RisingEdge(dut.clk)


async def play(dut, kind, number, part):
    """Plays one part of the plan, until its last word."""
    inputs = [Stream(dut, name, [int(each, 16) for each in words]) for name, words in part["inputs"].items()]
    for each in inputs:
        each.lead = PLAN["lead"].get(each.name, 0)
    outputs = [
        Stream(dut, name, [(int(value, 16), int(mask, 16)) for value, mask in words])
        for name, words in part["outputs"].items()
    ]
    pulses = dict(part["pulses"])
    may = free(kind, [each.name for each in outputs], [each.name for each in inputs])
    kept, waiting, waited, rest = {}, {each.name: each.lead for each in inputs}, 0, 0
    while rest < REST:
        over = all(each.over for each in (*inputs, *outputs)) and not any(pulses.values())
        rest = rest + 1 if over else 0
        if over and not part["last"]:
            break
        for each in inputs:
            if each.offered is None and not each.over and next(may[each.name]):
                each.offered = each.words[each.at]
                each.payload.value = each.offered
                waiting[each.name] = each.lead
            ready = each.offered is not None and not waiting[each.name]
            each.valid.value = int(ready)
        for each in outputs:
            each.ready.value = int(next(may[each.name]))
        await ReadOnly()
        moved = False
        for each in inputs:
            if each.offered is None:
                continue
            if waiting[each.name]:
                waiting[each.name] -= 1
            elif high(each.ready):
                each.offered, each.at, moved = None, each.at + 1, True
        for each in outputs:
            where = f"{kind}: part {number}, {each.name}, word {each.at}"
            if not high(each.valid):
                assert each.name not in kept, f"{where}: left the port before it was taken"
                continue
            assert not each.over, f"{where}: nothing more should come"
            value, mask = each.words[each.at]
            wrong = differs(each.payload, value, mask)
            assert wrong is None, f"{where}: {wrong}"
            if high(each.ready):
                each.at, moved = each.at + 1, True
                kept.pop(each.name, None)
            else:
                word = bits(each.payload)[0] & mask
                assert kept.setdefault(each.name, word) == word, f"{where}: changed while it waited"
        for name in pulses:
            if high(getattr(dut, name)):
                assert pulses[name], f"{kind}: part {number}: one {name} too many"
                pulses[name], moved = pulses[name] - 1, True
        for name, (mask, when) in PLAN["zero"].items():
            told = when is None or high(getattr(dut, when))
            wrong = differs(getattr(dut, name), 0, int(mask, 16)) if told else None
            assert wrong is None, f"{kind}: part {number}: {name}: {wrong}"
        waited = 0 if moved or rest else waited + 1
        left = {each.name: len(each.words) - each.at for each in (*inputs, *outputs) if not each.over}
        assert waited <= PATIENCE + 2 * HOLD, f"{kind}: part {number}: nothing moves; left: {left}, pulses: {pulses}"
        await RisingEdge(dut.clk)
    for each in inputs:
        each.valid.value = 0
    for each in outputs:
        each.ready.value = 0


async def run(dut, kind):
    Clock(dut.clk, 10, "ns").start()
    for name in PLAN["ports"]["in"]:
        getattr(dut, f"{name}_valid").value = 0
        getattr(dut, f"{name}_payload").value = 0
    for name in PLAN["ports"]["out"]:
        getattr(dut, f"{name}_ready").value = 0
    for name in PLAN["idle"]:
        getattr(dut, name).value = 0
    words = 0
    for number, part in enumerate(PLAN["parts"]):
        for name, value in part["held"].items():
            getattr(dut, name).value = int(value, 16)
        if part["reset"]:
            await reset(dut)
        await play(dut, kind, number, part)
        words += sum(len(each) for each in part["outputs"].values())
    assert words, "vectors.json has no words to compare"
    dut._log.info("%s: %d words equal the reference", kind, words)


@cocotb.test()
async def plain(dut):
    """All ports move whenever they can."""
    await run(dut, "plain")


@cocotb.test()
async def stalls(dut):
    """Every port pauses at random."""
    await run(dut, "stalls")


@cocotb.test()
async def holds(dut):
    """Every port is held for long, alone, and all outputs together."""
    await run(dut, "holds")
