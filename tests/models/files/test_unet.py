"""Configurations of diffusers' UNets: what is built is read with diffusers' defaults, the rest is one line."""

import json
from dataclasses import replace

import pytest

from gradloom.models.files.unet import FIXED, SD_V1_5, UNet, find_unet, is_unet, parsed

SMALL = {
    "sample_size": 8,
    "block_out_channels": [16, 32],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 1,
    "attention_head_dim": 2,
    "cross_attention_dim": 24,
    "norm_num_groups": 8,
}
READ = UNet(
    name="small",
    size=8,
    inputs=4,
    outputs=4,
    channels=(16, 32),
    attends=(True, False),
    rises=(False, True),
    heads=(2, 2),
    layers=(1, 1),
    blocks=(1, 1),
    text=24,
    groups=8,
    eps=1e-5,
    linear_projection=False,
    flip=True,
    shift=0,
)


def test_keys_that_a_file_leaves_out_are_diffusers():
    assert parsed("small", SMALL) == READ
    assert parsed("least", {"sample_size": 64, "cross_attention_dim": 768}) == replace(SD_V1_5, name="least")
    assert parsed("least", {"sample_size": 64}).text == 1280


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"sample_size": [2, 2]}, {"size": 2}),
        ({"in_channels": 1, "out_channels": 65536}, {"inputs": 1, "outputs": 65536}),
        ({"layers_per_block": [3, 1]}, {"layers": (3, 1)}),
        ({"transformer_layers_per_block": [1, 2]}, {"blocks": (1, 2)}),
        ({"attention_head_dim": [1, 4]}, {"heads": (1, 4)}),
        ({"norm_eps": 0}, {"eps": 0}),
        ({"norm_eps": 65535.5}, {"eps": 65535.5}),
        ({"freq_shift": 1, "flip_sin_to_cos": False}, {"shift": 1, "flip": False}),
        ({"use_linear_projection": True}, {"linear_projection": True}),
        ({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30", "upcast_attention": True}, {}),
        ({"dropout": 0, "num_class_embeds": None, "mid_block_scale_factor": 1.0}, {}),
        ({"norm_num_groups": 16}, {"groups": 16}),
    ],
)
def test_keys_are_fields(change, fields):
    assert parsed("small", SMALL | change) == replace(READ, **fields)


@pytest.mark.parametrize("levels", [1, 8])
def test_levels_have_bounds(levels):
    kinds = {"down_block_types": ["DownBlock2D"] * levels, "up_block_types": ["UpBlock2D"] * levels}
    found = parsed("n", SMALL | {"sample_size": 128, "block_out_channels": [16] * levels} | kinds)
    assert (len(found.channels), any(found.attends), any(found.rises)) == (levels, False, False)
    with pytest.raises(ValueError, match="^sample_size=64: must be a multiple of 128, the levels' halvings$"):
        parsed("n", SMALL | {"sample_size": 64, "block_out_channels": [16] * 8} | {k: v * 8 for k, v in ONE.items()})


ONE = {"down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"]}
WHOLE = "must be an integer from 1 to 65536"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attention_head_dim": 4}, "attention_head_dim=4: 16 channels over 4 heads must be a multiple of 8 each"),
        ({"attention_head_dim": 3}, "attention_head_dim=3: 16 channels over 3 heads must be a multiple of 8 each"),
        ({"attention_head_dim": [2, 8]}, "attention_head_dim=8: 32 channels over 8 heads must be a multiple of 8 each"),
        ({"attention_head_dim": [2]}, "attention_head_dim: 1 values, must be 2, one a level"),
        ({"norm_num_groups": 5}, "block_out_channels=16: must be a multiple of norm_num_groups=5"),
        ({"norm_num_groups": 65537}, f"norm_num_groups=65537: {WHOLE}"),
        ({"sample_size": 9}, "sample_size=9: must be a multiple of 2, the levels' halvings"),
        ({"sample_size": 1}, "sample_size=1: must be a multiple of 2, the levels' halvings"),
        ({"sample_size": 0}, f"sample_size=0: {WHOLE}"),
        ({"sample_size": None}, f"sample_size=null: {WHOLE}"),
        ({"sample_size": [8, 4]}, "sample_size=[8, 4]: must be one side, or two that are equal"),
        ({"sample_size": [8, 8, 8]}, "sample_size=[8, 8, 8]: must be one side, or two that are equal"),
        ({"sample_size": []}, "sample_size=[]: must be one side, or two that are equal"),
        ({"act_fn": "gelu"}, 'act_fn="gelu": must be "silu"; other values are not built'),
        (
            {"mid_block_type": None},
            'mid_block_type=null: must be "UNetMidBlock2DCrossAttn"; other values are not built',
        ),
        ({"center_input_sample": 0}, "center_input_sample=0: must be false; other values are not built"),
        ({"block_out_channels": [16, -1]}, f"block_out_channels=-1: {WHOLE}"),
        ({"block_out_channels": [16, True]}, f"block_out_channels=true: {WHOLE}"),
        ({"block_out_channels": [16, 65537]}, f"block_out_channels=65537: {WHOLE}"),
        ({"block_out_channels": "64"}, 'block_out_channels="64": must be a list of integers'),
        ({"block_out_channels": []}, "block_out_channels: 0 levels, must be from 1 to 8"),
        ({"block_out_channels": [16] * 9}, "block_out_channels: 9 levels, must be from 1 to 8"),
        ({"down_block_types": ["DownBlock2D"]}, "down_block_types: must be a list of 2 names, one a level"),
        ({"up_block_types": "UpBlock2D"}, "up_block_types: must be a list of 2 names, one a level"),
        (
            {"up_block_types": ["UpBlock2D", "AttnUpBlock2D"]},
            'up_block_types="AttnUpBlock2D": must be one of CrossAttnUpBlock2D, UpBlock2D',
        ),
        ({"layers_per_block": [1]}, "layers_per_block: 1 values, must be 2, one a level"),
        ({"layers_per_block": 0}, f"layers_per_block=0: {WHOLE}"),
        ({"in_channels": 65537}, f"in_channels=65537: {WHOLE}"),
        ({"norm_eps": None}, "norm_eps=null: must be a number from 0 to 65536"),
        ({"norm_eps": True}, "norm_eps=true: must be a number from 0 to 65536"),
        ({"norm_eps": -1e-9}, "norm_eps=-1e-09: must be a number from 0 to 65536"),
        ({"norm_eps": 65536}, "norm_eps=65536: must be a number from 0 to 65536"),
        ({"freq_shift": 2}, "freq_shift=2: must be 0 or 1"),
        ({"freq_shift": True}, "freq_shift=true: must be 0 or 1"),
        ({"cross_attention_dim": [64]}, f"cross_attention_dim=[64]: {WHOLE}"),
        ({"use_linear_projection": 1}, "use_linear_projection=1: must be true or false"),
        ({"addition_embed_type": "text_time"}, 'addition_embed_type="text_time": must be null; other values'),
        ({"_class_name": "UNet2DModel"}, '_class_name="UNet2DModel": must be "UNet2DConditionModel"'),
        ({"magic": 1}, "magic=1: this key is not known, and may change what the model computes"),
    ],
)
def test_configurations_that_are_not_built_are_one_line(tmp_path, change, says):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL | change))
    with pytest.raises(ValueError) as error:
        find_unet(path)
    said = str(error.value)
    assert said.startswith(f"{path}: {says}") and "\n" not in said


@pytest.mark.parametrize("key", FIXED)
def test_every_key_that_is_fixed_is_refused_with_another_value(key):
    with pytest.raises(ValueError, match=f'^{key}="other": must be .*; other values are not built$'):
        parsed("small", SMALL | {key: "other"})
    assert parsed("small", SMALL | {key: FIXED[key]}) == READ


def test_sizes_of_a_head_are_checked_in_every_level():
    with pytest.raises(ValueError, match="attention_head_dim=7"):
        replace(SD_V1_5, heads=(8, 8, 8, 7))


@pytest.mark.parametrize("name", ["config.json", "unet_config.json"])
def test_a_folder_has_its_file(tmp_path, name):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / name).write_text(json.dumps(SMALL))
    for source in (folder, folder / name, str(folder)):
        assert is_unet(source) and find_unet(source) == READ


def test_a_name_needs_no_file():
    assert is_unet("sd-v1.5") and find_unet("sd-v1.5") is SD_V1_5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read as a configuration: No such file or directory"),
        ("[" * 100_000, "cannot be read as a configuration: .*nested too deeply.*"),
        ("{", "cannot be read as a configuration: .+"),
        ("<html>", "is a page of HTML, .*"),
        ("[1]", "must be an object of JSON"),
    ],
)
def test_what_is_no_configuration_is_one_line(tmp_path, text, says):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    assert not is_unet(path)
    with pytest.raises(ValueError, match=rf"config\.json: {says}$"):
        find_unet(path)
    path.write_text(json.dumps({"hidden_size": 4}))
    assert not is_unet(path)
