"""A claim: a unit, its assumptions, and the rules to prove.

Parts that a proof need not follow may be replaced by free values.
"""

import re

from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, ClockDomain, Fragment, Instance, Module, Mux, Shape, Signal, Value
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

__all__ = ["Claim", "Inside"]


class Claim:
    """Hardware with free inputs, assumptions, and claims.

    The claims must hold in every cycle.

    Registers start at their initial values and there is no reset, but for those that units make themselves.

    Attributes
    ----------
    m : Module
        Where the unit and whatever watches it stand.
    inputs : list of Signal
        Free in every cycle.
    names : list of str
        Of what must hold, in order; those of ``covers`` must be within reach.
    lemmas : list of str
        Of what only helps to show that: how the registers of a unit belong together.
    """

    def __init__(self):
        self.m = Module()
        self.clock = ClockDomain("sync", reset_less=True)
        self.m.domains.sync = self.clock
        self.inputs = []
        self.names, self.lemmas, self.assumed, self.covers = [], [], [], []
        self._first = None

    def free(self, shape, name):
        """A value that may be anything, another one in every cycle."""
        signal = Signal(shape, name=name)
        self.inputs.append(signal)
        return signal

    def fixed(self, shape, name):
        """A value that may be anything and stays constant."""
        value, held = self.free(shape, name), Signal(shape, name=f"{name}_held")
        now = Signal(shape, name=f"{name}_fixed")
        self.m.d.comb += now.eq(Mux(self.first, value, held))
        self.m.d.sync += held.eq(now)
        return now

    @property
    def first(self):
        """High in the first cycle only."""
        if self._first is None:
            later = Signal(name="later")
            self.m.d.sync += later.eq(1)
            self._first = Signal(name="first")
            self.m.d.comb += self._first.eq(~later)
        return self._first

    def past(self, value, name):
        """``value`` of the last cycle; 0 in the first."""
        signal = Signal(Value.cast(value).shape(), name=f"past_{name}")
        self.m.d.sync += signal.eq(value)
        return signal

    def _say(self, kind, names, name, condition):
        if name in names:
            raise ValueError(f"{name}: said before")
        if len(Value.cast(condition)) != 1:  # the opposite of a bit that was taken for a wider number is never 0
            raise ValueError(f"{name}: {len(Value.cast(condition))} bits")
        names.append(name)
        # What is to be met is looked for as what breaks its opposite.
        cell = "$assume" if kind == "assume" else "$assert"
        self.m.submodules[f"{kind}__{name}"] = Instance(cell, i_A=condition, i_EN=1)

    def check(self, name, condition):
        """``condition`` holds in every cycle."""
        self._say("assert", self.names, name, condition)

    def lemma(self, name, condition):
        """Adds a lemma: ``condition`` holds in every cycle.

        Claims are shown by it; of a broken unit it is not asked.
        """
        self._say("lemma", self.lemmas, name, condition)

    def assume(self, name, condition):
        """Only runs in which ``condition`` holds in every cycle are looked at."""
        self._say("assume", self.assumed, name, condition)

    def cover(self, name, condition):
        """Some run meets ``condition``: the assumptions leave something over."""
        self._say("cover", self.covers, name, ~_bit(condition))

    def place(self, component, name="unit", memories=None):
        """Adds ``component`` and returns its :class:`Inside`.

        ``memories``: see :class:`Inside`.
        """
        inside = Inside(self, component, name, memories)
        self.m.submodules[name] = inside.fragment
        return inside

    def drive(self, component, *, without=()):
        """Gives every input of ``component`` a free value, but for those named."""
        for path, member, value in component.signature.flatten(component):
            name = "_".join(map(str, path))
            if member.flow is In and not any(name == each or name.startswith(f"{each}_") for each in without):
                self.m.d.comb += Value.cast(value).eq(self.free(len(Value.cast(value)), name))

    def holds(self, name, port, *, unless=0, assume=False):
        """Adds the rules of a stream: an offered beat stays until taken.

        It also stays the same. An output beat that is taken late must exist.

        ``unless``: high where it may go nevertheless. ``assume``: the stream is an input.
        """
        payload = Value.cast(port.payload if hasattr(port, "payload") else port)
        waits = self.past(port.valid & ~port.ready & ~_bit(unless), f"{name}_waits")
        say = self.assume if assume else self.check
        say(f"{name}_stays", ~waits | port.valid | _bit(unless))
        say(f"{name}_same", ~waits | (payload == self.past(payload, f"{name}_payload")) | _bit(unless))
        if not assume:
            self.cover(f"{name}_waited", waits & port.valid & port.ready & ~_bit(unless))

    def streams(self, component, *, prefix="", unless=0, without=()):
        """Adds the rules of all streams of ``component``.

        They are assumed of its inputs and claimed of its outputs.
        """
        for name, member, port in streams_of(component):
            if name not in without:
                self.holds(f"{prefix}{name}", port, unless=unless, assume=member)

    def rtlil(self):
        """The claim as text for Yosys."""
        text = rtlil.convert(self.m, name="claim", ports=[self.clock.clk, *self.inputs], emit_src=False)
        # Amaranth takes these cells of Yosys for modules. A field of a signal may be called cell, too.
        return re.sub(r"^(\s*cell )\\\$", r"\1$", text, flags=re.MULTILINE)


def streams_of(component):
    """``(name, is an input, port)`` of every stream of ``component``.

    Nested ports are included.
    """

    def walk(signature, holder, path):
        for name, member in signature.members.items():
            port = getattr(holder, name)
            if member.is_signature:
                inner = member.signature.members
                if set(inner) == {"payload", "valid", "ready"}:
                    yield "_".join((*path, name)), inner["valid"].flow is In, port
                else:
                    yield from walk(member.signature, port, (*path, name))

    yield from walk(component.signature, component, ())


def _bit(value):
    value = Value.cast(value)
    return value if len(value) == 1 else value.any()


class Inside:
    """The registers of a unit, for invariants, by names in its source.

    ``memories`` is asked, for each memory, what stands in for it: None for its words as they are, ``"any"`` for one
    whose every reading may be anything (but a word that is looked at stays the same until it is written), ``"one"``
    for one that keeps a single word, at an address that may be any and stays, while all others read as anything,
    ``"words"`` for registers. What holds with a stand-in holds with the memory.
    """

    def __init__(self, claim, component, name, memories=None):
        self.claim, self.name = claim, name
        self._memories = memories or (lambda memory: None)
        #: Stand-ins in order of elaboration: ``place`` and ``word`` where one is kept, ``words`` where all are.
        self.kept = []
        self.fragment = Fragment.get(component, self)

    def get_memory(self, memory):
        """Asked by Amaranth, whose platform this is."""
        kind = self._memories(memory)
        if kind is None:
            return memory.elaborate(None)
        stand_in = _Memory(self.claim, memory, f"{self.name}_memory{len(self.kept)}", kind)
        self.kept.append(stand_in)
        return Fragment.get(stand_in.module, None)

    def find(self, name, *path, wires=False):
        """Registers or wires called ``name``, in order of first assignment.

        The submodule ``path`` drives them.

        Amaranth names what is assigned alone: one of ``a, b = Signal(), Signal()`` has no name to be found by.
        """
        fragment = self.fragment
        for part in path:
            fragment = fragment.find_subfragment(part)
        found = [
            signal
            for domain, statements in fragment.statements.items()
            if (domain == "comb") == wires
            for signal in statements._lhs_signals()
            if signal.name == name
        ]
        if not found:
            raise KeyError(f"{'.'.join((*path, name))}: no such {'wire' if wires else 'register'} in {self.name}")
        return found

    def wire(self, name):
        """The one wire called ``name``; otherwise as a register is looked up."""
        return self._one(name, wires=True)

    def _one(self, name, **kinds):
        *path, last = name.split(".")
        found = self.find(last, *path, **kinds)
        if len(found) != 1:
            raise KeyError(f"{name}: {len(found)} signals of {self.name} have this name")
        return found[0]

    def __getitem__(self, name):
        """The one register called ``name``.

        ``"sub.name"`` is one of submodule ``sub``.
        """
        return self._one(name)

    def state(self, *names, fsm="fsm", path=()):
        """Whether a state machine is in one of the states ``names``.

        It is ``fsm`` of submodule ``path``. Without ``names``, whether it is in any state that it has.
        """
        fragment = self.fragment
        for part in path:
            fragment = fragment.find_subfragment(part)
        data = fragment.find_generated(fsm)._data
        return Cat(data["signal"] == data["encoding"][name] for name in names or data["encoding"]).any()


class _Memory:
    def __init__(self, claim, memory, name, kind):
        self.module = m = Module()
        width = Shape.cast(memory.shape).width
        if any(memory.init):
            raise ValueError(f"{name}: a memory with content has no stand-in")
        if kind == "words":
            self.words = [Signal(width, name=f"{name}_{number}") for number in range(memory.depth)]
        else:
            self.place = claim.fixed(max(ceil_log2(memory.depth), 1), f"{name}_place")
            self.word = Signal(width, name=f"{name}_word")
        #: What each of its readers sees.
        self.seen = [Value.cast(port.data) for port in memory.read_ports]
        for number, port in enumerate(memory.read_ports):
            if kind == "words":
                value = Array(self.words)[port.addr]
            else:
                value = claim.free(width, f"{name}_read{number}")
                if port.domain == "comb":
                    # What is looked at without a clock is what it was, while nobody moves or writes there.
                    still, seen = Signal(name=f"{name}_still{number}"), Signal(width, name=f"{name}_seen{number}")
                    m.d.sync += [
                        seen.eq(port.data),
                        still.eq(~Cat(each.en.any() & (each.addr == port.addr) for each in memory.write_ports).any()),
                    ]
                    value = Mux(still & (claim.past(port.addr, f"{name}_address{number}") == port.addr), seen, value)
                if kind == "one":
                    value = Mux(port.addr == self.place, self.word, value)
            if port.domain == "comb":
                m.d.comb += Value.cast(port.data).eq(value)
            else:
                with m.If(port.en):
                    m.d[port.domain] += Value.cast(port.data).eq(value)
        for port in memory.write_ports:
            if kind == "words":
                with m.If(port.en.all()):
                    m.d[port.domain] += Array(self.words)[port.addr].eq(port.data)
            else:
                with m.If(port.en.all() & (port.addr == self.place)):
                    m.d[port.domain] += self.word.eq(port.data)
