"""A machine of the engines on tiles, and programs whose STOREs forward records between them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gradloom.program.placed import PlacedProgram
from gradloom.rtl.engines.element.parameters import ElementParameters
from gradloom.rtl.engines.element.spec import SPEC as ELEMENT
from gradloom.rtl.engines.norm.parameters import NormParameters
from gradloom.rtl.engines.norm.spec import SPEC as NORM
from gradloom.rtl.engines.product.parameters import ProductParameters
from gradloom.rtl.engines.product.spec import SPEC as PRODUCT
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import CONTROL, Engines
from gradloom.rtl.shell.parameters import ShellParameters, parameter
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.reference.element import ElementModel
from gradloom.sim.reference.norm import NormModel
from gradloom.sim.reference.product import ProductModel

__all__ = ["CONFIG", "MACHINE", "Chain", "ForwardConfig"]

MACHINE = Machine(Engines(PRODUCT, ELEMENT, NORM))


@dataclass(frozen=True, kw_only=True)
class ForwardConfig(ProductParameters, ElementParameters, NormParameters, ShellParameters):
    """Its configuration."""

    home: ClassVar = f"{__name__}:MACHINE"

    forwards: int = parameter(1, 0, 1)


#: Two chains of 16 rows, four passes of 16 columns. Each of its engines runs programs of its own on it, too.
CONFIG = ForwardConfig(array_rows=32, array_columns=16, x_slots=8, w_slots=8, norm_slots=16)


class Chain(PlacedProgram):
    """Sums, softmaxes and products in a row, each of what the one before forwarded.

    LOADs fill other slots of the same ports meanwhile, and later commands use what these brought. ``only``: some
    forwards leave memory out, whose places are in :attr:`untouched`; else none does.
    """

    def __init__(self, seed, rounds, *, only=True, config=CONFIG):
        super().__init__(config)
        self.rng = np.random.default_rng(seed)
        self.models = {"product": ProductModel(config), "element": ElementModel(config), "norm": NormModel(config)}
        self.only = only
        self.expected, self.untouched = [], []
        for _ in range(rounds):
            self.round(int(self.rng.integers(1, 65)), int(self.rng.integers(1, 65)))
            self.add(CONTROL, ControlOpcode.FENCE)
        self.end()

    def round(self, rows, features):
        """A sum to the norm and the product engine; a softmax to the product and the element engine; a product back."""
        self.shape = rows, features
        size = {"rows": rows - 1, "features": features - 1}
        half = int(self.rng.integers(0, 2))
        self._fill("element", "a", half)
        self._fill("element", "b", half, post=(0,))
        self._run("element", ElementOpcode.ADD, wait=(0,), post=(1,), a=half, b=half, o=half, fresh=1, **size)
        self._beside("norm", "a", range(1, 5))
        self._pass("element", half, ("norm", "a"), 0, wait=(1,), post=(2,))
        self._pass("element", half, ("product", "w"), 3, wide=False, post=(3,))
        self._pass("element", half, ("norm", "a"), 5, wide=False)
        factor = {"mantissa": 1 << 16, "exponent": -18}
        self._run("norm", NormOpcode.SOFTMAX, wait=(2,), post=(4,), a=0, o=half, fresh=1, **factor, **size)
        self._beside("product", "x", range(2, 6))
        self._pass("norm", half, ("product", "x"), 7, wide=False, wait=(4,), post=(5,))
        self._beside("element", "a", (5, 6), post=(6,))
        self._pass("norm", half, ("element", "a"), 4, post=(7,))
        whole = {"rows": rows - 1, "columns": features - 1, "k_to": min(rows, features) - 1}
        product = {"w": 3, "tiles": 0, "fresh": 1, "start": 1, "last": 1, **whole}
        self._run("product", ProductOpcode.PRODUCT, wait=(3, 5), post=(8,), x=7, o=half, **product)
        self._beside("norm", "b", (1, 2))
        self._pass("product", half, ("norm", "b"), 0, wait=(8,))
        self._pass("product", half, ("element", "b"), 4, post=(9,))
        self._run("element", ElementOpcode.ADD, wait=(7,), a=4, b=half, o=2, fresh=1, **size)
        self._run("element", ElementOpcode.ADD, wait=(6, 9), post=(1,), a=5, b=4, o=3, fresh=1, **size)
        self._keep("element", 2, wait=(1,))
        self._keep("element", 3)
        # What LOADs brought beside the forwards.
        self.add(CONTROL, ControlOpcode.FENCE)
        self._run("element", ElementOpcode.ADD, a=6, b=4, o=0, fresh=1, **size)
        self._run("norm", NormOpcode.SOFTMAX, a=3, o=2, fresh=1, **factor, **size)
        self._run("norm", NormOpcode.SOFTMAX_BACK, a=4, b=0, o=3, fresh=1, **factor, **size)
        self._run("norm", NormOpcode.SOFTMAX, a=5, o=1, fresh=1, **factor, **size)
        self._run("product", ProductOpcode.PRODUCT, x=4, o=2, **product)
        self.add(CONTROL, ControlOpcode.FENCE)
        for engine, slot in (("element", 0), ("norm", 1), ("norm", 2), ("norm", 3), ("product", 2)):
            self._keep(engine, slot)

    def _run(self, engine, opcode, *, wait=(), post=(), **operands):
        self.models[engine].run(opcode, operands)
        self.do(engine, opcode, wait=wait, post=post, **operands)

    def _fill(self, engine, port, slot, count=1, **tokens):
        """A LOAD of records of random codes."""
        rows, features = self.shape
        bits = NARROW if engine == "product" else WIDE
        most = (1 << bits - 1) - 1
        record = TileRecord(rows, features, bits)
        content = b"".join(
            record.pack(self.rng.integers(0, most + 1, (rows, features)), int(self.rng.integers(-20, -16)))
            for _ in range(count)
        )
        argument = tile_argument(slot, rows, features)
        self.models[engine].load(port, argument, content)
        self.load(self.put(np.frombuffer(content, "<i4")), engine, port, arg=argument, **tokens)

    def _beside(self, engine, port, slots, **tokens):
        self._fill(engine, port, slots[0], len(slots), **tokens)

    def _store(self, engine, slot, wide):
        rows, features = self.shape
        record = TileRecord(rows, features, WIDE if wide else NARROW)
        argument = tile_argument(slot, rows, features, wide=wide)
        place = self.put(np.zeros(record.size // 4, int))
        return place, argument, self.models[engine].store("o", argument, record.beats)

    def _pass(self, engine, slot, to, to_slot, *, wide=True, **tokens):
        """A STORE that forwards."""
        place, argument, content = self._store(engine, slot, wide)
        short = not wide and to[0] != "product"
        to_arg, only = tile_argument(to_slot, *self.shape, short=short), self.only and bool(self.rng.integers(0, 2))
        self.models[to[0]].load(to[1], to_arg, content)
        self.store(place, engine, "o", arg=argument, to=to, to_arg=to_arg, only=only, **tokens)
        if only:
            self.untouched.append(place)
        else:
            self.expected.append((place, content))

    def _keep(self, engine, slot, **tokens):
        """A STORE to memory alone."""
        place, argument, content = self._store(engine, slot, True)
        self.expected.append((place, content))
        self.store(place, engine, "o", arg=argument, **tokens)
