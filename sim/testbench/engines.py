"""Vectors of units that are engines: commands, loads and stores."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.rtl.catalog import Unit

from ..units.run import pack
from .plan import Part, Plan
from .vectors import Parameters, draw, payload

__all__ = ["lstm", "vector"]

#: The bit of an engine's error that says there is one.
_ERROR: dict[str, tuple[int, str | None]] = {"engine_error": (1, None)}


def _command(component: Any, opcode: int, layout: Any, operands: Mapping[str, int]) -> list[int]:
    """Payloads of one command."""
    from gradloom.rtl.plan.program.assembler import pack as pack_fields

    shape = payload(component, "engine.command")
    return [pack(shape, {"opcode": int(opcode), "args": pack_fields(layout, dict(operands))})]


def vector(unit: Unit, parameters: Parameters, component: Any) -> Plan:
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
    operations: list[tuple[VectorOpcode, dict[str, int], dict[str, np.ndarray], Sequence[Any]]] = [
        (VectorOpcode.SWIGLU, gates, {"a": gate, "b": up}, [reference.swiglu(gate, up, **gates)]),
        (
            VectorOpcode.SWIGLU_BACKWARD,
            back,
            {"a": gate, "b": up, "c": dy},
            reference.swiglu_backward(dy, gate, up, **back),
        ),
        (VectorOpcode.WEIGHTS, {}, {"a": weight}, []),
        (VectorOpcode.NORM_SUMS, {"left": 7} | eps, {"a": x}, []),
        (VectorOpcode.NORM, {"shift": 16}, {"a": x}, [reference.rms_norm(x, weight[0], root, shift=16)]),
        (VectorOpcode.ADD, add, {"a": gate, "b": up}, [reference.add(gate, up, **add)]),
    ]
    mask, parts = (1 << 32 * lanes) - 1, []
    for number, (opcode, options, tensors, results) in enumerate(operations):
        named = {"gate_shift": "gate"}
        operands = {"row": row // lanes, "tiles": tiles, "tokens": len(next(iter(tensors.values())))}
        operands |= {named.get(name, name): value for name, value in options.items()}
        parts.append(
            Part(
                inputs={"engine_command": _command(component, opcode, VectorOperands, operands)}
                | {name: beats(words) for name, words in tensors.items()},
                outputs={name: [(each, mask) for each in beats(result.words)] for name, result in zip("oq", results)},
                pulses={"engine_done": 1},
                reset=number == 0,
            )
        )
    return Plan(parts=parts, zero=_ERROR, hold=150)


def lstm(unit: Unit, parameters: Parameters, component: Any) -> Plan:
    """Loads of a small network, its steps, and the states that they leave."""
    from gradloom.rtl.formats.cell import CODES_A_BEAT, CellOpcode, CellOperands
    from gradloom.rtl.models.recurrent.network import GATES
    from gradloom.rtl.plan.recurrent.image import CellImage

    from ..reference.cell import run
    from ..units.lstm import network_of

    config = component.config
    units, inputs, steps, sequences = min(13, config.hidden), min(7, config.inputs), 4, min(2, config.sequences)
    rows = {"w": (units, inputs), "u": (units, units)}
    arrays = {name: draw(f"lstm {name}", 6, len(GATES), *shape) for name, shape in rows.items()}
    arrays |= {"bias": draw("lstm bias", 13, len(GATES), units), "x": draw("lstm x", 6, sequences, steps, inputs)}
    network = network_of(arrays, state_bits=min(config.state_bits, 9))
    image, trace = CellImage(network, config), run(network, arrays["x"])

    def load(port: str, content: bytes) -> dict[str, list[int]]:
        shape, count = payload(component, f"load_{port}.beats"), len(content) // CODES_A_BEAT
        return {
            f"load_{port}_beats": [
                pack(
                    shape,
                    {
                        "data": int.from_bytes(content[at * CODES_A_BEAT : (at + 1) * CODES_A_BEAT], "little"),
                        "first": at == 0,
                        "last": at == count - 1,
                        "index": at,
                    },
                )
                for at in range(count)
            ]
        }

    def stored(words: np.ndarray, known: np.ndarray) -> list[tuple[int, int]]:
        """Beats of words, and of a mask of those that are known."""
        each = np.where(known, -1, 0).astype(words.dtype).tobytes()
        raw = words.tobytes()
        return [
            tuple(int.from_bytes(part[at : at + CODES_A_BEAT], "little") for part in (raw, each))  # type: ignore[misc]
            for at in range(0, len(raw), CODES_A_BEAT)
        ]

    hidden = np.zeros((steps, sequences, image.result), np.int8)
    hidden[..., :units] = trace.h.transpose(1, 0, 2)
    known = np.zeros(hidden.shape, bool)
    known[..., :units] = True
    states = np.zeros((2, config.sequences, config.hidden), "<i2")
    states[0, :sequences, :units], states[1, :sequences, :units] = trace.state.c, trace.h[:, -1]
    left = np.zeros(states.shape, bool)
    left[:, :sequences, :units] = True
    spread = [np.zeros((2, config.sequences, config.groups, 8), each.dtype) for each in (states, left)]
    for wide, each in zip(spread, (states, left)):
        wide[..., : config.parallel] = each.reshape(*each.shape[:2], config.groups, config.parallel)
    beats = stored(spread[0], spread[1])
    operands = {"steps": steps, "sequences": sequences, "hidden": image.hidden, "inputs": image.inputs}
    command = _command(component, CellOpcode.RUN, CellOperands, operands | {"every": 1, "fresh": 1})
    names = ("weights", "rows", "tables", "quantizers")
    parts = [
        Part(inputs=load(name, getattr(image, name)), outputs={}, reset=number == 0)
        for number, name in enumerate(names)
    ]
    request = payload(component, "store_state.request")
    parts += [
        Part(
            inputs={"engine_command": command} | load("x", image.input_rows(arrays["x"])),
            outputs={"store_h_beats": stored(hidden, known)},
            pulses={"engine_done": 1},
            reset=False,
        ),
        Part(
            inputs={"store_state_request": [pack(request, {"beats": len(beats)})]},
            outputs={"store_state_beats": beats},
            reset=False,
        ),
    ]
    ports = [*(f"load_{each}_beats" for each in (*names, "x")), "store_state_request"]
    refusals = {f"{each.rpartition('_')[0]}_refuse": (1, f"{each}_valid") for each in ports}
    return Plan(parts=parts, zero=_ERROR | refusals, lead={"store_state_request": 2}, hold=150)


PLANS: dict[str, Callable[[Unit, Parameters, Any], Plan]] = {"vector": vector, "lstm": lstm}
