"""Formats of the image machine, and layouts of its cache records."""

from .fixed import Fixed

__all__ = [
    "ACTIVATION",
    "DECODED",
    "GRADIENT_EXPONENTS",
    "LEVEL",
    "PARAMETER",
    "PROBABILITY",
    "SCALE",
    "SCALES_PER_BEAT",
    "VELOCITY",
]

#: Activations between layers, logits and losses: Q8.16.
ACTIVATION = Fixed(width=24, frac=16)
#: Weights and adapter words: Q4.12.
PARAMETER = Fixed(width=16, frac=12)
#: A cached activation as the adapters see it, decoded: Q8.10.
DECODED = Fixed(width=18, frac=10)
#: Largest magnitude of a block of cached activations.
SCALE = Fixed(width=16, frac=8, is_signed=False)
#: Level of a code, as a fraction of its block's scale.
LEVEL = Fixed(width=9, frac=7)
#: What the optimiser subtracts from a parameter, and keeps between steps.
VELOCITY = Fixed(width=27, frac=23)
#: Probability minus target.
PROBABILITY = Fixed(width=18, frac=16)
#: Fraction bits that a gradient may have at the output; the learning rate selects one.
GRADIENT_EXPONENTS = (24, 20, 16, 12)
#: A beat of scales in a cache record: the index of its first, and seven scales.
SCALES_PER_BEAT = 7
