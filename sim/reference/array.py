"""Bit-exact array engine: frozen layers and adapters' forward pass."""

import numpy as np

from gradloom.rtl.formats.images import ACTIVATION, DECODED, PARAMETER
from gradloom.rtl.formats.rounding import requantize, round_shift, saturate

__all__ = ["ACTIVATION", "SUM_BITS", "windows", "matmul_exact", "post_process", "conv_layer", "dense_layer", "hidden"]

#: Bits of a sum as the array hands it on.
SUM_BITS = 48


def windows(x, *, kernel, stride=(1, 1), pads=(0, 0, 0, 0), max_kernel=None) -> np.ndarray:
    """Kernel windows of each channel.

    An element is zero where it is padding or beyond the kernel.

    Parameters
    ----------
    x : integer array [..., height, width]
    kernel, stride : (vertical, horizontal)
    pads : (top, left, bottom, right)
    max_kernel : int
        Element (ky, kx) lies at ``ky * max_kernel + kx`` of ``max_kernel ** 2``; dense if not given.

    Returns
    -------
    array [..., out_height, out_width, elements]
    """
    x = np.asarray(x)
    top, left, bottom, right = pads
    x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)])
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(-2, -1))
    view = view[..., :: stride[0], :: stride[1], :, :]
    if max_kernel is not None:
        out = np.zeros(view.shape[:-2] + (max_kernel, max_kernel), x.dtype)
        out[..., : kernel[0], : kernel[1]] = view
        view = out
    return view.reshape(view.shape[:-2] + (-1,))


def matmul_exact(weight, x, *, bound_x=None) -> np.ndarray:
    """``weight @ x`` of integers, as ``int64``.

    Uses float64, and so BLAS, where no partial sum can reach ``2**53`` in whatever order it is
    summed; else integers.
    """
    weight = np.asarray(weight)
    bound_x = int(np.abs(x).max(initial=0)) if bound_x is None else bound_x
    bound = int(np.abs(weight.astype(np.int64)).sum(axis=-1).max(initial=0)) * bound_x
    if bound < 1 << 53:
        return (weight.astype(np.float64) @ np.asarray(x, np.float64)).astype(np.int64)
    if bound < 1 << 63:
        return weight.astype(np.int64) @ np.asarray(x, np.int64)
    raise ValueError(f"sums may reach {bound}: more than 63 bits")


def post_process(sums, bias, *, relu, pool=1, axis=0, sum_frac=None, bias_frac=None, fmt=ACTIVATION):
    """``(words, clipped)``: sums to activations.

    Parameters
    ----------
    sums : integer array
        With ``pool`` above 1 the last two axes are height and width; rows and columns that do not
        fill a pool are dropped.
    bias : integer array
        One an element of ``axis`` of ``sums``, with ``bias_frac`` fraction bits.
    clipped : bool array, of the shape of ``sums``
        Which were clipped, before ReLU and pooling.
    """
    # Weights have 12 fraction bits, biases as many as activations.
    sum_frac = fmt.frac + 12 if sum_frac is None else sum_frac
    bias_frac = fmt.frac if bias_frac is None else bias_frac
    sums = np.asarray(sums, np.int64)
    limit = 1 << (SUM_BITS - 1)
    if sums.size and (sums.min() < -limit or sums.max() >= limit):
        raise ValueError(f"sums reach {np.abs(sums).max()}: the array's are {SUM_BITS} bits")
    shape = [1] * sums.ndim
    shape[axis] = -1
    value = sums + (np.asarray(bias, np.int64) << (sum_frac - bias_frac)).reshape(shape)
    rounded = round_shift(value, sum_frac - fmt.frac)
    value, _ = saturate(rounded, fmt.lo, fmt.hi)
    clipped = value != rounded
    if relu:
        value = np.maximum(value, 0)
    if pool > 1:
        height, width = (n // pool * pool for n in value.shape[-2:])
        parts = [value[..., y:height:pool, x:width:pool] for y in range(pool) for x in range(pool)]
        value = np.maximum.reduce(parts)
    return value, clipped


def conv_layer(x, weight, bias, *, stride=(1, 1), pads=(0, 0, 0, 0), relu=True, pool=1, chunk=64, fmt=ACTIVATION):
    """``(y, saturated)`` of convolution, bias, ReLU and max-pool.

    Parameters
    ----------
    x : integer array [n, channels, height, width], Q8.16
    weight : integer array [out, channels, kernel_h, kernel_w], Q4.12
    bias : integer array [out], 16 fraction bits
    stride : (vertical, horizontal)
    pads : (top, left, bottom, right)
    chunk : int
        Images at a time: bounds the memory that windows take, changes nothing else.

    Returns
    -------
    y : int64 array [n, out, height, width], Q8.16
    saturated : int64 array [n]
        Words of each image that were clipped, before ReLU and pooling.
    """
    x, weight = np.asarray(x), np.asarray(weight)
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"x {x.shape}, weight {weight.shape}: want [n, c, h, w] and [out, c, kh, kw]")
    outputs, channels, *kernel = weight.shape
    flat = weight.reshape(outputs, -1)
    bound = int(np.abs(x).max(initial=0))
    # float64 from the start: windows are copied once, in the type that BLAS takes.
    exact = int(np.abs(flat.astype(np.int64)).sum(axis=1).max(initial=0)) * bound < 1 << 53
    out, saturated = [], []
    for start in range(0, len(x), chunk):
        part = x[start : start + chunk].astype(np.float64 if exact else np.int64)
        top, left, bottom, right = pads
        part = np.pad(part, [(0, 0), (0, 0), (top, bottom), (left, right)])
        view = np.lib.stride_tricks.sliding_window_view(part, kernel, axis=(2, 3))
        view = view[:, :, :: stride[0], :: stride[1]]
        height, width = view.shape[2:4]
        columns = view.transpose(1, 4, 5, 0, 2, 3).reshape(flat.shape[1], -1)
        sums = matmul_exact(flat, columns, bound_x=bound).reshape(outputs, len(part), height, width)
        y, clipped = post_process(sums, bias, relu=relu, pool=pool, fmt=fmt)
        out.append(y.transpose(1, 0, 2, 3))
        saturated.append(clipped.sum(axis=(0, 2, 3)))
    if not out:
        raise ValueError("x: no images")
    return np.concatenate(out), np.concatenate(saturated)


def dense_layer(x, weight, bias, *, relu=True, fmt=ACTIVATION):
    """``(y, saturated)`` of ``x @ weight.T + bias``, then ReLU.

    Parameters
    ----------
    x : integer array [n, in], Q8.16
    weight : integer array [out, in], Q4.12
    bias : integer array [out], 16 fraction bits

    Returns
    -------
    y : int64 array [n, out], Q8.16
    saturated : int64 array [n]
        Words of each sample that were clipped, before ReLU.
    """
    x, weight = np.asarray(x), np.asarray(weight)
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"x {x.shape}, weight {weight.shape}: want [n, in] and [out, in]")
    y, clipped = post_process(matmul_exact(weight, x.T), bias, relu=relu, fmt=fmt)
    return y.T, clipped.sum(axis=0)


def hidden(x, a, fmt=ACTIVATION):
    """``(h, saturated)`` of adapters' forward pass ``h = A x``.

    Parameters
    ----------
    x : integer array [samples, n], Q8.10
    a : integer array [rank, n], Q4.12

    Returns
    -------
    h : int64 array [samples, rank] of ``fmt``
    saturated : int
    """
    # Fewer than 2**16 products below 2**32: exact in float64.
    sums = (np.asarray(x, np.float64) @ np.asarray(a, np.float64).T).astype(np.int64)
    return requantize(fmt, sums, DECODED.frac + PARAMETER.frac)
