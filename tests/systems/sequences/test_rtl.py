"""A small machine runs an LSTM, makes its taps and learns from them, in one program of simulated RTL."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import gradloom
from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.models.recurrent.example_cells import example_layers
from gradloom.models.recurrent.host import Function
from gradloom.models.recurrent.stored import save_network

SIZES = {
    "hidden": 8,
    "inputs": 8,
    "window": 16,
    "sequences": 2,
    "tap_channels": 4,
    "rows": 4,
    "panels": 2,
    "rank": 2,
    "taps": 2,
    "adapter_depth": 64,
    "weight_depth": 64,
    "bias_depth": 2,
    "feature_depth": 16,
    "image_depth": 128,
    "dense_depth": 64,
    "blocks": 2,
    "positions": 64,
    "width": 16,
    "cache_slots": 64,
    "classes": 4,
}


#: Of four cells.
LARGER = {
    "inputs": 32,
    "sequences": 4,
    "image_depth": 256,
    "weight_depth": 128,
    "dense_depth": 128,
    "cells": 4,
    "positions": 128,
}

SOFTMAX = Function(op="log_softmax", name="softmax")  # of the logits that the adapter adds to
NETWORKS = {
    # Five images of 32 words: three parts of 8, four sums of four channels, zeros.
    "windows": (
        replace(example_network(6, 8, 3, kernel=4, stride=2, outputs=7, classes=4), tail=(SOFTMAX,)),
        SIZES,
        48,
    ),
    # Two parts of 8 of four cells, two passes each; four sums of four channels.
    "stack of GRUs": (
        example_layers("GRU0", 6, 8, 3, layers=2, both=True, classes=4, pick="ends"),
        SIZES | LARGER | {"cells": 8, "gru": 2},
        80,
    ),
    # Three parts of 8 of two cells, on the same machine.
    "stack": (
        example_layers("LSTM", 6, 8, 3, layers=2, classes=4, pick="mean"),
        SIZES | LARGER | {"cells": 8, "gru": 2},
        64,
    ),
}


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    """The folder of a design of these sizes, which is generated once."""
    made = {}

    def design(sizes):
        key = tuple(sizes.items())
        if key not in made:
            made[key] = tmp_path_factory.mktemp("lstm") / "design"
            gradloom.generate("lstm-kv260", made[key], settings=sizes)
        return made[key]

    return design


@pytest.mark.parametrize("name", NETWORKS)
def test_taps_are_made_and_learnt_from_in_one_program(run, tmp_path, designed, off_by_one, name):
    """Sequences in three commands; every word of the taps and of the adapter equals the reference."""
    made, sizes, words = NETWORKS[name]
    save_network(made, tmp_path / "net")
    random = np.random.default_rng(3)
    x = example_codes(made, random, 9, 12) * made.input.scale
    y = random.integers(0, 4, 9)
    np.savez(tmp_path / "d.npz", x_train=x[:5], y_train=y[:5], x_test=x[5:], y_test=y[5:])
    asked = [tmp_path / "net", "--design", designed(sizes), "--data", tmp_path / "d.npz"]
    code, out, err = run("finetune", *asked, "--epochs", 2, "--batch", 3, "--rank", 2, "--json", "-o", tmp_path / "run")
    assert code == 0, err
    told = json.loads(out)
    assert told["equal_to_reference"]["tap_words"] == 5 * words
    assert told["cycles"] == told["forecast"] and told["cycles"]["cell"] > 0
    assert told["equal_to_reference"]["commands"] > 100
    with off_by_one("head.FIFO"):
        code, _, err = run("finetune", *asked, "--epochs", 2, "--batch", 3, "--rank", 2, "-o", tmp_path / "other")
    assert code == 3 and re.search(r"^gradloom: RTL and forecast differ: [^\n]*\n?\Z", err, re.MULTILINE)
    assert not (tmp_path / "other").exists()
