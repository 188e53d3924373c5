"""Runs programs on a machine and compares the words they leave.

``vectors.json`` has the values of registers and small programs, with what they find in memory and leave there. The
memory of this bench answers at once or with random pauses, and checks the bursts that it sees. Needs cocotb only.
"""

import json
import random
from collections import deque
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

PLAN = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
AT, BASE, BYTES = PLAN["registers"], PLAN["base"], PLAN["port_bits"] // 8
#: Cycles that an access to a register, and that a program may take.
ACCESS, PATIENCE = 1000, 1_000_000
OKAY, DECERR = 0, 3


def high(handle):
    return str(handle.value) == "1"


class Memory:
    """A port of an AXI4 memory with ``content``, which begins at ``BASE``.

    ``manager``: of the machine; ``pauses``: share of the cycles in which a channel waits.
    """

    def __init__(self, dut, manager, content, pauses):
        self.dut, self.manager, self.content, self.pauses = dut, manager, content, pauses
        self.chance = random.Random(f"{manager} {len(content)}")
        self.reads, self.writes, self.answers, self.beats = deque(), deque(), deque(), 0
        self.waiting = {}

    def open(self):
        return self.chance.random() >= self.pauses

    def port(self, name):
        return getattr(self.dut, f"{self.manager}_{name}")

    def number(self, name):
        text = str(self.port(name).value)
        assert set(text) <= {"0", "1"}, f"{self.manager}_{name} is {text} while its valid is 1"
        return int(text, 2)

    def offer(self, name, **fields):
        """Drives a channel of answers."""
        self.port(f"{name}valid").value = int(bool(fields))
        for field, value in fields.items():
            self.port(f"{name}{field}").value = value

    def burst(self, channel):
        """``(id, first address, beats)`` of a burst, which keeps to the rules."""
        address, count = self.number(f"{channel}addr"), self.number(f"{channel}len") + 1
        assert self.number(f"{channel}size") == BYTES.bit_length() - 1, f"{channel}: beats of another size"
        assert self.number(f"{channel}burst") == 1, f"{channel}: not INCR"
        assert count <= PLAN["longest"], f"{channel}: {count} beats"
        assert address % 4096 + count * BYTES <= 4096, f"{channel}: a burst crosses 4 KB at {address:#x}"
        return self.number(f"{channel}id"), address, count

    def steady(self, channel, fields, valid, ready):
        """What is offered stays until it is taken."""
        now = tuple(str(self.port(f"{channel}{field}").value) for field in fields) if valid else None
        before = self.waiting.pop(channel, None)
        assert before is None or now == before, f"{self.manager}_{channel}: changed before it was taken"
        if valid and not ready:
            self.waiting[channel] = now

    def place(self, address):
        """Index of a beat, or None outside the memory."""
        at = address // BYTES * BYTES - BASE
        return at if 0 <= at <= len(self.content) - BYTES else None

    async def run(self):
        ready = {name: self.port(f"{name}ready") for name in ("ar", "aw", "w")}
        valid = {name: self.port(f"{name}valid") for name in ("ar", "aw", "w")}
        read = answer = False
        while True:
            may = {"ar": len(self.reads) < 4 and self.open(), "aw": len(self.writes) < 4 and self.open()}
            may["w"] = bool(self.writes) and self.open()
            for name in ready:
                ready[name].value = int(may[name])
            if not read and self.reads and self.open():
                read = True
                identity, address, count = self.reads[0]
                at = self.place(address)
                word = b"" if at is None else self.content[at : at + BYTES]
                data, resp = int.from_bytes(word, "little"), DECERR if at is None else OKAY
                self.offer("r", id=identity, data=data, resp=resp, last=int(count == 1))
            if not answer and self.answers and self.open():
                answer = True
                self.offer("b", id=self.answers[0][0], resp=self.answers[0][1])
            await ReadOnly()
            went = {name: high(valid[name]) for name in valid}
            for name, fields in (("ar", ("addr", "len", "id")), ("aw", ("addr", "len", "id"))):
                self.steady(name, fields, went[name], may[name])
            self.steady("w", ("data", "strb", "last"), went["w"], may["w"])
            took = {"r": read and high(self.port("rready")), "b": answer and high(self.port("bready"))}
            if went["ar"] and may["ar"]:
                self.reads.append(self.burst("ar"))
            if went["w"] and may["w"]:
                self.write()
            if went["aw"] and may["aw"]:
                self.writes.append([*self.burst("aw"), OKAY])
            await RisingEdge(self.dut.clk)
            if took["r"]:
                identity, address, count = self.reads.popleft()
                if count > 1:
                    self.reads.appendleft((identity, address + BYTES, count - 1))
                read = False
                self.offer("r")
            if took["b"]:
                self.answers.popleft()
                answer = False
                self.offer("b")

    def write(self):
        identity, address, count, resp = self.writes[0]
        at, strobes = self.place(address), self.number("wstrb")
        assert self.number("wlast") == int(count == 1), f"{self.manager}_wlast is at the wrong beat"
        if at is None:
            resp = DECERR
        else:
            word = self.number("wdata").to_bytes(BYTES, "little")
            for byte in range(BYTES):
                if strobes >> byte & 1:
                    self.content[at + byte] = word[byte]
        if count == 1:
            self.writes.popleft()
            self.answers.append((identity, resp))
        else:
            self.writes[0] = [identity, address + BYTES, count - 1, resp]


class Host:
    """The AXI4-Lite side."""

    def __init__(self, dut):
        self.dut = dut

    def port(self, name):
        return getattr(self.dut, f"s_axi_{name}")

    async def send(self, channels):
        """Offers channels until each is taken."""
        for name in channels:
            self.port(f"{name}valid").value = 1
        for _ in range(ACCESS):
            if not channels:
                return
            await ReadOnly()
            taken = [name for name in channels if high(self.port(f"{name}ready"))]
            await RisingEdge(self.dut.clk)
            for name in taken:
                self.port(f"{name}valid").value = 0
            channels = [name for name in channels if name not in taken]
        raise AssertionError(f"s_axi: {', '.join(channels)} is not taken")

    async def answer(self, name):
        """Takes an answer; its fields by name."""
        self.port(f"{name}ready").value = 1
        for _ in range(ACCESS):
            await ReadOnly()
            there = high(self.port(f"{name}valid"))
            fields = ("resp", "data") if name == "r" else ("resp",)
            found = {field: str(self.port(f"{name}{field}").value) for field in fields}
            await RisingEdge(self.dut.clk)
            if there:
                self.port(f"{name}ready").value = 0
                return found
        raise AssertionError(f"s_axi: no answer on {name}")

    async def write(self, name, value):
        self.port("awaddr").value = AT[name]
        self.port("wdata").value = value
        self.port("wstrb").value = 15
        await self.send(["aw", "w"])
        found = await self.answer("b")
        assert int(found["resp"], 2) == OKAY, f"{name}: a write is refused with {found['resp']}"

    async def read(self, name):
        self.port("araddr").value = AT[name]
        await self.send(["ar"])
        found = await self.answer("r")
        assert set(found["data"]) <= {"0", "1"}, f"{name} reads {found['data']}"
        assert int(found["resp"], 2) == OKAY, f"{name}: a read is refused with {found['resp']}"
        return int(found["data"], 2)

    async def expect(self, name, value):
        found = await self.read(name)
        assert found == value, f"{name} reads {found:#x}, not {value:#x}"

    async def program(self, offset, commands, size):
        """Rings the bell and waits for the interrupt line."""
        for name, value in (
            ("WINDOW_BASE_LO", BASE & 0xFFFFFFFF),
            ("WINDOW_BASE_HI", BASE >> 32),
            ("WINDOW_SIZE", size),
            ("IRQ_ENABLE", 3),
            ("PROGRAM_OFFSET", offset),
            ("PROGRAM_COMMANDS", commands),
            ("CONTROL", 1),
        ):
            await self.write(name, value)
        cycles, rung = 0, False
        while not rung:
            await ReadOnly()
            rung = high(self.dut.irq)
            await RisingEdge(self.dut.clk)
            cycles += 1
            assert cycles < PATIENCE, f"no interrupt for {PATIENCE} cycles"
        status = await self.read("IRQ_STATUS")
        await self.write("IRQ_STATUS", status)
        await self.idle()
        return status, cycles

    async def idle(self):
        """Waits until nothing is under way."""
        for _ in range(ACCESS):
            if not await self.read("STATUS") & 1:
                return
        raise AssertionError(f"STATUS.busy stays 1 for {ACCESS} reads")


async def start(dut, size=4096, pauses=0.0):
    """Resets the machine; returns its host and the content of its memory."""
    Clock(dut.clk, 10, "ns").start()
    for name in PLAN["inputs"]:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    for _ in range(8):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    content = bytearray(size)
    for manager in PLAN["managers"]:
        cocotb.start_soon(Memory(dut, manager, content, pauses).run())
    return Host(dut), content


async def play(dut, pauses):
    runs = PLAN["runs"]
    if not runs:
        dut._log.warning("vectors.json has no program for this machine: registers and refusals only")
        return
    size = max(run["size"] for run in runs)
    host, memory = await start(dut, size, pauses)
    # A reset leaves the valid bits of the cache as they are.
    await host.write("CACHE_CLEAR", 1)
    await host.idle()
    compared = 0
    for number, run in enumerate(runs):
        for offset, content in run["segments"]:
            raw = bytes.fromhex(content)
            memory[offset : offset + len(raw)] = raw
        status, cycles = await host.program(run["program"], run["commands"], run["size"])
        if status != 1:
            code, command = await host.read("ERROR_CODE"), await host.read("ERROR_COMMAND")
            raise AssertionError(f"run {number}: stopped with error {code:#x} at command {command}")
        for offset, content, mask in run["expected"]:
            wanted, known = bytes.fromhex(content), bytes.fromhex(mask)
            found = memory[offset : offset + len(wanted)]
            wrong = [at for at in range(len(wanted)) if (found[at] ^ wanted[at]) & known[at]]
            where = f"run {number}: {len(wrong)} of {len(wanted)} bytes at window + {offset:#x} differ"
            assert not wrong, f"{where}, first that at {wrong[0]}: {found[wrong[0]]:#x}, not {wanted[wrong[0]]:#x}"
            compared += sum(map(bool, known))
        for name, value in run["counters"].items():
            await host.expect(name, value)
        dut._log.info("run %d: %d commands, %d cycles", number, run["commands"], cycles)
    assert compared, "vectors.json has no bytes to compare"
    dut._log.info("%d bytes equal the reference", compared)


@cocotb.test()
async def registers(dut):
    """Constants, the machine table, and registers that hold what is written."""
    host, _ = await start(dut)
    for name, value in PLAN["constants"].items():
        await host.expect(name, value)
    for place, word in enumerate(PLAN["table"]):
        await host.write("TABLE_PLACE", place)
        await host.expect("TABLE_WORD", word)
    for pattern in (0x55555555, 0xAAAAAAAA, 0xFFFFFFFF, 0x00000001, 0x80000000):
        for name, mask in PLAN["holding"].items():
            await host.write(name, pattern & mask)
        for name, mask in PLAN["holding"].items():
            await host.expect(name, pattern & mask)


@cocotb.test()
async def refusals(dut):
    """Wrong commands stop with their errors, and the next program runs."""
    host, memory = await start(dut)
    for run in PLAN["refusals"]:
        raw = bytes.fromhex(run["code"])
        memory[: len(raw)] = raw
        status, _ = await host.program(0, len(raw) // 32, 4096)
        assert status == run["status"], f"{run['what']}: IRQ_STATUS is {status:#x}, not {run['status']:#x}"
        if "error" in run:
            await host.expect("ERROR_CODE", run["error"])


@cocotb.test()
async def programs(dut):
    """The programs, with a memory that answers at once."""
    await play(dut, 0.0)


@cocotb.test()
async def stalls(dut):
    """The programs, with a memory whose channels pause at random."""
    await play(dut, 0.4)
