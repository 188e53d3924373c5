"""Image networks in the forms that exporters give them: computed as onnxruntime does, or refused in one line."""

from collections import Counter

import numpy as np
import onnx

from gradloom.rtl.models.onnx_import import load_onnx
from gradloom.sim.workloads.mathematics import forward

from .looks import DEEP
from .onnx_images import draw, error_of, runtime

COUNT = 4000 if DEEP else 100
#: What onnxruntime's kernels of exp and log may be off by.
_KERNEL = 2.0**-20


def answers(logits, tail):
    """What the graph's own end makes of the logits, and how far it may carry an error of them, from its slope."""
    if tail == "Sigmoid":
        return 1 / (1 + np.exp(-logits)), 1 / 4
    if not tail:
        return logits, 1.0
    shifted = logits - logits.max(axis=1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return (np.exp(log), 1 / 2) if tail == "Softmax" else (log, 2.0)


def compare(seed, drawn, network):
    logits = forward(network, network.pixel_map(drawn.images))[1]
    want = runtime(drawn.model, drawn.x)
    got, slope = answers(logits[:, -want.shape[1] :], drawn.tail)
    off = slope * error_of(seed, drawn).max(axis=1, keepdims=True)
    off = off + _KERNEL * (1 + np.abs(want)) * bool(drawn.tail)
    assert got.shape == want.shape and (np.abs(got - want) <= off).all(), (seed, np.abs(got - want).max(), off.max())
    # The class, wherever it is clear.
    if want.shape[1] == 1:
        sides = want[:, 0] - (0.5 if drawn.tail else 0)
        gap, label = np.abs(sides), sides > 0
    else:
        ordered = np.sort(want, axis=1)
        gap, label = (ordered[:, -1] - ordered[:, -2]) / 2, want.argmax(axis=1)
    clear = gap > off.max(axis=1)
    assert (logits.argmax(axis=1) == label)[clear].all(), seed
    return clear


def test_a_network_is_computed_as_onnxruntime_does_or_refused_in_a_line(tmp_path):
    path, taken, refused, clear, kinds = tmp_path / "m.onnx", 0, [], [], Counter()
    for seed in range(COUNT):
        drawn = draw(seed)
        onnx.save(drawn.model, path)
        try:
            network = load_onnx(path)
        except ValueError as error:
            said = str(error)
            assert said.startswith(f"{path}: ") and "\n" not in said, (seed, said)
            kinds[drawn.harmful] += 1
            if not drawn.harmful:
                refused.append((seed, said))
            continue
        clear.append(compare(seed, drawn, network))
        taken += not drawn.harmful
    print(f"{taken} taken, {len(refused)} without need; refused by kind:", dict(kinds))
    assert not refused, refused
    assert taken >= COUNT / 3 and np.concatenate(clear).mean() > 0.9
