"""Files of ONNX before any reader: what cannot be read, constants, and how many of them an import computes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.files import onnx_file
from gradloom.models.files.onnx_file import Constants, RefusedNode, has_recurrence, read_onnx
from gradloom.models.files.onnx_graph import LOWEST_OPSET, OnnxGraph, check_opsets

PORTS = [helper.make_tensor_value_info(name, 1, ["n", 3]) for name in "xy"]


def model(nodes, *, held=None, inputs=PORTS[:1], outputs=PORTS[1:], opset=17, domain="", **more):
    graph = helper.make_graph(
        [helper.make_node(kind, ins, outs, name=outs[0], **attributes) for kind, ins, outs, attributes in nodes],
        "g",
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (held or {}).items()],
    )
    opsets = [helper.make_opsetid(domain, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


RELU = [("Relu", ["x"], ["y"], {})]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "expected an ONNX model; it is empty: download or copy it again"),
        (b"GGUF\x03", "expected an ONNX model; it is a GGUF file"),
        (b"\xff\xff\xff", "not a readable ONNX file (Error parsing message"),
        (
            model([]).SerializeToString(),
            "its graph is empty, it has no nodes; Brevitas' export_qonnx writes such a file",
        ),
        (
            model([], inputs=[], outputs=[], producer_name="pytorch").SerializeToString(),
            "its graph is empty, it has no nodes; Brevitas'",
        ),
        (model([], inputs=[], outputs=[]).SerializeToString(), "no graph in it; is it an ONNX file, and whole?"),
    ],
)
def test_what_is_no_model_is_one_line(tmp_path, content, says):
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        read_onnx(path)
    assert str(refused.value).startswith(f"{path}: {says}") and "\n" not in str(refused.value)


def test_weights_beside_a_file_must_be_there(tmp_path):
    made = model([("Add", ["x", "w"], ["y"], {})], held={"w": np.ones(3, np.float32)})
    onnx.save_model(made, str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert OnnxGraph(read_onnx(tmp_path / "m.onnx")).constants.values["w"].tolist() == [1, 1, 1]
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ValueError, match=r"m\.onnx: its external data cannot be read: "):
        read_onnx(tmp_path / "m.onnx")


def test_recurrence_is_found_within_other_graphs(tmp_path):
    inner = helper.make_graph(
        [helper.make_node("LSTM", ["a", "b", "c"], ["d"])], "b", [], [onnx.ValueInfoProto(name="d")]
    )
    cases = {"plain": RELU, "own": [("GRU", ["x", "w", "w"], ["y"], {})]}
    cases["inner"] = [("If", ["yes"], ["y"], {"then_branch": inner, "else_branch": inner})]
    for name, nodes in cases.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model(nodes).SerializeToString())
        assert has_recurrence(path) == (name != "plain")


def test_weights_are_finite_floats():
    values = {"w": np.array([[1, 2], [3, np.inf]], np.float32), "s": np.float32(np.nan), "i": np.ones(2, np.int64)}
    constants = Constants(model(RELU, held=values | {"h": np.array([1.5], np.float16)}))
    assert constants.weights("h").dtype == np.float64 and constants.weights("h").tolist() == [1.5]
    for name, what, says in (
        ("w", "weights", "its weights w[1, 1] are inf: weights must be finite"),
        ("s", "scale", "its scale s are nan: scale must be finite"),
        ("i", "bias", "its bias 'i': int64, expected floating point"),
    ):
        with pytest.raises(RefusedNode) as refused:
            constants.weights(name, what)
        assert str(refused.value) == says
    assert "w" in constants and "x" not in constants


def test_weights_that_are_cut_or_sparse_are_refused():
    made = model(RELU, held={"w": np.ones(4, np.float32)})
    made.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(ValueError, match=r"^weights 'w' cannot be read \(.*\); is the file, or its external data, t"):
        Constants(made)
    made = model(RELU)
    made.graph.sparse_initializer.add()
    with pytest.raises(ValueError, match="^sparse weights are not supported: export dense ones$"):
        Constants(made)


WIDE, HIGH = np.zeros((1, 8), np.float32), np.zeros((8, 1), np.float32)


@pytest.mark.parametrize(
    ("kind", "values", "count", "more"),
    [
        ("ConstantOfShape", [np.array([4, 6])], 24, {}),
        ("Range", [np.int64(2), np.int64(12), np.int64(4)], 3, {}),
        ("Gather", [np.zeros((5, 3), np.float32), np.array([0, 4])], 6, {}),
        ("Gather", [np.zeros((5, 3), np.float32), np.array([0, 2])], 10, {"axis": 1}),
        ("Expand", [WIDE, np.array([4, 8])], 32, {}),
        ("Tile", [WIDE, np.array([3, 2])], 48, {}),
        ("MatMul", [HIGH, WIDE], 64, {}),
        ("MatMul", [np.zeros((2, 5), np.float32), np.zeros((5, 3), np.float32)], 6, {}),
        ("Mul", [HIGH, WIDE], 64, {}),
        ("Concat", [WIDE, WIDE], 16, {"axis": 0}),
        ("Abs", [WIDE], 8, {}),
    ],
)
def test_constants_that_are_computed_have_a_bound(kind, values, count, more, monkeypatch):
    held = {f"c{at}": value for at, value in enumerate(values)}
    made = model([(kind, [*held], ["big"], more)], held=held, inputs=[], outputs=[onnx.ValueInfoProto(name="big")])
    monkeypatch.setattr(onnx_file, "_MOST_FOLDED", count)
    assert OnnxGraph(made).constants.values["big"].size == count
    monkeypatch.setattr(onnx_file, "_MOST_FOLDED", count - 1)
    with pytest.raises(ValueError) as refused:
        OnnxGraph(made)
    assert str(refused.value) == (
        f"node 'big' ({kind}): constants that the import computes have {count} elements: at most {count - 1}; export "
        "the network with its constants folded"
    )


def test_all_constants_together_have_the_bound(monkeypatch):
    nodes = [("Abs", ["c"], ["a"], {}), ("Neg", ["a"], ["b"], {}), ("Add", ["x", "b"], ["y"], {})]
    made = model(nodes, held={"c": np.ones(3, np.float32)})
    monkeypatch.setattr(onnx_file, "_MOST_FOLDED", 6)
    assert OnnxGraph(made).constants.values["b"].tolist() == [-1, -1, -1]
    monkeypatch.setattr(onnx_file, "_MOST_FOLDED", 5)
    with pytest.raises(ValueError, match=r"node 'b' \(Neg\): constants that .* have 6 elements: at most 5;"):
        OnnxGraph(made)
    monkeypatch.undo()
    assert onnx_file._MOST_FOLDED == 1 << 26


def test_what_cannot_be_computed_is_refused_by_its_node():
    held = {"c": np.ones((2, 3), np.float32), "s": np.array([7])}
    with pytest.raises(ValueError, match=r"^node 'r' \(Reshape\): cannot be computed: "):
        OnnxGraph(model([("Reshape", ["c", "s"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], held=held))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (model(RELU, domain="other"), "the file names no opset of ONNX' own operators: it is not a valid ONNX file"),
        (model(RELU, opset=LOWEST_OPSET - 1), "opset 6: must be from 7 to "),
        (model(RELU, opset=999), "opset 999: must be from 7 to .*; install a newer onnx"),
        (
            model([("Relu", ["y"], ["z"], {}), ("Relu", ["z"], ["y"], {})]),
            r"node '.' \(Relu\): it depends on its own result",
        ),
        (model([("Relu", ["w"], ["y"], {})]), r"node 'y' \(Relu\): its input 'w' comes from nowhere"),
        (model([("Split", ["x"], ["y"], {})], opset=18), "node 'y' .*has neither num_outputs nor sizes of its parts"),
        (
            model(RELU, inputs=[helper.make_tensor_value_info("x", 1, [*"abcdefg"])]),
            "its inputs leave 7 sizes open: at most 6; export fixed sizes",
        ),
        (
            model([("Dropout", ["x"], ["d", "m"], {}), ("Where", ["m", "d", "x"], ["y"], {})]),
            r"node 'd' \(Dropout\): its mask is used: export the network in evaluation mode",
        ),
        (
            model([("Dropout", ["x", "", "t"], ["y"], {})], held={"t": np.array(True)}),
            r"node 'y' \(Dropout\): training_mode is set: export the network in evaluation mode",
        ),
        (
            model([("Conv", ["x", "w"], ["y"], {})], held={"w": np.ones((1, 1, 1), np.float32)}),
            r"node 'y' \(Conv\): its weights have 3 dimensions, its input has 2: not the same",
        ),
        (
            model([("MaxPool", ["x"], ["y"], {"kernel_shape": [1]})]),
            r"node 'y' \(MaxPool\): kernel_shape=\[1\]: expected 0 values above 0",
        ),
    ],
)
def test_graphs_that_are_not_whole_are_one_line(made, says):
    with pytest.raises(ValueError, match=f"^{says}") as refused:
        OnnxGraph(made)
    assert "\n" not in str(refused.value)


def test_opsets_at_the_bounds_are_taken():
    for opset in (LOWEST_OPSET, onnx.defs.onnx_opset_version()):
        check_opsets(model(RELU, opset=opset))


def test_open_sizes_have_numbers_of_their_own():
    ports = [helper.make_tensor_value_info(name, 1, list(sizes)) for name, sizes in (("x", "abc"), ("z", "ade"))]
    nodes = [("Shape", ["x"], ["s"], {}), ("Concat", ["x", "z"], ["y"], {"axis": 0})]
    ports[1].type.tensor_type.shape.dim[1].dim_param, ports[1].type.tensor_type.shape.dim[2].dim_param = "b", "c"
    graph = OnnxGraph(model(nodes, inputs=ports, outputs=[*PORTS[1:], onnx.ValueInfoProto(name="s")]))
    assert list(graph.open_sizes.values()) == ["a", "b", "c"]
    assert graph.shapes["y"] == (202, 131, 151) and graph.fixed["y"] == (0, 0, 0)
    assert graph.constants.values["s"].tolist() == [101, 131, 151] and graph.varying == {"s"}
    assert [each.name for each in graph.inputs] == ["x", "z"] and graph.inputs[0].sizes == (None, None, None)


def test_what_no_reader_has_looked_at_is_refused():
    graph = OnnxGraph(model([("Elu", ["x"], ["y"], {"alpha": 0.5})]))
    with pytest.raises(ValueError, match=r"^node 'y' \(Elu\): attribute alpha=0.5 is not supported$"):
        graph.each(lambda node: None)
    graph.each(lambda node: node.attribute("alpha"))
    OnnxGraph(model([("Elu", ["x"], ["y"], {"alpha": 1.0})])).each(lambda node: None)
    (node,) = graph.nodes
    assert (node.source(0), node.optional(1), node.is_constant(0), node.has("alpha")) == ("x", None, False, True)
    for call, says in (
        (lambda: node.source(1), "has no input 2: the file is damaged, or of another opset than it says"),
        (lambda: node.constant(0, "shape"), "its shape 'x' is computed by the network: must be a constant"),
    ):
        with pytest.raises(RefusedNode, match=f"^{says}$"):
            call()
