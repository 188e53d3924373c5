"""Fine-tunes of recurrent networks by adapters from their last states.

Of each sequence the cell engine runs the frozen network once. It writes the taps, sums of codes at the sequence's end,
to memory, from where the engines that learn take them as an image: they encode them for the forward cache, make the
base's logits by the dense layer behind the recurrent node, and learn the adapter from the cache. No gradient passes
through time. All is one program.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.boards import find as find_board
from gradloom.models.files.archive import read_npz
from gradloom.models.network import LayerNetwork
from gradloom.models.recurrent.host import seen
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import QUARTERS, TapSums, check_head, parts_of, scales_for, tap_network
from gradloom.models.sequences import (
    SequenceSet,
    check_sequences,
    fold_of,
    load_sequences,
    spar_model,
    spar_person,
    taken,
)
from gradloom.options import check_request
from gradloom.output import some
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.machines.fit import check_fit
from gradloom.sim.reference import cell as reference
from gradloom.systems.images.mathematics import FloatCache, cached_value
from gradloom.systems.images.program.program import Settings
from gradloom.systems.images.task import Adapters, ImageTask
from gradloom.systems.job import Job
from gradloom.systems.task import Outcome
from gradloom.workload import Progress

from .answer import check_fits, real_front, real_layers, sequences_of
from .program.image import CellImage
from .program.taps import TapWriter
from .taps import filled, input_sums, start_of, tap_sums, tap_words
from .workload import RecordedOptions, SequenceOptions, SequenceWorkload

__all__ = ["SHIFTS", "SequenceTask", "Tapped", "check_steps", "prepare", "real_taps", "steps_behind", "tapped"]

#: Scales of the shipped networks' taps, which :func:`~gradloom.models.recurrent.taps.scales_for` gives on the
#: recordings of the people whom they have seen.
SHIFTS = (11, 10, 5, 7)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tapped:
    """Sequences as the machine takes them.

    Attributes
    ----------
    recurrent : RecurrentNetwork
    network : Network
        The dense layer behind it, on the taps.
    taps : TapSums
    data : SequenceSet
    source : array of int64
        Codes that reach the machine, to learn from; see :class:`~..reference.cell.Trace`.
    train, test : array of int64
        Activations of the taps, Q8.16, ``[n, *network.input_shape]``.
    clipped : int
        How many of them were.
    """

    recurrent: RecurrentNetwork
    network: LayerNetwork
    taps: TapSums
    data: SequenceSet
    source: np.ndarray
    train: np.ndarray
    test: np.ndarray
    clipped: int


def tapped(recurrent: RecurrentNetwork, data: SequenceSet, taps: TapSums | None, parallel: int = 1) -> Tapped:
    """Runs the frozen network on sequences.

    ``taps``: their scales; None: they follow from ``data.x_train``. ``parallel``: of the design.
    """
    trace, judged = (_run(recurrent, x) for x in (data.x_train, data.x_test))
    train, test = (tap_sums(recurrent, each, parallel) for each in (trace, judged))
    taps = taps or scales_for(recurrent, train, parallel)
    steps = steps_behind(recurrent, data.x_train)
    words = [tap_words(taps, each) for each in (train, test)]
    return Tapped(
        recurrent=recurrent,
        network=tap_network(recurrent, taps, steps),
        taps=taps,
        data=data,
        source=trace.source,
        train=words[0][0],
        test=words[1][0],
        clipped=sum(over for _, over in words),
    )


def steps_behind(recurrent: RecurrentNetwork, x: np.ndarray) -> int:
    """Steps of sequences at the cell, behind the layers in front."""
    steps = x.shape[1]
    for layer in recurrent.front:
        steps = layer.steps(steps)
    return steps


def check_steps(recurrent: RecurrentNetwork, x: np.ndarray, name: str) -> None:
    """Refuses sequences with fewer steps at the cell than quarters."""
    steps = steps_behind(recurrent, x)
    if steps < QUARTERS:
        raise ValueError(
            f"{name}: its sequences have {some(x.shape[1], 'step')}, {steps} of them at the cell: at least "
            f"{QUARTERS}, one a quarter"
        )


def _check(recurrent: RecurrentNetwork, x: np.ndarray, name: str) -> None:
    check_fits(recurrent, x, name)
    check_steps(recurrent, x, name)


def _run(network: RecurrentNetwork, x: np.ndarray) -> reference.Trace:
    return reference.run(network, network.codes(x))


def prepare(job: Job) -> "SequenceTask":
    """The fine-tune of a request."""
    asked: SequenceOptions = job.options
    workload = job.preset.workload
    assert isinstance(workload, SequenceWorkload)
    if asked.engine != "float":
        check_fit(job.config, find_board(job.preset.board))
    ready = _load(asked, job.config.parallel, job.tell)
    own = workload.settled(asked)
    person = (asked.person or 1) if asked.data is None else None
    options = replace(asked, **own, person=person, limit=len(ready.train))
    settings = Settings(
        samples=len(ready.train),
        epochs=own["epochs"],
        batch=own["batch"],
        rate=own["lr"],
        momentum=own["momentum"],
        schedule=own["schedule"],
        seed=options.seed,
        weights=options.factors(ready.data.y_train, ready.network.classes),
    )
    return SequenceTask(job, options, ready, settings)


def _load(asked: SequenceOptions, parallel: int, tell: Progress) -> Tapped:
    if asked.data is not None and asked.person is not None:
        raise ValueError(f"person={asked.person}: must be left out, the data are in {asked.data}")
    if asked.data is not None and asked.model is None:
        raise ValueError(f"data={asked.data}: needs a network of its own: name its file in place of the preset")
    if asked.base is not None and asked.model is None:
        raise ValueError(f"base={asked.base}: must be left out, the shipped network's scales are known")
    if asked.data is None:
        check_request("without data, whose recordings have a part to judge by", needless={"held_out": asked.held_out})
        check_request("without data", needless={name: getattr(asked, name) for name in RecordedOptions.known()})
    person = asked.person or 1
    recurrent = load_network(spar_model(fold_of(person)) if asked.model is None else asked.model)
    classes = len(check_head(recurrent).bias)
    if asked.data is None:
        data, name = spar_person(person), f"person={person}"
        if recurrent.tokens or (recurrent.channels, classes) != (data.channels, data.classes):
            raise ValueError(
                f"model={asked.model}: takes {taken(recurrent.channels, recurrent.tokens)} and has {classes} classes, "
                f"the shipped recordings {taken(data.channels, 0)} and {data.classes}; give --data"
            )
    else:
        data = load_sequences(
            Path(asked.data),
            classes=classes,
            channels=recurrent.channels,
            tokens=recurrent.tokens,
            cut=asked.cut(),
            parts=asked.parts,
            divided=lambda arrays: asked.divided(
                arrays, "sequence", lambda held: sequences_of(held, recurrent, None, asked.cut())
            ),
        )
        name = f"data={asked.data}"
    if asked.limit is not None:
        if asked.limit > len(data.x_train):
            raise ValueError(f"limit={asked.limit}: there are {len(data.x_train)} training sequences")
        # Spread over all, which may lie class behind class.
        kept = np.arange(asked.limit) * len(data.x_train) // asked.limit
        data = replace(data, x_train=data.x_train[kept], y_train=data.y_train[kept])
    for x in (data.x_train, data.x_test):
        _check(recurrent, x, name)
    base = None if asked.base is None else _base(Path(asked.base), recurrent)
    tell(0, 0, "taps of the sequences")
    taps = TapSums(parts=parts_of(recurrent, parallel), shifts=SHIFTS) if asked.model is None else None
    if base is not None:
        taps = scales_for(recurrent, tap_sums(recurrent, _run(recurrent, base), parallel), parallel)
    return tapped(recurrent, data, taps, parallel)


def _base(path: Path, recurrent: RecurrentNetwork) -> np.ndarray:
    x = read_npz(path, ["x"])["x"]
    try:
        check_sequences("x", x, recurrent.channels, recurrent.tokens)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    _check(recurrent, x, f"base={path}")
    return x if recurrent.tokens else x.astype(np.float32)


class SequenceTask(ImageTask):
    """A fine-tune of a recurrent network.

    The host computes all convolutions in front but the last. In floating point the recurrent network is, too; its
    weights are as the codes have them.
    """

    def __init__(self, job: Job, options: SequenceOptions, ready: Tapped, settings: Settings) -> None:
        self.ready, self.person = ready, options.person
        if options.engine != "float":
            image = CellImage(ready.recurrent, job.config)
            self.ahead = TapWriter(image, job.config, image.windows(ready.source), ready.taps.shifts)
        super().__init__(job, options, ready.network, ready.data, settings)

    def initial(self) -> Adapters:
        """See :class:`~..images.task.ImageTask`."""
        ready = self.ready
        return start_of(ready.recurrent, ready.taps, self.rank, self.settings.seed, self.job.config.parallel)

    def activations(self) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`~..images.task.ImageTask`."""
        return self.ready.train, self.ready.test

    def cached(self, x: np.ndarray) -> FloatCache:
        """See :class:`~..images.task.ImageTask`."""
        ready = self.ready
        taps = real_taps(ready.recurrent, ready.taps, x, self.job.config.parallel)
        full = np.zeros((len(x), int(np.prod(ready.taps.shape))))
        full[:, : taps.shape[1]] = taps
        dense = ready.network.layers[0]
        return FloatCache(taps=[cached_value(full, self.options.cache)], logits=full @ dense.weight.T + dense.bias)

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~..task.Task`."""
        ready = self.ready
        return super().describe(outcome) | {
            "person": self.person,
            "steps_a_sequence": ready.data.x_train.shape[1],
            "taps": {part.name: part.size for part in ready.taps.parts},
            "tap_shifts": list(ready.taps.shifts),
            "taps_clipped": ready.clipped,
            "judged": len(ready.test),
        }


def real_taps(network: RecurrentNetwork, taps: TapSums, x: np.ndarray, parallel: int = 1) -> np.ndarray:
    """Taps in float64 of the network without quantisers.

    ``[n, elements]``, in the units of the integers.
    """
    cells = list(real_layers(network, x))
    layers = network.front[:-1] if network.last_conv is not None else network.front
    source = real_front(layers, seen(network.before, x))
    found = []
    for part, shift in zip(taps.parts, taps.shifts, strict=True):
        cell, (hidden, state) = network.layers[part.layer][part.way], cells[part.layer][part.way]
        assert cell is not None
        if part.kind == "input":
            made, unit = input_sums(network, source.astype(np.float64), parallel), network.source.scale
        elif part.kind == "tanh c":
            made, unit = np.tanh(state), network.as_lstm(cell).squashed.scale
        else:
            made, unit = hidden[:, -1] if part.kind == "h" else hidden.sum(axis=1), cell.hidden.scale
        found.append(filled(made, part) / unit * 2.0 ** (shift - ACTIVATION.frac))
    return np.concatenate(found, axis=1)
