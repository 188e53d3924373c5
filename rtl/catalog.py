"""Stand-alone units for ``generate UNIT`` and ``run UNIT``."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gradloom.plugins import Table

__all__ = ["KNOWN", "UNITS", "UnitParameter", "Unit", "find_unit", "parse_settings"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitParameter:
    """A parameter that a user may set.

    It is an integer with bounds, a truth value, or one of some words.
    """

    name: str
    default: int | bool | str
    description: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def type_name(self) -> str:
        """``integer``, ``true or false``, or the words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        return f"integer {self.low} to {self.high}"

    def parse(self, value: object) -> int | bool | str:
        """``value`` as the parameter's type.

        :class:`ValueError` names field, value and bound.
        """
        if self.choices:
            if value in self.choices:
                return str(value)
        elif isinstance(self.default, bool):
            known = {"true": True, "false": False, "1": True, "0": False}
            if str(value).lower() in known:
                return known[str(value).lower()]
        else:
            try:
                number = int(str(value), 0)
            except ValueError:
                number = None
            if (
                number is not None
                and (self.low is None or number >= self.low)
                and (self.high is None or number <= self.high)
            ):
                return number
        raise ValueError(f"{self.name}={value}: must be {self.type_name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """A stand-alone unit.

    ``make`` turns parameters into a component and imports its modules.

    ``adapter``, for ``gradloom run``: ``module:name`` of a :class:`~gradloom.sim.units.adapter.UnitAdapter`; most of
    ours are in the table of :mod:`gradloom.sim.units.adapters` instead.
    """

    name: str
    summary: str
    parameters: tuple[UnitParameter, ...]
    make: Callable[..., Any]
    adapter: str | None = None

    def settings(self, given: Mapping[str, object]) -> dict[str, int | bool | str]:
        """Every parameter's value: as ``given``, else its default."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise ValueError(f"{name}: unit {self.name} has no such parameter; it has {', '.join(known)}")
        return {
            name: parameter.parse(given[name]) if name in given else parameter.default
            for name, parameter in known.items()
        }

    def build(self, **given: object) -> Any:
        """The component."""
        component = self.make(**self.settings(given))
        component._MustUse__used = True  # A request that is refused later leaves it unused: no warning is due.
        return component


def parse_settings(items: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` strings as a dictionary."""
    settings: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ValueError(f"--set {item}: must be KEY=VALUE")
        if key.strip() in settings:
            raise ValueError(f"--set {item}: {key.strip()} was set before")
        settings[key.strip()] = value.strip()
    return settings


def find_unit(name: str) -> Unit:
    """The unit called ``name``.

    :class:`ValueError` lists the known ones otherwise.
    """
    return KNOWN.find(name)


def _of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"gradloom.rtl.{module}"), name)


def _integer(name: str, default: int, low: int, high: int, description: str) -> UnitParameter:
    return UnitParameter(name=name, default=default, low=low, high=high, description=description)


def _mesh(rows: int, cols: int, x_bits: int, w_bits: int) -> Any:
    precision = _of("systolic.pe", "Precision")(x=x_bits, w=w_bits)
    return _of("systolic.mesh", "Mesh")(rows=rows, columns=cols, precision=precision)


def _optimizer(lanes: int, offset: int, rounding: str, seed: int) -> Any:
    rounding_mode = _of("formats.fixed", "Rounding")(rounding)
    return _of("units.optimizer", "OptimizerStep")(lanes=lanes, offset=offset, rounding=rounding_mode, seed=seed)


def _lstm(**sizes: int) -> Any:
    spec = _of("engines.cell.spec", "SPEC")
    return spec.unit(spec, _of("machines.configs.recurrent", "RecurrentConfig")(**sizes))


_LANES = _integer("lanes", 4, 1, 64, "words in a beat")

UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            name="mesh",
            summary="weight-stationary systolic array; the next tile's weights load underneath",
            parameters=(
                _integer("rows", 16, 1, 64, "rows: length of a dot product in a tile"),
                _integer("cols", 16, 1, 64, "columns: results a cycle"),
                _integer("x_bits", 24, 2, 25, "bits of an activation"),
                _integer("w_bits", 18, 2, 18, "bits of a weight"),
            ),
            make=_mesh,
        ),
        Unit(
            name="int8-chain",
            summary="products of 8-bit tiles, two a slice; tiles of different powers of two add up",
            parameters=(
                _integer("rows", 16, 4, 64, "rows of a tile; at most a chain, or a multiple of it"),
                _integer("cols", 8, 1, 64, "columns: sums a cycle; even where slices make two products"),
                _integer("tokens", 64, 1, 1024, "most activation rows of a tile"),
                UnitParameter(
                    name="family",
                    default="xcup",
                    choices=("xcup", "xc7", "ecp5"),
                    description="chip: chains of 16 rows, of 4, or one product a multiplier",
                ),
            ),
            make=lambda rows, cols, tokens, family: _of("units.int8_chain", "Int8Chain")(
                rows=rows, columns=cols, tokens=tokens, family=family
            ),
            adapter="gradloom.sim.units.int8_chain:ADAPTER",
        ),
        Unit(
            name="nf4-encode",
            summary="activations to 4-bit codes and block scales",
            parameters=(
                _integer("lanes", 1, 1, 16, "elements in a beat; at most block / 16, a divisor of it"),
                _integer("block", 64, 16, 256, "elements that share a scale; a multiple of 16"),
            ),
            make=lambda lanes, block: _of("units.encoder", "NF4Encoder")(lanes=lanes, block=block),
        ),
        Unit(
            name="nf4-decode",
            summary="4-bit codes and block scales to fixed-point words",
            parameters=(_LANES,),
            make=lambda lanes: _of("units.decoder", "NF4Decoder")(lanes=lanes),
        ),
        Unit(
            name="lora-forward",
            summary="h = A x of an adapter, elements streaming",
            parameters=(
                _integer("rank", 4, 1, 16, "rank of the adapter"),
                _integer("lanes", 4, 1, 16, "elements of x in a beat"),
            ),
            make=lambda rank, lanes: _of("units.lora_forward", "LoraForward")(rank=rank, lanes=lanes),
        ),
        Unit(
            name="lora-gradient",
            summary="dB += d h' and dh = B' d of an adapter, a rank index a beat",
            parameters=(
                _integer("classes", 10, 1, 64, "outputs of the adapter"),
                _integer("depth", 4, 1, 1024, "rank indices"),
                _integer("samples", 32, 1, 64, "most samples that are summed"),
            ),
            make=lambda **given: _of("units.lora_gradient", "LoraGradient")(**given),
        ),
        Unit(
            name="softmax-cross-entropy",
            summary="softmax, loss and gradient of streaming logits",
            parameters=(_integer("max_length", 16, 2, 65536, "longest vector of logits"),),
            make=lambda max_length: _of("units.softmax", "SoftmaxCrossEntropy")(max_length=max_length),
        ),
        Unit(
            name="sha256",
            summary="SHA-256 of bytes as they arrive",
            parameters=(),
            make=lambda: _of("units.sha256", "Sha256")(),
        ),
        Unit(
            name="optimizer",
            summary="SGD with momentum on Q4.12 words",
            parameters=(
                _LANES,
                _integer("offset", 9, -1, 24, "fraction bits of a gradient sum beyond its exponent"),
                UnitParameter(
                    name="rounding",
                    default="nearest-even",
                    choices=("nearest-even", "floor", "stochastic"),
                    description="how a new word is rounded",
                ),
                _integer("seed", 1, 1, (1 << 31) - 64, "start of the noise of stochastic rounding"),
            ),
            make=_optimizer,
        ),
        Unit(
            name="window",
            summary="convolution front end: windows of a feature map that streams in",
            parameters=(
                _integer("max_kernel", 5, 1, 7, "largest kernel edge"),
                _integer("max_width", 32, 4, 256, "widest feature map"),
                _integer("max_height", 32, 4, 256, "highest feature map"),
            ),
            make=lambda **given: _of("units.window.window", "WindowGenerator")(**given),
        ),
        Unit(
            name="post-process",
            summary="bias, rounding, ReLU and max-pool behind the array",
            parameters=(_integer("lanes", 16, 1, 64, "results in a beat"),),
            make=lambda lanes: _of("units.post", "PostProcess")(lanes=lanes),
        ),
        Unit(
            name="vector",
            summary="SwiGLU, RMSNorm, residual sums, RoPE and softmax, forward and backward",
            parameters=(
                _integer("lanes", 8, 2, 16, "elements in a beat, a power of two"),
                _integer("tokens", 64, 2, 4096, "most rows of a norm, a power of two"),
                _integer("features", 2048, 64, 4096, "longest row of a norm, a power of two"),
                _integer("head", 128, 32, 1024, "longest row that RoPE turns, a power of two"),
            ),
            make=lambda **given: _of("engines.vector.engine", "VectorEngine")(**given),
        ),
        Unit(
            name="lstm",
            summary="quantised LSTM, weights beside their slices",
            parameters=(
                _integer("hidden", 64, 8, 256, "most elements of the hidden state, a power of two"),
                _integer("inputs", 64, 8, 256, "most elements of the input, a power of two"),
                _integer("parallel", 2, 1, 8, "elements of the hidden state in a cycle, a power of two"),
                _integer("products", 2, 1, 2, "products that a DSP slice makes in a cycle"),
                _integer("state_bits", 9, 4, 10, "bits of a code of the cell state"),
                _integer("sequences", 8, 1, 64, "most sequences whose steps take turns, a power of two"),
                _integer("window", 32, 8, 256, "most codes of a convolution's window, a power of two"),
                _integer("table_cycles", 1, 1, 2, "cycles from a code to the answer of its table"),
            ),
            make=_lstm,
            adapter="gradloom.sim.units.lstm:ADAPTER",
        ),
    )
}

#: With those of plug-ins.
KNOWN: Table[Unit] = Table("unit", "gradloom.units", UNITS, holds="gradloom.rtl.catalog:Unit")
