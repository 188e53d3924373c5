"""Answers of a recurrent network by a board that runs what lies in its memory."""

from typing import Any

import numpy as np

from gradloom import boards
from gradloom.boards.links.tuner import PIECE
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.preset import Preset
from gradloom.program.memory import BLOCK
from gradloom.sim.reference import cell as reference
from gradloom.sim.run.counted import check_words
from gradloom.systems.alone import ran_alone, sealed, unlike
from gradloom.systems.job import AloneHost

from .answer import CellRun
from .program.onchip import answers_plan, shipped_answers

__all__ = ["run_alone"]


def run_alone(network: RecurrentNetwork, codes: np.ndarray, preset: Preset, port: AloneHost) -> CellRun:
    """Sums of a network's dense layer by the board; as many sequences at a time as have room there.

    They and the classes that the board says are the reference's, else there is a
    :class:`~gradloom.sim.run.counted.MismatchError`. Figures are ``cycles`` and ``bytes_sent``.
    """
    config, memory = preset.config, boards.find(preset.board).memory_bytes
    shipped = shipped_answers(config, memory=memory)
    traces = reference.run(network, codes)
    wanted, classes = reference.sums(network, traces.h[:, -1]), reference.logits(network, traces).argmax(axis=1)

    def plan(part: slice) -> Any:
        return answers_plan(network, codes[part], classes[part], config, memory=memory, pause=shipped.pause)

    first = plan(slice(1))
    room = 1 + (memory - len(first.image)) // BLOCK
    found, cycles = [], 0
    for at in range(0, len(codes), room):
        part = slice(at, at + room)
        made = plan(part)
        image, count = sealed(made.image), len(made.codes)
        samples = BLOCK, BLOCK * (1 + max(count, len(shipped.codes)))
        lines, took = ran_alone(port, config, image, unlike(image, shipped, samples))
        content = [port.fetch(made.stages[-1].told + BLOCK * (1 + n), 4 * wanted.shape[1]) for n in range(count)]
        found.append(np.frombuffer(b"".join(content), "<i4").reshape(count, -1).astype(np.int64))
        said = np.array([int(each) for each in lines[1].removeprefix("class:").split()])
        check_words({"classes": said}, {"classes": classes[part]})
        cycles += took
    sums = np.concatenate(found)
    check_words({"sums of the dense layer": sums}, {"sums of the dense layer": wanted})
    return CellRun(
        trace=traces, sums=sums, figures={"cycles": cycles, "forecast": None, "bytes_sent": PIECE * port.sent}
    )
