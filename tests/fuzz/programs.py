"""Programs as nobody should write them: what the machine knows with operands of every kind, and what it does not."""

from dataclasses import dataclass

from amaranth.hdl import Shape
from hypothesis import strategies as st

from gradloom.program.assembler import pack
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.rtl.shell.signature import COMMAND_BYTES, Command

__all__ = ["Case", "cases"]

_BITS = 8 * COMMAND_BYTES


@dataclass(frozen=True)
class Case:
    """Programs with what the host and memory do meanwhile.

    ``count``: commands that the host claims. ``reset``: cycles after which it stops the machine. ``request``: a second
    program, and cycles after which its bell rings.
    """

    commands: tuple[int, ...]
    count: int
    offset: int
    stall: int
    latency: tuple[int, int]
    seed: int
    watchdog: int
    fail: tuple[int, int] | None
    reset: int | None
    request: tuple[int, tuple[int, ...]] | None

    def __repr__(self):
        lines = map(describe, self.commands)
        rest = {k: v for k, v in vars(self).items() if k not in ("commands", "request")}
        return (
            f"Case({rest}\n  "
            + "\n  ".join(lines)
            + (
                f"\n request after {self.request[0]}\n  " + "\n  ".join(map(describe, self.request[1]))
                if self.request
                else ""
            )
            + ")"
        )


def known(subject):
    """Commands that a machine knows; LOAD and STORE are more likely."""
    engines = subject.config.machine.engines
    return [(LOAD, 0), (STORE, 0)] * 2 + [(each, opcode) for each in engines for opcode in each.spec.opcodes]


def code(commands):
    """Commands as they lie in memory."""
    return b"".join(command.to_bytes(COMMAND_BYTES, "little") for command in commands)


def describe(word):
    """A command in words."""
    view = Command.from_bits(word)
    said = {name: view[name] for name in ("engine", "opcode", "wait", "post") if view[name]}
    if view.predicated:
        said |= {"slot": view.slot, "count": view.count}
    return f"{said} args={view.args:#x}"


def number(width):
    """A field's value: small, near its ends, a power of two, or any."""
    top = (1 << width) - 1
    return st.one_of(
        st.integers(0, min(top, 9)),
        st.integers(0, min(top, 9)),
        st.integers(max(top - 2, 0), top),
        st.integers(0, width - 1).map(lambda n: 1 << n),
        st.integers(0, top),
    )


def fields(layout):
    """Values of some fields of a layout; the others stay 0."""
    every = {name: Shape.cast(f.shape).width for name, f in layout if not name.startswith("_")}
    return st.fixed_dictionaries({}, optional={name: number(width) for name, width in every.items()})


_MASK = st.one_of(st.just(0), st.just(0), st.just(0), st.integers(0, 3).map(lambda n: 1 << n), st.integers(0, 0xFFFF))


@st.composite
def _known(draw, subject):
    """A command of an engine that there is; LOAD and STORE mostly between places that exist."""
    engine, opcode = draw(st.sampled_from(known(subject)))
    layout = engine.layout(opcode)
    values = draw(fields(layout))
    if engine in (LOAD, STORE) and draw(st.integers(0, 3)):
        values["offset"] = draw(st.integers(0, subject.size // subject.beats)) * subject.beats
        values["beats"] = draw(st.one_of(st.integers(1, 40), st.integers(1, 600)))
        values["dest" if engine == LOAD else "source"] = draw(st.integers(0, 12))
    signs = {name: Shape.cast(f.shape) for name, f in layout}
    values = {
        name: value - (1 << signs[name].width) * (signs[name].signed and value >> signs[name].width - 1)
        for name, value in values.items()
    }
    return _word(draw, engine, opcode, pack(layout, values))


def _word(draw, engine, opcode, args):
    predicated = draw(st.integers(0, 7)) == 7
    return pack(
        Command,
        {
            "engine": engine,
            "opcode": opcode,
            "args": args,
            "wait": draw(_MASK),
            "post": draw(_MASK),
            "phase": draw(st.integers(0, 7)),
            "predicated": predicated,
            "slot": draw(number(6)) if predicated else 0,
            "count": draw(number(6)) if predicated else 0,
        },
    )


@st.composite
def _unknown(draw):
    return _word(draw, draw(st.integers(0, 15)), draw(st.integers(0, 255)), draw(st.integers(0, (1 << 160) - 1)))


@st.composite
def _spoilt(draw, subject):
    """A command of the good program, in which a field of its operands is another."""
    word = draw(st.sampled_from(subject.words))
    view = Command.from_bits(word)
    for engine, opcode in known(subject):
        if (engine, opcode) == (view.engine, view.opcode):
            layout = engine.layout(opcode)
            name, f = draw(st.sampled_from([(name, f) for name, f in layout if not name.startswith("_")]))
            value = draw(number(f.width))
            at = 96 + f.offset
            return word & ~(((1 << f.width) - 1) << at) | value << at
    return word


def _commands(subject):
    return st.one_of(
        _known(subject),
        _known(subject),
        _spoilt(subject),
        _unknown(),
        st.sampled_from(subject.words),
        st.integers(0, (1 << _BITS) - 1),
    )


@st.composite
def _disturbed(draw, subject):
    """The good program, or a part of it, in which commands are missing, doubled, moved, changed or new."""
    words = list(subject.words)
    first = draw(st.one_of(st.just(0), st.integers(0, len(words) - 1)))
    words = words[first:]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words) - 1))
        kind = draw(st.integers(0, 6))
        if kind == 0 and len(words) > 1:
            del words[at]
        elif kind == 1:
            words.insert(draw(st.integers(0, len(words))), words[at])
        elif kind == 2:
            other = draw(st.integers(0, len(words) - 1))
            words[at], words[other] = words[other], words[at]
        elif kind == 3:
            words[at] ^= 1 << draw(st.integers(0, _BITS - 1))
        elif kind == 4:
            words[at] = draw(_spoilt(subject))
        elif kind == 5:
            words.insert(at, draw(_commands(subject)))
        else:
            words = words[: at + 1]
    return tuple(words)


@st.composite
def _program(draw, subject):
    if draw(st.integers(0, 2)):
        return draw(_disturbed(subject))
    words = draw(st.lists(_commands(subject), min_size=1, max_size=24))
    if draw(st.integers(0, 7)):
        words.append(0)  # END
    return tuple(words)


@st.composite
def cases(draw, subject):
    """What a subject is troubled with."""
    commands = draw(_program(subject))
    odd = draw(st.integers(0, 15)) == 15
    return Case(
        commands=commands,
        count=draw(st.integers(0, len(commands) + 3)) if odd else len(commands),
        offset=draw(st.sampled_from([0, 64, 4096 - 32, subject.size - 32, 8])) if odd else subject.spare,
        stall=draw(st.sampled_from([0, 0, 30, 128, 230])),
        latency=(draw(st.integers(1, 200)), draw(st.integers(1, 300))),
        seed=draw(st.integers(0, 255)),
        watchdog=draw(st.sampled_from([700, 1500])),
        fail=(draw(st.integers(0, subject.size - 1)), draw(st.sampled_from([2, 3])))
        if draw(st.integers(0, 15)) == 15
        else None,
        reset=draw(st.integers(0, 4000)) if draw(st.integers(0, 15)) == 15 else None,
        request=(draw(st.integers(0, 3000)), draw(_program(subject)))
        if subject.requests and draw(st.integers(0, 5)) == 5
        else None,
    )
