"""Checks a package against what is installed, and installs it."""

from pathlib import Path
from typing import Any, TypedDict

from gradloom.models.adapters.peft import read_peft, read_record
from gradloom.models.adapters.peft_files import RECORD, write_peft, write_record
from gradloom.models.files.kinds import what_is
from gradloom.output import check_folder, grouped

from .content import Content
from .keys import parse_keys, read_public
from .manifest import DELTA, KEYS, WORDS
from .package import Package, base_hash, open_package

__all__ = ["InstalledRecord", "check", "install_files", "read_content", "read_package"]

#: A package is read whole; none of an adapter is larger.
_MOST = 1 << 30


def read_content(folder: Path | str) -> Content:
    """An adapter in PEFT's format; its files are those of its record."""
    config, tensors = read_peft(folder)
    return Content(config, tensors)


def read_package(path: Path | str) -> bytes:
    """Bytes of a package; a file of another kind is called what it is."""
    path = Path(path)
    if kind := what_is(path):
        raise ValueError(f"{path}: is {kind}")
    if path.stat().st_size > _MOST:
        raise ValueError(f"{path}: has {path.stat().st_size:,} bytes, at most {_MOST:,}; name a package")
    return path.read_bytes()


def _trusted(root: bytes, keys: Path | str | None, record: dict[str, Any]) -> tuple[set[bytes], set[bytes], int]:
    """Trusted and revoked keys, and the version of their list."""
    known = int(record.get("keys_version", 0))
    if keys is None:
        if known:
            raise ValueError(f"keys: version {known} of the key list is in use here; name it by --keys, or a later one")
        return {root}, set(), 0
    try:
        package = open_package(read_package(keys), [root])
        if package.manifest.kind != KEYS:
            raise ValueError("kind: is an adapter; a key list is needed")
        trusted, revoked = parse_keys(package.payload)
        version = package.manifest.version
        if version < known:
            raise ValueError(f"version={version}: must be at least {known}, which is in use here; name a later list")
    except ValueError as error:
        raise ValueError(f"keys={keys}: {error}") from None
    return {root, *trusted} - revoked, revoked, version


def check(
    package: Path | str,
    trust: Path | str,
    keys: Path | str | None,
    base: Path | str | None,
    installed: Path | str | None,
    parent: Path | str | None = None,
) -> tuple[Package, Content | None, int]:
    """A package that holds, what it makes, and the key list's version.

    The adapter is None of a key list, and of a delta where neither ``parent`` nor ``installed`` is given.
    :class:`ValueError` says what does not hold: signature, version, base, payload, parent, in this order.
    """
    record = (read_record(installed) if installed is not None else None) or {}
    trusted, revoked, keys_version = _trusted(read_public(trust), keys, record)
    opened = open_package(read_package(package), trusted, revoked)
    manifest = opened.manifest
    opened.check_config()
    if manifest.kind == KEYS or (manifest.kind == WORDS and base is None and installed is None):
        return opened, None, keys_version
    version = int(record.get("version", 0))
    if manifest.version <= version:
        raise ValueError(f"version={manifest.version}: must be above {version}, which is installed; get a later one")
    if base is not None and (found := base_hash(base)) != manifest.base:
        raise ValueError(
            f"base={found.hex()[:16]}…: must be {manifest.base.hex()[:16]}…; name the base that the package is for"
        )
    place = parent if parent is not None else installed if record else None
    if manifest.kind == DELTA and place is None:
        return opened, None, keys_version
    before = read_content(place) if manifest.kind == DELTA and place is not None else None
    return opened, opened.content(before), keys_version


class InstalledRecord(TypedDict):
    """What is installed: versions, and hashes as hexadecimal digits."""

    version: int
    least: int
    keys_version: int
    key: str
    base: str
    result: str


def install_files(
    package: Path | str,
    output: Path | str,
    *,
    trust: Path | str,
    base: Path | str,
    keys: Path | str | None = None,
    parent: Path | str | None = None,
) -> InstalledRecord:
    """Writes a package's adapter and record to a folder; the record last.

    Returns the record: ``version``, ``least``, ``keys_version``, and hashes as hexadecimal digits.
    """
    check_folder(output, verb="install")
    opened, content, keys_version = check(package, trust, keys, base, output, parent)
    if content is None:
        content = opened.content(None)
    manifest = opened.manifest
    told: InstalledRecord = {
        "version": manifest.version,
        "least": manifest.least,
        "keys_version": keys_version,
        "key": manifest.key.hex(),
        "base": manifest.base.hex(),
        "result": manifest.result.hex(),
    }
    with grouped(output, verb="install", last=RECORD) as stage:
        write_peft(stage, content.tensors, content.config)
        write_record(stage, told)
    return told
