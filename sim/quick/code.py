"""Python functions of a design's circuits.

They extend Amaranth's compiler and do less work. Every value is in the range of its shape, so most masks are left out.
A combinational circuit is cut into functions that share no result. Equal circuits are compiled once.

::

    fragment --> statements with a common result --> text, signals by number --> code --> function
                                                                                  ^
                                                     of another fragment ---------+
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from amaranth.hdl import Signal
from amaranth.hdl._ast import SignalDict, SignalSet, _StatementList
from amaranth.hdl._mem import MemoryInstance
from amaranth.hdl._xfrm import LHSMaskCollector
from amaranth.sim._pyrtl import _LHSValueCompiler, _PythonEmitter, _RHSValueCompiler, _StatementCompiler, _ValueCompiler

__all__ = ["circuits", "reader"]

_COMPARED = ("==", "!=", "<", "<=", ">", ">=")
_PLAIN = {"+", "-", "*", "&", "|", "^", "<<", ">>"}


def _signed(code: str, width: int) -> str:
    """``code``, an integer of ``width`` bits without sign, as one with sign."""
    return f"(({code} ^ {1 << (width - 1):#x}) - {1 << (width - 1):#x})" if width else code


def _fits(value: Any, shape: Any) -> bool:
    """Whether all values of ``value`` are values of ``shape``."""
    own = value.shape()
    if own.signed:
        return bool(shape.signed and own.width <= shape.width)
    return bool(own.width <= shape.width - shape.signed)


class _Switch:
    """Switches over a bit are plain conditions."""

    def _emit_switch(self, test: str, cases: Any, handle: Callable[..., None]) -> None:
        kept = [case for case in cases if case[0] is None or case[0]]
        of_bits = all(case[0] is None or (len(case[0]) == 1 and case[0][0] in ("0", "1")) for case in kept)
        if not kept or not of_bits:
            super()._emit_switch(test, cases, handle)  # type: ignore[misc]
            return
        emitter = self.emitter  # type: ignore[attr-defined]
        for number, case in enumerate(kept):
            sense = True if case[0] is None else f"{'' if case[0][0] == '1' else 'not '}{test}"
            emitter.append(f"{'elif' if number else 'if'} {sense}:")
            with emitter.indent():
                handle(*case)


class _Right(_Switch, _RHSValueCompiler):
    """Expressions; each is in the range of its value's shape."""

    def sign(self, value):
        return self(value)

    def on_Signal(self, value):
        number = self.state.get_signal(value)
        if self.inputs is not None:
            self.inputs.add(value)
        return f"s{number}.curr"

    def on_Operator(self, value):
        operator, operands = value.operator, value.operands
        codes = [self(each) for each in operands]
        shape = operands[0].shape()
        width, ones = shape.width, (1 << shape.width) - 1
        if len(operands) == 2:
            if operator in _PLAIN:
                return f"({codes[0]} {operator} {codes[1]})"
            if operator in _COMPARED:
                return f"(1 if {codes[0]} {operator} {codes[1]} else 0)"
            return f"{'zdiv' if operator == '//' else 'zmod'}({codes[0]}, {codes[1]})"
        (code,) = codes
        if operator == "-":
            return f"(-{code})"
        if operator == "~":
            return f"(~{code})" if shape.signed else f"({code} ^ {ones:#x})"
        if operator == "u":
            return f"({code} & {ones:#x})" if shape.signed else code
        if operator == "s":
            return code if shape.signed else _signed(code, width)
        if operator in ("b", "r|"):
            return f"(1 if {code} else 0)"
        if operator == "r&":
            return f"(1 if {code} == {-1 if shape.signed and width else ones} else 0)"
        assert operator == "r^"
        return f"(({code} & {ones:#x}).bit_count() & 1)"

    def on_Slice(self, value):
        code, shape = self(value.value), value.value.shape()
        if value.start:
            code = f"({code} >> {value.start})"
        if value.stop == shape.width and not shape.signed:
            return code
        return f"({code} & {(1 << len(value)) - 1:#x})"

    def on_Part(self, value):
        code, offset = self(value.value), self.rrhs(value.offset)
        return f"({code} >> ({value.stride} * {offset}) & {(1 << value.width) - 1:#x})"

    def on_Concat(self, value):
        parts, offset = [], 0
        for part in value.parts:
            code, shape = self(part), part.shape()
            if shape.signed:
                code = f"({code} & {(1 << shape.width) - 1:#x})"
            parts.append(f"({code} << {offset})" if offset else code)
            offset += shape.width
        return f"({' | '.join(parts)})" if parts else "0"

    def on_SwitchValue(self, value):
        cases = [(patterns, elem) for patterns, elem in value.cases if patterns is None or patterns]
        if len(cases) == 2 and cases[1][0] is None and len(cases[0][0] or ()) == 1 and "-" not in cases[0][0][0]:
            pattern, shape = int(cases[0][0][0] or "0", 2), value.test.shape()
            test, one, other = self.rrhs(value.test), self(cases[0][1]), self(cases[1][1])
            if pattern and shape.signed:
                test = f"({test} & {(1 << shape.width) - 1:#x})"
            return f"({one} if {test} == {pattern} else {other})" if pattern else f"({other} if {test} else {one})"
        return super().on_SwitchValue(value)


class _Left(_Switch, _LHSValueCompiler):
    """Assignments."""

    def on_Signal(self, value):
        number, width = self.state.get_signal(value), len(value)

        def gen(arg):
            code = f"{arg} & {(1 << width) - 1:#x}"
            self.emitter.append(f"next_{number} = {_signed(f'({code})', width) if value.shape().signed else code}")

        return gen


class _Statements(_Switch, _StatementCompiler):
    """Statements of one function.

    ``tells``: whether they print or check, so that the function does more than to drive signals.
    """

    def __init__(self, state, emitter, inputs):
        super().__init__(state, emitter)
        self.tells = False
        self.rhs = _Right(state, emitter, mode="curr", inputs=inputs)
        self.lhs = _Left(state, emitter, rhs=self.rhs)

    def on_Assign(self, stmt):
        if isinstance(stmt.lhs, Signal) and _fits(stmt.rhs, stmt.lhs.shape()):
            self.emitter.append(f"next_{self.state.get_signal(stmt.lhs)} = {self.rhs(stmt.rhs)}")
        else:
            self.lhs(stmt.lhs)(self.rhs(stmt.rhs))

    def on_Print(self, stmt):
        self.tells = True
        super().on_Print(stmt)

    def on_Property(self, stmt):
        self.tells = True
        super().on_Property(stmt)


class _Numbers:
    """Signals by their number in a fragment, so that texts of equal fragments are equal."""

    def __init__(self) -> None:
        self.signals: Any = SignalDict()

    def get_signal(self, signal: Any) -> int:
        return int(self.signals.setdefault(signal, len(self.signals)))


def _groups(statements: Iterable[Any]) -> list[list[Any]]:
    """Statements that share results, in their order."""
    statements = list(statements)
    leader = list(range(len(statements)))
    driver: Any = SignalDict()

    def first(number: int) -> int:
        while leader[number] != number:
            leader[number] = number = leader[leader[number]]
        return number

    for number, statement in enumerate(statements):
        for signal in statement._lhs_signals():
            leader[first(number)] = first(driver.setdefault(signal, number))
    found: dict[int, list[Any]] = {}
    for number, statement in enumerate(statements):
        found.setdefault(first(number), []).append(statement)
    return list(found.values())


@functools.lru_cache(4096)
def _compiled(text: str) -> CodeType:
    return compile(text, "<circuit>", "exec")


def _emit_results(emitter: Any, numbers: _Numbers, masks: Iterable[tuple[Any, int]]) -> None:
    """Changed results wait for the end of the delta cycle, where they are ``pending``."""
    for signal, mask in masks:
        number, width = numbers.get_signal(signal), len(signal)
        if mask & ((1 << width) - 1) == (1 << width) - 1:
            emitter.append(f"if next_{number} != s{number}.next:")
            emitter.append(f"    s{number}.next = next_{number}; pending(s{number})")
        else:
            if signal.shape().signed and mask & 1 << (width - 1):
                mask |= -1 << width
            emitter.append(f"s{number}.update(next_{number}, {mask})")


def _emit_memory(emitter, right, left, fragment, domain):
    """Ports of a memory in one domain."""
    depth = fragment._data.depth
    written = {}
    for number, port in enumerate(fragment._write_ports if domain != "comb" else ()):
        if port._domain != domain:
            continue
        enable = [right(bit) for bit in port._en]
        ones = (1 << port._granularity) - 1
        mask = " | ".join(f"({ones << n * port._granularity:#x} if {bit} else 0)" for n, bit in enumerate(enable))
        enable = emitter.def_var("enable", mask or "0")
        emitter.append(f"if {enable}:")
        address, data = emitter.gen_var("address"), emitter.gen_var("data")
        with emitter.indent():
            # What an expression needs is written before it, within the condition.
            emitter.append(f"{address} = {right(port._addr)}")
            emitter.append(f"{data} = {right(port._data)} & {(1 << len(port._data)) - 1:#x}")
            emitter.append(f"memory.write({address}, {data}, {enable})")
        written[number] = address, data, enable
    for port in fragment._read_ports:
        if port._domain != domain:
            continue
        if domain != "comb":
            emitter.append(f"if {right(port._en)}:")
        with emitter.indent() if domain != "comb" else contextlib.nullcontext():
            address = emitter.def_var("address", right(port._addr))
            data = emitter.def_var("data", f"memory.data[{address}] if {address} < {depth} else 0")
            for number in port._transparent_for if domain != "comb" else ():
                other, value, enable = written[number]
                emitter.append(f"if {enable} and {address} == {other}:")
                emitter.append(f"    {data} = {data} & ~{enable} | {value} & {enable}")
            left(port._data)(data)


def _text(fragment: Any, domain: str, numbers: _Numbers, inputs: Any, statements: Any) -> tuple[str, list[Any], bool]:
    """Text of the function that drives what ``statements`` and the memory of a fragment drive in a domain.

    With it come the signals that it drives, and whether it does more than that.
    """
    emitter: Any = _PythonEmitter()
    compiler = _Statements(numbers, emitter, inputs)
    masks = LHSMaskCollector()
    masks.visit_stmt(statements)
    memory = isinstance(fragment, MemoryInstance)
    if memory:
        for port in fragment._read_ports:
            if port._domain == domain:
                masks.visit_value(port._data, ~0)
    driven = list(masks.masks())
    emitter.append("def run():")
    with emitter.indent():
        for signal, _ in driven:
            number = numbers.get_signal(signal)
            emitter.append(f"next_{number} = {signal.init if domain == 'comb' else f's{number}.next'}")
        compiler(statements)
        if domain != "comb" and (reset := fragment.domains[domain].rst) is not None:
            emitter.append(f"if {compiler.rhs(reset)}:")
            emitter.append("    pass")
            for signal, _ in driven:
                if not signal.reset_less:
                    emitter.append(f"    next_{numbers.get_signal(signal)} = {signal.init}")
        if memory:
            _emit_memory(emitter, compiler.rhs, compiler.lhs, fragment, domain)
        _emit_results(emitter, numbers, driven)
    return str(emitter.flush()), [signal for signal, _ in driven], compiler.tells


def circuits(fragment: Any, state: Any) -> Iterator[tuple[str, Callable[[], None], Any, Any]]:
    """Functions of a fragment alone, without those below it.

    Each comes with its domain, the signals without whose change it would drive what it drove, and the signals that it
    drives. With a clock the former may be None: the function runs at each edge.
    """
    memory = isinstance(fragment, MemoryInstance)
    domains = set(fragment.statements)
    if memory:
        domains |= {port._domain for port in (*fragment._read_ports, *fragment._write_ports)}
    for domain in sorted(domains):
        statements = fragment.statements.get(domain, _StatementList())
        # A memory has ports alone.
        for group in [statements] if memory else _groups(statements):
            numbers, inputs = _Numbers(), SignalSet()
            text, driven, tells = _text(fragment, domain, numbers, inputs, _StatementList(group))
            names = {f"s{number}": state.slots[state.get_signal(each)] for each, number in numbers.signals.items()}
            names |= _ValueCompiler.helpers | _StatementCompiler.helpers | {"pending": state.pending.add}
            if memory:
                names["memory"] = state.slots[state.get_memory(fragment._data)]
            exec(_compiled(text), names)
            if domain != "comb":
                inputs = None if tells else list(numbers.signals)
            yield domain, names["run"], inputs, driven


def reader(value: Any, state: Any) -> Callable[[], int]:
    """A function that reads a value."""
    numbers, emitter = _Numbers(), _PythonEmitter()
    code = _Right(numbers, emitter, mode="curr")(value)
    emitter.append(f"return {code}")
    text = "def run():\n" + "".join(f"    {line}\n" for line in str(emitter.flush()).splitlines())
    names = {f"s{number}": state.slots[state.get_signal(each)] for each, number in numbers.signals.items()}
    names |= _ValueCompiler.helpers
    exec(_compiled(text), names)
    return names["run"]
