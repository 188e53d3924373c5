"""Signing keys in files, and the list of trusted and revoked keys.

Signatures are EdDSA on curve 25519 with BLAKE2b, as Monocypher's ``crypto_eddsa_sign`` makes them: PyPI's
``pymonocypher`` offers this variant, the same C source checks it on a board, and no second hash is needed there.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from gradloom.models.files.kinds import what_is
from gradloom.output import check_file, room

__all__ = [
    "KeyFile",
    "Signer",
    "check_signature",
    "key_id",
    "make_keys",
    "parse_keys",
    "read_public",
    "read_signer",
    "write_keys",
]

_SECRET, _PUBLIC = "gradloom secret key ", "gradloom public key "
_TRUSTED, _REVOKED = 1, 2


def _monocypher() -> Any:
    try:
        import monocypher
    except ImportError:
        raise ValueError(
            "pymonocypher: is not installed, signatures need it; pip install 'gradloom[delivery]' brings it"
        ) from None
    return monocypher


def key_id(public: bytes) -> bytes:
    """SHA-256 of a public key of 32 bytes."""
    return hashlib.sha256(public).digest()


class Signer:
    """A secret key of 64 bytes, seed and public key, that signs.

    :class:`ValueError` if its halves do not belong together.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret, self._mono = secret, _monocypher()
        self.public: bytes = bytes(self._mono.compute_signing_public_key(secret))
        # A damaged key would sign what nobody accepts, and give its seed away.
        if not check_signature(self.sign(b"gradloom"), self.public, b"gradloom"):
            raise ValueError("key: its halves do not belong together; get the file again")

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return bytes(self._mono.signature_sign(self._secret, message))


def check_signature(signature: bytes, public: bytes, message: bytes) -> bool:
    """Whether ``public`` (32 bytes) signed the message."""
    return bool(_monocypher().signature_check(signature, public, message))


class KeyFile(TypedDict, total=False):
    """A pair of keys by its files, and the number of the ``key``; or a list of keys, which is a package."""

    secret: str
    public: str
    key: str
    bytes: int
    version: int
    trusted: int
    revoked: int


def make_keys(path: Path | str) -> KeyFile:
    """Writes a new secret key to ``path``, its public key to ``path.pub``.

    Nobody but the owner may read the secret key. A file that is there is refused.
    """
    path = Path(path)
    other = path.with_name(path.name + ".pub")
    for each in (path, other):
        check_file(each)
        if each.exists():
            raise ValueError(f"output={each}: is there; name another file, a key is never overwritten")
    secret, public = map(bytes, _monocypher().generate_signing_key_pair())
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with room(path, path):
            with os.fdopen(number, "w", encoding="ascii") as file:
                file.write(f"{_SECRET}{secret.hex()}\n")
            other.write_text(f"{_PUBLIC}{public.hex()}\n", encoding="ascii")
    except BaseException:
        path.unlink(missing_ok=True)
        other.unlink(missing_ok=True)
        raise
    return {"secret": str(path), "public": str(other), "key": key_id(public).hex()}


def read_signer(path: Path | str) -> Signer:
    """The secret key of a file that only its owner can read or write."""
    path = Path(path)
    with path.open("rb") as file:
        secret = _read_hex(path, file.read(200), _SECRET, 64)
        # The rights of the file that is open: its name may lead elsewhere a moment later.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise ValueError(f"key={path}: others may use it (mode {mode:o}), at most 600; chmod 600 {path}")
    try:
        return Signer(secret)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_public(path: Path | str) -> bytes:
    """A public key's 32 bytes."""
    with Path(path).open("rb") as file:
        return _read_hex(Path(path), file.read(200), _PUBLIC, 32)


def _read_hex(path: Path, content: bytes, prefix: str, size: int) -> bytes:
    text = content.decode("latin-1").strip()
    digits = text.removeprefix(prefix)
    if text.startswith(other := _PUBLIC if prefix == _SECRET else _SECRET):
        which, end = ("secret", "the name without .pub") if prefix == _SECRET else ("public", "the name with .pub")
        raise ValueError(
            f"key={path}: is a {other.split()[1]} key, a {which} one is needed: name that, {end} where gradloom "
            f"package keys made both"
        )
    if kind := what_is(path):
        raise ValueError(f"key={path}: is {kind}")
    if not text.startswith(prefix) or len(digits) != 2 * size or set(digits) - set("0123456789abcdef"):
        raise ValueError(
            f"key={path}: must be '{prefix}' and {2 * size} hexadecimal digits, one line; see gradloom package keys"
        )
    return bytes.fromhex(digits)


def write_keys(trusted: Iterable[bytes], revoked: Iterable[bytes]) -> bytes:
    """Payload of a key list: a byte of state and 32 of the key, each."""
    states = dict.fromkeys(trusted, _TRUSTED)
    for public in revoked:
        if public in states:
            raise ValueError(f"revoke={public.hex()[:16]}…: is trusted in the same list; leave it out of one")
        states[public] = _REVOKED
    return b"".join(bytes([state]) + public for public, state in sorted(states.items()))


def parse_keys(payload: bytes) -> tuple[set[bytes], set[bytes]]:
    """Trusted and revoked public keys of a list."""
    if len(payload) % 33 or any(state not in (_TRUSTED, _REVOKED) for state in payload[::33]):
        raise ValueError("key list: must be 33 bytes a key, of state 1 or 2; get it again")
    entries = [(payload[at], payload[at + 1 : at + 33]) for at in range(0, len(payload), 33)]
    return {key for state, key in entries if state == _TRUSTED}, {key for state, key in entries if state == _REVOKED}
