"""Says what a file is, where another kind of file is needed.

A reader that cannot read a file asks here first: a message that names the kind helps more than one on broken bytes.
"""

import zipfile
from pathlib import Path

__all__ = ["what_is"]

#: Bytes of a file's start that are looked at; general.type is among the first fields of a GGUF file.
_START = 1 << 16
_LFS = b"version https://git-lfs.github.com/spec/"
#: Starts of files, with what begins so.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (_LFS, "a Git LFS pointer in place of the file: run git lfs pull in its repository, or download the file itself"),
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"\x93NUMPY", "one array of NumPy (.npy)"),
    (b"\x80\x02", "a pickled PyTorch file, which can run code when it is read: save it as safetensors"),
)
#: general.type = "adapter" as a field of GGUF: lengths in 8 bytes, type 8 for a text.
_GGUF_ADAPTER = b"".join(
    (len(b"general.type").to_bytes(8, "little"), b"general.type", (8).to_bytes(4, "little"))
    + (len(b"adapter").to_bytes(8, "little"), b"adapter")
)


def what_is(path: Path | str) -> str | None:
    """What a file is, as a noun with the remedy that always holds.

    To be read behind ``PATH is``. None of a folder, of no file, and of a kind that is not known.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return None
    if not start:
        return "empty: download or copy it again"
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    if start.startswith(b"GGUF"):
        return _gguf(start)
    if start.startswith(b"PK\x03\x04"):
        return _archive(path)
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "a page of HTML, as a browser saves one in place of a file: download the file itself"
    if int.from_bytes(start[:8], "little") < 1 << 32 and start[8:10] in (b'{"', b"{}", b"{ ", b"{\n"):
        return "a safetensors file"
    # Protocol buffers: field 1, ir_version, then the producer's name, or the graph.
    if len(start) > 2 and start[0] == 0x08 and 1 <= start[1] <= 32 and start[2] in (0x12, 0x3A, 0x42):
        return "an ONNX model"
    return None


def _gguf(start: bytes) -> str:
    if _GGUF_ADAPTER in start:
        return (
            "a GGUF file of a LoRA adapter (general.type is adapter), neither a model nor PEFT's format: gradloom "
            "export FILE --to peft -o FOLDER makes a folder with adapter_config.json of it"
        )
    return "a GGUF file"


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a ZIP archive that is cut short: download or copy it again"
    if any(name.endswith("data.pkl") for name in names):
        return "a pickled PyTorch file, which can run code when it is read: save it as safetensors"
    if names and all(name.endswith(".npy") for name in names):
        return "an archive of NumPy (.npz)"
    return "a ZIP archive: unpack it first"
