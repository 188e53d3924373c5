"""Places submodules: real ones in simulation, shared ones in Verilog."""

import contextlib
import dataclasses
import enum
import gc
import inspect
import re

import numpy as np
from amaranth.back import rtlil
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Const,
    Fragment,
    Instance,
    ResetSignal,
    Shape,
    ShapeCastable,
    Signal,
    Value,
    ValueCastable,
    _ir,
    _nir,
)
from amaranth.hdl._ast import SignalDict
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

__all__ = ["DistinctModule", "Emitter", "ModulePort", "place", "uncollected"]


@contextlib.contextmanager
def uncollected():
    """Holds back the garbage collector.

    A design is millions of small objects, hardly any of them garbage, and looking through them again and again would
    take as long as making them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def place(m, name, component, platform, **inputs):
    """Adds ``component`` to ``m`` as submodule ``name`` and returns it.

    Write ``unit = place(m, "unit", Unit(...), platform)`` instead of ``m.submodules.unit = unit =
    Unit(...)``; everything else about ``unit`` stays the same, in particular its ports. ``inputs`` drive
    input ports by name (``x=expression``, as ``m.d.comb += unit.x.eq(expression)`` would): in a large array
    that halves the wires.

    In simulation (``platform`` is anything but an :class:`Emitter`) this is exactly that assignment. When
    Verilog is emitted it is an instance of a module that all equal components share: equal class and equal
    parameters. A component says what makes it equal by a hashable ``key`` property; without one, everything
    stored on ``self`` counts. Only the ``sync`` domain reaches a placed component, as ports ``clk`` and
    ``rst`` where it uses them.
    """
    if isinstance(platform, Emitter):
        m.submodules[name] = platform.instance(component, **inputs)
    else:
        m.submodules[name] = component
        for port, value in inputs.items():
            m.d.comb += Value.cast(getattr(component, port)).eq(value)
    return component


@dataclasses.dataclass(frozen=True)
class ModulePort:
    """A port of an emitted module.

    ``direction`` is ``"input"`` or ``"output"``.
    """

    name: str
    direction: str
    width: int


@dataclasses.dataclass
class DistinctModule:
    """A distinct module: one file of Verilog.

    ``text`` is RTLIL, in which this module and those that it instantiates go by their ``token``;
    ``children`` counts instances by token.
    """

    token: str
    component: wiring.Component
    ports: tuple[ModulePort, ...]
    text: str
    children: dict[str, int]
    name: str = ""


class Emitter:
    """Platform that collects each distinct placed component once.

    It converts them to Verilog.

    ``modules`` lists them, leaves first. :meth:`top` adds the outermost one and names them all. ``made``, if
    given, is called with each module as soon as it is there, and with the modules in it.
    """

    def __init__(self, made=None):
        self.modules = []
        self._made = made
        self._by_key = {}
        self._by_text = {}
        self._tokens = 0

    def instance(self, component, **inputs):
        """An :class:`Instance` wired to the ports of ``component``.

        ``inputs`` replace some of its ports.
        """
        module = self.module(component)
        component._MustUse__used = True  # Its elaboration may be another object's: no warning is due.
        signals = {name: signal for name, signal, _ in _signals(component)}
        for port, value in inputs.items():
            # An assignment would cut or extend; a connection has to have the width of the port.
            width = len(signals[port])
            value = Value.cast(value)
            if len(value) < width:
                value = value | Const(0, Shape(width, value.shape().signed))
            signals[port] = value[:width] if len(value) > width else value
        signals |= {"clk": ClockSignal(), "rst": ResetSignal()}
        return Instance(module.token, *((port.direction[0], port.name, signals[port.name]) for port in module.ports))

    def module(self, component, rename=None):
        """The :class:`DistinctModule` of ``component``, made on first use."""
        if not isinstance(component, wiring.Component):
            raise TypeError(f"{component!r}: only a wiring.Component, whose ports are known, can be placed")
        key = key_of(component)
        if rename is None and key in self._by_key:
            return self._by_key[key]
        module = self._convert(component, rename)
        # Components that differ in name only, or by something that cannot be compared, meet here.
        text = (module.text.replace(module.token, ""), module.ports)
        known = self._by_text.setdefault(text, module)
        if known is module:
            self.modules.append(module)
            if self._made:
                self._made(module, [each for each in self.modules if each.token in module.children])
        module = known
        self._by_key[key] = module
        return module

    def top(self, component, name, *, prefix="", rename=None):
        """Converts ``component`` as module ``name`` and names every module."""
        with uncollected():
            top = self.module(component, rename)
        self._assign_names(top, name, prefix)
        return top

    def named(self, text):
        """``text`` with the names of modules in place of their tokens.

        :meth:`top` must have given the names.
        """
        names = {module.token: module.name for module in self.modules}
        return _TOKEN.sub(lambda match: names[match[0]], text)

    def _convert(self, component, rename):
        self._tokens += 1
        token = f"gradloom_token_{self._tokens}_"
        fragment = Fragment.get(component, self)
        sync = ClockDomain("sync")
        if "sync" not in fragment.domains:
            fragment.add_domains(sync)
        ports = {"clk": (sync.clk, PortDirection.Input), "rst": (sync.rst, PortDirection.Input)}
        for port, signal, direction in (rename or _signals)(component):
            ports[port] = (signal, PortDirection(direction))

        def missing(domain):
            raise ValueError(
                f"{type(component).__name__} uses clock domain {domain!r}: only 'sync' reaches a placed component"
            )

        text = _rtlil(fragment, ports, token, missing)
        # Submodules that were not placed stay in this module's file; a dot is no Verilog name.
        text = re.sub(rf"\\{token}(\.[^\s]+)", lambda match: match[0].replace(".", "__"), text)
        kept = []
        for port, (signal, direction) in ports.items():
            if port in ("clk", "rst") and len(re.findall(rf"\\{port}(?![\w.])", text.split("\nend\n", 1)[0])) == 1:
                text = re.sub(rf"  wire width 1 input \d+ +\\{port}\n", "", text, count=1)
            elif len(signal):
                kept.append(ModulePort(port, direction.value, len(signal)))
        children = {}
        for match in re.finditer(r"^  cell \\(\S+) ", text, re.MULTILINE):
            if _TOKEN.fullmatch(match[1]):
                children[match[1]] = children.get(match[1], 0) + 1
        return DistinctModule(token, component, tuple(kept), text, children)

    def _assign_names(self, top, name, prefix):
        families = {}
        for module in self.modules:
            if module is not top:
                families.setdefault(_snake(type(module.component).__name__), []).append(module)
        top.name = name
        taken = {name}
        for base, members in families.items():
            parameters = [_parameters(module.component) for module in members]
            differing = [key for key in parameters[0] if len({str(each.get(key)) for each in parameters}) > 1]
            for module, values in zip(members, parameters):
                suffix = "".join(f"_{key}{values[key]}" for key in differing if values.get(key) not in (None, ""))
                candidate = f"{prefix}{base}{suffix}"
                count = 1
                while candidate in taken:
                    count += 1
                    candidate = f"{prefix}{base}{suffix}_{count}"
                taken.add(candidate)
                module.name = candidate


class _ModuleEmitter(rtlil.ModuleEmitter):
    def emit_memory(self, cell_idx, cell):
        # Zeros are what every memory on a chip starts with. Bit by bit they would be half of a design's text
        # and of the time it takes to write; emit.py sets them for simulators with a loop.
        if any(cell.init):
            super().emit_memory(cell_idx, cell)


class _Netlist(_nir.Netlist):
    """Amaranth's netlist, with quick ways for values of thousands of bits."""

    def resolve_all_nets(self):
        # Where each net leads in the end, so that a value is looked up at once.
        connections = self.connections
        for net, source in connections.items():
            while source < 0:
                source = connections[source]
            connections[net] = source
        super().resolve_all_nets()

    def resolve_value(self, value):
        return _nir.Value(map(self.connections.get, value, value))

    def alloc_late_value(self, signal):
        # Which signal a net is of, nobody asks.
        self.last_late_net -= len(signal)
        return _nir.Value(map(_nir.Net, range(self.last_late_net, self.last_late_net + len(signal))))

    def add_value_cell(self, width, cell):
        first = _nir.Net.from_cell(self.add_cell(cell), 0)
        return _nir.Value(map(_nir.Net, range(first, first + width)))


def _value_of_nets(cls, nets=()):
    """``_nir.Value.__new__`` without its check of each bit's type.

    The check takes a third of all the time.
    """
    return tuple.__new__(cls, (nets,) if isinstance(nets, _nir.Net) else nets)


@contextlib.contextmanager
def _quick_values():
    checked = _nir.Value.__new__
    _nir.Value.__new__ = _value_of_nets
    try:
        yield
    finally:
        _nir.Value.__new__ = checked


def _rtlil(fragment, ports, name, missing_domain):
    """Does what Amaranth's ``rtlil.convert_fragment`` does.

    It uses the classes above.

    It does not look for combinational loops, bit by bit in Python: Yosys does so in :mod:`.emit`.
    """
    with _quick_values():
        design = fragment.prepare(ports=ports, hierarchy=(name,), missing_domain=missing_domain)
        netlist = _Netlist()
        _ir._emit_netlist(netlist, design)
        netlist.resolve_all_nets()
        if len(netlist.modules) > 1:  # A net flows from module to module.
            _ir._compute_net_flows(netlist)
        _ir._compute_ports(netlist)
        empty = rtlil.EmptyModuleChecker(netlist)
        result = rtlil.Design(emit_src=False)
        names = SignalDict()
        for index, module in enumerate(netlist.modules):
            if not empty.is_empty(index):
                builder = result.module(".".join(module.name), src_loc=module.src_loc)
                _ModuleEmitter(builder, netlist, module, names, empty_checker=empty).emit()
        return str(result)


_TOKEN = re.compile(r"gradloom_token_\d+_")


def _signals(component):
    """``(name, signal, "input" | "output")`` of every port.

    The order is that of the signature.
    """
    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        if len(signal):
            yield "__".join(map(str, path)), signal, "input" if member.flow == wiring.In else "output"


def key_of(component):
    """Key of a component: two with equal keys share one module.

    It is the class, and ``key`` or all that is stored on the component.
    """
    own = getattr(component, "key", None)
    if own is None:
        own = tuple(
            (name, _frozen(value))
            for name, value in vars(component).items()
            if not name.startswith(("_MustUse__", "_Component__"))
        )
    return type(component), own


def _frozen(value):
    if value is None or isinstance(value, (bool, int, float, str, bytes, enum.Enum, type)):
        return type(value), value
    if isinstance(value, Signal):
        return "signal", _frozen(value.shape()), value.init
    if isinstance(value, wiring.Component):
        return key_of(value)
    if isinstance(value, wiring.PureInterface) or hasattr(value, "signature"):
        return "interface", tuple(
            (path, member.flow, len(Value.cast(leaf))) for path, member, leaf in value.signature.flatten(value)
        )
    if isinstance(value, ValueCastable):
        return "view", repr(value.shape()), _frozen(value.as_value())
    if isinstance(value, (Shape, ShapeCastable)):
        return "shape", repr(value)
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return "scalar", value.item()
    if dataclasses.is_dataclass(value):
        return type(value), tuple(_frozen(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, dict):
        return "dict", tuple((_frozen(key), _frozen(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "list", tuple(_frozen(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return "set", tuple(sorted(repr(_frozen(item)) for item in value))
    return _Identity(value)  # Unknown things are equal to themselves only: never wrong, at worst two modules.


class _Identity:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self):
        return id(self.value)


def _parameters(component):
    """Readable constructor parameters, for a name."""
    found = {}
    for name in inspect.signature(type(component).__init__).parameters:
        text = _readable(getattr(component, name, None))
        if text is not None:
            found[name] = text
    return found


def _readable(value):
    if isinstance(value, (Value, ValueCastable)):
        return None  # A port that has the parameter's name.
    if isinstance(value, enum.Enum):
        return _word(value.name)
    if isinstance(value, (bool, int, np.integer)):
        return str(int(value)).replace("-", "m")
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, Shape):
        return f"{'s' if value.signed else 'u'}{value.width}"
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, str)) for item in value):
        return _word("x".join(map(str, value)))
    width, frac = getattr(value, "width", None), getattr(value, "frac", None)
    if isinstance(width, int) and isinstance(frac, int):
        return f"{width}p{frac}".replace("-", "m")
    return None


def _word(text):
    return re.sub(r"\W+", "_", text).strip("_").lower()


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
