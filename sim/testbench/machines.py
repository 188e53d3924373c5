"""Small programs for whole machines, and what they leave in memory."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.firmware.device import program as commands
from gradloom.firmware.device import registers
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig
from gradloom.rtl.shell.table import table_of, table_words

from ..run.counted import counted
from .vectors import draw

__all__ = ["PROGRAMS", "BenchRun", "machine_content", "programs"]

#: First byte of the window, and the most beats of a burst.
_BASE, _LONGEST = 0x1_0000, 16
_PAGE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchRun:
    """A program, what it finds in the window, and what it leaves there.

    ``expected``: bytes at offsets, each with a mask of the bits that are known.
    """

    segments: Sequence[tuple[int, bytes]]
    program: int
    instructions: Sequence[Any]
    expected: Sequence[tuple[int, bytes, bytes]]

    def content(self, beat_bytes: int) -> dict[str, Any]:
        """Plain values of ``vectors.json``."""
        ends = [offset + len(raw) for offset, raw in self.segments]
        ends += [offset + len(raw) for offset, raw, _ in self.expected]
        told = counted(self.instructions, beat_bytes=beat_bytes)
        return {
            "segments": [[offset, raw.hex()] for offset, raw in self.segments],
            "program": self.program,
            "commands": len(self.instructions),
            "size": -(-max(ends) // _PAGE) * _PAGE,
            "expected": [[offset, raw.hex(), mask.hex()] for offset, raw, mask in self.expected],
            "counters": {name.upper(): value for name, value in told.items()},
        }


def _known(offset: int, raw: bytes) -> tuple[int, bytes, bytes]:
    return offset, raw, b"\xff" * len(raw)


#: Edges of the images and whether a convolution goes first, the most telling network first.
_NETWORKS = ((4, True), (3, True), (2, False))


def image(config: ImageConfig) -> list[BenchRun]:
    """A step of fine-tuning, of layers that the design holds."""
    for edge, conv in _NETWORKS:
        try:
            return _image(config, edge, conv)
        except ValueError:  # too large: a smaller one
            continue
    return []


def _image(config: ImageConfig, edge: int, conv: bool) -> list[BenchRun]:
    from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
    from gradloom.systems.images.integers import fill_cache, fine_tune, records
    from gradloom.systems.images.program.lowering import lower
    from gradloom.systems.images.program.program import Settings, parameters, plan_finetune

    front = [ConvLayer(weight=draw("w0", 6, 2, 1, 2, 2) / 32, bias=draw("b0", 6, 2) / 64, relu=True)] if conv else []
    inputs = 2 * (edge - 1) ** 2 if conv else edge**2
    last = DenseLayer(weight=draw("w1", 6, 2, inputs) / 64, bias=draw("b1", 6, 2) / 64)
    layers: tuple[ConvLayer | DenseLayer, ...] = (*front, last)
    network = LayerNetwork(name="small", input_shape=(1, edge, edge), layers=layers)
    samples = 2 if edge == 4 else 1
    lowered = lower(network, config, 1)
    asked = Settings(samples=samples, epochs=1, batch=samples)
    images, labels = draw("x", 17, samples, *network.input_shape), np.arange(samples) % 2
    a = [draw(f"a {n}", 12, 1, tap.elements) for n, tap in enumerate(lowered.taps)]
    b = [draw(f"b {n}", 12, network.classes, 1) for n, _ in enumerate(lowered.taps)]
    plan = plan_finetune(lowered, asked, images, labels, a, b)
    cache = fill_cache(lowered, images)
    told = fine_tune(lowered, asked, cache, labels, a, b)
    learnt = [list(each) for each in zip(*told.adapters(), strict=True)]
    words = parameters(lowered, *learnt)
    masks = parameters(lowered, *[[np.full_like(each, -1) for each in side] for side in learnt])
    losses = b"".join(
        loss.to_bytes(8, "little") + count.to_bytes(4, "little") + correct.to_bytes(4, "little")
        for loss, count, correct in zip(told.losses, told.counts, told.correct, strict=True)
    )
    expected = [_known(plan.losses, losses), (plan.lanes, words["lanes"], masks["lanes"])]
    expected.append((plan.b, words["head"], masks["head"]))
    if plan.slots:
        expected.append(_known(plan.records, records(lowered, cache)[: plan.slots].tobytes()))
    return [
        BenchRun(
            segments=plan.segments, program=plan.offset, instructions=plan.assembler.instructions, expected=expected
        )
    ]


class _Recorder:
    """Takes the place of a host, and keeps what it would store."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, bytes]] = []

    def store(self, offset: int, content: bytes) -> None:
        self.segments.append((offset, bytes(content)))


def language(config: LanguageConfig) -> list[BenchRun]:
    """A training step of one linear layer by gradient descent."""
    from gradloom.program.assembler import Assembler
    from gradloom.rtl.formats.weights.tiles import tile_rows
    from gradloom.rtl.shell.engines import CONTROL
    from gradloom.rtl.shell.signature import ControlOpcode
    from gradloom.systems.text.run.linear import (
        LinearMachine,
        LinearStart,
        choose_exponents,
        mathematics,
        reference_step,
    )

    edge, rank, tokens, rate = config.edge, min(4, config.rank), min(5, config.tokens), 0.25
    layer = LinearStart(
        codes=draw("codes", 5, edge, edge) & 15,
        scale_codes=draw("scales", 9, edge, 1) & 255,
        absmax2=np.full(-(-edge // 256), 1 / 32, np.float32),
        offset=float(np.float32(0.08)),
        a=draw("a", 10, rank, edge) / 2.0**13,
        b=draw("b", 10, edge, rank) / 2.0**15,
        x=draw("x", 12, tokens, edge) / 2.0**9,
        dy=draw("dy", 12, tokens, edge) / 2.0**24,
    )
    exponents = choose_exponents(layer, mathematics(layer, rate))
    recorder = _Recorder()
    machine = LinearMachine(config, host=recorder)
    plan = machine.plan(layer, exponents, 1 << 16)
    assembler = Assembler()
    plan.product(assembler)
    plan.product(assembler, backward=True)
    plan.gradients(assembler)
    plan.update(assembler, rate)
    assembler.add(CONTROL, ControlOpcode.END)
    told = reference_step(layer, exponents, rate).tensors
    # B lies in memory the other way round.
    tensors = {name: told[name].T if name == "b" else told[name] for name in ("y", "dx", "ga", "gb", "a", "b")}
    return [
        BenchRun(
            segments=[*recorder.segments, (0, assembler.code)],
            program=0,
            instructions=assembler.instructions,
            expected=[_known(getattr(plan.place, name), tile_rows(each, edge)) for name, each in tensors.items()],
        )
    ]


def recurrent(config: RecurrentConfig | SequenceConfig) -> list[BenchRun]:
    """Loads a small LSTM, then runs its steps."""
    from gradloom.systems.sequences.program.program import CellProgram, CellSetup

    from .engines import small_lstm

    small = small_lstm(config)
    setup, steps = CellSetup(small.image, config), CellProgram(small.image, small.x, config)
    (batch,) = steps.batches
    assert batch.state is not None
    expected = [(batch.hidden.offset, *small.hidden), (batch.state.offset, *small.states)]
    return [
        BenchRun(
            segments=list(each.contents()),
            program=each.offset,
            instructions=each.instructions,
            expected=expected if each is steps else [],
        )
        for each in (setup, steps)
    ]


def sequence(config: SequenceConfig) -> list[BenchRun]:
    """Those of both."""
    return image(config) + recurrent(config)


def diffusion(config: DiffusionConfig) -> list[BenchRun]:
    """A LoRA step of a few operations of a UNet, with their gradients."""
    from gradloom.graph.base import Tensor
    from gradloom.graph.operations import Activation, Convolution, Linear, Norm
    from gradloom.systems.diffusion.program.step import Stepper, lowered
    from gradloom.systems.diffusion.unet import learners_of, network

    from ..reference.tiles.program import TileMachine

    sides, features = (4, 4), 16
    names = ("latents", "projected", "normed", "active", "conv_out")
    x, projected, normed, active, result = (Tensor(name, sides, features) for name in names)
    listed = [
        Linear((x,), projected, "to_q", rank=4),
        Norm((projected,), normed, "norm", eps=1e-5, over_rows=True, groups=4),
        Activation((normed,), active, "silu"),
        Convolution((active,), result, "conv", kernel=(3, 3), stride=(1, 1), pads=((1, 1), (1, 1)), dilation=(1, 1)),
    ]
    values = {each.name: draw(each.name, 8, *each.shape) / 256 for one in listed for each in one.weights}
    learnt = {name: values[name] for name in learners_of(listed)}
    step = lowered(config, network(listed, values), learnt, images=1, lr=1e-3)
    written: list[tuple[int, bytes]] = []

    class Kept(TileMachine):
        """Keeps what a host would store."""

        def write(self, offset: int, content: bytes) -> None:
            super().write(offset, content)
            written.append((offset, content))

    memory = Kept(config, step.program.length)
    Stepper(step, memory, learnt)({"latents": draw("x", 8, 1, 16, features)}, draw("noise", 8, 1, 16, features))
    places = [(each.offset, each.size) for each in step.shown.values()]
    for each in step.learners.values():
        places += [(each.gradient.offset, each.gradient.size), (each.codes.offset, each.codes.size)]
        places += [(each.words.words, each.words.size), (each.words.moments, 2 * each.words.size)]
    return [
        BenchRun(
            segments=written,
            program=step.program.offset,
            instructions=step.program.instructions,
            expected=[_known(offset, memory.read(offset, size)) for offset, size in places],
        )
    ]


#: Programs by the class of a machine's configuration.
PROGRAMS: dict[type, Callable[[Any], list[BenchRun]]] = {
    ImageConfig: image,
    LanguageConfig: language,
    RecurrentConfig: recurrent,
    SequenceConfig: sequence,
    DiffusionConfig: diffusion,
}


def programs(config: Any) -> list[BenchRun]:
    """Programs of a machine; none for one of another kind."""
    make = PROGRAMS.get(type(config))
    return [] if make is None else make(config)


def machine_content(
    config: Any, runs: Iterable[BenchRun], addresses: Mapping[str, int], ports: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Plain values of ``vectors.json`` for a machine.

    ``addresses``: of registers by name; ``ports``: as in ``report.json``.
    """
    unknown = bytearray(commands.end())
    unknown[1] = unknown[1] & 0xF0 | 0xF  # engine 15
    codes = {name: code for code, (name, _) in registers.ERRORS.items()}
    holding = ("WATCHDOG", "WINDOW_BASE_LO", "WINDOW_SIZE", "PROGRAM_OFFSET", "PROGRAM_COMMANDS", "BASE_ID")
    masks = {
        name: (1 << next(w for f, (_, w) in registers.FIELDS.items() if f.startswith(f"{name}."))) - 1
        for name in holding
    }
    refused = (
        ("unknown engine", bytes(unknown), "UNKNOWN_ENGINE"),
        ("a load beyond the window", commands.load(_PAGE, 1, 0), "LOAD_WINDOW"),
    )
    return {
        "registers": dict(addresses),
        "inputs": [p["name"] for p in ports if p["direction"] == "input" and p["name"] not in ("clk", "rst")],
        "managers": ["m_axi", *(f"m_axi_{n}" for n in range(1, config.ports))],
        "port_bits": config.port_bits,
        "base": _BASE,
        "longest": _LONGEST,
        "constants": dict(registers.CONSTANTS) | {"STATUS": getattr(config, "requests", 0) << 9},
        "table": table_words(table_of(config)),
        "holding": masks,
        "refusals": [
            {"what": what, "code": (raw + commands.end()).hex(), "status": 2, "error": codes[name]}
            for what, raw, name in refused
        ]
        + [{"what": "the smallest program", "code": commands.end().hex(), "status": 1}],
        "runs": [run.content(config.data_bits // 8) for run in runs],
    }
