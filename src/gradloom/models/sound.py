"""Features of sound: mel spectra and cepstra of a WAV file."""

import wave
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

__all__ = ["Sound", "read_wav"]

#: Power of a band whose logarithm is the floor, of samples in [-1, 1).
_FLOOR = 1e-6
_BOUNDS = {
    "rate": (1000, 192_000),
    "window": (1, 1000),
    "hop": (1, 1000),
    "mels": (1, 256),
    "low": (0, 96_000),
    "high": (1, 96_000),
    "coefficients": (1, 256),
}


@dataclass(frozen=True)
class Sound:
    """Constants of the front end that makes features of samples.

    A frame of ``window`` ms every ``hop`` ms is weighted by a periodic Hann window and filled with zeros to a power of
    two; none reaches beyond the ends. ``mels`` triangles of height 1, whose corners are equally spaced on HTK's mel
    scale, 2595 log10(1 + f / 700), sum the power spectrum from ``low`` to ``high`` Hz. A feature of ``logmel`` is the
    natural logarithm of a sum and 1e-6. ``mfcc`` takes the first ``coefficients`` of their orthonormal DCT-II.
    """

    kind: str = "mfcc"
    rate: int = 16000
    window: int = 30
    hop: int = 20
    mels: int = 40
    low: int = 20
    high: int = 4000
    coefficients: int = 10

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}={value}: must be from {least} to {most}")
        if self.kind not in ("logmel", "mfcc"):
            raise ValueError(f"{self.kind}: must be logmel or mfcc")
        if not self.low < self.high <= self.rate // 2:
            raise ValueError(f"high={self.high}: must be above low={self.low} and at most half of rate={self.rate}")
        if self.coefficients > self.mels:
            raise ValueError(f"coefficients={self.coefficients}: must be at most mels={self.mels}")
        empty = np.flatnonzero(self._triangles.sum(axis=1) == 0)
        if len(empty):
            raise ValueError(
                f"mels={self.mels}: band {empty[0]} of {self.low} to {self.high} Hz lies between two frequencies of "
                f"the spectrum; give fewer mels, or a longer window"
            )

    @classmethod
    def of(cls, text: str) -> Self:
        """A front end by its kind and what differs from the usual.

        ``"mfcc,rate=8000,high=3800"``. :class:`ValueError` names the option ``sound``.
        """
        kind, *rest = text.split(",")
        values = {}
        known = [field.name for field in fields(cls) if field.name != "kind"]
        for each in rest:
            name, _, value = each.partition("=")
            if name not in known or name in values:
                raise ValueError(f"sound={text}: {name!r} must be one of {', '.join(known)}, each once, as rate=16000")
            try:
                values[name] = int(value)
            except ValueError:
                raise ValueError(f"sound={text}: {name}={value}: must be an integer") from None
        try:
            return cls(kind, **values)
        except ValueError as error:
            raise ValueError(f"sound={text}: {error}") from None

    @property
    def channels(self) -> int:
        """Features of a frame."""
        return self.coefficients if self.kind == "mfcc" else self.mels

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Features ``[frames, channels]`` of samples ``[n]`` in [-1, 1)."""
        length, hop = (self.rate * each // 1000 for each in (self.window, self.hop))
        if len(samples) < length:
            return np.empty((0, self.channels))
        frames = np.lib.stride_tricks.sliding_window_view(samples, length)[:: max(hop, 1)]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
        power = np.abs(np.fft.rfft(frames * hann, self._size)) ** 2
        bands = np.log(power @ self._triangles.T + _FLOOR)
        if self.kind == "logmel":
            return bands
        k = np.arange(self.coefficients)[:, None]
        cosines = np.cos(np.pi * k * (np.arange(self.mels) + 0.5) / self.mels)
        return bands @ (cosines * np.sqrt(np.where(k == 0, 1, 2) / self.mels)).T

    @property
    def _size(self) -> int:
        """Points of the spectrum."""
        return 1 << (self.rate * self.window // 1000 - 1).bit_length()

    @cached_property
    def _triangles(self) -> np.ndarray:
        """Weights ``[mels, frequencies]``."""
        low, high = (2595 * np.log10(1 + each / 700) for each in (self.low, self.high))
        corners = 700 * (10 ** (np.linspace(low, high, self.mels + 2) / 2595) - 1)
        heard = np.arange(self._size // 2 + 1) * self.rate / self._size
        rise, fall = np.diff(corners)[:-1, None], np.diff(corners)[1:, None]
        up = (heard - corners[:-2, None]) / rise
        return np.maximum(0, np.minimum(up, (corners[2:, None] - heard) / fall))


def read_wav(path: Path, rate: int) -> np.ndarray:
    """Samples in [-1, 1) of a WAV file of one channel, in integers.

    :class:`ValueError` names the file and what it has.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, has = file.getnchannels(), file.getsampwidth(), file.getframerate()
            count, held = file.getnframes(), file.readframes(file.getnframes())
    except (wave.Error, EOFError, OSError) as error:
        raise ValueError(
            f"data={path}: is no WAV file of integers that can be read: {error or 'it ends early'}"
        ) from None
    if has != rate:
        raise ValueError(f"data={path}: has {has} samples a second, the front end {rate}; give --sound KIND,rate={has}")
    if channels != 1:
        raise ValueError(f"data={path}: has {channels} channels: must have 1")
    if len(held) != count * width:
        raise ValueError(f"data={path}: holds {len(held)} bytes of {count * width}: is it truncated?")
    # Samples of 8 bits are unsigned; each other becomes the upper bytes of a word of 32 bits.
    words = np.zeros((count, 4), np.uint8)
    words[:, 4 - width :] = np.frombuffer(held, np.uint8).reshape(count, width)
    if width == 1:
        words[:, 3] ^= 0x80
    return words.reshape(-1).view("<i4") / 2.0**31
