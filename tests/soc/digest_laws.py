"""Laws of ``digest.v``: messages in bytes and in fours, in any mixture, with pauses; nothing waits for ever."""

import hashlib
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge


class Bus:
    """The processor's side: an access waits while the unit is busy."""

    def __init__(self, dut):
        self.dut = dut

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        for name in ("four", "one", "end_of", "forget", "asked", "taken"):
            getattr(dut, name).value = 0
        dut.data.value = dut.index.value = 0
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0

    async def _free(self):
        for cycle in range(2000):
            await ReadOnly()
            free = not self.dut.busy.value
            await RisingEdge(self.dut.clk)
            if free:
                return cycle
        raise AssertionError("an access waits for ever")

    async def write(self, name, data=0):
        """Waits until the unit takes it, as the processor's access does; the strobe lasts a cycle."""
        await self._free()
        self.dut.data.value = data
        getattr(self.dut, name).value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, name).value = 0

    async def read(self):
        found = b""
        for index in range(8):
            self.dut.asked.value, self.dut.index.value = 1, index
            await self._free()
            await ReadOnly()
            found += int(self.dut.word.value).to_bytes(4, "little")
            await RisingEdge(self.dut.clk)
            self.dut.taken.value = index == 7
            await RisingEdge(self.dut.clk)
            self.dut.taken.value = self.dut.asked.value = 0
        return found

    async def send(self, message, chosen):
        at = 0
        while at < len(message):
            size = 4 if len(message) - at >= 4 and chosen.randrange(3) else 1
            await self.write("four" if size == 4 else "one", int.from_bytes(message[at : at + size], "little"))
            at += size
            if not chosen.randrange(20):
                for _ in range(chosen.randrange(500)):
                    await RisingEdge(self.dut.clk)


@cocotb.test()
async def digests_are_those_of_the_messages(dut):
    chosen, bus = random.Random(5), Bus(dut)
    await bus.start()
    for length in (1, 3, 4, 5, 55, 56, 63, 64, 65, 200, 512):
        message = chosen.randbytes(length)
        await bus.write("forget")
        await bus.send(message, chosen)
        await bus.write("end_of")
        assert await bus.read() == hashlib.sha256(message).digest(), length


@cocotb.test()
async def a_message_that_was_broken_off_is_forgotten(dut):
    chosen, bus = random.Random(6), Bus(dut)
    await bus.start()
    for length in (2, 64, 130):
        await bus.send(chosen.randbytes(length), chosen)
        await bus.write("forget")
        await bus.write("four", 0x04030201)
        await bus.write("end_of")
        assert await bus.read() == hashlib.sha256(bytes((1, 2, 3, 4))).digest()


@cocotb.test()
async def no_access_waits_for_ever(dut):
    """A digest that nobody takes, an end without a byte, a read before the end."""
    chosen, bus = random.Random(7), Bus(dut)
    await bus.start()
    await bus.write("end_of")
    assert await bus.read() == bytes(32)
    await bus.write("one", 7)
    assert await bus.read() == bytes(32)
    await bus.write("end_of")
    # The next message begins, and the digest before is gone.
    await bus.send(b"abcdef", chosen)
    await bus.write("end_of")
    assert await bus.read() == hashlib.sha256(b"abcdef").digest()
