"""A recurrent network on a stream: an answer a sample, and adapters that learn on command."""

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.taps import TapSums, tap_network
from gradloom.models.sequences import check_sequences
from gradloom.output import some
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.reference import cell as reference
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import MachineRunner, check_runs
from gradloom.sim.time.forecast import forecast

from ..images.integers import compared_words, fill_cache, fine_tune, logits, mean_losses, records
from ..images.program.lowering import lower
from ..images.program.program import Settings, image_words, plan_finetune
from ..images.simulated import run_plan
from .answer import check_fits
from .program.image import CellImage
from .program.program import CellSetup
from .program.taps import TapProgram, TapWriter
from .taps import start_of, tap_sums, tap_words
from .task import check_steps, steps_behind
from .workload import SequenceWorkload

__all__ = ["Answer", "LiveLearnt", "Live"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Logits ``[classes]`` behind a sample, the label, and cycles from doorbell to interrupt."""

    logits: np.ndarray
    label: int
    cycles: int


@dataclass(frozen=True, kw_only=True)
class LiveLearnt:
    """Sequences that were learnt from, mean loss of each step, and cycles from doorbell to interrupt."""

    sequences: int
    losses: list[float]
    cycles: int


class Live:
    """A network that answers each sample of a stream, and learns from the last ones when it is told to.

    The host keeps the last samples in a ring. The machine makes the taps of the last ``steps`` of them for each answer;
    the dense layer and the adapter behind them are the host's, in the machine's integers. A command to learn is one
    program, that of a fine-tune. All words equal the reference, and all counters the forecast, else
    :class:`~gradloom.sim.run.counted.MismatchError` is raised.

    Parameters
    ----------
    machine : Machine
        Of ``config``.
    network : RecurrentNetwork
    config : SequenceConfig
    taps : TapSums
        With scales for the network: see :func:`~gradloom.models.recurrent.taps.scales_for`.
    steps : int
        Samples of a sequence.
    ring : int
        Samples that are kept.
    hop : int
        Samples from one sequence to the next, of those to learn from.
    rate : float
        Samples a second that arrive.
    workload : SequenceWorkload
        Rank, and how adapters learn.

    Raises
    ------
    ValueError
        The network, the ring or the rate does not fit the machine.

    Attributes
    ----------
    cycles : int
        Of an answer, by forecast.
    most_rate : float
        Samples a second that the machine answers.
    """

    def __init__(
        self,
        machine: MachineRunner,
        network: RecurrentNetwork,
        config: Any,
        taps: TapSums,
        *,
        steps: int,
        ring: int,
        hop: int,
        rate: float,
        workload: SequenceWorkload,
    ) -> None:
        for name, value, least in (("hop", hop, 1), ("ring", ring, steps)):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        silence = np.zeros((1, steps) if network.tokens else (1, steps, network.channels))
        check_steps(network, silence, f"steps={steps}")
        self.machine, self.network, self.config, self.taps = machine, network, config, taps
        self.steps, self.hop, self.workload = steps, hop, workload
        self.dense = tap_network(network, taps, steps_behind(network, silence))
        self.lowered = lower(self.dense, config, workload.rank)
        pairs = start_of(network, taps, workload.rank, 0, config.parallel)
        self.adapters = [(PARAMETER.encode(a), PARAMETER.encode(b)) for a, b in pairs]
        self.image = CellImage(network, config)
        source = reference.run(network, network.codes(silence)).source
        self.image.check_taps(source.shape[1])
        self.cycles = forecast(self._program(source)).total
        self.most_rate = config.clock_mhz * 1e6 / self.cycles
        if not 0 < rate <= self.most_rate:
            raise ValueError(
                f"rate={rate:.9g}: must be above 0 and at most {int(self.most_rate):,} samples a second: an answer "
                f"takes {self.cycles:,} cycles at {config.clock_mhz:g} MHz"
            )
        self.ring: deque[tuple[np.ndarray, int | None]] = deque(maxlen=ring)
        machine.run(CellSetup(self.image, config)).check(saturated=0)

    def sample(self, x: Any, label: int | None = None) -> Answer | None:
        """The answer behind a sample; None before ``steps`` of them are there.

        ``x`` : ``[channels]``, or a token. ``label`` : its class, where it is known; the sample may be learnt from.
        """
        network, found = self.network, np.asarray(x)
        check_sequences("sample", found[None, None], network.channels, network.tokens)
        if label is not None and not 0 <= label < self.dense.classes:
            raise ValueError(f"label={label}: must be from 0 to {self.dense.classes - 1}")
        self.ring.append((found, label))
        if len(self.ring) < self.steps:
            return None
        window = np.stack([each for each, _ in self.ring][-self.steps :])[None]
        source, words, clipped = self._taps(window)
        program = self._program(source)
        ran = self.machine.run(program)
        ran.check(saturated=clipped)
        made = self.machine.words(program.taps).reshape(words.shape)
        check_words({"taps": made}, {"taps": words})
        first = [a[:, tap.order] for tap, (a, _) in zip(self.lowered.taps, self.adapters)]
        found = logits(self.lowered, fill_cache(self.lowered, made), first, [b for _, b in self.adapters])[0]
        return Answer(logits=ACTIVATION.decode(found), label=int(found.argmax()), cycles=ran.counters.cycles)

    def learn(self, count: int) -> LiveLearnt:
        """Learns from the last ``count`` samples.

        Sequences end at the last sample and every ``hop`` before; each whose samples all have one class is taken. The
        adapter goes on from what was learnt before.
        """
        if not self.steps <= count <= len(self.ring):
            raise ValueError(
                f"count={count}: must be from {self.steps}, {some(self.steps, 'sample')} of a sequence, to "
                f"{len(self.ring)}, the samples in the ring"
            )
        samples, labels = zip(*list(self.ring)[-count:])
        ends = [end for end in range(count, self.steps - 1, -self.hop) if len(set(labels[end - self.steps : end])) == 1]
        taken = [end for end in ends[::-1] if labels[end - 1] is not None]
        if not taken:
            raise ValueError(
                f"count={count}: has no {some(self.steps, 'sample')} behind one another of one class: give their "
                "labels to sample()"
            )
        x = np.stack([np.stack(samples[end - self.steps : end]) for end in taken])
        y = np.array([labels[end - 1] for end in taken])
        check_fits(self.network, x, f"count={count}")
        source, words, _ = self._taps(x)
        workload = self.workload
        settings = Settings(
            samples=len(x),
            epochs=workload.epochs,
            batch=workload.batch,
            rate=workload.lr,
            momentum=workload.momentum,
            schedule=workload.schedule,
        )
        start = [[pair[which] for pair in self.adapters] for which in (0, 1)]
        # The cache has samples of a fine-tune before.
        forget = PlacedProgram(self.config)
        forget.add(CONTROL, ControlOpcode.CLEAR)
        forget.end()
        self.machine.run(forget).check(saturated=0)
        writer = TapWriter(self.image, self.config, self.image.windows(source), self.taps.shifts)
        made = run_plan(plan_finetune(self.lowered, settings, words, y, *start, ahead=writer), self.machine)
        kept = fill_cache(self.lowered, words)
        wanted = fine_tune(self.lowered, settings, kept, y, *start)
        check_runs(
            [made.ran],
            [asdict(wanted.health)],
            made.words,
            compared_words(
                self.lowered,
                wanted.losses,
                wanted.correct,
                wanted.adapters(),
                records(self.lowered, kept)[: len(made.records)],
                image_words(self.lowered, words),
            ),
        )
        self.adapters = list(zip(made.a, made.b))
        return LiveLearnt(
            sequences=len(x), losses=mean_losses(made.losses, wanted.counts), cycles=made.ran.counters.cycles
        )

    def _taps(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Codes that reach the machine, taps of the reference, and how many of those were clipped."""
        trace = reference.run(self.network, self.network.codes(x))
        return trace.source, *tap_words(self.taps, tap_sums(self.network, trace, self.config.parallel))

    def _program(self, source: np.ndarray) -> TapProgram:
        return TapProgram(self.image, self.config, self.image.windows(source), self.taps)
