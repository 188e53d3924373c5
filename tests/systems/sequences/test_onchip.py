"""What a board that answers by itself has in its memory: blocks of sequences, each with its label."""

import numpy as np
import pytest

from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import spar_model
from gradloom.preset import PRESETS
from gradloom.program.memory import BLOCK
from gradloom.systems.sequences.program.onchip import answers_plan, integer_biases, shipped_answers

CONFIG = PRESETS["lstm-ulx3s"].config
NETWORK = load_network(spar_model(0, 32))


@pytest.fixture(scope="module")
def shipped():
    return shipped_answers(CONFIG, memory=1 << 20, pause=3000)


def planned(shipped, chosen):
    return answers_plan(NETWORK, shipped.codes[chosen], shipped.labels[chosen], CONFIG, memory=1 << 20, pause=3000)


def test_a_block_is_a_sequence_and_its_label(shipped):
    """Behind the block of the programs; the order of sequences changes their blocks, and nothing else."""
    chosen = [2, 0, 5]
    one, other = planned(shipped, chosen), planned(shipped, chosen[::-1])
    blocks = [[made.image[BLOCK * n : BLOCK * (n + 1)] for n in range(1, 4)] for made in (one, other)]
    assert blocks[0] == blocks[1][::-1] and len(set(blocks[0])) == 3
    labels = [int.from_bytes(block[-4:], "little") for block in blocks[0]]
    assert labels == [int(shipped.labels[n]) for n in chosen] and np.array_equal(one.labels, shipped.labels[chosen])
    assert one.sizes["sequences"] == 3 * BLOCK and one.pause == 3000
    assert [(each.block, each.blocks) for each in one.stages] == [(0, 1), (1, 3)]
    biases = integer_biases(NETWORK).astype("<i4").tobytes()
    assert bytes(one.image).count(biases) == 1
    # The header's block, the sequences, the network, and then its biases.
    assert BLOCK + sum(one.sizes.values()) == one.image.index(biases)
