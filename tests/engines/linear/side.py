"""Operations of the vector engine over tensors in the machine's memory, with what the reference makes of them."""

from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.rtl.formats.vector import TERM, VectorOpcode
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT
from gradloom.rtl.formats.weights.tiles import tile_rows, untile_rows
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.sim.reference import vector as reference
from gradloom.systems.text.program.engines.side import SideTensor, store, vector

from .conftest import SMALL

NORMS_BACKWARD = (
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.NORM_BACKWARD_ADD,
)


@dataclass
class Operation:
    """A command: its operand tensors ``[tokens, features]``, and what the reference says of its results."""

    opcode: VectorOpcode
    operands: dict
    inputs: dict
    results: dict = field(default_factory=dict)
    #: Terms that were clipped where no result tells.
    saturated: int = 0
    #: Operands of one tile, read for each.
    repeated: tuple = ()

    @property
    def shape(self):
        return np.shape(self.inputs["a"])

    @property
    def clipped(self):
        return self.saturated + sum(result.saturated for result in self.results.values())


def words(rng, shape, width=ACTIVATION.width):
    """Of every size, both ends among them."""
    value = rng.integers(-1 << (width - 1), 1 << (width - 1), shape) >> rng.integers(0, width, shape)
    ends = rng.random(shape)
    return np.where(ends < 0.02, -1 << (width - 1), np.where(ends > 0.98, (1 << (width - 1)) - 1, value))


def operations(opcode, shape, edge, seed=0):
    """What it takes to run ``opcode`` on random words."""
    rng = np.random.default_rng(seed)
    x, y, z = (words(rng, shape, width) for width in (TERM.width, ACTIVATION.width, ACTIVATION.width))
    weight, eps = words(rng, (1, shape[1]), WEIGHT.width), {"eps": 5, "eps_shift": 3}
    weights = Operation(VectorOpcode.WEIGHTS, {}, {"a": weight})
    if opcode in (VectorOpcode.NORM_SUMS, VectorOpcode.NORM):
        made = reference.rms_norm(x, weight[0], reference.roots(x, **eps), shift=16)
        return [
            weights,
            Operation(VectorOpcode.NORM_SUMS, {"left": 7} | eps, {"a": x}),
            Operation(VectorOpcode.NORM, {"shift": 16}, {"a": x}, {"o": made}),
        ]
    if opcode in NORMS_BACKWARD:
        root = reference.backward_roots(y, x, weight[0], right=18, **eps)
        made = {"o": reference.rms_norm_backward(y, x, weight[0], root, left=18, shift=-3)}
        last, shifts, given = VectorOpcode.NORM_BACKWARD, {"left": 18, "shift": -3}, {"a": x, "b": y}
        if opcode == VectorOpcode.NORM_BACKWARD_GAIN:
            last, shifts = opcode, {"right": 18, "shift": -3, "second_shift": 19}
            made["q"] = reference.rms_norm_gain(y, x, root, shift=19)
        if opcode == VectorOpcode.NORM_BACKWARD_ADD:
            last, shifts, given = opcode, {"right": 18, "shift": -3, "left": 5, "second_shift": 0}, given | {"c": z}
            made["o"] = reference.rms_norm_backward_add(y, x, weight[0], root, z, **shifts)
        return [
            weights,
            Operation(
                VectorOpcode.NORM_BACKWARD_SUMS,
                {"left": 7, "right": 18} | eps,
                {"a": x, "b": y},
                saturated=root.saturated,
            ),
            Operation(last, shifts, given, made),
        ]
    if opcode == VectorOpcode.SWIGLU:
        shifts = {"left": 22, "shift": 24}
        return [
            Operation(
                opcode, shifts | {"gate": 15}, {"a": y, "b": z}, {"o": reference.swiglu(y, z, gate_shift=15, **shifts)}
            )
        ]
    if opcode == VectorOpcode.SWIGLU_BACKWARD:
        shifts = {"left": 22, "right": 23, "shift": 24, "second_shift": 26}
        made = reference.swiglu_backward(z, x, y, gate_shift=15, **shifts)
        return [Operation(opcode, shifts | {"gate": 15}, {"a": x, "b": z, "c": y}, dict(zip("oq", made)))]
    if opcode == VectorOpcode.ADD:
        shifts = {"left": 9, "right": 8}
        return [
            Operation(opcode, shifts | {"wide": 1}, {"a": x, "b": y}, {"o": reference.add(x, y, **shifts, wide=True)})
        ]
    if opcode == VectorOpcode.ROPE:
        angles = words(rng, (shape[0], edge), WEIGHT.width)
        shifts = {"left": 22, "right": 23, "shift": 0}
        heads = x.reshape(shape[0], -1, edge)
        cos, sin = angles[:, None, : edge // 2], angles[:, None, edge // 2 :]
        made = reference.rope(heads, cos, sin, turn=True, **shifts)
        made = reference.VectorTensor(
            words=made.words.reshape(shape), saturated=made.saturated, magnitude=made.magnitude
        )
        return [Operation(opcode, shifts | {"turn": 1}, {"a": x, "b": angles}, {"o": made}, repeated=("b",))]
    if opcode == VectorOpcode.SCALE:
        shifts = {"left": 7, "shift": 17}
        return [weights, Operation(opcode, shifts, {"a": x}, {"o": reference.scale(x, weight[0], **shifts)})]
    if opcode == VectorOpcode.SCALE_BACKWARD:
        shifts = {"left": 7, "right": 7, "shift": 17, "second_shift": 23}
        made = reference.scale_backward(y, x, weight[0], **shifts)
        return [weights, Operation(opcode, shifts, {"a": x, "b": y}, dict(zip("oq", made)))]
    return [weights]


class Side:
    """Places operations in memory, from byte ``start`` on, and looks at what they left there."""

    def __init__(self, machine, work, start, *, limit):
        self.host, self.edge, self.work = machine.host, machine.config.edge, list(work)
        self.commands, self.places = [], []
        for each in self.work:
            tensors, where = {}, {}
            for name, tensor in each.inputs.items():
                self.host.store(start, tile_rows(tensor, self.edge))
                tensors[name] = SideTensor(offset=start, repeated=name in each.repeated)
                start += 4 * tensor.size
            for name, made in each.results.items():
                tensors[name] = SideTensor(offset=start)
                where[name] = start
                start += 4 * made.words.size
            tokens, features = each.shape
            operands = {"tokens": tokens, "tiles": features // self.edge, **each.operands}
            self.commands.append(vector(each.opcode, operands, machine.config, limit=limit, **tensors))
            self.places.append(where)
        self.end = start

    @property
    def pieces(self):
        return [piece for command in self.commands for piece in command]

    @property
    def clipped(self):
        return sum(each.clipped for each in self.work)

    def check(self):
        """All results are those of the reference."""
        for each, where in zip(self.work, self.places, strict=True):
            for name, made in each.results.items():
                found = untile_rows(self.host.fetch(where[name], 4 * made.words.size), *each.shape, self.edge)
                np.testing.assert_array_equal(found, made.words, err_msg=f"{each.opcode.name} {name}")
                assert np.any(found)


def _one_by_one(product, beat):
    """Commands with a LOAD a tile of codes, of a machine whose columns divide a tile."""
    for each in product:
        if each.engine is not LOAD or each.operands["dest"] != LINEAR.load("tiles"):
            yield each
            continue
        size = SMALL.edge + 2
        for number in range(each.operands["beats"] // size):
            # Blocks are the lowest bits of the argument.
            place = {"offset": each.operands["offset"] + number * size * beat, "arg": each.operands["arg"] + number}
            yield replace(each, operands=each.operands | {"beats": size} | place)


def weave(product, pieces, beat):
    """A product's commands with pieces between its tiles, by turns, and a store of each tile of outputs.

    ``beat``: bytes of one."""
    product = list(_one_by_one(product, beat))
    array = next(each for each in product if each.engine is LINEAR)
    whole = next(each for each in product if each.engine == STORE)
    part = whole.operands["beats"] // array.operands["outer"]
    pieces, woven, tiles = list(pieces), [], 0
    for each in product:
        if each is whole or each.engine == CONTROL:
            continue
        woven.append(each)
        if each.engine is not LOAD or each.operands["dest"] != LINEAR.load("tiles"):
            continue
        stores = ()
        if pieces:
            piece = pieces.pop(0)
            woven += piece.instructions
            stores = piece.stores
        tiles += 1
        if tiles % array.operands["inner"] == 0:
            done = (tiles // array.operands["inner"] - 1) * part * beat
            woven.append(store(whole.operands["offset"] + done, part, LINEAR.store("outputs")))
        woven += stores
    return [*woven, *pieces]
