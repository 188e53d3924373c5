"""A fine-tune with the Scale engine.

Factors undo the drift of the features' gains.
"""
import numpy as np

from gradloom.program.placed import PlacedProgram
from gradloom.systems.task import ProgramTask

from .commands import FACTOR, ScaleOpcode
from .reference import ScaleReference

#: Fraction bits of features.
FRAC = 12


class GainTask(ProgramTask):
    """Learns s of y = s * x by the squared error (y - t)**2 / 2.

    It takes as many samples as the engine keeps.

    Its gradient dy = y - t is sent in two parts, y as it came from FORWARD and then -t: sums of ds add up.
    """

    def __init__(self, job):
        super().__init__(job, job.options, steps=job.options.steps)
        config, rng = job.config, np.random.default_rng(job.options.seed)
        rows, channels = config.kept // config.factors, config.factors * config.data_bits // 32
        x = rng.normal(size=(2 * rows, channels))
        t = x * rng.uniform(0.5, 1.5, channels) + rng.normal(scale=0.05, size=x.shape)
        (self.x, self.held_x), (self.t, self.held_t) = (
            np.rint(each * 2**FRAC).astype(np.int64).reshape(2, rows, channels) for each in (x, t))
        self.start = np.full(channels, 1 << FACTOR.frac)
        # ds has 2 * FRAC fraction bits and is a sum over the samples.
        self.shift = 2 * FRAC - FACTOR.frac + round(np.log2(rows / job.options.lr))
        self.program = self._program(config)

    def _program(self, config):
        program = PlacedProgram(config)
        start, x, minus_t = program.put(self.start), program.put(self.x), program.put(-self.t)
        y, s = program.room(self.steps, *self.x.shape), program.room(*self.start.shape)
        self.places = {"y": y, "factors": s}
        size = {"beats": config.kept, "groups": config.factors}
        program.load(start, "scale", "factors", post=(0,))
        for step in range(self.steps):
            program.do("scale", ScaleOpcode.FORWARD, **size, wait=() if step else (0,))
            program.load(x, "scale", "x")
            program.store(y[step], "scale", "y", post=(1,))
            program.do("scale", ScaleOpcode.BACKWARD, **size)
            program.load(y[step], "scale", "x", wait=(1,))
            program.do("scale", ScaleOpcode.BACKWARD, **size, add=1)
            program.load(minus_t, "scale", "x")
            program.do("scale", ScaleOpcode.UPDATE, groups=config.factors, shift=self.shift, post=(2,))
            # Factors are stored, the last ones last, so that no token is left over.
            program.store(s, "scale", "factors", wait=(2,))
        program.end()
        return program

    def reference(self):
        """See ``ProgramTask``."""
        scale, y = ScaleReference(self.start), []
        for _ in range(self.steps):
            y.append(scale.forward(self.x))
            scale.backward(y[-1], dx=False)
            scale.backward(-self.t, add=True, dx=False)
            scale.update(self.shift)
        return self.outcome({"y": np.array(y), "factors": scale.factors}, saturated=scale.saturated)

    def mathematics(self):
        """See ``ProgramTask``."""
        s, y = self.start, []
        for _ in range(self.steps):
            y.append(self.x * s * FACTOR.step)
            s = s - (self.x * (y[-1] - self.t)).sum(axis=0) * 2.0**-self.shift
        return self.outcome({"y": np.array(y), "factors": s})

    def losses(self, results):
        """See ``ProgramTask``."""
        return [_loss(y, self.t) for y in results["y"]]

    def judged(self, results):
        """On the other half of the samples."""
        return {f"loss_{when}": _loss(self.held_x * s * FACTOR.step, self.held_t)
                for when, s in (("before", self.start), ("after", results["factors"]))}


def _loss(y, t):
    return float(((y - t) ** 2).mean() / 2 * 4.0**-FRAC)
