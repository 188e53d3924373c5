"""Fine-tuned recurrent networks to ONNX: the network, its taps, and the adapter behind them."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.adapters.peft import load_adapters
from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_network import NetworkGraph
from gradloom.models.recurrent.export import GraphNodes, GraphWriter
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import PARTS, QUARTERS, TapSums, parts_of, tap_channels, tap_network
from gradloom.models.sequences import fold_of, spar_model
from gradloom.output import check_file, staged_file
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.systems.job import model_of_run
from gradloom.systems.results import Exported

from .adapted import learnt_taps
from .taps import input_sums
from .task import steps_behind

__all__ = ["export_adapted", "is_of_sequences"]


def is_of_sequences(folder: Path) -> bool:
    """Whether a folder is of a fine-tune of a recurrent network."""
    path = folder / "metrics.json"
    try:
        return read_json(path).get("tap_shifts") is not None
    except (OSError, ValueError, AttributeError):
        return False


def export_adapted(source: Path, output: Path, model: Path | str | None) -> Exported:
    """Writes the network of a fine-tune in ``source`` with its adapter as the ONNX file ``output``.

    Inputs and states are those of :func:`~gradloom.models.recurrent.export.export_recurrent`; ``x`` has as many steps
    as the sequences that were learnt. The first output is ``logits [n, classes]``, of base and adapter. onnxruntime
    runs the network to the same codes if it does not fuse quantisers, and the adapter in float32.
    """
    check_file(output, suffix=".onnx", inputs=(source,))
    learnt = learnt_taps(source)
    named = model_of_run(source, model)
    network = load_network(spar_model(fold_of(learnt.person or 1)) if named is None else named)
    try:
        steps = int(read_json(source / "metrics.json")["steps_a_sequence"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{source}/metrics.json: lacks steps_a_sequence of a fine-tune") from None
    parts = parts_of(network, learnt.parallel)
    if tuple(part.kind for part in parts) != PARTS or len(learnt.shifts) != len(parts):
        raise ValueError(
            f"{source}: its adapter is of {len(parts)} parts of taps; must be of one LSTM layer to be exported"
        )
    taps = TapSums(parts=parts, shifts=learnt.shifts)
    behind = steps_behind(network, np.zeros((1, steps, 1)))
    dense = tap_network(network, taps, behind)
    adapters, codes = load_adapters(source, dense)
    made = _AdaptedWriter(network, taps, steps, learnt.parallel, dense, adapters, codes).model()
    with staged_file(output) as file:
        file.write(made.SerializeToString(deterministic=True))
    told: Exported = {"name": network.name, "adapters": len(adapters), "rank": len(adapters[0][0]), "codes": codes}
    return told | {"steps": steps, "bytes": output.stat().st_size}


class _AdaptedWriter(GraphWriter):
    """A recurrent network whose answer is that of its taps."""

    def __init__(
        self,
        network: RecurrentNetwork,
        taps: TapSums,
        steps: int,
        parallel: int,
        dense: LayerNetwork,
        adapters: list[tuple[np.ndarray, np.ndarray]],
        codes: str,
    ) -> None:
        super().__init__(network)
        self.taps, self.steps, self.parallel = taps, steps, parallel
        self.dense, self.adapters, self.codes = dense, adapters, codes

    def answer(self, nodes: GraphNodes, ends: list[str]) -> Any:
        """See :class:`~gradloom.models.recurrent.export.GraphWriter`."""
        import onnx

        cell = self.network.lstm
        inner = "c_last" if cell.squashed_in is None else nodes.coded("c_last", "tap_inner", cell.squashed_in)
        squashed = nodes.coded(nodes("Tanh", [inner], "tap_tanh"), "tap_squashed", cell.squashed)
        time = nodes.constant("tap_time", [0], np.int64)
        total = nodes("ReduceSum", ["h_all", time], "tap_sum", keepdims=0)
        values = nodes("Concat", ["h_last", squashed, total, self._inputs(nodes)], "tap_values", axis=1)
        units = (cell.hidden.scale, cell.squashed.scale, cell.hidden.scale, self.network.source.scale)
        gains = [2.0 ** (shift - ACTIVATION.frac) / unit for shift, unit in zip(self.taps.shifts, units)]
        scaled = nodes("Mul", [values, nodes.constant("tap_gains", np.repeat(gains, self.taps.sizes))], "tap_scaled")
        words = {"lo": ACTIVATION.lo, "hi": ACTIVATION.hi}
        bounds = [nodes.constant(f"tap_{name}", ACTIVATION.decode(word)) for name, word in words.items()]
        clipped = nodes("Clip", [scaled, *bounds], "tap_clipped")
        size, whole = self.taps.elements, int(np.prod(self.taps.shape))
        pads = nodes.constant("tap_short", [0, 0, 0, whole - size], np.int64)
        image = nodes("Pad", [clipped, pads], "taps")
        graph = NetworkGraph(onnx)
        graph.network(self.dense, self.adapters, self.codes, image)
        nodes.nodes += graph.nodes
        nodes.constants += graph.constants
        return self.info("logits", ["n", self.dense.classes])

    def _inputs(self, nodes: GraphNodes) -> str:
        """Sums of the input over quarters of the steps, ``[n, QUARTERS * channels]``: a product with zeros and ones."""
        network = self.network
        samples = self.steps
        for layer in network.front[:-1] if network.last_conv is not None else network.front:
            samples = layer.steps(samples)
        ones = input_sums(network, np.eye(samples)[None]).reshape(QUARTERS, samples)
        matrix = nodes.constant("tap_quarters", ones)
        source = self.source
        if network.front:
            source = nodes("Transpose", [source], "tap_by_sample", perm=[0, 2, 1])
        sums = nodes("MatMul", [matrix, source], "tap_input")
        short = self.taps.sizes[-1] // QUARTERS
        channels = tap_channels(network)
        if short > channels:
            sums = nodes(
                "Pad",
                [sums, nodes.constant("tap_parallel", [0, 0, 0, 0, 0, short - channels], np.int64)],
                "tap_input_padded",
            )
        return nodes("Flatten", [sums], "tap_input_row")
