"""Bit-exact head: logits, loss, gradients and update of B."""

from typing import NamedTuple

import numpy as np

from gradloom.rtl.formats.fixed import Fixed, Rounding
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.rounding import requantize, round_shift, saturate
from gradloom.sim.reference.loss import softmax_cross_entropy
from gradloom.sim.reference.optimizer import Noise, WordUpdate, optimize

__all__ = [
    "GRADIENT",
    "HeadLoss",
    "HeadStep",
    "adapter_gradients",
    "head_loss",
    "head_step",
    "head_update",
    "output_gradient",
]

#: d' and dh: 18 bits, the fraction follows from the gradient exponent.
GRADIENT = Fixed(width=18, frac=0)


class HeadLoss(NamedTuple):
    """Result of a step before B changes, in the formats of the hardware.

    All are integers.

    ``z``, ``d``, ``d_scaled`` (d'): (samples, classes). ``dh``: (samples, k). ``db``: (classes, k). ``loss`` and
    ``correct``: sums over the samples. ``saturated``: clipped words.
    """

    z: np.ndarray
    d: np.ndarray
    d_scaled: np.ndarray
    dh: np.ndarray
    db: np.ndarray
    loss: int
    correct: int
    saturated: int


class HeadStep(NamedTuple):
    """Result of a step.

    As :class:`HeadLoss`; ``b``, ``v``: (classes, k). ``saturated``, ``underflowed``, ``norm``: its additions to the
    health counters.
    """

    z: np.ndarray
    d: np.ndarray
    d_scaled: np.ndarray
    dh: np.ndarray
    db: np.ndarray
    b: np.ndarray
    v: np.ndarray
    loss: int
    correct: int
    saturated: int
    underflowed: int
    norm: int


def output_gradient(d, scale: int):
    """``(d', saturated)``: output gradient times learning rate over batch."""
    return saturate(round_shift(np.asarray(d) * scale, 16), GRADIENT.lo, GRADIENT.hi)


def adapter_gradients(d_scaled, b, h):
    """``(dh, db, saturated)`` of a microbatch.

    Shapes of the arguments: (samples, classes), (classes, k), (samples, k).
    """
    dh, over = saturate(round_shift(d_scaled @ b, 13), GRADIENT.lo, GRADIENT.hi)
    return dh, d_scaled.T @ h, over


def head_loss(h, base, labels, b, *, scale: int, max_classes: int = 10, activation: Fixed = ACTIVATION) -> HeadLoss:
    """Logits, loss and gradients of a microbatch.

    Parameters as of :func:`head_step`.
    """
    h, base, b = (np.asarray(x, dtype=np.int64) for x in (h, base, b))
    z, over_z = requantize(ACTIVATION, h @ b.T + (base << 12), activation.frac + 12)
    entropy = softmax_cross_entropy(z, labels, max_length=max_classes)
    d_scaled, over_d = output_gradient(entropy.d, scale)
    dh, db, over_h = adapter_gradients(d_scaled, b, h)
    return HeadLoss(
        z, entropy.d, d_scaled, dh, db, int(entropy.loss.sum()), int(entropy.correct.sum()), over_z + over_d + over_h
    )


def head_update(db, b, v, *, activation: Fixed = ACTIVATION, **rule) -> WordUpdate:
    """New B and velocity, both (k, classes).

    ``rule`` as of :func:`head_step`.
    """
    return optimize(np.asarray(b).T, np.asarray(v).T, db.T, offset=activation.frac, **rule)


def head_step(
    h,
    base,
    labels,
    b,
    v,
    *,
    scale: int,
    q: int,
    v_mode: int,
    apply: bool,
    mu: int = 0,
    max_classes: int = 10,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    noise: Noise | None = None,
    activation: Fixed = ACTIVATION,
) -> HeadStep:
    """One command STEP.

    Parameters
    ----------
    h : (samples, k) integers of ``activation``
    base : (samples, classes) integers of its fraction bits
        Logits of the frozen network.
    labels : (samples,) integers
    b, v : (classes, k) integers of Q4.12 and Fixed(27, 23)
    scale : int
        Learning rate over batch, times ``2**(24 - 4 * q)``; unsigned 18 bits.
    q, v_mode, apply, mu, rounding, noise
        Of :func:`~gradloom.sim.reference.optimizer.optimize`; words of B pass k by k, class by class.
    max_classes : int
        Of the unit.
    """
    made = head_loss(h, base, labels, b, scale=scale, max_classes=max_classes, activation=activation)
    update = head_update(
        made.db, b, v, q=q, v_mode=v_mode, apply=apply, mu=mu, rounding=rounding, noise=noise, activation=activation
    )
    return HeadStep(
        *made[:5],
        update.w.T.copy(),
        update.v.T.copy(),
        made.loss,
        made.correct,
        made.saturated + int(update.saturated.sum()),
        int(update.underflowed.sum()),
        int(update.magnitude.sum()),
    )
