"""A plan of a step: its cycles, where they go, and its memory."""

from gradloom.compiler.lowering import TileStep
from gradloom.graph.base import Operation
from gradloom.graph.dependence import dependent
from gradloom.graph.methods import left_out
from gradloom.graph.onnx.load import load_network
from gradloom.graph.operations import Convolution, Linear
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import Asked
from gradloom.systems.results import Planned
from gradloom.workload import Progress

from .program.prepared import Prepared, learning_of, precise_of, ranks_of
from .program.programs import Programs
from .requests import NetworkPlan
from .workload import NetworkWorkload

__all__ = ["plan"]


def plan(asked: Asked, options: NetworkPlan, tell: Progress) -> Planned:
    """Forecast of a step of training, or of the forward pass.

    Entries: ``left_out``, layers of the kind of the targets that do not learn; ``cycles`` in all, a sample and by
    phase; ``once``, what depends on nothing that learns and so runs once for each batch, with the bytes that are kept
    of it; ``bytes`` read, written and of memory; ``multiplications`` of the forward pass in a step, and their share of
    those that the array could make; ``operations`` as the machine has them.
    """
    preset = asked.preset
    workload = preset.workload
    assert isinstance(workload, NetworkWorkload)
    batch = workload.batch if options.batch is None else options.batch
    network = load_network(str(options.model))
    given = ranks_of(network, options.method, options.targets, options.rank, workload.rank)
    learning = learning_of(network, options.loss, options.method, targets=options.targets, **given)
    prepared = Prepared(learning, options.loss, precise=precise_of(network, options.precise))
    tell(0, 0, "planning")
    config, learners = preset.config, prepared.learning.learners
    operations = prepared.learning.network.operations
    if learners:
        programs = prepared.programs(config, batch, prepared.rules(workload.lr))
        moving = dependent(operations, learners)
        operations = tuple(each for each in operations if each.o.name in moving)
    else:
        programs = Programs(None, prepared.forward(config, batch))
    step, found = programs.step, forecast(programs.step.program)
    forward = batch * sum(map(_products, operations))
    return {
        "preset": preset.name,
        "board": preset.board,
        "model": asked.name,
        "method": options.method,
        "batch": batch,
        "parameters": prepared.learning.network.parameters,
        "learnt": prepared.learning.parameters,
        "left_out": left_out(network, options.targets),
        "cycles": {"total": found.total, "sample": round(found.total / batch), **found.phases},
        "once": None if programs.trunk is None else _once(programs, batch),
        "clock_mhz": config.clock_mhz,
        "milliseconds": round(found.total / (1e3 * config.clock_mhz), 3),
        "bytes": {**_moved(step), "memory": programs.length},
        "multiplications": forward,
        "share": round(forward / found.total / (config.array_rows * config.array_columns), 4),
        "operations": [
            {
                "name": each.o.name,
                "kind": type(each).__name__,
                "rows": each.o.rows,
                "features": each.o.features,
                "products": batch * _products(each),
                "codes": len(each.i) if isinstance(each, Convolution | Linear) else 1,
            }
            for each in prepared.network.operations
        ],
    }


def _once(programs: Programs, batch: int) -> dict[str, int]:
    """Of the part that runs once."""
    assert programs.trunk is not None
    total = forecast(programs.trunk.program).total
    return {"cycles": total, "sample": round(total / batch), "bytes": programs.sets.size}


def _moved(step: TileStep) -> dict[str, int]:
    """Bytes that LOADs read, and STOREs write."""
    beat = step.program.config.shell["data_bits"] // 8
    read = sum(each.operands["beats"] for each in step.program.instructions if each.engine == LOAD)
    written = sum(
        each.operands["beats"]
        for each in step.program.instructions
        if each.engine == STORE and not each.operands.get("only")
    )
    return {"read": beat * read, "written": beat * written}


def _products(each: Operation) -> int:
    """Multiplications of a layer's forward pass, of a sample."""
    if isinstance(each, Convolution):
        weight = next(w for w in each.weights if w.name == f"{each.layer}.weight")
        places = each.i[0].rows if each.transposed else each.o.rows
        return places * weight.size
    return each.o.rows * each.o.features * each.i[0].features if isinstance(each, Linear) else 0
