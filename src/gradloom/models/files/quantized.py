"""Weights in NF4 in bitsandbytes' layout of safetensors files."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gradloom.output import check_file
from gradloom.rtl.formats.codebook import NF4, pack_nibbles
from gradloom.rtl.formats.weights.blocks import (
    BLOCK_SIZES,
    GROUP,
    dequantize_blocks,
    dequantize_scales,
    dynamic_map,
    quantize_blocks,
    quantize_scales,
)

from .archive import read_npz
from .tensors import FLOATS, as_float32, open_safetensors, write_safetensors

__all__ = ["quantize_file"]

Tensor = tuple[np.ndarray, str]


def quantize_file(src: str | Path, dst: str | Path, *, double: bool = False, block: int = 64) -> dict:
    """Quantises the tensors of a file to NF4; bitsandbytes loads the output.

    Tensors with two or more dimensions are quantised. Others (biases, norms) are kept as they
    are, as bitsandbytes does in a model. For a tensor ``NAME`` the output holds ``NAME`` (uint8
    ``[ceil(n / 2), 1]``), ``NAME.absmax``, ``NAME.quant_map``, ``NAME.quant_state.bitsandbytes__nf4``,
    and with double quantisation ``NAME.nested_absmax`` and ``NAME.nested_quant_map``.

    Parameters
    ----------
    src : path
        ``.npz`` or ``.safetensors`` with float16, bfloat16, float32 or float64 tensors.
    dst : path
        ``.safetensors``; appears only when it is complete.
    double : bool
        Quantise the blocks' scales too, to 8 bits.
    block : int
        Elements that share a scale: a power of two in 32..4096.

    Returns
    -------
    dict
        ``output``, ``quantized`` (a list of ``{name, shape, bits_per_parameter, relative_error}``; the
        error is RMS over RMS) and ``kept`` (names).

    Raises
    ------
    ValueError
        With one message that names what is wrong; nothing has then been written.
    """
    src, dst = Path(src), Path(dst)
    if block not in BLOCK_SIZES:
        raise ValueError(f"block={block}: must be one of {', '.join(map(str, BLOCK_SIZES))}")
    check_file(dst, suffix=".safetensors", inputs=(src,))
    tensors = read_floats(src)

    out: dict[str, Tensor] = {}
    quantized, kept = [], []
    for name, (array, dtype) in tensors.items():
        if array.ndim < 2:
            parts = {"": (array, dtype)}
            kept.append(name)
        else:
            parts, figures = quantize_tensor(name, array, dtype, double=double, block=block)
            quantized.append(figures)
        for suffix, part in parts.items():
            if name + suffix in out or (suffix and name + suffix in tensors):
                raise ValueError(f"{src}: tensor {name + suffix} would be written twice; rename it")
            out[name + suffix] = part
    if not quantized:
        raise ValueError(f"{src}: no tensor has 2 or more dimensions, so there is nothing to quantise")
    write_safetensors(dst, out)
    return {"output": str(dst), "quantized": quantized, "kept": kept}


def quantize_tensor(
    name: str, array: np.ndarray, dtype: str, *, double: bool, block: int
) -> tuple[dict[str, Tensor], dict]:
    """bitsandbytes' tensors of one weight, and figures.

    The tensors are by the suffix of their key.
    """
    w = as_float32(array, dtype)
    codes, absmax = quantize_blocks(w, block=block)
    state = {
        "quant_type": "nf4",
        "blocksize": block,
        "dtype": "float32" if dtype == "float64" else dtype,
        "shape": list(w.shape),
    }
    parts: dict[str, Tensor] = {
        "": (pack_nibbles(codes)[:, None], "uint8"),
        ".absmax": (absmax, "float32"),
        ".quant_map": (np.asarray(NF4.levels, np.float32), "float32"),
    }
    bits = 4 + 32 * absmax.size / w.size
    if double:
        scale_codes, absmax2, offset = quantize_scales(absmax)
        parts |= {
            ".absmax": (scale_codes, "uint8"),
            ".nested_absmax": (absmax2, "float32"),
            ".nested_quant_map": (dynamic_map(), "float32"),
        }
        state |= {"nested_blocksize": GROUP, "nested_dtype": "float32", "nested_offset": float(offset)}
        bits = 4 + (8 * absmax.size + 32 * absmax2.size + 32) / w.size
        absmax = dequantize_scales(scale_codes, absmax2, offset)
    parts[".quant_state.bitsandbytes__nf4"] = (np.frombuffer(json.dumps(state).encode(), np.uint8), "uint8")
    flat = w.reshape(-1).astype(np.float64)
    error = np.sqrt(np.square(dequantize_blocks(codes, absmax, block=block) - flat).sum())
    size = np.sqrt(np.square(flat).sum())
    return parts, {
        "name": name,
        "shape": list(w.shape),
        "bits_per_parameter": round(float(bits), 4),
        "relative_error": round(float(error / size), 6) if size else 0.0,
    }


def read_floats(path: Path) -> dict[str, Tensor]:
    """Named float tensors of a file, with torch's name of their type.

    They are checked to be finite and not empty.
    """
    readers = {".npz": _read_npz, ".safetensors": read_safetensors}
    if path.suffix not in readers:
        raise ValueError(f"input={path}: must end in .npz or .safetensors")
    if not path.is_file():
        raise ValueError(f"input={path}: no such file")
    tensors = {}
    for name, array, dtype in readers[path.suffix](path):
        if dtype not in {torch for _, torch in FLOATS.values()}:
            raise ValueError(f"{path}: tensor {name} is {dtype}, must be float16, bfloat16, float32 or float64")
        if not array.size:
            raise ValueError(f"{path}: tensor {name} has shape {list(array.shape)}, must have at least 1 element")
        finite = np.isfinite(as_float32(array, dtype))
        if not finite.all():
            at = np.unravel_index(int(np.argmin(finite)), array.shape)
            index = ", ".join(str(int(n)) for n in at)
            value = as_float32(array, dtype)[at] if dtype == "bfloat16" else array[at]
            raise ValueError(f"{path}: tensor {name}[{index}] is {value}, must be finite in float32")
        tensors[name] = array, dtype
    if not tensors:
        raise ValueError(f"{path}: holds no tensors, needs at least 1")
    return tensors


def _read_npz(path: Path) -> Iterator[tuple[str, np.ndarray, str]]:
    """``(name, array, type)`` of each array of an npz file."""
    for name, array in read_npz(path).items():
        yield name, array, array.dtype.name


def read_safetensors(path: Path) -> Iterator[tuple[str, np.ndarray, str]]:
    """``(name, array, type)`` of each tensor.

    bfloat16, which numpy has not, is given as its 16 bits.
    """
    yield from ((name, stored.read(), stored.dtype) for name, stored in open_safetensors(path).items())
