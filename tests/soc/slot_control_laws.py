"""The control port of a slot between cocotb's own managers and memories; run by ``test_slot_control.py``."""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBurstType, AxiBus, AxiLiteBus, AxiLiteSlave, AxiMaster, AxiResp, MemoryRegion

BEAT = int(os.environ["DATA_BITS"]) // 8


class Registers(MemoryRegion):
    """4 KB, of which the last word answers with an error."""

    async def _write(self, address, data, **more):
        if address >= 4092:
            raise ValueError("no register here")
        await super()._write(address, data, **more)

    async def _read(self, address, length, **more):
        if address >= 4092:
            raise ValueError("no register here")
        return await super()._read(address, length, **more)


async def start(dut):
    cocotb.start_soon(Clock(dut.clk, 5, unit="ns").start())
    manager = AxiMaster(AxiBus.from_prefix(dut, "s"), dut.clk, dut.rst)
    registers = Registers(4096)
    subordinate = AxiLiteSlave(AxiLiteBus.from_prefix(dut, "m"), dut.clk, dut.rst, target=registers)
    rng = random.Random(3)
    for channel in (
        manager.write_if.b_channel,
        manager.read_if.r_channel,
        subordinate.write_if.aw_channel,
        subordinate.write_if.w_channel,
        subordinate.read_if.ar_channel,
    ):
        channel.set_pause_generator(rng.random() < 0.4 for _ in iter(int, 1))
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    return manager, registers, rng


@cocotb.test()
async def words_reach_their_registers(dut):
    manager, registers, rng = await start(dut)
    model = bytearray(4096)
    for _ in range(120):
        word = rng.randrange(1023) * 4
        if rng.random() < 0.5:
            data = rng.randbytes(4)
            done = await manager.write(word, data, size=2, awid=rng.randrange(4))
            assert done.resp == AxiResp.OKAY
            model[word : word + 4] = data
        else:
            got = await manager.read(word, 4, size=2, arid=rng.randrange(4))
            assert got.resp == AxiResp.OKAY and bytes(got.data) == model[word : word + 4]
    assert registers.mem[:4092] == model[:4092]


@cocotb.test()
async def bytes_of_a_word_are_written_alone(dut):
    manager, registers, _ = await start(dut)
    await manager.write(0x20, bytes(range(1, 5)), size=2)
    await manager.write(0x22, b"\xaa", size=0)
    assert registers.mem[0x20:0x24] == bytes([1, 2, 0xAA, 4])


@cocotb.test()
async def a_word_may_come_with_the_address_of_its_beat(dut):
    manager, registers, _ = await start(dut)
    for word in range(0, 2 * BEAT, 4):
        await manager.write(0x40 + word, bytes([word] * 4), size=BEAT.bit_length() - 1)
    assert registers.mem[0x40 : 0x40 + 2 * BEAT] == b"".join(bytes([word] * 4) for word in range(0, 2 * BEAT, 4))


@cocotb.test()
async def errors_come_back(dut):
    manager, _, _ = await start(dut)
    assert (await manager.write(4092, bytes(4), size=2)).resp == AxiResp.SLVERR
    assert (await manager.read(4092, 4, size=2)).resp == AxiResp.SLVERR
    assert (await manager.read(0, 4, size=2)).resp == AxiResp.OKAY


@cocotb.test()
async def bursts_are_refused_and_reach_nothing(dut):
    manager, registers, _ = await start(dut)
    done = await manager.write(0x80, bytes(range(1, 1 + 4 * BEAT)), burst=AxiBurstType.INCR)
    assert done.resp == AxiResp.SLVERR
    assert registers.mem[0x80 : 0x80 + 4 * BEAT] == bytes(4 * BEAT)
    assert (await manager.read(0x80, 4 * BEAT)).resp == AxiResp.SLVERR
    assert (await manager.write(0x80, b"abcd", size=2)).resp == AxiResp.OKAY
    assert bytes((await manager.read(0x80, 4, size=2)).data) == b"abcd"
