"""Test bench of one unit: feeds streams and counts cycles.

The plan is a file.
"""

import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge


@cocotb.test()
async def streams(dut):
    folder = Path(os.environ["GRADLOOM_FEED"])
    feed = json.loads((folder / "feed.json").read_text(encoding="utf-8"))
    inputs = {name: [int(each, 16) for each in payloads] for name, payloads in feed["inputs"].items()}
    ports = {
        name: tuple(getattr(dut, f"{name}_{part}") for part in ("payload", "valid", "ready"))
        for name in (*inputs, *feed["outputs"])
    }
    for name, value in feed["held"].items():
        getattr(dut, name).value = int(value, 16)
    for name in inputs:
        ports[name][1].value = 0
    for name in feed["outputs"]:
        ports[name][2].value = 0
    Clock(dut.clk, 2, "ns").start()
    if feed["reset"]:
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
    await RisingEdge(dut.clk)
    for name in feed["outputs"]:
        ports[name][2].value = 1

    stalls = random.Random(feed["stall"])
    sent = dict.fromkeys(inputs, 0)
    taken = {name: [] for name in feed["outputs"]}
    cycles = waited = 0
    while waited <= feed["patience"] and any(len(taken[name]) < count for name, count in feed["outputs"].items()):
        for name, payloads in inputs.items():
            payload, valid, _ = ports[name]
            more = sent[name] < len(payloads)
            valid.value = int(more)
            if more:
                payload.value = payloads[sent[name]]
        if feed["stall"] is not None:
            for name in feed["outputs"]:
                ports[name][2].value = stalls.getrandbits(1)
        await ReadOnly()
        moved = False
        for name, payloads in inputs.items():
            if sent[name] < len(payloads) and ports[name][2].value == 1:
                sent[name] += 1
                moved = True
        for name in feed["outputs"]:
            payload, valid, ready = ports[name]
            if valid.value == 1 and ready.value == 1:
                taken[name].append(f"{payload.value.to_unsigned():x}")
                moved = True
        await RisingEdge(dut.clk)
        cycles += 1
        waited = 0 if moved else waited + 1
    (folder / "beats.json").write_text(
        json.dumps({"beats": taken, "cycles": cycles, "stuck": waited > feed["patience"]}), encoding="utf-8"
    )
