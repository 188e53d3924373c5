"""Makes and opens signed packages.

Nothing is parsed before it is checked.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.config import check_config, rank_of, scale_of
from gradloom.models.adapters.peft import about, checked_tensors
from gradloom.models.adapters.peft_files import CONFIG

from . import codes
from .content import Content, exponent_of, parse_table
from .keys import Signer, check_signature, key_id
from .manifest import DELTA, FULL, KEYS, SIGNED, SIZE, WORDS, Manifest

__all__ = ["Package", "base_hash", "key_list_package", "make_package", "open_package", "signed_package"]


@dataclass(frozen=True)
class Package:
    """A package whose signature and payload's hash hold."""

    manifest: Manifest
    payload: bytes

    def content(self, parent: Content | None = None) -> Content:
        """The adapter, or with a delta the parent changed by it.

        :class:`ValueError` if it is a delta of another parent, or the result is not what was signed.
        """
        manifest = self.manifest
        if manifest.kind == KEYS:
            raise ValueError("package: is a key list, an adapter is needed; give it by --keys")
        if manifest.kind == WORDS:
            raise ValueError("package: is for a board; gradloom card install puts it onto the board's card")
        config, shapes, at = self._table()
        if manifest.kind == DELTA:
            parent = self._parent(parent, config, shapes)
        tensors: dict[str, np.ndarray] = {}
        for name, shape in shapes.items():
            count = int(np.prod(shape, dtype=np.int64))
            end = at + codes.encoded_bytes(count, manifest.bits)
            values = codes.decode(self.payload[at:end], count, manifest.bits).reshape(shape)
            tensors[name] = values if parent is None or manifest.kind == FULL else parent.tensors[name] + values
            at = end
        content = Content(config, tensors)
        if at != len(self.payload) or content.hash != manifest.result:
            raise ValueError("payload: does not make the adapter that was signed; get the package again")
        with about("payload"):
            checked_tensors(config, tensors)
        return content

    def check_config(self) -> None:
        """Refuses an adapter whose configuration no reader takes."""
        if self.manifest.kind in (FULL, DELTA):
            self._table()

    def _table(self) -> tuple[dict[str, Any], dict[str, tuple[int, ...]], int]:
        found = parse_table(self.payload)
        with about(f"payload: {CONFIG}"):
            check_config(found[0])
        return found

    def _parent(self, parent: Content | None, config: dict, shapes: dict[str, tuple[int, ...]]) -> Content:
        wanted = self.manifest.parent.hex()[:16]
        if parent is None:
            raise ValueError(f"parent={wanted}…: a delta needs the adapter it changes; name its folder by --parent")
        if parent.hash != self.manifest.parent:
            raise ValueError(f"parent={parent.hash.hex()[:16]}…: must be {wanted}…; name the adapter that it changes")
        if shapes != {name: array.shape for name, array in parent.tensors.items()}:
            raise ValueError("payload: has other tensors than its parent; get the package again")
        return parent


def base_hash(path: Path | str) -> bytes:
    """SHA-256 of a base: of a file, or of the sums of a folder's files.

    Of a folder it is the hash of what ``sha256sum`` prints of its files, names ascending; names with a leading dot are
    left out.
    """
    path = Path(path)
    if not path.is_dir():
        return _file_hash(path)
    files = sorted(
        each
        for each in path.rglob("*")
        if each.is_file() and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not files:
        raise ValueError(f"base={path}: has no files; name the output folder of gradloom pack")
    lines = (f"{_file_hash(each).hex()}  {each.relative_to(path).as_posix()}\n" for each in files)
    return hashlib.sha256("".join(lines).encode()).digest()


def _file_hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def make_package(
    content: Content,
    signer: Signer,
    *,
    base: bytes,
    version: int,
    bits: int,
    least: int = 0,
    bound: float = 0.0,
    parent: Content | None = None,
) -> tuple[bytes, Content]:
    """A signed package, and the adapter that it makes.

    ``bits``: one of :data:`.codes.BITS`, of each value or, with ``parent``, of each difference from it. ``version``
    is at least 1, ``least`` at most ``version``.
    """
    if not 0 <= bound < float("inf"):
        raise ValueError(f"bound={bound}: must be at least 0 and finite")
    if parent is not None and {n: a.shape for n, a in parent.tensors.items()} != {
        n: a.shape for n, a in content.tensors.items()
    }:
        raise ValueError("parent: has other tensors than the adapter; sign it in full")
    tensors, chunks = {}, [content.table()]
    for name, array in content.ordered():
        before = None if parent is None else parent.tensors[name]
        coded = codes.encode(array if before is None else array - before, bits)
        chunks.append(coded)
        values = codes.decode(coded, array.size, bits).reshape(array.shape)
        tensors[name] = values if before is None else before + values
    result, payload = Content(content.config, tensors), b"".join(chunks)
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise ValueError("adapter: a value is beyond float32 with its difference; sign it in full")
    ranked = check_config(content.config).ranked
    package = signed_package(
        payload,
        signer,
        kind=FULL if parent is None else DELTA,
        version=version,
        least=least,
        bits=bits,
        rank=rank_of(content.config) if ranked else 0,
        layers=content.layers,
        tensors=len(tensors),
        exponent=exponent_of(result),
        block=codes.BLOCK,
        base=base,
        parent=bytes(32) if parent is None else parent.hash,
        result=result.hash,
        scale=scale_of(content.config) if ranked else 0.0,
        bound=bound,
    )
    return package, result


def key_list_package(payload: bytes, signer: Signer, *, version: int) -> bytes:
    """A signed list of keys (:func:`.keys.write_keys`)."""
    return signed_package(payload, signer, kind=KEYS, version=version)


def signed_package(payload: bytes, signer: Signer, *, version: int, least: int = 0, **fields: Any) -> bytes:
    """A manifest of 448 bytes with its signature, and the payload.

    ``fields`` are those of a :class:`.manifest.Manifest` that do not follow from payload and signer.
    """
    if not 1 <= version < 1 << 32:
        raise ValueError(f"version={version}: must be 1 to {(1 << 32) - 1}")
    if not 0 <= least <= version:
        raise ValueError(f"least={least}: must be 0 to the package's version, {version}")
    signed = Manifest(
        version=version,
        least=least,
        key=key_id(signer.public),
        payload_bytes=len(payload),
        payload=hashlib.sha256(payload).digest(),
        **fields,
    ).signed()
    return signed + signer.sign(signed) + payload


def open_package(content: bytes, trusted: Iterable[bytes], revoked: Iterable[bytes] = ()) -> Package:
    """A package that one of the trusted public keys signed.

    The signature is checked before a field of the manifest is read, except the key's name; the payload's size and hash
    before it is given to anyone. :class:`ValueError` says what does not hold.
    """
    if len(content) < SIZE:
        raise ValueError(f"package: has {len(content)} bytes, a manifest alone has {SIZE}; get it again")
    signed, signature = content[:SIGNED], content[SIGNED:SIZE]
    key = Manifest.key_of(signed)
    named = key.hex()[:16]
    if any(key_id(each) == key for each in revoked):
        raise ValueError(f"key={named}…: is revoked; get a package of a key that is trusted")
    public = next((each for each in trusted if key_id(each) == key), None)
    if public is None:
        raise ValueError(f"key={named}…: is not trusted; name its public key by --trust, or a key list by --keys")
    if not check_signature(signature, public, signed):
        raise ValueError("signature: does not hold; get the package again")
    manifest = Manifest.read(signed)
    payload = content[SIZE:]
    if len(payload) != manifest.payload_bytes:
        raise ValueError(f"payload: has {len(payload)} bytes, must be {manifest.payload_bytes}; get it again")
    if hashlib.sha256(payload).digest() != manifest.payload:
        raise ValueError("payload: its hash does not hold; get the package again")
    return Package(manifest, payload)
