"""Operands of the optimisers' commands, from what torch calls them."""

import math
from dataclasses import dataclass, replace

from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.adamw import BETA, BIAS, EPS, FRACTION

__all__ = ["AdamW", "Lion", "at_rate", "command", "learning_rate", "scaled"]


#: Exponent without a rate, of words without fraction: every step is shifted to nothing.
_NOTHING = 896


def learning_rate(rate: float, gradient_frac: int, word_frac: int) -> tuple[int, int]:
    """Learning rate as ``(word, shift)``.

    ``word * g * 2**-shift`` is the step of a word of ``word_frac`` fraction bits.
    """
    if not rate:
        return 0, 0
    mantissa, exponent = math.frexp(rate)
    word = round(mantissa * (1 << 16))
    shift = 16 - exponent + gradient_frac - word_frac
    if word == 1 << 16 and shift > 0:
        word, shift = word >> 1, shift - 1
    if not 0 <= shift < 64:
        raise ValueError(f"lr={rate}: its step needs a shift of {shift}, must be 0 to 63")
    return word, shift


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """The rule of ``torch.optim.AdamW``.

    The betas are rounded to multiples of 2**-17; all other constants follow from them.

    Parameters
    ----------
    lr : float
        At least 0.
    betas : (float, float)
        The first in [0, 1), the second in [0.5, 1).
    eps : float
        At least 0.
    weight_decay : float
        Times ``lr`` below 1.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("lr", self.lr, 0.0, math.inf),
            ("betas[0]", self.betas[0], 0.0, 1.0),
            ("betas[1]", self.betas[1], 0.5, 1.0),
            ("eps", self.eps, 0.0, math.inf),
            ("lr * weight_decay", self.lr * self.weight_decay, 0.0, 1.0),
        ):
            if not low <= value < high:
                raise ValueError(f"{name}={value}: must be at least {low:g} and less than {high:g}")

    @property
    def beta_words(self) -> tuple[int, int]:
        """Both betas with 17 fraction bits."""
        first, second = (min(round(beta * (1 << BETA)), (1 << BETA) - 1) for beta in self.betas)
        return first, second

    @property
    def moment_scales(self) -> tuple[float, float]:
        """Factors from the moments in memory to those of torch.

        torch's moments are ``exp_avg`` and ``exp_avg_sq``.
        """
        first, second = (1 - beta / (1 << BETA) for beta in self.beta_words)
        return first, second

    @property
    def furthest(self) -> float:
        """Rates that an update moves a word, at most.

        By the inequality of Cauchy and Schwarz of the sums of ``beta1**n g`` and ``beta2**n g**2``: about 7.3 with the
        usual betas. Bias correction and decay make it less.
        """
        first, second = (beta / (1 << BETA) for beta in self.beta_words)
        if first**2 >= second:
            return math.inf
        return (1 - first) / math.sqrt((1 - second) * (1 - first**2 / second))

    def operands(self, step: int, gradient_frac: int, word_frac: int) -> dict[str, int]:
        """Operands of update number ``step``, from 1 on.

        Words and gradients have the given fraction bits.

        With M and V the sums in memory, ``lr m^ / (sqrt(v^) + eps)`` is ``rate M / (sqrt(V) + eps')``.
        """
        if step < 1:
            raise ValueError(f"step={step}: must be at least 1")
        (first, second), (mean, spread) = self.beta_words, self.moment_scales
        root = math.sqrt((1 - (second / (1 << BETA)) ** step) / spread)
        rate = self.lr * mean / (1 - (first / (1 << BETA)) ** step) * root
        rate_word, rate_exponent = _float(rate, BETA)
        eps_word, eps_exponent = _float(self.eps * root, EPS)
        decay_shift, decay = max(
            (shift, word)
            for shift in range(4)
            if (word := round(self.lr * self.weight_decay * 2.0 ** (BETA + 5 * shift))) < 1 << BETA
        )
        return {
            "beta1": first,
            "beta2": second,
            "rate": rate_word,
            "exponent": _fitting("exponent", (BIAS + BETA - rate_exponent if rate else _NOTHING) - word_frac, 11),
            "eps": eps_word,
            "eps_exponent": _fitting("eps", eps_exponent, 10) if eps_word else -512,
            "gradient": _fitting("gradient_frac", BIAS - gradient_frac, 10),
            "decay": decay,
            "decay_shift": decay_shift,
        }


@dataclass(frozen=True, kw_only=True)
class Lion(AdamW):
    """The rule of Chen et al. (2302.06675): a step of ``lr`` by the sign of ``beta1 m + (1 - beta1) g``.

    m is then ``beta2 m + (1 - beta2) g``. It has AdamW's place for moments, of which v stays 0; ``eps`` has no meaning.

    Parameters
    ----------
    betas : (float, float)
        In [0, 1); ``beta1 (2 - beta2)`` below 1.
    """

    betas: tuple[float, float] = (0.9, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.betas[0] * (2 - self.betas[1]) < 1:
            raise ValueError(f"betas={self.betas}: betas[0] * (2 - betas[1]) must be below 1")

    @property
    def furthest(self) -> float:
        """Rates that an update moves a word: one."""
        return 1.0

    def operands(self, step: int, gradient_frac: int, word_frac: int) -> dict[str, int]:
        """Operands of an update, the same for each ``step``.

        With M the sum in memory, ``beta2 M + g``, the step has the sign of ``beta1 (1 - beta2) / (1 - beta1) M + g``.
        """
        now, kept = self.betas
        word, exponent = _float(self.lr, BETA)
        shift = FRACTION + BETA - exponent - word_frac if word else 0
        if not 0 <= shift < 64:
            raise ValueError(f"lr={self.lr:g}: its step needs a shift of {shift}, must be 0 to 63")
        return super().operands(1, gradient_frac, word_frac) | {
            "sign": 1,
            "beta1": min(round(kept * (1 << BETA)), (1 << BETA) - 1),
            "beta2": min(round(now * (1 - kept) / (1 - now) * (1 << BETA)), (1 << BETA) - 1),
            "rate": word,
            "exponent": shift,
            "eps": 0,
            "eps_exponent": 0,
        }


def scaled(rule: float | AdamW, factor: float) -> float | AdamW:
    """The rule of ``factor * w``, such that w changes as by ``rule``.

    ``factor * w`` is kept in place of w.

    Its gradient is that of w over ``factor``: SGD's step is ``factor**2`` times that, AdamW's ``factor`` times, for its
    direction knows no scale but that of eps.
    """
    if isinstance(rule, AdamW):
        return replace(rule, lr=rule.lr * factor, eps=rule.eps / factor, weight_decay=rule.weight_decay / factor)
    return rule * factor**2


def at_rate(rule: float | AdamW, factor: float) -> float | AdamW:
    """A rule with its learning rate times ``factor``."""
    return replace(rule, lr=rule.lr * factor) if isinstance(rule, AdamW) else rule * factor


def command(
    rule: float | AdamW, number: int, gradient_frac: int, word_frac: int
) -> tuple[UpdateOpcode, dict[str, int]]:
    """Opcode and operands of update ``number`` by a rule.

    The rule is AdamW, Lion, or SGD's rate.
    """
    if isinstance(rule, AdamW):
        return UpdateOpcode.ADAMW, rule.operands(number, gradient_frac, word_frac)
    word, shift = learning_rate(rule, gradient_frac, word_frac)
    return UpdateOpcode.SGD, {"rate": word, "shift": shift}


def _float(value: float, bits: int) -> tuple[int, int]:
    """``(word, exponent)`` with ``value = word * 2**(exponent - bits)``.

    The word's top bit is 1, except for 0.
    """
    mantissa, exponent = math.frexp(value)
    word = round(mantissa * (1 << bits))
    return (word >> 1, exponent + 1) if word >> bits else (word, exponent)


def _fitting(name: str, value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{name}: an exponent of {value} does not fit {bits} bits")
    return value
