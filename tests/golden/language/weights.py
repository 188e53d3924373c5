"""Weights of the small models in ``language.json``."""

import numpy as np


def weights(shapes, seed=7):
    """Float32 tensors, the same with every version of NumPy."""
    random = np.random.PCG64(seed)
    made = {}
    for name, shape in sorted(shapes.items()):
        uniform = (random.random_raw(int(np.prod(shape))) >> np.uint64(40)).astype(np.float64) / (1 << 24) - 0.5
        made[name] = (uniform.reshape(shape) * (0.5 if len(shape) == 2 else 1) + (len(shape) == 1)).astype(np.float32)
    return made
