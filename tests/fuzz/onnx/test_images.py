"""Image networks in the forms that exporters give them: computed as onnxruntime does, or refused in one line."""

from collections import Counter

import numpy as np
import onnx

from gradloom.models.onnx_import import load_onnx
from gradloom.systems.images.mathematics import forward

from ..looks import DEEP
from .damage import damage
from .images import draw, error_of
from .runtime import runtime

COUNT = 2000 if DEEP else 60
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


def taken(path, model):
    """The network in a model, None where it is refused, and the line that says why."""
    onnx.save(model, path)
    try:
        return load_onnx(path), ""
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{path}: ") and "\n" not in said, said
        return None, said


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
    without_need, clear, kinds = [], [], Counter()
    for seed in range(COUNT):
        drawn = draw(seed)
        network, said = taken(tmp_path / "m.onnx", drawn.model)
        if network:
            clear.append(compare(seed, drawn, network))
            kinds["taken " + drawn.harmful] += 1
        else:
            kinds["refused " + drawn.harmful] += 1
            if not drawn.harmful:
                without_need.append((seed, said))
    print(dict(kinds))
    assert not without_need, without_need
    assert kinds["taken "] >= COUNT / 3 and np.concatenate(clear).mean() > 0.9


def test_a_damaged_file_is_computed_as_it_is_or_refused_in_a_line(tmp_path):
    """Off by a thousandth, which float32 is not and another meaning is by far."""
    kinds = Counter()
    for seed in range(COUNT):
        drawn = draw(seed)
        damage(drawn.model, np.random.default_rng(seed))
        network, _ = taken(tmp_path / "m.onnx", drawn.model)
        kinds["taken" if network else "refused"] += 1
        if network is None or network.input_shape != drawn.images.shape[1:]:
            continue
        try:
            want = runtime(drawn.model, drawn.x)
        except Exception:  # onnxruntime checks what no output needs, too, and raises what its C++ does
            continue
        logits = forward(network, network.pixel_map(drawn.images))[1][:, -want.shape[1] :]
        last = next(each.op_type for each in drawn.model.graph.node if drawn.model.graph.output[0].name in each.output)
        got, _ = answers(logits, last if last in ("Softmax", "LogSoftmax", "Sigmoid") else "")
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * max(1, np.abs(want).max()), err_msg=str(seed))
        kinds["compared"] += 1
    print(dict(kinds))
    assert kinds["compared"] > COUNT / 20
