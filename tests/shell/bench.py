"""The shell with engines that only take time, and a scratchpad that LOAD fills and STORE empties."""

import functools

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.emit import verilog as emit
from gradloom.rtl.machines.fabric import Fabric, LocalReset, attach
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.bus.axi import AXILiteSignature
from gradloom.rtl.shell.shell import Shell
from gradloom.rtl.shell.signature import LoadBeat, StoreRequest, Trace
from gradloom.sim.run.builds import runner

from .timer import Timer

WORDS = 1024


class Pad(wiring.Component):
    """LOAD writes the word ``arg + index``; STORE reads ``arg`` onwards, a beat each ``source + 1``."""

    def __init__(self, data_bits, ports):
        self.data_bits = data_bits
        super().__init__(
            {
                "i": In(stream.Signature(LoadBeat(data_bits, ports))),
                "i_request": In(stream.Signature(StoreRequest)),
                "o": Out(stream.Signature(data_bits)),
                "order": Out(1),
                "slow": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.data_bits, depth=WORDS, init=[])
        wr, rd = memory.write_port(), memory.read_port(domain="comb")
        lfsr = Signal(16, init=0xACE1)
        m.d.sync += lfsr.eq(Cat(lfsr[15] ^ lfsr[13] ^ lfsr[12] ^ lfsr[10], lfsr))
        i = self.i
        m.d.comb += [
            i.ready.eq(~self.slow | lfsr[0]),
            wr.addr.eq(i.payload.arg + i.payload.index),
            wr.data.eq(i.payload.data),
            wr.en.eq(i.valid & i.ready),
        ]
        # first, index and last must agree.
        expect, inside = Signal(24), Signal()
        with m.If(i.valid & i.ready):
            m.d.sync += [expect.eq(Mux(i.payload.last, 0, expect + 1)), inside.eq(~i.payload.last)]
            with m.If((i.payload.index != expect) | (i.payload.first != ~inside)):
                m.d.sync += self.order.eq(1)

        left, address, pace, wait = Signal(24), Signal(32), Signal(8), Signal(8)
        m.d.comb += [
            self.i_request.ready.eq(left == 0),
            rd.addr.eq(address),
            self.o.payload.eq(rd.data),
            self.o.valid.eq((left != 0) & (wait == 0)),
        ]
        with m.If(self.i_request.valid & self.i_request.ready):
            m.d.sync += [
                left.eq(self.i_request.payload.beats),
                address.eq(self.i_request.payload.arg),
                pace.eq(self.i_request.payload.source),
                wait.eq(self.i_request.payload.source),
            ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [left.eq(left - 1), address.eq(address + 1), wait.eq(pace)]
        return m


class Bench(wiring.Component):
    """The shell with timers and a scratchpad; or, of engines that have units, with the machine of these."""

    def __init__(self, engines=IMAGES, *, machine=None, data_bits=128, **kwargs):
        self.machine = machine
        self.shell = Shell(
            engines,
            parameters={"rows": 25, "rank": 4},
            loop=machine and machine.loop(None),
            data_bits=data_bits,
            requests=1,
            **kwargs,
        )
        super().__init__(
            {
                "s_axi": In(AXILiteSignature(addr_bits=12, data_bits=32)),
                **{name: Out(getattr(self.shell, name).signature) for name in self.shell.managers},
                "irq": Out(1),
                "trace": Out(Trace),
                "order": Out(1),
                "slow": In(1),
                "aborting": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.shell = shell = self.shell
        connect(m, flipped(self.s_axi), shell.s_axi)
        for name in shell.managers:
            connect(m, getattr(shell, name), flipped(getattr(self, name)))
        if self.machine is None:
            self._take_time(m, shell)
        else:
            fabric = Fabric(self.machine, None, shell.data_bits)
            m.submodules.fabric = LocalReset(fabric, shell.abort)
            attach(m, shell, fabric)
        m.d.comb += [self.irq.eq(shell.irq), self.trace.eq(shell.trace), self.aborting.eq(shell.abort)]
        return m

    def _take_time(self, m, shell):
        for engine in self.shell.engines.own:
            timer = Timer()
            m.submodules[engine.name] = ResetInserter(shell.abort)(timer)
            connect(m, getattr(shell, engine.name), timer.port)
        pad = Pad(shell.data_bits, len(shell.engines.loads))
        m.submodules.pad = ResetInserter(shell.abort)(pad)
        connect(m, shell.o_load, pad.i)
        connect(m, shell.o_request, pad.i_request)
        connect(m, pad.o, shell.i_store)
        m.d.comb += [self.order.eq(pad.order), pad.slow.eq(self.slow)]
        # Health: a value saturates in each cycle in which a command ends.
        m.d.comb += [
            shell.health.saturated.eq(shell.trace.done[3]),
            shell.health.underflowed.eq(3 * shell.trace.done[3]),
            shell.health.norm.eq(shell.trace.done[3] << 40),
        ]


def wrapper(managers, port_bits):
    """SystemVerilog around the bench: ``use_memory`` connects its buses to ``axi_memory``, not to the ports.

    ``managers``: signatures of the AXI4 managers by name. Signals of the first are ``bus_NAME``.
    """
    lines, ports, inner, memory = [], [], [], {}
    for number, (manager, signature) in enumerate(managers.items()):
        mark = f"{number}_" if number else ""
        for name, member in signature.members.items():
            width = member.shape if isinstance(member.shape, int) else len(member.shape)
            span = f"[{width - 1}:0] " if width > 1 else ""
            bus, answer = f"bus_{mark}{name}", f"mem_{mark}{name}"
            inner.append(f".{manager}_{name}({bus})")
            if member.flow is Out:
                gated = name in {"arvalid", "awvalid", "wvalid", "bready", "rready"}
                lines.append(f"    wire {span}{bus};")
                ports.append(f"    output wire {span}{manager}_{name}")
                lines.append(f"    assign {manager}_{name} = {bus}{' & ~use_memory' if gated else ''};")
                if name[2:] not in ("lock", "cache", "prot", "qos"):
                    memory.setdefault(name, []).append(f"{bus}{' & use_memory' if gated else ''}")
            else:
                lines.append(f"    wire {span}{bus}, {answer};")
                ports.append(f"    input wire {span}{manager}_{name}")
                lines.append(f"    assign {bus} = use_memory ? {answer} : {manager}_{name};")
                memory.setdefault(name, []).append(answer)
    lite = AXILiteSignature(addr_bits=12, data_bits=32)
    for name, member in lite.members.items():
        width = member.shape
        span = f"[{width - 1}:0] " if width > 1 else ""
        ports.append(f"    {'input' if member.flow is Out else 'output'} wire {span}s_axi_{name}")
        inner.append(f".s_axi_{name}(s_axi_{name})")
    side = [
        "read_latency",
        "write_latency",
        "port_reads",
        "stall",
        "spread",
        "dram",
        "seed",
        "fail_enable",
        "fail_address",
        "fail_resp",
        "host_word",
        "host_we",
        "host_wdata",
        "host_rdata",
        "protocol_error",
    ]
    joined = [f".{name}({{{', '.join(reversed(each))}}})" for name, each in memory.items()]
    return "\n".join(
        [
            "module shell_bench (",
            # While `keep` the memory does not see resets, and answers what was asked before one.
            "    input wire clk, input wire rst, input wire keep, input wire use_memory, input wire slow,",
            "    output wire irq, output wire [31:0] events, output wire order, output wire aborting,",
            "    input wire [15:0] read_latency, input wire [15:0] write_latency, input wire [7:0] port_reads,",
            "    input wire [7:0] stall, input wire [15:0] spread, input wire [60:0] dram, input wire [31:0] seed,",
            "    input wire fail_enable, input wire [63:0] fail_address, input wire [1:0] fail_resp,",
            "    input wire [31:0] host_word, input wire host_we,",
            f"    input wire [{port_bits - 1}:0] host_wdata,",
            f"    output wire [{port_bits - 1}:0] host_rdata, output wire protocol_error,",
            ",\n".join(ports),
            ");",
            *lines,
            f"    axi_memory #(.DATA_BITS({port_bits}), .BYTES(1 << 18), .BASE(64'h1_0000_0000),",
            f"        .PORTS({len(managers)})) memory (",
            "        .clk(clk), .rst(rst & ~keep),",
            "        " + ", ".join([f".{s}({s})" for s in side] + joined) + ");",
            "    bench dut (.clk(clk), .rst(rst), .irq(irq), .trace(events), .order(order), .slow(slow),",
            "        .aborting(aborting),",
            "        " + ", ".join(inner) + ");",
            "endmodule",
            "",
        ]
    )


@functools.cache
def built(data_bits=128, simulator="verilator", engines=IMAGES, machine=None, ports=1, port_bits=None):
    """Folder of the simulation."""
    from pathlib import Path

    bench = Bench(engines, machine=machine, data_bits=data_bits, ports=ports, port_bits=port_bits)
    emission = emit.convert(bench, name="bench")
    memory = Path(runner.__file__).parents[2] / "bench" / "harness" / "axi_memory.sv"
    sources = {f"{name}.v": text for name, text in emission.files.items()}
    sources["axi_memory.sv"] = memory.read_text()
    managers = {name: getattr(bench, name).signature for name in bench.shell.managers}
    sources["shell_bench.sv"] = wrapper(managers, port_bits or data_bits)
    return runner.build(sources, top="shell_bench", simulator=simulator)
