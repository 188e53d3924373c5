"""An LSTM's integers through the cell engine, beside the reference."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.lstm import GATES, Gate, LstmCell
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.program.assembler import pack as pack_fields
from gradloom.rtl.engines.cell.spec import SPEC
from gradloom.rtl.formats.cell import CODES_A_BEAT, CellOpcode, CellOperands
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.systems.sequences.program.image import CellImage

from ..reference.cell import run
from .adapter import Arrays, UnitAdapter, UnitArray, UnitFeed, pack

__all__ = ["ADAPTER", "Driven", "network_of"]

_LOADS = tuple(port.name for port in SPEC.loads)
#: What a beat of :class:`Driven` is: the number of a load port, or one of these.
_COMMAND, _STATES = len(_LOADS), len(_LOADS) + 1
_STEP = data.StructLayout({"what": range(_STATES + 1), "index": 24, "data": 160})
_STEPS = (1 << 16) - 1


class Driven(wiring.Component):
    """The cell engine behind one stream, in the order of its beats.

    Members
    -------
    i : stream of beats for load ports, commands (``data``: operands of RUN) and requests of ``index`` beats of states.
        Whatever is not the input x waits until the command before is done.
    h, states : streams of beats of the store ports ``h`` and ``state``.
    """

    def __init__(self, engine: Any) -> None:
        self.unit, self.config = engine, engine.config
        beats = stream.Signature(128)
        super().__init__({"i": In(stream.Signature(_STEP)), "h": Out(beats), "states": Out(beats)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.engine = unit = self.unit
        step, busy, ready = self.i.p, Signal(), Signal()
        command, states = unit.engine.command, unit.store_state
        with m.If(self.i.valid & ready & (step.what == _COMMAND)):
            m.d.sync += busy.eq(1)
        with m.Elif(unit.engine.done):
            m.d.sync += busy.eq(0)
        m.d.comb += [
            self.i.ready.eq(ready),
            command.p.opcode.eq(CellOpcode.RUN),
            command.p.args.eq(step.data),
            command.valid.eq(self.i.valid & (step.what == _COMMAND) & ~busy),
            states.request.p.beats.eq(step.index),
            states.request.valid.eq(self.i.valid & (step.what == _STATES) & ~busy),
        ]
        with m.Switch(step.what):
            for number, name in enumerate(_LOADS):
                port = getattr(unit, f"load_{name}")
                may = Const(1) if name == "x" else ~busy
                m.d.comb += [
                    port.beats.p.data.eq(step.data),
                    port.beats.p.index.eq(step.index),
                    port.beats.valid.eq(self.i.valid & (step.what == number) & may),
                ]
                with m.Case(number):
                    m.d.comb += ready.eq(port.beats.ready & may)
            with m.Case(_COMMAND):
                m.d.comb += ready.eq(command.ready & ~busy)
            with m.Default():
                m.d.comb += ready.eq(states.request.ready & ~busy)
        for out, port in ((self.h, unit.store_h), (self.states, states)):
            m.d.comb += [out.valid.eq(port.beats.valid), out.p.eq(port.beats.p), port.beats.ready.eq(out.ready)]
        return m


def _inputs(_: Mapping[str, Any]) -> list[UnitArray]:
    gates, sides = len(GATES), {"w": "inputs", "u": "hidden"}
    return [
        _codes("x", 6, ("sequences", "steps", "inputs"), "2**-5", "inputs"),
        *(
            _codes(name, 8, (gates, "hidden", side), "a row's scale", f"weights of {side}; gates {', '.join(GATES)}")
            for name, side in sides.items()
        ),
        _codes("bias", 20, (gates, "hidden"), "2**-12", "biases"),
        UnitArray(
            name="scale",
            shape=(gates, "hidden"),
            units="2**-16",
            description="a row's scale; default 512, 2**-7",
            low=1,
            high=4096,
            optional=True,
        ),
    ]


def _outputs(_: Mapping[str, Any]) -> list[UnitArray]:
    return [
        _codes("h", 6, ("sequences", "steps", "hidden"), "2**-5", "hidden states of all steps"),
        _codes("c", 8, ("sequences", "hidden"), "2**-5", "cell states of the last"),
    ]


def _codes(name: str, bits: int, shape: tuple[str | int, ...], units: str, description: str) -> UnitArray:
    half = 1 << bits - 1
    low = 1 - half if name in ("w", "u") else -half
    return UnitArray(name=name, shape=shape, units=units, description=description, low=low, high=half - 1)


def network_of(arrays: Arrays, *, state_bits: int = 9) -> RecurrentNetwork:
    """The arrays as a network.

    Sums of gates have 6 bits of 2**-3, gates 6 of 2**-6, tanh 6 of 2**-5; the cell state and its two parts have a bit
    less than ``state_bits``.
    """
    half = 1 << state_bits - 2
    state, squashed = Coding(2.0**-5, -half, half - 1), Coding(2.0**-5, -32, 31)
    source, accumulator = Coding(2.0**-5, -32, 31), Coding(2.0**-3, -32, 31)
    scales = arrays.get("scale", np.full(arrays["bias"].shape, 512)) / 2.0**16
    gates = {
        name: Gate(
            w=w,
            u=u,
            w_scale=scale,
            u_scale=scale,
            bias=bias / 2.0**12,
            accumulator=accumulator,
            activation="tanh" if name == "cell" else "sigmoid",
            output=squashed if name == "cell" else Coding(2.0**-6, 0, 63),
            name=f"{name} gate",
        )
        for name, w, u, bias, scale in zip(GATES, arrays["w"], arrays["u"], arrays["bias"], scales, strict=True)
    }
    return RecurrentNetwork("lstm", source, (), LstmCell(gates, state, state, state, None, squashed, source))


def _batches(config: RecurrentConfig, x: np.ndarray) -> Iterator[np.ndarray]:
    """Sequences that run together."""
    for first in range(0, len(x), config.sequences):
        yield x[first : first + config.sequences]


def _feed(dut: Driven, arrays: Arrays) -> UnitFeed:
    config, x = dut.config, arrays["x"]
    if x.shape[1] > _STEPS:
        raise ValueError(f"x: has {x.shape[1]} steps, must be at most {_STEPS}")
    image = CellImage(network_of(arrays), config)
    beats = [step for name in _LOADS if hasattr(image, name) for step in _load(name, getattr(image, name))]
    states, rows = 2 * config.sequences * config.groups, 0
    for codes in _batches(config, x):
        operands = {
            "steps": codes.shape[1],
            "sequences": len(codes),
            "hidden": image.hidden,
            "inputs": image.inputs,
            "every": 1,
            "fresh": 1,
        }
        beats.append({"what": _COMMAND, "index": 0, "data": pack_fields(CellOperands, operands)})
        beats += _load("x", image.input_rows(codes))
        beats.append({"what": _STATES, "index": states, "data": 0})
        rows += codes.shape[0] * codes.shape[1]
    batches = -(-len(x) // config.sequences)
    return UnitFeed(
        inputs={"i": [pack(_STEP, beat) for beat in beats]},
        outputs={"h": rows * image.result // CODES_A_BEAT, "states": batches * states},
    )


def _load(port: str, content: bytes) -> list[dict[str, int]]:
    number = _LOADS.index(port)
    return [
        {"what": number, "index": index, "data": int.from_bytes(content[at : at + CODES_A_BEAT], "little")}
        for index, at in enumerate(range(0, len(content), CODES_A_BEAT))
    ]


def _collect(dut: Driven, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    config = dut.config
    image = CellImage(network_of(arrays), config)
    raw = {name: b"".join(beat.to_bytes(CODES_A_BEAT, "little") for beat in found) for name, found in beats.items()}
    hidden, states = [], []
    size = len(raw["states"]) // -(-len(arrays["x"]) // config.sequences)
    at = 0
    for number, codes in enumerate(_batches(config, arrays["x"])):
        taken = codes.shape[0] * codes.shape[1] * image.result
        hidden.append(image.hidden_codes(raw["h"][at : at + taken], len(codes)))
        states.append(image.state_codes(raw["states"][number * size : (number + 1) * size], len(codes))[0])
        at += taken
    return {"h": np.concatenate(hidden), "c": np.concatenate(states)}


def _reference(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    trace = run(network_of(arrays), arrays["x"])
    return {"h": trace.h, "c": trace.state.c}


ADAPTER = UnitAdapter(inputs=_inputs, outputs=_outputs, feed=_feed, collect=_collect, reference=_reference, wrap=Driven)
