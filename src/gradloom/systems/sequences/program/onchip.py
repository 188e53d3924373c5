"""Answers to shipped sequences at power-up, with all data in block RAM.

A block holds a sequence, its label and its results. The shipped network has never seen the people whose windows it
labels.
"""

from dataclasses import dataclass, field

import numpy as np

from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import FOLDS, spar_model, spar_windows
from gradloom.program.memory import BLOCK
from gradloom.program.placed import PlacedProgram
from gradloom.program.power_up import PowerUp, PowerUpMemory, PowerUpStage, usual_pause
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig

from .image import CellImage
from .program import CellProgram, CellSetup

__all__ = ["ChipAnswers", "answers_plan", "integer_biases", "shipped_answers"]

#: Elements of the shipped network's hidden state; windows to label.
HIDDEN, WINDOWS = 32, 20
_FOLD = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ChipAnswers(PowerUp):
    """Contents of the memory at power-up for answers.

    ``codes`` ``[n, steps, channels]`` are the sequences of ``network``, ``labels`` their classes.
    """

    network: RecurrentNetwork
    codes: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)


def shipped_answers(config: RecurrentConfig, *, memory: int, pause: int | None = None) -> ChipAnswers:
    """Memory of a board that labels shipped windows by the shipped network.

    ``memory``: bytes that there are; ``pause``: in cycles, else :func:`~..power_up.usual_pause`.
    """
    network = load_network(spar_model(_FOLD, HIDDEN))
    x, labels = spar_windows(FOLDS[_FOLD])
    chosen = np.linspace(0, len(x) - 1, WINDOWS).astype(int)
    return answers_plan(
        network,
        network.codes(x[chosen]),
        labels[chosen],
        config,
        memory=memory,
        pause=usual_pause(config.clock_mhz) if pause is None else pause,
    )


def answers_plan(
    network: RecurrentNetwork,
    codes: np.ndarray,
    labels: np.ndarray,
    config: RecurrentConfig,
    *,
    memory: int,
    pause: int,
) -> ChipAnswers:
    """Plans answers to sequences, one a block.

    :class:`ValueError` says which part does not fit.

    Parameters
    ----------
    network : RecurrentNetwork
        With a dense layer behind its last state, whose biases are multiples of its products' unit.
    codes : array of int ``[n, steps, channels]``
        Of the network's input.
    labels : array of int ``[n]``
    config : RecurrentConfig
    memory, pause : int
        Bytes that there are; cycles between repeats, below 2^32.
    """
    biases, image = integer_biases(network), CellImage(network, config)
    rows = image.windows(codes)
    blocks = [CellProgram(image, rows[n : n + 1], config, states=False) for n in range(len(rows))]
    answer, logits = blocks[0], blocks[0].batches[0].logits
    assert logits is not None
    if answer.offset > BLOCK or logits.offset + logits.length > BLOCK - 4:
        raise ValueError(
            f"{network.name}: sequences of {codes.shape[1]} steps with their results need more than {BLOCK} bytes; "
            "give shorter sequences"
        )
    setup = CellSetup(image, config, first=BLOCK * (1 + len(blocks)))
    content = bytearray(setup.offset)
    for number, (block, label) in enumerate(zip(blocks, labels), 1):
        if block.code != answer.code:
            raise AssertionError("programs of two blocks differ")
        _lay(content, block, BLOCK * number)
        content[BLOCK * (number + 1) - 4 : BLOCK * (number + 1)] = int(label).to_bytes(4, "little")
    _lay(content, setup, 0)
    held = PowerUpMemory(content)
    bias_at, _ = held.place("biases", biases.astype("<i4").tobytes())
    held.add("setup", setup)
    held.add("answer", answer)
    stages = (
        PowerUpStage(name="", program="setup", block=0, blocks=1),
        PowerUpStage(name="class", program="answer", block=1, blocks=len(blocks), told=logits.offset),
    )
    content_bytes = held.end(
        stages,
        room=memory,
        needs=f"{network.name}: {len(blocks)} sequences need",
        remedy="; give fewer sequences",
        pause=pause,
        biases=(bias_at, len(biases)),
    )
    return ChipAnswers(
        stages=stages,
        image=content_bytes,
        pause=pause,
        programs=held.programs,
        sizes={"sequences": BLOCK * len(blocks), "network": bias_at - setup.first},
        network=network,
        codes=codes,
        labels=np.asarray(labels),
    )


def _lay(content: bytearray, program: PlacedProgram, begin: int) -> None:
    """Puts a program's arrays into the memory.

    ``begin``: where its window begins.
    """
    for offset, data in program.arrays:
        content[begin + offset : begin + offset + len(data)] = data


def integer_biases(network: RecurrentNetwork) -> np.ndarray:
    """Biases of the classes in the unit of the dense layer's sums.

    So the class of the greatest sum with its bias is that of the greatest logit.
    """
    head = network.head
    if head is None or network.pick != "last" or network.backward is not None:
        raise ValueError(f"{network.name}: must have a dense layer behind its last state, of one direction")
    network.check_logits("the machine takes the greatest of")
    units = head.scale * network.cell.hidden.scale
    biases = head.bias / units[0]
    if np.any(units != units[0]) or np.any(biases != np.rint(biases)) or np.abs(biases).max() >= 1 << 30:
        raise ValueError(
            f"{network.name}: biases of its dense layer are no multiples of one unit of its products below 2^30: "
            "quantise them with that scale"
        )
    made: np.ndarray = np.rint(biases).astype(np.int64)
    return made
