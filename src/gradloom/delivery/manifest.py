"""The 512 bytes in front of a package's payload, with the signature.

All numbers are little-endian; unused bytes are zero. The last 64 bytes are the signature over those before them.
"""

import dataclasses
import math
import struct
from dataclasses import dataclass

__all__ = ["DELTA", "FULL", "KEYS", "KIND_NAMES", "WORDS", "Manifest", "SIGNED", "SIZE"]

#: Bytes of a manifest, and how many of them the signature covers.
SIZE, SIGNED = 512, 448
#: Kinds of packages.
FULL, DELTA, KEYS, WORDS = 1, 2, 3, 4
KIND_NAMES = {FULL: "full", DELTA: "delta", KEYS: "key list", WORDS: "words of a board"}

_MAGIC, _FORMAT = b"GRADLOOM", 1
#: magic, format, kind, bits, rank, layers, tensors, exponent, block, version, least, payload bytes,
#: key id, base, parent, result, payload's hash, scale alpha / rank, bound of the loss
_LAYOUT = struct.Struct("<8sHBBHHHhHxxIIQ32s32s32s32s32sff")

#: Offset of the key's hash.
_KEY = 40


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a package says of itself before its payload is read.

    Hashes are SHA-256, 32 bytes. ``key``: of the signer's public key. ``base``: of the packed base. ``parent``: content
    that a delta is added to; zeros without one. ``result``: content after the package is applied. ``exponent``: the
    least e for which all values of the result lie within ±2^e. ``version`` only grows; ``least`` is the lowest version
    that may still be installed afterwards. ``bound``: by how much the loss on a held-out text may grow.
    """

    kind: int
    version: int
    key: bytes
    payload_bytes: int
    payload: bytes
    bits: int = 0
    rank: int = 0
    layers: int = 0
    tensors: int = 0
    exponent: int = 0
    block: int = 0
    least: int = 0
    base: bytes = bytes(32)
    parent: bytes = bytes(32)
    result: bytes = bytes(32)
    scale: float = 0.0
    bound: float = 0.0

    @staticmethod
    def key_of(signed: bytes) -> bytes:
        """The key's hash, which finds the key that checks all else.

        :class:`ValueError` if the bytes begin no manifest.
        """
        if not signed.startswith(_MAGIC):
            raise ValueError("package: is none of gradloom's: it must begin with GRADLOOM; name another file")
        return signed[_KEY : _KEY + 32]

    def signed(self) -> bytes:
        """The 448 bytes that the signature covers."""
        packed = _LAYOUT.pack(
            _MAGIC,
            _FORMAT,
            self.kind,
            self.bits,
            self.rank,
            self.layers,
            self.tensors,
            self.exponent,
            self.block,
            self.version,
            self.least,
            self.payload_bytes,
            self.key,
            self.base,
            self.parent,
            self.result,
            self.payload,
            self.scale,
            self.bound,
        )
        return packed.ljust(SIGNED, b"\0")

    @classmethod
    def read(cls, signed: bytes) -> "Manifest":
        """The manifest of 448 bytes.

        :class:`ValueError` if they are of another format, or unused bytes are not zero.
        """
        _, number, kind, bits, rank, layers, tensors, exponent, block, version, least, size, *rest = (
            _LAYOUT.unpack_from(signed)
        )
        if number != _FORMAT or kind not in KIND_NAMES:
            raise ValueError(f"format={number}, kind={kind}: this gradloom reads format {_FORMAT}, kinds 1 to 4")
        key, base, parent, result, payload, scale, bound = rest
        found = cls(
            kind=kind,
            version=version,
            key=key,
            payload_bytes=size,
            payload=payload,
            bits=bits,
            rank=rank,
            layers=layers,
            tensors=tensors,
            exponent=exponent,
            block=block,
            least=least,
            base=base,
            parent=parent,
            result=result,
            scale=scale,
            bound=bound,
        )
        if not (math.isfinite(scale) and math.isfinite(bound)):
            raise ValueError(f"manifest: scale={scale}, bound={bound}: must be finite; get the package again")
        if found.signed() != signed:
            raise ValueError("manifest: unused bytes are not zero; get the package again")
        return found

    def told(self) -> dict[str, object]:
        """The fields for people and programs; hashes as hexadecimal digits."""
        fields = {
            name: each.hex() if isinstance(each, bytes) else each for name, each in dataclasses.asdict(self).items()
        }
        return fields | {"kind": KIND_NAMES[self.kind]}
