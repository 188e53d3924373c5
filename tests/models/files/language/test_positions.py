"""Rotary positions in ``config.json``: where the base and the scaling stand, and what is refused."""

import math

import pytest

from gradloom.models.files.language.positions import base_and_scaling, by_kind, turned
from gradloom.models.language import Scaling

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONG = {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [1.0, 9.0]}


@pytest.mark.parametrize(
    ("config", "theta", "scaling"),
    [
        ({}, 5.0, None),
        ({"rope_theta": 7.0}, 7.0, None),
        ({"rope_theta": 7.0, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}, 7.0, None),
        ({"rope_parameters": {"rope_theta": 9.0}}, 9.0, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 5.0, Scaling(factor=2.0)),
        ({"rope_scaling": {"type": "default", "factor": 1.0, "original_max_position_embeddings": 7}}, 5.0, None),
        (
            {"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}, "rope_parameters": None},
            5.0,
            Scaling(factor=2.0),
        ),
        ({"rope_parameters": LLAMA3}, 5.0, Scaling(factor=8.0, low=1.0, high=4.0, original=32)),
        ({"rope_parameters": LLAMA3, "rope_scaling": LLAMA3}, 5.0, Scaling(factor=8.0, low=1.0, high=4.0, original=32)),
        (
            {"rope_scaling": LONG, "max_position_embeddings": 64, "original_max_position_embeddings": 16},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=16, size=math.sqrt(1 + math.log(4) / math.log(16))),
        ),
        (
            {"rope_scaling": LONG | {"type": "su"}, "max_position_embeddings": 16},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=16, size=1.0),
        ),
        (
            {"rope_scaling": LONG | {"original_max_position_embeddings": 8, "factor": 8}},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=8, size=math.sqrt(2)),
        ),
        (
            {"rope_scaling": LONG | {"original_max_position_embeddings": 2, "factor": 0.5}},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=2, size=1.0),
        ),
        (
            {"rope_scaling": LONG | {"attention_factor": 1.5}, "max_position_embeddings": 16},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=16, size=1.5),
        ),
        (
            {"rope_scaling": LONG, "original_max_position_embeddings": 16},
            5.0,
            Scaling(divisors=(1.0, 2.0), original=16, size=1.0),
        ),
    ],
)
def test_base_and_scaling_are_found_in_every_place(config, theta, scaling):
    assert base_and_scaling(config, 5.0) == (theta, scaling)


KINDS = "rope_type must be one of default, linear, llama3, longrope"


def _long(**more):
    return {"rope_scaling": LONG | more, "max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"rope_scaling": "linear"}, f'rope_scaling="linear": {KINDS}'),
        ({"rope_scaling": {"type": "yarn"}}, f'rope_scaling={{"type": "yarn"}}: {KINDS}'),
        ({"rope_scaling": {"type": ["linear"]}}, f'rope_scaling={{"type": ["linear"]}}: {KINDS}'),
        (
            {"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2.0}},
            'rope_scaling.rope_type="linear": must be type="default"; remove the wrong one',
        ),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: is missing; linear positions need it"),
        ({"rope_scaling": {"type": "default", "factor": 2.0}}, "rope_scaling.factor=2.0: must be 1.0; other values"),
        ({"rope_scaling": {"type": "default", "mscale": 1}}, "rope_scaling.mscale=1: this key is not known"),
        (
            {"rope_scaling": {"type": "default", "partial_rotary_factor": 0.5}},
            "rope_scaling.partial_rotary_factor=0.5: must be 1.0; other values",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {}},
            "rope_scaling: must be rope_parameters; remove the one that is wrong",
        ),
        (
            {"rope_theta": 7.0, "rope_parameters": {"rope_theta": 9.0}},
            "rope_parameters.rope_theta=9.0: must be rope_theta=7.0; remove the one that is wrong",
        ),
        (_long(short_factor=2.0), "rope_scaling.short_factor=2.0: must be a list of numbers"),
        ({"rope_scaling": LONG}, "rope_scaling.original_max_position_embeddings=null: must be an integer above 1"),
        (
            _long(original_max_position_embeddings=1),
            "rope_scaling.original_max_position_embeddings=1: must be an integer above 1",
        ),
        (
            _long(original_max_position_embeddings=True),
            "rope_scaling.original_max_position_embeddings=true: must be an integer above 1",
        ),
        (_long(factor=0), "rope_scaling.factor=0: must be a number above 0 and below 1e12"),
        (_long(factor=1e12), "rope_scaling.factor=1000000000000.0: must be a number above 0 and below 1e12"),
        (_long(factor=True), "rope_scaling.factor=true: must be a number above 0 and below 1e12"),
        (_long(factor="2"), 'rope_scaling.factor="2": must be a number above 0 and below 1e12'),
    ],
)
def test_positions_that_are_not_built_are_one_line(config, says):
    with pytest.raises(ValueError) as refused:
        base_and_scaling(config, 5.0)
    assert str(refused.value).startswith(says)


def test_a_share_of_a_head_is_read_only_where_it_may_be():
    rope = {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}
    assert base_and_scaling(rope, 5.0, partial=True) == (9.0, None)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, None),
        ({"partial_rotary_factor": 1}, None),
        ({"partial_rotary_factor": 0.5}, 16),
        ({"rope_parameters": {"partial_rotary_factor": 0.0625}, "rope_scaling": None}, 2),
        ({"partial_rotary_factor": 0.25, "rope_scaling": {"partial_rotary_factor": 0.25}}, 8),
    ],
)
def test_elements_that_turn(config, count):
    assert turned(config, 32) == count


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"partial_rotary_factor": 0}, "partial_rotary_factor=0: must be a number above 0, at most 1"),
        ({"partial_rotary_factor": 1.01}, "partial_rotary_factor=1.01: must be a number above 0, at most 1"),
        ({"partial_rotary_factor": True}, "partial_rotary_factor=true: must be a number above 0, at most 1"),
        ({"partial_rotary_factor": "1"}, 'partial_rotary_factor="1": must be a number above 0, at most 1'),
        (
            {"rope_scaling": {"partial_rotary_factor": 0.1}},
            "rope_scaling.partial_rotary_factor=0.1: turns 3 elements of a head; must be an even number above 0",
        ),
        (
            {"partial_rotary_factor": 0.01},
            "partial_rotary_factor=0.01: turns 0 elements of a head; must be an even number above 0",
        ),
        (
            {"partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.25}},
            "partial_rotary_factor and rope_scaling.partial_rotary_factor differ; remove the one that is wrong",
        ),
    ],
)
def test_shares_of_a_head_that_are_not_possible_are_one_line(config, says):
    with pytest.raises(ValueError) as refused:
        turned(config, 32)
    assert str(refused.value) == says


def test_layers_with_a_window_have_a_base_of_their_own():
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 6.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 3.0},
    }
    assert by_kind({}, (1e6, 1e4)) == (1e6, None, 1e4)
    assert by_kind({"rope_parameters": nested}, (1e6, 1e4)) == (6.0, Scaling(factor=8.0), 3.0)
    assert by_kind({"rope_local_base_freq": 2.0, "rope_theta": 4.0}, (1e6, 1e4)) == (4.0, None, 2.0)
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert by_kind(scaled, (1e6, 1e4)) == (1e6, Scaling(factor=8.0), 1e4)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ("x", 'rope_parameters="x": must have full_attention and sliding_attention alone'),
        ({"other": {}}, 'rope_parameters={"other": {}}: must have full_attention and sliding_attention alone'),
        (
            {"sliding_attention": {"rope_type": "linear", "factor": 2.0}},
            'rope_parameters={"sliding_attention": {"rope_type": "linear", "factor": 2.0}}: sliding_attention must '
            "have rope_type default",
        ),
        ({"full_attention": {"mscale": 1}}, "rope_parameters.*.mscale=1: this key is not known"),
    ],
)
def test_other_positions_of_layers_are_one_line(held, says):
    with pytest.raises(ValueError) as refused:
        by_kind({"rope_parameters": held}, (1e6, 1e4))
    assert str(refused.value).startswith(says)
