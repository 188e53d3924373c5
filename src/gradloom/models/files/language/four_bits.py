"""Linears saved in 4 bits by others: bitsandbytes' NF4, AWQ and GPTQ.

``quantization_config`` of ``config.json`` names the method; each of its keys must be understood. NF4 comes as
bitsandbytes' own codes and scales. AWQ and GPTQ are values, ``(code - zero) · scale``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradloom.rtl.formats.codebook import NF4, unpack_nibbles
from gradloom.rtl.formats.weights.blocks import GROUP, dequantize_blocks, dequantize_scales, dynamic_map

from ..keys import ANY, check_keys, shown
from ..tensors import StoredTensor, as_float32

__all__ = ["CodedLinear", "Nf4Codes", "check_quantization", "gathered", "nf4_of"]

#: Blocks of NF4 that the hardware has.
_BLOCK = 64
_NF4, _FP4 = ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"
#: Place of each nibble's element among 8 neighbours in AWQ's words.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_NIBBLES = 4 * np.arange(8, dtype=np.uint32)
_BITSANDBYTES: Mapping[str, tuple[Any, ...]] = {
    "quant_method": ("bitsandbytes",),
    "load_in_4bit": (True,),
    "load_in_8bit": (False,),
    "bnb_4bit_quant_type": ("nf4",),
    "bnb_4bit_quant_storage": ("uint8",),
    "bnb_4bit_use_double_quant": (True, False),
} | dict.fromkeys(
    # Of the arithmetic that transformers does with the weights, and of models in 8 bits.
    ("bnb_4bit_compute_dtype", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold")
    + ("llm_int8_skip_modules", "_load_in_4bit", "_load_in_8bit"),
    ANY,
)
_AWQ: Mapping[str, tuple[Any, ...]] = {
    "quant_method": ("awq",),
    "bits": (4,),
    "w_bit": (4,),
    "version": ("gemm", "GEMM"),
    "zero_point": (True,),
    "do_fuse": (False,),
} | dict.fromkeys(("modules_to_not_convert", "backend", "fuse_max_seq_len", "modules_to_fuse", "exllama_config"), ANY)
_GPTQ: Mapping[str, tuple[Any, ...]] = {
    "quant_method": ("gptq",),
    "bits": (4,),
    "checkpoint_format": ("gptq", "gptq_v2"),
    "pack_dtype": ("int32",),
    "lm_head": (False,),
    "is_marlin_format": (False,),
    "sym": (True, False),
    "desc_act": (True, False),
} | dict.fromkeys(
    # Of how codes were found, and of the arithmetic.
    ("damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "model_name_or_path", "dataset")
    + (
        "model_file_base_name",
        "tokenizer",
        "model_seqlen",
        "block_name_to_quantize",
        "module_name_preceding_first_block",
    )
    + ("batch_size", "pad_token_id", "use_exllama", "exllama_config", "max_input_length", "cache_block_outputs", "meta")
    + (
        "modules_in_block_to_quantize",
        "disable_exllama",
        "use_cuda_fp16",
        "backend",
        "quantizer",
        "mse",
        "parallel_packing",
    ),
    ANY,
)
_METHODS = {"bitsandbytes": _BITSANDBYTES, "awq": _AWQ, "gptq": _GPTQ}
_SIZES = {"awq": ("group_size", "q_group_size"), "gptq": ("group_size",)}


def check_quantization(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The method's settings, all of which are understood.

    :class:`ValueError` names the first key that is not, or has a value that cannot be read.
    """
    if config is None:
        return None
    named = "quantization_config"
    if not isinstance(config, dict):
        raise ValueError(f"{named}={shown(config)}: must be an object of JSON")
    method = config.get("quant_method", "bitsandbytes" if config.get("load_in_4bit") else None)
    if method not in _METHODS:
        raise ValueError(f"{named}.quant_method={shown(method)}: must be one of {', '.join(_METHODS)}")
    sizes = _SIZES.get(method, ())
    try:
        check_keys(config, handled=sizes, harmless=_METHODS[method])
        if method == "bitsandbytes" and config.get("load_in_4bit") is not True:
            raise ValueError(f"load_in_4bit={shown(config.get('load_in_4bit'))}: must be true")
        bits = config.get("bits", config.get("w_bit", 4 if method == "bitsandbytes" else None))
        if bits is None:
            raise ValueError("bits=null: must be 4")
        for key in sizes:
            size = config.get(key, 128)
            if isinstance(size, bool) or not isinstance(size, int) or not (size == -1 or 1 <= size <= 1 << 16):
                raise ValueError(f"{key}={shown(size)}: must be -1, or an integer from 1 to {1 << 16}")
    except ValueError as error:
        raise ValueError(f"{named}.{error}") from None
    size = next((config[key] for key in sizes if config.get(key) is not None), 128)
    return {**config, "quant_method": method, "group_size": size}


@dataclass(frozen=True)
class Nf4Codes:
    """A matrix in NF4 as bitsandbytes saves it.

    ``codes`` is uint8 ``[outputs, inputs]``; blocks of 64 along the rows have a scale each, in float32 ``absmax``, or
    with double quantisation as ``scale_codes``, one ``absmax2`` for 256 of them, and ``offset``.
    """

    codes: np.ndarray
    absmax: np.ndarray | None
    scale_codes: np.ndarray | None = None
    absmax2: np.ndarray | None = None
    offset: np.float32 = np.float32(0)

    def values(self) -> np.ndarray:
        """The float32 matrix that they stand for."""
        scales = self.absmax
        if scales is None:
            scales = dequantize_scales(self.scale_codes, self.absmax2, self.offset)
        return dequantize_blocks(self.codes, scales, book=NF4, block=_BLOCK).reshape(self.codes.shape)

    def part(self, rows: slice) -> "Nf4Codes | None":
        """Some of the rows; None where they begin within a block or a group of scales."""
        first, last = (row * self.codes.shape[1] for row in (rows.start, rows.stop))
        size = _BLOCK if self.absmax is not None else _BLOCK * GROUP
        if first % size or (last % size and rows.stop != len(self.codes)):
            return None
        scales, groups = (slice(first // each, -(-last // each)) for each in (_BLOCK, _BLOCK * GROUP))
        if self.scale_codes is None or self.absmax2 is None:
            assert self.absmax is not None
            return Nf4Codes(self.codes[rows], self.absmax[scales])
        return Nf4Codes(self.codes[rows], None, self.scale_codes[scales], self.absmax2[groups], self.offset)


class CodedLinear(Protocol):
    """A matrix that is stored in codes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs and inputs."""

    def values(self) -> np.ndarray:
        """Float32 ``[outputs, inputs]``."""


@dataclass(frozen=True)
class _Nf4:
    """bitsandbytes' tensors of a matrix, by the end of their names."""

    shape: tuple[int, ...]
    offset: float | None
    parts: Mapping[str, StoredTensor]

    def codes(self) -> Nf4Codes:
        """The codes as they are stored."""
        codes = unpack_nibbles(self.parts[""].read().reshape(-1)).reshape(self.shape)
        absmax = self.parts[".absmax"].read()
        if self.offset is None:
            return Nf4Codes(codes, absmax)
        return Nf4Codes(codes, None, absmax, self.parts[".nested_absmax"].read(), np.float32(self.offset))

    def values(self) -> np.ndarray:
        return self.codes().values()


@dataclass(frozen=True)
class _Grouped:
    """Tensors of AWQ or GPTQ of a matrix, by the last part of their names.

    ``unpack`` makes codes ``[inputs, outputs]``, zeros and scales ``[groups, outputs]``, and each input's group.
    """

    shape: tuple[int, ...]
    unpack: Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]

    def values(self) -> np.ndarray:
        codes, zeros, scales, groups = self.unpack()
        signed = codes.astype(np.int32) - zeros[groups]
        return np.ascontiguousarray((signed.astype(np.float32) * scales[groups]).T)


def nf4_of(coded: CodedLinear | None) -> Nf4Codes | None:
    """bitsandbytes' codes of a matrix; None where it has others."""
    return coded.codes() if isinstance(coded, _Nf4) else None


def gathered(
    settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, CodedLinear]]:
    """Plain tensors, and matrices in codes by the name of their weight.

    ``settings`` are those of :func:`check_quantization`. :class:`ValueError` names the tensor that is missing or is
    another than it must be.
    """
    if settings["quant_method"] == "bitsandbytes":
        return _of_bitsandbytes(tensors)
    return _of_groups(settings, tensors)


def _of_bitsandbytes(tensors: Mapping[str, StoredTensor]) -> tuple[dict[str, StoredTensor], dict[str, CodedLinear]]:
    left, coded = dict(tensors), dict[str, CodedLinear]()
    for key in tensors:
        if key.endswith(_FP4):
            raise ValueError(f"tensor {key}: is FP4; must be NF4")
        if not key.endswith(_NF4):
            continue
        name = key.removesuffix(_NF4)
        state = _state(key, left.pop(key))
        nested = "nested_offset" in state
        ends = ("", ".absmax", ".quant_map") + ((".nested_absmax", ".nested_quant_map") if nested else ())
        for end in ends:
            if name + end not in left:
                raise ValueError(f"has no tensor {name + end}, but {key}")
        parts = {end: left.pop(name + end) for end in ends}
        shape = tuple(state["shape"])
        blocks = -(-int(np.prod(shape)) // _BLOCK)
        _check(name, parts[""], "uint8", -(-int(np.prod(shape)) // 2))
        _check(f"{name}.absmax", parts[".absmax"], "uint8" if nested else "float32", blocks)
        tables = [(".quant_map", np.asarray(NF4.levels, np.float32))]
        if nested:
            _check(f"{name}.nested_absmax", parts[".nested_absmax"], "float32", -(-blocks // GROUP))
            tables.append((".nested_quant_map", dynamic_map()))
        for end, table in tables:
            _check(name + end, parts[end], "float32", table.size)
            if not np.array_equal(parts[end].read().reshape(-1), table):
                raise ValueError(f"tensor {name + end}: is not bitsandbytes' table")
        coded[name] = _Nf4(shape, state["nested_offset"] if nested else None, parts)
    return left, coded


def _state(key: str, stored: StoredTensor) -> dict[str, Any]:
    """bitsandbytes' own words on a tensor."""
    try:
        state = json.loads(stored.read().tobytes())
        shape = state["shape"]
        offset = state.get("nested_offset", 0.0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"tensor {key}: is no JSON of bitsandbytes; save the model again") from None
    wanted: dict[str, Any] = {"quant_type": "nf4", "blocksize": _BLOCK}
    if "nested_offset" in state:
        wanted |= {"nested_blocksize": GROUP, "nested_dtype": "float32"}
    for field, value in wanted.items():
        if state.get(field) != value:
            raise ValueError(f"tensor {key}: {field}={shown(state.get(field))}: must be {shown(value)}")
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(n, int) and 0 < n < 1 << 24 for n in shape):
        raise ValueError(f"tensor {key}: shape={shown(shape)}: must be two integers above 0")
    if isinstance(offset, bool) or not isinstance(offset, int | float) or not abs(offset) < 1e30:
        raise ValueError(f"tensor {key}: nested_offset={shown(offset)}: must be a finite number")
    return dict(state)


def _check(name: str, stored: StoredTensor, dtype: str, count: int) -> None:
    """Refuses a tensor of another type or size."""
    found = int(np.prod(stored.shape, dtype=np.int64))
    if stored.dtype != dtype or found != count:
        raise ValueError(f"tensor {name}: has {found} of {stored.dtype}: must have {count} of {dtype}")


def _of_groups(
    settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, CodedLinear]]:
    left, coded = dict(tensors), dict[str, CodedLinear]()
    awq = settings["quant_method"] == "awq"
    for key in tensors:
        module, _, last = key.rpartition(".")
        if last != "qweight":
            continue
        parts = {}
        for end in ("qweight", "qzeros", "scales"):
            if f"{module}.{end}" not in left:
                raise ValueError(f"has no tensor {module}.{end}, but {key}")
            parts[end] = left.pop(f"{module}.{end}")
        index = left.pop(f"{module}.g_idx", None) if not awq else None
        if len(parts["qweight"].shape) != 2:
            raise ValueError(f"tensor {key}: has shape {list(parts['qweight'].shape)}: must be a matrix")
        rows, columns = parts["qweight"].shape
        inputs, outputs = (rows, 8 * columns) if awq else (8 * rows, columns)
        size = inputs if settings["group_size"] == -1 else settings["group_size"]
        groups = -(-inputs // size)
        if index is None and settings.get("desc_act"):
            raise ValueError(f"has no tensor {module}.g_idx, which desc_act=true needs")
        for end, dtype, shape in (
            ("qweight", "int32", (rows, columns)),
            ("qzeros", "int32", (groups, outputs // 8)),
            ("scales", None, (groups, outputs)),
        ):
            found = parts[end]
            if found.shape != shape or (found.dtype != dtype if dtype else found.dtype in ("int32", "uint8")):
                raise ValueError(
                    f"tensor {module}.{end}: is {found.dtype} {list(found.shape)}: must be {dtype or 'of floats'} "
                    f"{list(shape)} with group_size={settings['group_size']}"
                )
        # A bias of zeros, as GPTQ's tools write one beside every linear, changes nothing.
        bias = left.get(f"{module}.bias")
        if bias is not None and bias.dtype not in ("int32", "uint8") and not as_float32(bias.read(), bias.dtype).any():
            del left[f"{module}.bias"]
        unpack = _awq if awq else _gptq
        coded[f"{module}.weight"] = _Grouped(
            (outputs, inputs),
            lambda unpack=unpack, module=module, parts=parts, index=index, size=size: unpack(  # type: ignore[misc]
                module, parts, index, size, settings
            ),
        )
    return left, coded


def _words(stored: StoredTensor) -> np.ndarray:
    """Nibbles of each 32-bit word, the lowest first, along a last axis."""
    return stored.read().view(np.uint32)[..., None] >> _NIBBLES & np.uint32(15)


def _awq(
    module: str, parts: Mapping[str, StoredTensor], index: None, size: int, settings: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    # Nibble i of a word is neighbour _AWQ_ORDER[i].
    places = np.argsort(_AWQ_ORDER)
    codes, zeros = (_words(parts[end])[..., places].reshape(parts[end].shape[0], -1) for end in ("qweight", "qzeros"))
    scales = as_float32(parts["scales"].read(), parts["scales"].dtype)
    return codes, zeros.astype(np.int32), scales, np.arange(len(codes)) // size


def _gptq(
    module: str, parts: Mapping[str, StoredTensor], index: StoredTensor | None, size: int, settings: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = parts["qweight"].shape
    codes = _words(parts["qweight"]).swapaxes(1, 2).reshape(8 * rows, columns)
    zeros = _words(parts["qzeros"]).reshape(parts["qzeros"].shape[0], -1).astype(np.int32)
    if settings.get("checkpoint_format", "gptq") == "gptq":
        # The first format has zeros less 1, and no word for 0.
        if (zeros == 15).any():
            raise ValueError(
                f"tensor {module}.qzeros: has a zero of 0 less 1, which readers take for 0 or 16; save the model with "
                f'checkpoint_format="gptq_v2"'
            )
        zeros += 1
    scales = as_float32(parts["scales"].read(), parts["scales"].dtype)
    groups = np.arange(8 * rows) // size
    if index is not None:
        found = index.read()
        if index.dtype != "int32" or found.shape != groups.shape or found.min() < 0 or found.max() >= len(scales):
            raise ValueError(f"tensor {module}.g_idx: must be int32 [{8 * rows}] from 0 to {len(scales) - 1}")
        if not settings.get("desc_act") and not np.array_equal(found, groups):
            raise ValueError(f"tensor {module}.g_idx: orders the inputs, but desc_act is false; set it to true")
        groups = found
    return codes, zeros, scales, groups
