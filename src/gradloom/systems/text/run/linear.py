"""A training step of one quantised linear layer.

It runs in RTL, by the reference, and in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.device.host import Accelerator, ProgramCounters
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW, learning_rate
from gradloom.program.placed import Written
from gradloom.program.progress import check_progress
from gradloom.rtl.formats.codebook import NF4
from gradloom.rtl.formats.weights.blocks import dequantize_scales
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER, WEIGHT
from gradloom.rtl.formats.weights.tiles import fraction_bits, tile_moments, tile_rows, untile_moments, untile_rows
from gradloom.rtl.formats.weights.weight_stream import pack_stream
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.reference import linear as reference
from gradloom.sim.reference.gradient import gradient
from gradloom.sim.reference.update import adamw, update
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.run.machine import MachineRunner

from ..program.engines.linear import Exponents, LayerMap, LayerPlan, LayerShape, chain

__all__ = [
    "START",
    "ProductChain",
    "LinearStart",
    "LinearMachine",
    "LinearStep",
    "choose_exponents",
    "errors",
    "linear_machine",
    "mathematics",
    "reference_step",
    "values",
]

#: Where layers begin in memory, behind their program.
START = 1 << 18
_SPARE = MASTER.width - WEIGHT.width
#: Bits that a result may grow by before its exponent, chosen from float, would clip it.
_HEADROOM = 1


@dataclass(frozen=True, kw_only=True)
class LinearStart:
    """Weights and values from which a step starts.

    Parameters
    ----------
    codes : ``[outputs, inputs]``, 4-bit codes of the frozen weights.
    scale_codes : ``[outputs, inputs / edge]``; absmax2, offset : float32. Their double-quantised block scales.
    a, b : ``[rank, inputs]``, ``[outputs, rank]``, float; the adapter's factor alpha / rank is in ``b``.
    x, dy : ``[tokens, inputs]``, ``[tokens, outputs]``, float.
    """

    codes: np.ndarray
    scale_codes: np.ndarray
    absmax2: np.ndarray
    offset: float
    a: np.ndarray
    b: np.ndarray
    x: np.ndarray
    dy: np.ndarray

    @property
    def shape(self) -> LayerShape:
        return LayerShape(
            outputs=self.codes.shape[0], inputs=self.codes.shape[1], rank=self.a.shape[0], tokens=self.x.shape[0]
        )

    @property
    def weights(self) -> np.ndarray:
        """Decoded weights, float64."""
        scales = dequantize_scales(self.scale_codes.reshape(-1), self.absmax2, self.offset)
        block = self.codes.shape[1] // self.scale_codes.shape[1]
        return np.asarray(NF4.levels)[self.codes] * np.repeat(
            scales.astype(np.float64).reshape(self.scale_codes.shape), block, axis=1
        )


@dataclass(frozen=True, kw_only=True)
class LinearStep:
    """Results of a step, by tensor name.

    ``y``, ``dx``, ``h``, ``dh``, ``ga``, ``gb``, and new words ``a``, ``b``.

    AdamW has moments too: ``ma``, ``mb``, ``m`` and ``v`` stacked, of the shape of ``ga`` and ``gb``.
    """

    tensors: dict[str, np.ndarray]
    saturated: int = 0
    cycles: int = 0


@dataclass(frozen=True, kw_only=True)
class ProductChain:
    """Results of products back to back.

    ``words`` of each, cycles and beats read by the counters, the program.
    """

    words: list[np.ndarray]
    cycles: int
    read_beats: int
    instructions: Sequence[Instruction]


def mathematics(layer: LinearStart, rate: float) -> LinearStep:
    """The step in float64."""
    w, x, dy, a, b = layer.weights, *(np.asarray(v, np.float64) for v in (layer.x, layer.dy, layer.a, layer.b))
    h, dh = x @ a.T, dy @ b
    ga, gb = dh.T @ x, h.T @ dy
    return LinearStep(
        tensors={
            "y": x @ w.T + h @ b.T,
            "dx": dy @ w + dh @ a,
            "h": h,
            "dh": dh,
            "ga": ga,
            "gb": gb,
            "a": a - rate * ga,
            "b": b - rate * gb.T,
        }
    )


def choose_exponents(layer: LinearStart, exact: LinearStep, *, spare: int = 0) -> Exponents:
    """Each tensor's own power of two.

    Operands are as large as fits, results have a bit to spare.

    h and dh have none: gradients see 18 of their bits. ``spare``: further bits for activations and gradients, as where
    their exponents are chosen before they are known.
    """
    largest = np.abs(dequantize_scales(layer.scale_codes.reshape(-1), layer.absmax2, layer.offset)).max()
    made = {
        name: fraction_bits(exact.tensors[name], ACTIVATION.width, headroom=spare + headroom)
        for name, headroom in (("h", 0), ("dh", 0), *((each, _HEADROOM) for each in ("y", "dx", "ga", "gb")))
    }
    return Exponents(
        x=fraction_bits(layer.x, ACTIVATION.width, headroom=spare),
        dy=fraction_bits(layer.dy, ACTIVATION.width, headroom=spare),
        w=fraction_bits(largest, WEIGHT.width),
        a=fraction_bits(layer.a, WEIGHT.width, headroom=_HEADROOM),
        b=fraction_bits(layer.b, WEIGHT.width, headroom=_HEADROOM),
        **made,
    )


def _words(values: np.ndarray, frac: int, width: int) -> np.ndarray:
    high = (1 << width - 1) - 1
    return np.clip(np.rint(np.asarray(values, np.float64) * 2.0**frac), -high - 1, high).astype(np.int64)


def _start(layer: LinearStart, e: Exponents) -> dict[str, np.ndarray]:
    return {
        "x": _words(layer.x, e.x, ACTIVATION.width),
        "dy": _words(layer.dy, e.dy, ACTIVATION.width),
        "a": _words(layer.a, e.a + _SPARE, MASTER.width),
        "b": _words(layer.b, e.b + _SPARE, MASTER.width),
    }


def reference_step(
    layer: LinearStart,
    e: Exponents,
    rule: float | AdamW,
    *,
    number: int = 1,
    moments: Mapping[str, np.ndarray] | None = None,
) -> LinearStep:
    """The step in the machine's words.

    It is by SGD with a rate, or update ``number`` of AdamW after ``moments``.
    """
    start = _start(layer, e)
    w, lost = reference.decoded(layer.codes, layer.scale_codes, layer.absmax2, layer.offset, frac=e.w)
    a, b = reference.lanes(start["a"]), reference.lanes(start["b"])
    forward = reference.product(start["x"], w, a, b, **e.product(backward=False))
    backward = reference.product(start["dy"], w.T, b.T, a.T, **e.product(backward=True))
    ga, lost_a = gradient(start["x"], backward.h, shift=e.gradient("ga"))
    gb, lost_b = gradient(start["dy"], forward.h, shift=e.gradient("gb"))
    made = {}
    new, cut = {}, 0
    for name, g, g_frac, frac in (("a", ga, e.ga, e.a), ("b", gb, e.gb, e.b)):
        p = start[name] if name == "a" else start[name].T
        if isinstance(rule, AdamW):
            m, v = np.zeros((2, *p.shape), np.int64) if moments is None else moments[f"m{name}"]
            p, m, v, ends = adamw(p, g, m, v, **rule.operands(number, g_frac, frac + _SPARE))
            made[f"m{name}"] = np.stack([m, v])
        else:
            word, shift = learning_rate(rule, g_frac, frac + _SPARE)
            p, ends = update(p, g, rate=word, shift=shift)
        new[name], cut = p, cut + ends
    # The scales are decoded in both directions.
    saturated = 2 * lost + forward.saturated + backward.saturated + lost_a + lost_b + cut
    return LinearStep(
        tensors={
            "y": forward.y,
            "dx": backward.y,
            "h": forward.h,
            "dh": backward.h,
            "ga": ga,
            "gb": gb,
            "a": new["a"],
            "b": new["b"].T,
            **made,
        },
        saturated=saturated,
    )


def values(step: LinearStep, e: Exponents) -> dict[str, np.ndarray]:
    """Words of a step as float64, without moments."""
    frac = {name: getattr(e, name) for name in ("y", "dx", "h", "dh", "ga", "gb")}
    frac |= {"a": e.a + _SPARE, "b": e.b + _SPARE}
    return {name: words * 2.0 ** -frac[name] for name, words in step.tensors.items() if name in frac}


def linear_machine(
    config: LanguageConfig, memory_bytes: int, tell: Callable[[str], None] | None = None, files: Sequence[Path] = ()
) -> MachineRunner:
    """The machine of a configuration in simulation.

    It is built from ``files`` or generated; ``tell`` is called with each long task. Its memory has at least
    :data:`MEMORY_BYTES`, so that small models of different sizes share a simulation that is built once.
    """
    return MachineRunner.simulated(
        config,
        files,
        memory_bytes=max(memory_bytes, MEMORY_BYTES),
        progress=None if tell is None else lambda done, total, text: total or tell(text),
    )


class LinearMachine:
    """A generated machine in simulation, asked for steps of layers.

    Counters and cycles of each program are compared with the forecast.

    Parameters
    ----------
    config : :class:`LanguageConfig`
    memory_bytes : int
    host : Host, optional
        Access to a machine, in place of one in simulation.
    tell : callable, optional
        Told what takes long.
    """

    def __init__(
        self,
        config: LanguageConfig,
        *,
        memory_bytes: int = MEMORY_BYTES,
        host: Any = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.config = config
        self.machine = linear_machine(config, memory_bytes, tell) if host is None else MachineRunner(host)
        self.host: Any = self.machine.host
        self.device = self.machine.device

    def close(self) -> None:
        """Ends the simulation, if there is one."""
        self.machine.close()

    def products(
        self,
        layers: Sequence[LinearStart],
        *,
        exponents: Sequence[Exponents],
        backward: bool = False,
        with_adapter: bool = True,
    ) -> "ProductChain":
        """``y``, or ``dx``, of each layer, in one program."""
        plans = self._plans(layers, exponents)
        jobs = [plan.job(backward=backward) for plan in plans]
        if not with_adapter:
            jobs = [replace(job, rank=0, lanes=()) for job in jobs]
        program = Assembler()
        chain(program, jobs, self.config)
        counters = self._run(program)
        name = "dx" if backward else "y"
        return ProductChain(
            words=[self._fetch(plan, name) for plan in plans],
            cycles=counters.cycles,
            read_beats=counters.read_beats,
            instructions=program.instructions,
        )

    def _store(self, layer: LinearStart, e: Exponents, place: LayerMap) -> None:
        edge, start = self.config.edge, _start(layer, e)
        shape = layer.shape.stream(self.config)
        stream = pack_stream(
            shape,
            np.asarray(layer.codes, np.uint8),
            np.asarray(layer.scale_codes, np.uint8),
            layer.absmax2,
            layer.offset,
        )
        self.host.store(place.tables, stream[: shape.header_bytes].tobytes())
        self.host.store(place.tiles, stream[shape.header_bytes :].tobytes())
        for name, words in (("x", start["x"]), ("dy", start["dy"]), ("a", start["a"]), ("b", start["b"].T)):
            self.host.store(getattr(place, name), tile_rows(words, edge))

    def step(
        self,
        layer: LinearStart,
        e: Exponents,
        rule: float | AdamW,
        *,
        number: int = 1,
        moments: Mapping[str, np.ndarray] | None = None,
    ) -> LinearStep:
        """Runs a step in RTL, with the results of :func:`reference_step`.

        ``cycles`` from bell to interrupt.
        """
        plan = self.plan(layer, e, START, moments)
        program = Assembler()
        plan.product(program)
        plan.product(program, backward=True)
        plan.gradients(program)
        plan.update(program, rule, step=number)
        counters = self._run(program)
        return LinearStep(tensors=self.results(plan, rule), saturated=counters.saturated, cycles=counters.cycles)

    def stack(
        self, layers: Sequence[LinearStart], exponents: Sequence[Exponents], rule: float | AdamW
    ) -> list[LinearStep]:
        """Runs a step of layers one behind the other, in one program.

        All go forward, then all backward from the last on.

        The gradients' inputs from a forward product wait in memory. Cycles and clipped words are those of all.
        """
        plans = self._plans(layers, exponents)
        program = Assembler()
        for plan in plans:
            plan.product(program)
            plan.keep_hidden(program)
        for plan in reversed(plans):
            plan.product(program, backward=True)
            plan.restore_hidden(program)
            plan.gradients(program)
            plan.update(program, rule)
        counters = self._run(program)
        return [
            LinearStep(tensors=self.results(plan, rule), saturated=counters.saturated, cycles=counters.cycles)
            for plan in plans
        ]

    def _plans(self, layers: Sequence[LinearStart], exponents: Sequence[Exponents]) -> list[LayerPlan]:
        """Of layers one behind the other."""
        plans: list[LayerPlan] = []
        for layer, e in zip(layers, exponents, strict=True):
            plans.append(self.plan(layer, e, plans[-1].place.end if plans else START))
        return plans

    def plan(
        self, layer: LinearStart, e: Exponents, start: int, moments: Mapping[str, np.ndarray] | None = None
    ) -> LayerPlan:
        """A layer's tensors in memory from byte ``start`` on, and its plan.

        AdamW's moments are 0 unless given.
        """
        place = LayerMap.place(layer.shape, self.config, start)
        plan = LayerPlan(shape=layer.shape, exponents=e, place=place, config=self.config)
        self._store(layer, e, place)
        for name, size in _adapters(layer.shape).items():
            m, v = np.zeros((2, *size), np.int64) if moments is None else moments[f"m{name}"]
            self.host.store(getattr(plan.place, f"m{name}"), tile_moments(m, v, self.config.edge))
        return plan

    def _run(self, program: Assembler) -> ProgramCounters:
        program.add(CONTROL, ControlOpcode.END)
        if len(program.code) > START:
            raise ValueError(
                f"layers: a program of {len(program.code)} bytes must be at most {START}; give fewer tiles"
            )
        check_progress(program.instructions, LANGUAGE, depth=self.config.queue_depth)
        ran = self.machine.run(
            Written(config=self.config, instructions=program.instructions, code=program.code, offset=0)
        )
        if isinstance(self.host, Accelerator):
            # Firmware in its place tells some of the counters only.
            ran.check()
        return ran.counters

    def _fetch(self, plan: LayerPlan, name: str) -> np.ndarray:
        """A tensor of words, ``[rows, features]`` as it lies in memory."""
        rows, features = _sizes(plan.shape)[name]
        data = self.host.fetch(getattr(plan.place, name), 4 * rows * features)
        return untile_rows(data, rows, features, self.config.edge)

    def results(self, plan: LayerPlan, rule: float | AdamW) -> dict[str, np.ndarray]:
        """Results of a step of :meth:`plan` in memory, by tensor name."""
        found = {name: self._fetch(plan, name) for name in _sizes(plan.shape)}
        found["b"] = found["b"].T
        if isinstance(rule, AdamW):
            for name, (rows, features) in _adapters(plan.shape).items():
                data = self.host.fetch(getattr(plan.place, f"m{name}"), 8 * rows * features)
                found[f"m{name}"] = np.stack(untile_moments(data, rows, features, self.config.edge))
        return found


def _adapters(shape: LayerShape) -> dict[str, tuple[int, int]]:
    """Rows and features of the adapter's tensors as they lie in memory."""
    return {"a": (shape.rank, shape.inputs), "b": (shape.rank, shape.outputs)}


def _sizes(shape: LayerShape) -> dict[str, tuple[int, int]]:
    """Rows and features of each result as it lies in memory."""
    adapters = _adapters(shape)
    return {
        "y": (shape.tokens, shape.outputs),
        "dx": (shape.tokens, shape.inputs),
        "ga": adapters["a"],
        "gb": adapters["b"],
        **adapters,
    }


def errors(found: Mapping[str, np.ndarray], exact: LinearStep) -> dict[str, float]:
    """Relative RMS error of each tensor against float64."""
    return {
        name: float(np.sqrt(np.mean((found[name] - value) ** 2)) / np.sqrt(np.mean(value**2)))
        for name, value in exact.tensors.items()
        if name in found and np.any(value)
    }
