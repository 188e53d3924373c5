"""Runs a user's arrays through one unit and its reference."""

import dataclasses
import importlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Shape, Value
from amaranth.lib import data, wiring

from gradloom.models.files.archive import read_npz
from gradloom.output import check_file, staged_file
from gradloom.rtl.catalog import KNOWN, Unit

__all__ = [
    "ADAPTERS",
    "UnitAdapter",
    "UnitArray",
    "UnitFeed",
    "describe_unit",
    "pack",
    "run_unit",
    "simulate",
    "runs",
    "unit_adapter",
    "unpack",
    "unpacked",
]

#: Cycles without a beat on any port after which a unit counts as stuck.
PATIENCE = 20_000

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitArray:
    """An array in a file.

    ``shape`` in words, ``units`` of one count, bounds of its integers.
    """

    name: str
    shape: tuple[str | int, ...]
    units: str
    description: str
    low: int = 0
    high: int = 0
    optional: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        label = f"integer {self.low} to {self.high}" + (", optional" if self.optional else "")
        return {
            "name": self.name,
            "shape": f"({', '.join(map(str, self.shape))}{',' * (len(self.shape) == 1)})",
            "dtype": label,
            "units": self.units,
            "description": self.description,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitFeed:
    """Inputs of a simulation.

    They are payloads by input stream, beats to await by output, ``held`` inputs.

    ``stall``: seed by which outputs are ready every other cycle, in simulators of Verilog; always, without.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, int]
    held: dict[str, int] = dataclasses.field(default_factory=dict)
    stall: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitAdapter:
    """How a unit's arrays are its streams.

    ``feed(component, arrays)`` makes beats, ``collect(component, arrays, beats)`` makes arrays of what came
    out, ``reference(parameters, arrays)`` says what should have. ``inputs`` and ``outputs`` describe the
    arrays for the given parameters. ``busy(arrays)``: cycles for which all of the unit must work; where it is
    given, the result tells the share of the cycles that this is. ``wrap``: makes a component with stream ports of a
    unit that has others; all else is given that component.
    """

    inputs: Callable[[Mapping[str, Any]], list[UnitArray]]
    outputs: Callable[[Mapping[str, Any]], list[UnitArray]]
    feed: Callable[[Any, Arrays], UnitFeed]
    collect: Callable[[Any, Arrays, dict[str, list[Any]]], Arrays]
    reference: Callable[[Mapping[str, Any], Arrays], Arrays]
    busy: Callable[[Arrays], int] | None = None
    wrap: Callable[[Any], Any] | None = None


def describe_unit(unit: Unit, settings: Mapping[str, object]) -> dict[str, Any]:
    """Parameters and arrays of a unit."""
    parameters = unit.settings(settings)
    adapter = unit_adapter(unit)
    return {
        "name": unit.name,
        "summary": unit.summary,
        "parameters": [
            {"name": p.name, "default": parameters[p.name], "type": p.type_name, "description": p.description}
            for p in unit.parameters
        ],
        "inputs": [array.as_dict() for array in adapter.inputs(parameters)],
        "outputs": [array.as_dict() for array in adapter.outputs(parameters)],
    }


def run_unit(
    unit: Unit,
    source: Path,
    output: Path,
    *,
    settings: Mapping[str, object] | None = None,
    simulator: str = "verilator",
) -> dict[str, Any]:
    """Runs the arrays of ``source`` through the unit and writes ``output``.

    ``output`` holds each array that came out, the reference's as ``reference_NAME``, and ``cycles``, from the
    first beat offered to the last one taken; of a mesh also ``utilisation``, the share of these cycles, times
    PEs, in which a PE multiplies what was given.
    """
    parameters = unit.settings(settings or {})
    adapter = unit_adapter(unit)
    check_file(output, inputs=(source,))
    _check_simulator(simulator)
    arrays = _read(source, adapter.inputs(parameters))
    component = unit.build(**parameters)
    if adapter.wrap is not None:
        component = adapter.wrap(component)
    feed = adapter.feed(component, arrays)
    beats, cycles = simulate(component, feed, simulator=simulator)
    answer = adapter.collect(component, arrays, unpacked(component, beats))
    expected = adapter.reference(parameters, arrays)
    differing = [name for name in answer if not np.array_equal(answer[name], expected[name])]
    figures: dict[str, Any] = {"cycles": cycles}
    if adapter.busy is not None:
        figures["utilisation"] = adapter.busy(arrays) / cycles
    _write(
        output,
        answer
        | {f"reference_{name}": value for name, value in expected.items()}
        | {name: np.array(value) for name, value in figures.items()},
    )
    return {
        "unit": unit.name,
        "simulator": simulator,
        **figures,
        "equal": not differing,
        "differing": differing,
        "words": int(sum(value.size for value in answer.values())),
        "output": str(output),
    }


def simulate(
    component: wiring.Component,
    feed: UnitFeed,
    *,
    simulator: str = "amaranth",
    directory: Path | None = None,
    arguments: Sequence[str] = (),
    change: Callable[[str], str] = str,
) -> tuple[dict[str, list[int]], int]:
    """``(payloads by output, cycles)`` of a component with stream ports.

    Simulators of Verilog run in ``directory``, if one is named, are given ``arguments``, and Verilog that ``change``
    has been through.
    """
    _check_simulator(simulator)
    if simulator == "amaranth":
        return _amaranth(component, feed)
    if directory is not None:
        return _cocotb(component, feed, simulator, directory, arguments, change)
    with tempfile.TemporaryDirectory() as folder:
        return _cocotb(component, feed, simulator, Path(folder), arguments, change)


def unpacked(component: wiring.Component, beats: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
    """Payloads as :func:`simulate` returns them, by field."""
    return {
        name: [unpack(component.signature.members[name].signature.members["payload"].shape, each) for each in payloads]
        for name, payloads in beats.items()
    }


def pack(shape: Any, value: Any) -> int:
    """``value`` as the bits of ``shape``.

    It is nested mappings and sequences of integers.
    """
    if isinstance(shape, data.StructLayout):
        return sum(pack(shape.members[name], item) << shape[name].offset for name, item in value.items())
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        return sum(pack(shape.elem_shape, item) << (index * width) for index, item in enumerate(value))
    shape = Shape.cast(shape)
    return int(value) & ((1 << shape.width) - 1)


def unpack(shape: Any, bits: int) -> Any:
    """Inverse of :func:`pack`."""
    if isinstance(shape, data.StructLayout):
        return {name: unpack(member, bits >> shape[name].offset) for name, member in shape.members.items()}
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        return [unpack(shape.elem_shape, bits >> (index * width)) for index in range(shape.length)]
    shape = Shape.cast(shape)
    bits &= (1 << shape.width) - 1
    return bits - (1 << shape.width) if shape.signed and bits >> (shape.width - 1) else bits


def _check_simulator(simulator: str) -> None:
    if simulator not in ("verilator", "icarus", "amaranth"):
        raise ValueError(f"simulator={simulator}: must be verilator, icarus or amaranth")
    needed = {"icarus": ("iverilog",), "verilator": ("g++", "make")}.get(simulator, ())
    for tool in needed:
        if shutil.which(tool) is None:
            raise ValueError(
                f"simulator={simulator}: {tool} is not on PATH; apt install {tool}, or use another simulator"
            )


def runs(unit: Unit) -> bool:
    """Whether :func:`run_unit` takes it."""
    return unit.name in ADAPTERS or unit.adapter is not None


def unit_adapter(unit: Unit) -> UnitAdapter:
    """How a unit's arrays are its streams.

    :class:`ValueError` where it has no adapter.
    """
    if not runs(unit):
        raise ValueError(
            f"unit {unit.name!r}: cannot be run alone, only generated; those that can: "
            + ", ".join(name for name, each in KNOWN.items() if runs(each))
        )
    if unit.adapter is None:
        return ADAPTERS[unit.name]
    module, _, name = unit.adapter.partition(":")
    found: UnitAdapter = getattr(importlib.import_module(module), name)
    return found


def _read(source: Path, wanted: list[UnitArray]) -> Arrays:
    try:
        found = read_npz(source)
    except ValueError as error:
        raise ValueError(f"input={error}") from None
    known = {array.name for array in wanted}
    unknown = sorted(set(found) - known)
    if unknown:
        raise ValueError(f"{unknown[0]}: is not an input of this unit; there are {', '.join(sorted(known))}")
    arrays: Arrays = {}
    sizes: dict[str, tuple[str, int]] = {}
    for array in wanted:
        if array.name not in found:
            if array.optional:
                continue
            raise ValueError(f"{array.name}: is missing from {source}; see --describe")
        value = found[array.name]
        if not np.issubdtype(value.dtype, np.integer) and value.dtype != bool:
            raise ValueError(f"{array.name}: is {value.dtype}, must be integer (units of {array.units})")
        if value.ndim != len(array.shape):
            raise ValueError(
                f"{array.name}: has shape {value.shape}, must have {len(array.shape)} dimensions {array.shape}"
            )
        for extent, size in zip(array.shape, value.shape, strict=True):
            if isinstance(extent, int) and size != extent:
                raise ValueError(f"{array.name}: has shape {value.shape}, must be {array.shape}")
            if isinstance(extent, str):
                first = sizes.setdefault(extent, (array.name, size))
                if first[1] != size:
                    raise ValueError(f"{array.name}: {extent} is {size}, but {first[1]} in {first[0]}")
        if not value.size:
            raise ValueError(f"{array.name}: is empty, must have at least 1 element")
        if value.min() < array.low or value.max() > array.high:
            raise ValueError(f"{array.name}: holds {value.min()} to {value.max()}, must be {array.low} to {array.high}")
        arrays[array.name] = value.astype(np.int64)
    return arrays


def _write(output: Path, arrays: Arrays) -> None:
    with staged_file(output) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _amaranth(component: wiring.Component, feed: UnitFeed) -> tuple[dict[str, list[int]], int]:
    from amaranth.sim import Simulator

    taken: dict[str, list[int]] = {name: [] for name in feed.outputs}
    cycles = 0

    async def bench(ctx: Any) -> None:
        nonlocal cycles
        sent = dict.fromkeys(feed.inputs, 0)
        for name, value in feed.held.items():
            ctx.set(Value.cast(getattr(component, name)), value)
        await ctx.tick()  # as long as the other simulators' reset lasts
        for name in feed.outputs:
            ctx.set(getattr(component, name).ready, 1)
        waited = 0
        while any(len(taken[name]) < count for name, count in feed.outputs.items()):
            for name, payloads in feed.inputs.items():
                port = getattr(component, name)
                ctx.set(port.valid, sent[name] < len(payloads))
                if sent[name] < len(payloads):
                    ctx.set(Value.cast(port.payload), payloads[sent[name]])
            moved = False
            for name, payloads in feed.inputs.items():
                if sent[name] < len(payloads) and ctx.get(getattr(component, name).ready):
                    sent[name] += 1
                    moved = True
            for name in feed.outputs:
                port = getattr(component, name)
                if ctx.get(port.valid):
                    taken[name].append(int(ctx.get(Value.cast(port.payload).as_unsigned())))
                    moved = True
            await ctx.tick()
            cycles += 1
            waited = 0 if moved else waited + 1
            if waited > PATIENCE:
                raise ValueError(f"the unit is stuck: no beat moved for {PATIENCE} cycles")

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return taken, cycles


def _cocotb(
    component: wiring.Component,
    feed: UnitFeed,
    simulator: str,
    root: Path,
    arguments: Sequence[str],
    change: Callable[[str], str],
) -> tuple[dict[str, list[int]], int]:
    from gradloom.rtl.emit.verilog import convert

    from ..run import runner

    emission = convert(component, name="unit")
    clocked = {port.name for port in emission.ports} & {"clk", "rst"}
    # A run is short, beside what g++ would take to make it shorter.
    built = runner.build(
        {f"{name}.v": change(text) for name, text in emission.files.items()},
        top="unit",
        simulator=simulator,
        arguments=arguments,
        optimize=0,
    )
    (root / "feed.json").write_text(
        json.dumps(
            {
                "inputs": {name: [f"{each:x}" for each in payloads] for name, payloads in feed.inputs.items()},
                "outputs": feed.outputs,
                "held": {name: f"{value:x}" for name, value in feed.held.items()},
                "reset": "rst" in clocked,
                "stall": feed.stall,
                "patience": PATIENCE,
            }
        ),
        encoding="utf-8",
    )
    runner.run_cocotb(
        built,
        top="unit",
        module="gradloom.sim.bench.streams",
        directory=root,
        simulator=simulator,
        environment={"GRADLOOM_FEED": str(root)},
    )
    found = json.loads((root / "beats.json").read_text(encoding="utf-8"))
    if found["stuck"]:
        raise ValueError(f"the unit is stuck: no beat moved for {PATIENCE} cycles")
    beats = {name: [int(each, 16) for each in payloads] for name, payloads in found["beats"].items()}
    return beats, found["cycles"]


# ---- The units


def _signed(name: str, bits: int, shape: tuple[str | int, ...], units: str, description: str) -> UnitArray:
    return UnitArray(
        name=name, shape=shape, units=units, description=description, low=-(1 << (bits - 1)), high=(1 << (bits - 1)) - 1
    )


def _unsigned(name: str, bits: int, shape: tuple[str | int, ...], units: str, description: str) -> UnitArray:
    return UnitArray(name=name, shape=shape, units=units, description=description, high=(1 << bits) - 1)


def _payload(component: Any, name: str) -> Any:
    return component.signature.members[name].signature.members["payload"].shape


# mesh: tiles, each with activation rows of its own.


def _mesh_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    rows, weights = _payload(dut, "i"), _payload(dut, "w")
    beats = [
        pack(rows, {"x": row, "first": index == 0}) for tile in arrays["x"].tolist() for index, row in enumerate(tile)
    ]
    tiles = [pack(weights, {"w": row}) for tile in arrays["w"].tolist() for row in tile]
    return UnitFeed(inputs={"i": beats, "w": tiles}, outputs={"o": len(beats)})


def _mesh_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    tiles, m, _ = arrays["x"].shape
    return {"y": np.array([beat["sum"] for beat in beats["o"]], np.int64).reshape(tiles, m, dut.columns)}


def _mesh_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from ..reference.systolic import weight_stationary

    return {"y": np.stack(list(weight_stationary(arrays["x"], arrays["w"])))}


# nf4-encode: one tensor.


def _encode_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = _payload(dut, "i")
    x = arrays["x"]
    padded = np.pad(x, (0, -len(x) % dut.lanes)).reshape(-1, dut.lanes)
    beats = [pack(shape, {"x": row, "last": index == len(padded) - 1}) for index, row in enumerate(padded.tolist())]
    return UnitFeed(inputs={"i": beats}, outputs={"o": -(-len(x) // dut.block)})


def _encode_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    from gradloom.rtl.formats.blocks import unpack_nibbles

    packed = b"".join(beat["codes"].to_bytes(dut.block // 2, "little") for beat in beats["o"])
    codes = unpack_nibbles(np.frombuffer(packed, np.uint8), len(beats["o"]) * dut.block)
    return {"codes": codes.astype(np.uint8), "scales": np.array([beat["scale"] for beat in beats["o"]], np.uint16)}


def _encode_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from ..reference.encode import encode_fixed

    codes, scales = encode_fixed(arrays["x"], block=parameters["block"])
    return {"codes": codes, "scales": scales}


# nf4-decode: a scale for each beat of lanes.


def _decode_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = _payload(dut, "i")
    codes, scales = arrays["codes"], arrays["scales"]
    beats = [
        pack(shape, {"codes": row, "scale": scale, "last": index == len(codes) - 1})
        for index, (row, scale) in enumerate(zip(codes.tolist(), scales.tolist(), strict=True))
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(codes)})


def _decode_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {"x": np.array([beat["x"] for beat in beats["o"]], np.int64)}


def _decode_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from gradloom.rtl.formats.codebook import NF4

    from ..reference.encode import decode_codes

    return {"x": decode_codes(arrays["codes"], arrays["scales"][:, None], NF4.level_table(7))}


# softmax-cross-entropy: vectors of one length.


def _softmax_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    z, target = arrays["z"], arrays["target"]
    if z.shape[1] > dut.max_length:
        raise ValueError(f"z: has vectors of {z.shape[1]}, must be at most max_length={dut.max_length}")
    shape = _payload(dut, "i")
    beats = [
        pack(shape, {"z": value, "target": index == wanted, "first": index == 0, "last": index == len(row) - 1})
        for row, wanted in zip(z.tolist(), target.tolist(), strict=True)
        for index, value in enumerate(row)
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": z.size, "o_loss": len(z)})


def _softmax_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {
        "d": np.array([beat["d"] for beat in beats["o"]], np.int64).reshape(arrays["z"].shape),
        "loss": np.array([beat["loss"] for beat in beats["o_loss"]], np.int64),
        "correct": np.array([beat["correct"] for beat in beats["o_loss"]], np.int64),
    }


def _softmax_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from ..reference.loss import softmax_cross_entropy

    return softmax_cross_entropy(arrays["z"], arrays["target"], max_length=parameters["max_length"])._asdict()


# optimizer: a beat has `lanes` words.

_MODES = {"q": 3, "v_mode": 2, "apply": 1, "mu": 65535}


def _optimizer_modes(arrays: Arrays) -> dict[str, int]:
    return {"q": 0, "v_mode": 0, "apply": 1, "mu": 0} | {
        name: int(arrays[name][0]) for name in _MODES if name in arrays
    }


def _optimizer_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = _payload(dut, "i")
    beats = [
        pack(shape, [{"w": w, "v": v, "g": g} for w, v, g in zip(*rows, strict=True)])
        for rows in zip(*(arrays[name].tolist() for name in ("w", "v", "g")), strict=True)
    ]
    held = pack(dut.signature.members["config"].shape, _optimizer_modes(arrays))
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(beats)}, held={"config": held})


def _optimizer_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {
        name: np.array([[word[name] for word in beat] for beat in beats["o"]], np.int64)
        for name in ("w", "v", "saturated", "underflowed", "magnitude")
    }


def _optimizer_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from gradloom.rtl.formats.fixed import Rounding

    from ..reference.optimizer import Noise, optimize

    rounding = Rounding(parameters["rounding"])
    modes = _optimizer_modes(arrays)
    columns = []
    for lane in range(parameters["lanes"]):
        noise = Noise(parameters["seed"] + lane) if rounding is Rounding.STOCHASTIC else None
        columns.append(
            optimize(
                *(arrays[name][:, lane] for name in ("w", "v", "g")),
                offset=parameters["offset"],
                rounding=rounding,
                noise=noise,
                q=modes["q"],
                v_mode=modes["v_mode"],
                apply=bool(modes["apply"]),
                mu=modes["mu"],
            )
        )
    return {
        name: np.stack([np.asarray(getattr(column, name), np.int64) for column in columns], axis=1)
        for name in ("w", "v", "saturated", "underflowed", "magnitude")
    }


# lora-forward: vectors in order, the same A for each.


def _forward_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = _payload(dut, "i")
    x, a = (np.pad(arrays[name], ((0, 0), (0, -arrays["x"].shape[1] % dut.lanes))) for name in ("x", "a"))
    columns = a.T.reshape(-1, dut.lanes, dut.rank).tolist()
    beats = [
        pack(shape, {"x": part, "a": column, "first": n == 0, "last": n == len(columns) - 1})
        for vector in x.reshape(len(x), -1, dut.lanes).tolist()
        for n, (part, column) in enumerate(zip(vector, columns, strict=True))
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(x)})


def _forward_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {"h": np.array([beat["h"] for beat in beats["o"]], np.int64)}


def _forward_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from ..reference.array import hidden

    return {"h": hidden(arrays["x"], arrays["a"])[0]}


# lora-gradient: samples in order, every rank index of each.


def _gradient_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    h, d, b = arrays["h"], arrays["d"], arrays["b"]
    if h.shape[0] > dut.samples:
        raise ValueError(f"h: has {h.shape[0]} samples, must be at most samples={dut.samples}")
    shape = _payload(dut, "i")
    beats = [
        pack(shape, {"k": k, "first": sample == 0, "h": value, "d": d[sample].tolist(), "b": b[:, k].tolist()})
        for sample, row in enumerate(h.tolist())
        for k, value in enumerate(row)
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(beats)})


def _gradient_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    samples, depth = arrays["h"].shape
    last = beats["o"][-depth:]
    return {
        "dh": np.array([beat["dh"] for beat in beats["o"]], np.int64).reshape(samples, depth),
        "db": np.array([beat["db"] for beat in last], np.int64).T,
    }


def _gradient_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    from ..reference.head import adapter_gradients

    dh, db, _ = adapter_gradients(arrays["d"], arrays["b"], arrays["h"])
    return {"dh": dh, "db": db}


def _optimizer_inputs(p: Mapping[str, Any]) -> list[UnitArray]:
    shape = ("beats", p["lanes"])
    modes = {
        "q": "the gradient's exponent is 24 - 4q; default 0",
        "v_mode": "the velocity starts at 0: zero, 1: itself, 2: mu times itself; default 0",
        "apply": "whether w changes; default 1",
        "mu": "momentum in 2**-16; default 0",
    }
    return [
        _signed("w", 16, shape, "2**-12", "parameters, Q4.12"),
        _signed("v", 27, shape, "2**-23", "velocities"),
        _signed("g", 48, shape, f"2**-(24-4q{p['offset']:+d})", "gradient sums"),
        *(
            UnitArray(name=name, shape=(1,), units="mode", description=text, high=_MODES[name], optional=True)
            for name, text in modes.items()
        ),
    ]


def _optimizer_outputs(p: Mapping[str, Any]) -> list[UnitArray]:
    shape = ("beats", p["lanes"])
    return [
        _signed("w", 16, shape, "2**-12", "new parameters"),
        _signed("v", 27, shape, "2**-23", "new velocities"),
        _unsigned("saturated", 1, shape, "0 or 1", "was clipped"),
        _unsigned("underflowed", 1, shape, "0 or 1", "v is too small to move w"),
        _unsigned("magnitude", 25, shape, "2**-23", "abs(g), cut and clipped to 2"),
    ]


ADAPTERS: dict[str, UnitAdapter] = {
    "mesh": UnitAdapter(
        inputs=lambda p: [
            _signed("x", p["x_bits"], ("tiles", "m", p["rows"]), "1", "activation rows of each tile"),
            _signed("w", p["w_bits"], ("tiles", p["rows"], p["cols"]), "1", "weights of each tile"),
        ],
        outputs=lambda p: [_signed("y", 48, ("tiles", "m", p["cols"]), "1", "x[t] @ w[t]")],
        feed=_mesh_feed,
        collect=_mesh_collect,
        reference=_mesh_reference,
        # An activation row takes each PE a cycle.
        busy=lambda arrays: arrays["x"].shape[0] * arrays["x"].shape[1],
    ),
    "nf4-encode": UnitAdapter(
        inputs=lambda p: [_signed("x", 24, ("n",), "2**-16", "activations, Q8.16")],
        outputs=lambda p: [
            _unsigned("codes", 4, ("n in whole blocks",), "index", "codes, the last block filled up"),
            _unsigned("scales", 16, ("blocks",), "2**-8", "a block's largest magnitude, rounded up"),
        ],
        feed=_encode_feed,
        collect=_encode_collect,
        reference=_encode_reference,
    ),
    "nf4-decode": UnitAdapter(
        inputs=lambda p: [
            _unsigned("codes", 4, ("beats", p["lanes"]), "index", "codes"),
            _unsigned("scales", 16, ("beats",), "2**-8", "scale of a beat"),
        ],
        outputs=lambda p: [_signed("x", 18, ("beats", p["lanes"]), "2**-10", "level * scale")],
        feed=_decode_feed,
        collect=_decode_collect,
        reference=_decode_reference,
    ),
    "lora-forward": UnitAdapter(
        inputs=lambda p: [
            _signed("x", 18, ("vectors", "n"), "2**-10", "decoded activations, Q8.10"),
            _signed("a", 16, (p["rank"], "n"), "2**-12", "A, Q4.12"),
        ],
        outputs=lambda p: [_signed("h", 24, ("vectors", p["rank"]), "2**-16", "A x, Q8.16")],
        feed=_forward_feed,
        collect=_forward_collect,
        reference=_forward_reference,
    ),
    "lora-gradient": UnitAdapter(
        inputs=lambda p: [
            _signed("h", 24, ("samples", p["depth"]), "2**-16", "A x of each sample"),
            _signed("d", 18, ("samples", p["classes"]), "2**-e", "scaled output gradient d'"),
            _signed("b", 16, (p["classes"], p["depth"]), "2**-12", "B, Q4.12"),
        ],
        outputs=lambda p: [
            _signed("dh", 18, ("samples", p["depth"]), "2**-(e-1)", "B' d'"),
            _signed("db", 48, (p["classes"], p["depth"]), "2**-(e+16)", "sum over the samples of d' h'"),
        ],
        feed=_gradient_feed,
        collect=_gradient_collect,
        reference=_gradient_reference,
    ),
    "softmax-cross-entropy": UnitAdapter(
        inputs=lambda p: [
            _signed("z", 24, ("vectors", "length"), "2**-16", "logits, Q8.16"),
            UnitArray(
                name="target",
                shape=("vectors",),
                units="index",
                low=-1,
                high=65535,
                description="which one should win; one outside the vector: none",
            ),
        ],
        outputs=lambda p: [
            _signed("d", 18, ("vectors", "length"), "2**-16", "softmax minus target"),
            _unsigned("loss", 25, ("vectors",), "2**-16", "cross-entropy in nats"),
            _unsigned("correct", 1, ("vectors",), "0 or 1", "the target is the first of the largest"),
        ],
        feed=_softmax_feed,
        collect=_softmax_collect,
        reference=_softmax_reference,
    ),
    "optimizer": UnitAdapter(
        inputs=_optimizer_inputs,
        outputs=_optimizer_outputs,
        feed=_optimizer_feed,
        collect=_optimizer_collect,
        reference=_optimizer_reference,
    ),
}
