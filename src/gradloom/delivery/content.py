"""What a package carries: an adapter's configuration and tensors.

Tensors are in the order of a table that precedes them. A name with a layer's number stands once for all its layers.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Content", "exponent_of", "parse_table"]

_LAYER = re.compile(r"(?<=\.layers\.)(?:0|[1-9]\d*)(?=\.)")


@dataclass(frozen=True)
class Content:
    """An adapter's configuration (of JSON) and float32 tensors by name."""

    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]

    def table(self) -> bytes:
        """Length in 4 bytes, then JSON.

        It has the configuration, names, shapes and layers.
        """
        if len(self.tensors) >= 1 << 16 or any("*" in name for name in self.tensors):
            raise ValueError(f"adapter: has {len(self.tensors)} tensors: must be below 65536, no * in their names")
        groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for name, array in self.tensors.items():
            layer = _LAYER.search(name)
            pattern = _LAYER.sub("*", name, count=1) if layer else name
            groups.setdefault((pattern, array.shape), []).extend([int(layer[0])] if layer else [])
        rows = [[pattern, list(shape), sorted(layers)] for (pattern, shape), layers in sorted(groups.items())]
        text = json.dumps(
            {"config": dict(self.config), "tensors": rows}, sort_keys=True, separators=(",", ":")
        ).encode()
        text += b" " * (-(len(text) + 4) % 64)
        return len(text).to_bytes(4, "little") + text

    def ordered(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and tensors in the table's order."""
        _, shapes, _ = parse_table(self.table())
        return ((name, self.tensors[name]) for name in shapes)

    @property
    def hash(self) -> bytes:
        """SHA-256 of the table and of all tensors as little-endian float32."""
        digest = hashlib.sha256(self.table())
        for _, array in self.ordered():
            digest.update(np.ascontiguousarray(array, "<f4").tobytes())
        return digest.digest()

    @property
    def layers(self) -> int:
        """Number of layers that the names have; 0 where they have none."""
        return len({found[0] for name in self.tensors if (found := _LAYER.search(name))})

    def map(self, change: Callable[[str, np.ndarray], np.ndarray]) -> "Content":
        """The same with ``change(name, tensor)`` for each tensor."""
        return Content(self.config, {name: change(name, array) for name, array in self.tensors.items()})


def parse_table(payload: bytes) -> tuple[dict[str, Any], dict[str, tuple[int, ...]], int]:
    """Configuration, shapes by name in order, and bytes of a table.

    :class:`ValueError` if it is not as :meth:`Content.table` writes it.
    """
    end = 4 + int.from_bytes(payload[:4], "little")
    try:
        held = json.loads(payload[4:end].decode())
        shapes: dict[str, tuple[int, ...]] = {}
        for pattern, shape, layers in held["tensors"]:
            if any(not isinstance(size, int) or size < 1 for size in shape):
                raise ValueError
            for name in [pattern.replace("*", str(int(layer)), 1) for layer in layers] or [pattern]:
                shapes[name] = tuple(shape)
        config = held["config"]
        if end > len(payload) or not isinstance(config, dict):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("payload: its table is not as gradloom writes it; get the package again") from None
    return config, shapes, end


def exponent_of(content: Content) -> int:
    """The least e for which all values lie within ±2^e; -126 if all are 0."""
    peak = max((float(np.abs(array).max(initial=0)) for array in content.tensors.values()), default=0.0)
    if peak == 0:
        return -126
    fraction, exponent = np.frexp(peak)
    return int(exponent) - (fraction == 0.5)
