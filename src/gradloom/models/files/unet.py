"""Configurations of diffusers' UNet2DConditionModel."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradloom.json_file import read_json

from .keys import ANY, check_keys, same, shown
from .kinds import what_is

__all__ = ["MODELS", "RANKS", "UNet", "find_unet", "is_unet"]

#: Ranks of adapters that are taken.
RANKS = (1, 2, 4, 8, 16, 32)
#: Types of blocks that are built, and whether they have cross-attention.
DOWN = {"CrossAttnDownBlock2D": True, "DownBlock2D": False}
UP = {"CrossAttnUpBlock2D": True, "UpBlock2D": False}
#: Keys that change the network, with the one value that is built; diffusers' default where the file is silent.
FIXED: dict[str, Any] = {
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "act_fn": "silu",
    "only_cross_attention": False,
    "dual_cross_attention": False,
    "center_input_sample": False,
    "encoder_hid_dim": None,
    "encoder_hid_dim_type": None,
    "class_embed_type": None,
    "addition_embed_type": None,
    "num_class_embeds": None,
    "resnet_time_scale_shift": "default",
    "resnet_skip_time_act": False,
    "resnet_out_scale_factor": 1.0,
    "time_embedding_type": "positional",
    "time_embedding_act_fn": None,
    "timestep_post_act": None,
    "time_cond_proj_dim": None,
    "time_embedding_dim": None,
    "conv_in_kernel": 3,
    "conv_out_kernel": 3,
    "attention_type": "default",
    "class_embeddings_concat": False,
    "mid_block_only_cross_attention": None,
    "cross_attention_norm": None,
    "downsample_padding": 1,
    "mid_block_scale_factor": 1,
    "num_attention_heads": None,
    "reverse_transformer_layers_per_block": None,
    "dropout": 0.0,
}
#: Keys that are read and checked in :func:`parsed`.
HANDLED = frozenset(
    ("_class_name", "sample_size", "in_channels", "out_channels", "block_out_channels", "down_block_types")
    + ("up_block_types", "attention_head_dim", "layers_per_block", "transformer_layers_per_block")
    + ("cross_attention_dim", "norm_num_groups", "norm_eps", "use_linear_projection", "flip_sin_to_cos", "freq_shift")
)
#: Keys that change nothing: of the file, of averages over training, and of embeddings that :data:`FIXED` leaves out.
HARMLESS = dict.fromkeys(
    ("_diffusers_version", "_name_or_path", "_use_default_values", "upcast_attention", "addition_time_embed_dim")
    + ("addition_embed_type_num_heads", "projection_class_embeddings_input_dim", "decay", "inv_gamma", "min_decay")
    + ("optimization_step", "power", "update_after_step", "use_ema_warmup"),
    ANY,
)
_CLASS = "UNet2DConditionModel"


@dataclass(frozen=True, kw_only=True)
class UNet:
    """A configuration of ``UNet2DConditionModel``, a level an entry.

    ``attends``, ``rises``: whether a level of the way down, and of the way up, has cross-attention. ``heads``: heads a
    level, which diffusers reads from ``attention_head_dim``. ``text``: features of a token of the prompt.
    """

    name: str
    size: int
    inputs: int
    outputs: int
    channels: tuple[int, ...]
    attends: tuple[bool, ...]
    rises: tuple[bool, ...]
    heads: tuple[int, ...]
    layers: tuple[int, ...]
    blocks: tuple[int, ...]
    text: int
    groups: int
    eps: float
    linear_projection: bool
    flip: bool
    shift: int

    def __post_init__(self) -> None:
        halvings = len(self.channels) - 1
        if self.size % (1 << halvings) or self.size < 1 << halvings:
            raise ValueError(f"sample_size={self.size}: must be a multiple of {1 << halvings}, the levels' halvings")
        for width, heads in zip(self.channels, self.heads):
            if width % self.groups:
                raise ValueError(f"block_out_channels={width}: must be a multiple of norm_num_groups={self.groups}")
            if width % heads or width // heads % 8:
                raise ValueError(
                    f"attention_head_dim={heads}: {width} channels over {heads} heads must be a multiple of 8 each"
                )


SD_V1_5 = UNet(
    name="sd-v1.5",
    size=64,
    inputs=4,
    outputs=4,
    channels=(320, 640, 1280, 1280),
    attends=(True, True, True, False),
    rises=(False, True, True, True),
    heads=(8, 8, 8, 8),
    layers=(2, 2, 2, 2),
    blocks=(1, 1, 1, 1),
    text=768,
    groups=32,
    eps=1e-5,
    linear_projection=False,
    flip=True,
    shift=0,
)
#: Configurations that need no file.
MODELS = {SD_V1_5.name: SD_V1_5}


def _file(source: Path | str) -> Path:
    path = Path(source)
    return next((p for p in (path / "config.json", path / "unet_config.json") if p.is_file()), path)


def is_unet(source: Path | str) -> bool:
    """Whether it is a UNet's name, or the file of its configuration."""
    if source in MODELS:
        return True
    try:
        raw = read_json(_file(source))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and "block_out_channels" in raw


def find_unet(source: Path | str) -> UNet:
    """A built-in UNet by name, or that of diffusers' file or folder.

    :class:`ValueError` if it cannot be built.
    """
    if source in MODELS:
        return MODELS[str(source)]
    path = _file(source)
    try:
        raw = read_json(path)
    except (OSError, ValueError) as error:
        kind = what_is(path)
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"{path}: is {kind}" if kind else f"{path}: cannot be read as a configuration: {why}"
        ) from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must be an object of JSON")
    try:
        return parsed(path.resolve().parent.name, raw)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parsed(name: str, raw: Mapping[str, Any]) -> UNet:
    """The UNet of a configuration's keys, with diffusers' defaults."""
    if raw.get("_class_name", _CLASS) != _CLASS:
        raise ValueError(f"_class_name={shown(raw['_class_name'])}: must be {shown(_CLASS)}")
    # None is a value of its own here: a UNet without a middle, for one.
    for key, value in FIXED.items():
        if not same(raw.get(key, value), value):
            raise ValueError(f"{key}={shown(raw[key])}: must be {shown(value)}; other values are not built")
    check_keys(raw, handled=HANDLED | FIXED.keys(), harmless=HARMLESS)
    channels = _counts("block_out_channels", raw.get("block_out_channels", [320, 640, 1280, 1280]))
    if not 1 <= len(channels) <= 8:
        raise ValueError(f"block_out_channels: {len(channels)} levels, must be from 1 to 8")
    count = len(channels)

    def number(key: str, default: int) -> int:
        return _counts(key, [raw.get(key, default)])[0]

    def flag(key: str, default: bool) -> bool:
        value = raw.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"{key}={shown(value)}: must be true or false")
        return value

    down = raw.get("down_block_types", ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"])
    up = raw.get("up_block_types", ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3)
    for key, types, known in (("down_block_types", down, DOWN), ("up_block_types", up, UP)):
        if not isinstance(types, list) or len(types) != count:
            raise ValueError(f"{key}: must be a list of {count} names, one a level")
        for each in types:
            if each not in known:
                raise ValueError(f"{key}={shown(each)}: must be one of {', '.join(known)}")

    def a_level(key: str, default: int) -> tuple[int, ...]:
        given = raw.get(key, default)
        value = _counts(key, given if isinstance(given, list) else [given] * count)
        if len(value) != count:
            raise ValueError(f"{key}: {len(value)} values, must be {count}, one a level")
        return value

    eps, shift = raw.get("norm_eps", 1e-5), raw.get("freq_shift", 0)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < 1 << 16:
        raise ValueError(f"norm_eps={shown(eps)}: must be a number from 0 to {1 << 16}")
    if isinstance(shift, bool) or shift not in (0, 1):
        raise ValueError(f"freq_shift={shown(shift)}: must be 0 or 1")
    sides = raw.get("sample_size")
    sides = _counts("sample_size", sides if isinstance(sides, list) else [sides])
    if len(set(sides)) != 1 or len(sides) > 2:
        raise ValueError(f"sample_size={shown(list(sides))}: must be one side, or two that are equal")
    return UNet(
        name=name,
        size=sides[0],
        inputs=number("in_channels", 4),
        outputs=number("out_channels", 4),
        channels=channels,
        attends=tuple(DOWN[each] for each in down),
        rises=tuple(UP[each] for each in up),
        heads=a_level("attention_head_dim", 8),
        layers=a_level("layers_per_block", 2),
        blocks=a_level("transformer_layers_per_block", 1),
        text=number("cross_attention_dim", 1280),
        groups=number("norm_num_groups", 32),
        eps=eps,
        linear_projection=flag("use_linear_projection", False),
        flip=flag("flip_sin_to_cos", True),
        shift=int(shift),
    )


def _counts(key: str, values: Any) -> tuple[int, ...]:
    """A list of positive integers."""
    if not isinstance(values, list):
        raise ValueError(f"{key}={shown(values)}: must be a list of integers")
    for each in values:
        if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= 1 << 16:
            raise ValueError(f"{key}={shown(each)}: must be an integer from 1 to {1 << 16}")
    return tuple(values)
