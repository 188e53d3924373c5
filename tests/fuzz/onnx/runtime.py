"""onnxruntime as a witness, and how far float32 may be from the mathematics."""

import numpy as np
import onnx
import onnxruntime

__all__ = ["gamma", "runtime"]


def gamma(roundings: int) -> float:
    """Relative error of a product of so many factors ``1 + d``, each ``d`` at most half a last place of float32."""
    return roundings * 2.0**-24 / (1 - roundings * 2.0**-24)


def runtime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of samples, with nothing fused; batches of the size that the model asks for."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = session.get_inputs()[0]
    size = feed.shape[0] if isinstance(feed.shape[0], int) else len(x)
    parts = [session.run(None, {feed.name: x[at : at + size]})[0] for at in range(0, len(x), size)]
    return np.concatenate([part.reshape(size, -1) for part in parts])
