"""Golden models, and what can be done to a model without changing what it computes."""

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

GOLDEN = Path(__file__).parents[2] / "golden" / "recurrent"
AUTHORS, BREVITAS, CONV = (
    GOLDEN / f"{name}.onnx" for name in ("lstm_scan_node_model_14", "brevitas_W8IO8A6_s1", "spar_convlstm64_W8A6C8IO6")
)


def unfused(path, feeds):
    """Outputs of onnxruntime by name, without the fusion that changes codes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds)))


def body_of(model):
    """The loop's body of a Scan."""
    (scan,) = [node for node in model.graph.node if node.op_type == "Scan"]
    return next(each.g for each in scan.attribute if each.name == "body")


def shuffled(model, seed):
    """Names made random, and nodes, inner ones too, in any order; outputs of a file keep their order."""
    rng, names = random.Random(seed), {"": ""}

    def new(name):
        return names.setdefault(name, f"n{rng.getrandbits(60):x}")

    def graph(g):
        g.name = new("graph " + g.name)
        for each in (*g.input, *g.output, *g.initializer, *g.value_info):
            each.name = new(each.name)
        for node in g.node:
            node.name = new("node " + node.name) if rng.random() < 0.5 else ""
            node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    graph(attribute.g)
        nodes = list(g.node)
        rng.shuffle(nodes)
        del g.node[:]
        g.node.extend(nodes)

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph(result.graph)
    return result


def saved(model, tmp_path, name="m.onnx"):
    onnx.save(model, str(tmp_path / name))
    return tmp_path / name


def arrays(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def changed(change, tmp_path):
    """File of the golden network after ``change``."""
    model = onnx.load(CONV)
    change(model)
    return saved(model, tmp_path)


def some_windows(every):
    """Inputs of the golden network: one of ``every`` windows of its data, and states of zeros."""
    x = arrays("golden_W8A6C8IO6")["x"][::every]
    zero = np.zeros((len(x), 64), np.float32)
    return {"x": x, "h_init": zero, "c_init": zero}
