"""Vectors of units that are engines: commands, loads and stores."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.rtl.catalog import Unit

from ..units.adapter import pack
from .plan import BenchPart, BenchPlan
from .vectors import Parameters, draw, payload

__all__ = ["PLANS", "SmallLstm", "small_lstm"]

#: The bit of an engine's error that says there is one.
_ERROR: dict[str, tuple[int, str | None]] = {"engine_error": (1, None)}


def _command(component: Any, opcode: int, layout: Any, operands: Mapping[str, int]) -> list[int]:
    """Payloads of one command."""
    from gradloom.program.assembler import pack as pack_fields

    shape = payload(component, "engine.command")
    return [pack(shape, {"opcode": int(opcode), "args": pack_fields(layout, dict(operands))})]


def vector(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
    """SwiGLU, a norm and a sum of two tensors, forward and backward."""
    from gradloom.rtl.formats.vector import VectorOpcode, VectorOperands

    from ..reference import vector as reference

    lanes, tokens, row, tiles = parameters["lanes"], min(5, parameters["tokens"]), 16, 3
    shape = (tokens, row * tiles)

    def tensor(name: str, bits: int = 24, rows: int = tokens) -> np.ndarray:
        return draw(f"vector {name}", bits, rows, shape[1])

    def beats(words: np.ndarray) -> list[int]:
        words = np.asarray(words, np.int64)
        if len(words) > 1:
            words = words.reshape(tokens, tiles, -1, lanes).swapaxes(0, 1)
        rows = (words.reshape(-1, lanes) & 0xFFFFFFFF).astype("<u4")
        return [int.from_bytes(each.tobytes(), "little") for each in rows]

    gate, up, dy = tensor("gate", 24), tensor("up", 24), tensor("dy", 24)
    x, weight = tensor("x", 25), tensor("weight", 18, 1)
    eps = {"eps": 5, "eps_shift": 3}
    root = reference.roots(x, **eps)
    gates = {"gate_shift": 15, "left": 22, "shift": 24}
    back = {"gate_shift": 15, "left": 22, "right": 23, "shift": 24, "second_shift": 26}
    add = {"left": 3, "right": 5, "shift": 4}
    added = reference.add(gate, up, left=add["left"], right=add["right"], shift=add["shift"])
    operations: list[tuple[VectorOpcode, dict[str, int], dict[str, np.ndarray], Sequence[Any]]] = [
        (VectorOpcode.SWIGLU, gates, {"a": gate, "b": up}, [reference.swiglu(gate, up, **gates)]),
        (
            VectorOpcode.SWIGLU_BACKWARD,
            back,
            {"a": gate, "b": dy, "c": up},
            reference.swiglu_backward(dy, gate, up, **back),
        ),
        (VectorOpcode.WEIGHTS, {}, {"a": weight}, []),
        (VectorOpcode.NORM_SUMS, {"left": 7} | eps, {"a": x}, []),
        (VectorOpcode.NORM, {"shift": 16}, {"a": x}, [reference.rms_norm(x, weight[0], root, shift=16)]),
        (VectorOpcode.ADD, add, {"a": gate, "b": up}, [added]),
    ]
    mask, parts = (1 << 32 * lanes) - 1, []
    for number, (opcode, options, tensors, results) in enumerate(operations):
        named = {"gate_shift": "gate"}
        operands = {"row": row // lanes, "tiles": tiles, "tokens": len(next(iter(tensors.values())))}
        operands |= {named.get(name, name): value for name, value in options.items()}
        parts.append(
            BenchPart(
                inputs={"engine_command": _command(component, opcode, VectorOperands, operands)}
                | {name: beats(words) for name, words in tensors.items()},
                outputs={name: [(each, mask) for each in beats(result.words)] for name, result in zip("oq", results)},
                pulses={"engine_done": 1},
                reset=number == 0,
            )
        )
    return BenchPlan(parts=parts, zero=_ERROR, hold=150)


@dataclasses.dataclass(frozen=True)
class SmallLstm:
    """A small LSTM on a design, with its last states.

    ``x``: codes ``[sequences, steps, inputs]``; ``hidden``, ``states``: bytes of ports ``h`` and ``state``, each with
    the mask of what is known.
    """

    image: Any
    x: np.ndarray
    hidden: tuple[bytes, bytes]
    states: tuple[bytes, bytes]

    @property
    def steps(self) -> int:
        """Time steps of a sequence."""
        return self.x.shape[1]


def _masked_bytes(words: np.ndarray, known: np.ndarray) -> tuple[bytes, bytes]:
    return words.tobytes(), np.where(known, -1, 0).astype(words.dtype).tobytes()


def small_lstm(config: Any) -> SmallLstm:
    """A network that every design holds, run by the reference."""
    from gradloom.models.recurrent.lstm import GATES
    from gradloom.systems.sequences.program.image import CellImage

    from ..reference.cell import run
    from ..units.lstm import network_of

    units, inputs, steps, sequences = min(13, config.hidden), min(7, config.inputs), 4, min(2, config.sequences)
    rows = {"w": (units, inputs), "u": (units, units)}
    arrays = {name: draw(f"lstm {name}", 6, len(GATES), *shape) for name, shape in rows.items()}
    arrays |= {"bias": draw("lstm bias", 13, len(GATES), units), "x": draw("lstm x", 6, sequences, steps, inputs)}
    network = network_of(arrays, state_bits=min(config.state_bits, 9))
    image, trace = CellImage(network, config), run(network, arrays["x"])
    hidden = np.zeros((steps, sequences, image.result), np.int8)
    hidden[..., :units] = trace.h.transpose(1, 0, 2)
    known = np.zeros(hidden.shape, bool)
    known[..., :units] = True
    # Of a group's eight words, as many are used as there are elements in a cycle.
    states = np.zeros((2, config.sequences, config.groups, 8), "<i2")
    left = np.zeros(states.shape, bool)
    for words, content in ((states, (trace.state.c, trace.h[:, -1])), (left, (True, True))):
        flat = np.zeros((2, config.sequences, config.hidden), words.dtype)
        flat[0, :sequences, :units], flat[1, :sequences, :units] = content
        words[..., : config.parallel] = flat.reshape(*flat.shape[:2], config.groups, config.parallel)
    return SmallLstm(image, arrays["x"], _masked_bytes(hidden, known), _masked_bytes(states, left))


def lstm(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
    """Loads of a small network, its steps, and the states that they leave."""
    from gradloom.rtl.formats.cell import CODES_A_BEAT, CellOpcode, CellOperands

    config = component.config
    small = small_lstm(config)

    def cut(raw: bytes) -> list[int]:
        return [int.from_bytes(raw[at : at + CODES_A_BEAT], "little") for at in range(0, len(raw), CODES_A_BEAT)]

    def load(port: str, content: bytes) -> dict[str, list[int]]:
        shape, beats = payload(component, f"load_{port}.beats"), cut(content)
        marked = [
            {"data": beat, "first": at == 0, "last": at == len(beats) - 1, "index": at} for at, beat in enumerate(beats)
        ]
        return {f"load_{port}_beats": [pack(shape, each) for each in marked]}

    def stored(content: tuple[bytes, bytes]) -> list[tuple[int, int]]:
        return list(zip(*map(cut, content), strict=True))

    image, states = small.image, stored(small.states)
    operands = {"steps": small.steps, "sequences": len(small.x), "hidden": image.hidden, "inputs": image.inputs}
    command = _command(component, CellOpcode.RUN, CellOperands, operands | {"every": 1, "fresh": 1})
    names = ("weights", "rows", "tables", "quantizers")
    parts = [
        BenchPart(inputs=load(name, getattr(image, name)), outputs={}, reset=number == 0)
        for number, name in enumerate(names)
    ]
    request = payload(component, "store_state.request")
    parts += [
        BenchPart(
            inputs={"engine_command": command} | load("x", image.input_rows(small.x)),
            outputs={"store_h_beats": stored(small.hidden)},
            pulses={"engine_done": 1},
            reset=False,
        ),
        BenchPart(
            inputs={"store_state_request": [pack(request, {"beats": len(states)})]},
            outputs={"store_state_beats": states},
            reset=False,
        ),
    ]
    ports = [*(f"load_{each}_beats" for each in (*names, "x")), "store_state_request"]
    refusals = {f"{each.rpartition('_')[0]}_refuse": (1, f"{each}_valid") for each in ports}
    return BenchPlan(parts=parts, zero=_ERROR | refusals, lead={"store_state_request": 2}, hold=150)


PLANS: dict[str, Callable[[Unit, Parameters, Any], BenchPlan]] = {"vector": vector, "lstm": lstm}
