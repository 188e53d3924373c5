"""A memory behind several AXI4 ports, for units in Amaranth's simulator; it checks what AXI asks of a manager."""

import random
from collections import deque

__all__ = ["PortMemory", "part_at", "word_at"]


def part_at(address, bits):
    """What lies at ``address`` in the beginning: a part of ``bits`` bits."""
    return (address // (bits // 8) + 1) * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835 % (1 << bits)


def word_at(address, data_bits, port_bits):
    """The same of a wider word."""
    parts = data_bits // port_bits
    return sum(part_at(address + n * port_bits // 8, port_bits) << n * port_bits for n in range(parts))


class PortMemory:
    """One port: answers in order, each burst after a latency of its own, with random gaps.

    ``latency``: of a burst, called with the generator; ``stall``: chance that a channel rests a cycle; ``bad``:
    responses by address of a part; ``bytes_``: what writes left, by address of a byte. Call :meth:`before` before the
    clock's edge, :meth:`after` after it.
    """

    def __init__(self, number, axi, *, ports, port_bits, latency, stall=0.0, seed=0, outstanding=16, bad=None):
        self.number, self.axi, self.ports, self.bits = number, axi, ports, port_bits
        self.latency, self.stall, self.outstanding, self.bad = latency, stall, outstanding, bad or {}
        self.random = random.Random(f"{seed} {number}")
        self.now = self.most = self.open = self.beats = 0
        self.reads, self.answers = deque(), deque()
        self.addresses, self.data, self.written = deque(), deque(), {}
        self.held = {}
        self.shown = False

    def go(self):
        return not self.stall or self.random.random() >= self.stall

    def _kept(self, ctx, channel, names):
        """What waits must stay; returns whether it moves, and its payload."""
        valid, ready = (ctx.get(getattr(self.axi, f"{channel}{end}")) for end in ("valid", "ready"))
        payload = tuple(ctx.get(getattr(self.axi, f"{channel}{name}")) for name in names) if valid else None
        assert channel not in self.held or payload == self.held[channel], f"{channel} changed before it was taken"
        self.held.pop(channel, None)
        if valid and not ready:
            self.held[channel] = payload
        return bool(valid and ready), payload

    def _address(self, payload):
        """A burst's address and beats, which must be this port's."""
        address, length, size, burst = payload
        step = self.bits // 8
        assert (size, burst) == (step.bit_length() - 1, 1) and length < 16 and not address % step
        stripe = address // (16 * step)
        assert stripe == (address + length * step) // (16 * step) and stripe % self.ports == self.number
        return address, length + 1

    def _flies(self, change):
        self.open += change
        self.most = max(self.most, self.open)
        assert 0 <= self.open <= self.outstanding

    # reads

    def show(self, ctx):
        """Of this cycle: readiness, and a beat whose time has come."""
        axi = self.axi
        ctx.set(axi.arready, self.go())
        if self.shown:
            return
        self.shown = bool(self.reads and self.reads[0][2] <= self.now and self.go())
        ctx.set(axi.rvalid, self.shown)
        if self.shown:
            address, left, _ = self.reads[0]
            ctx.set(axi.rdata, part_at(address, self.bits))
            ctx.set(axi.rresp, self.bad.get(address, 0))
            ctx.set(axi.rlast, left == 1)

    def step(self, ctx):
        """What moves in this cycle."""
        axi = self.axi
        asked, payload = self._kept(ctx, "ar", ("addr", "len", "size", "burst"))
        if asked:
            self.reads.append((*self._address(payload), self.now + self.latency(self.random)))
            self._flies(1)
        if self.shown:
            assert ctx.get(axi.rready), "a port is held"
            self.shown, self.beats = False, self.beats + 1
            address, left, due = self.reads.popleft()
            if left > 1:
                self.reads.appendleft((address + self.bits // 8, left - 1, due))
            else:
                self._flies(-1)
        self.now += 1

    # writes

    def show_writes(self, ctx):
        """Of this cycle: readiness, and a response whose time has come."""
        axi = self.axi
        ctx.set(axi.awready, self.go())
        ctx.set(axi.wready, bool(self.addresses) and self.go())
        if self.shown:
            return
        self.shown = bool(self.answers and self.answers[0][0] <= self.now and self.go())
        ctx.set(axi.bvalid, self.shown)
        if self.shown:
            ctx.set(axi.bresp, self.answers[0][1])

    def step_writes(self, ctx):
        """What moves in this cycle."""
        axi = self.axi
        asked, payload = self._kept(ctx, "aw", ("addr", "len", "size", "burst"))
        moved, beat = self._kept(ctx, "w", ("data", "strb", "last"))
        if moved:
            address, left, worst = self.addresses.popleft()
            value, strobes, last = beat
            assert strobes == (1 << self.bits // 8) - 1 and last == (left == 1)
            self.written[address] = value
            self.beats += 1
            worst |= self.bad.get(address, 0)
            if left > 1:
                self.addresses.appendleft((address + self.bits // 8, left - 1, worst))
            else:
                self.answers.append((self.now + self.latency(self.random), worst))
        if asked:
            self.addresses.append((*self._address(payload), 0))
            self._flies(1)
        if self.shown:
            assert ctx.get(axi.bready), "a response is held"
            self.shown = False
            self.answers.popleft()
            self._flies(-1)
        self.now += 1
