"""Builds the firmware of the system on chip, or of the tuner.

``python -m gradloom.firmware.chip.soc_image [--main tuner]``

The images are committed (``soc_image.mem``, ``tuner_image.mem``, words for Verilog's ``$readmemh``), so that a design
needs no compiler. Their first lines say which compiler made them, and of which sources; a test builds them again.
"""

import argparse
import functools
import hashlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .monocypher_source import SUMS, VERSION, monocypher
from .soc import RAM_BYTES, TUNER_RAM_BYTES

__all__ = [
    "IMAGE",
    "IMAGES",
    "MARCH",
    "TUNER_IMAGE",
    "Compiler",
    "build",
    "compilers",
    "image_bytes",
    "image_text",
    "includes",
    "memory_text",
    "read_image",
    "source",
    "sources",
    "sources_sum",
    "trusting",
]

_HERE = Path(__file__).parent
#: A design has all in one folder, the package by what it is for.
_ROOT = _HERE if (_HERE / "gradloom.c").is_file() else _HERE.parent
IMAGE = _HERE / "soc_image.mem"
TUNER_IMAGE = _HERE / "tuner_image.mem"
#: The file of each image, by what is called main there: ``MAIN_main.c``.
IMAGES = {"soc": IMAGE, "tuner": TUNER_IMAGE}
_RAM_BYTES = {"soc": RAM_BYTES, "tuner": TUNER_RAM_BYTES, "selftest": 16 << 10}
#: Instructions that the processor of each has: short ones save a quarter of the memory where it can read them.
MARCH = {"soc": "rv32imc", "tuner": "rv32im", "selftest": "rv32im"}
#: What is left for the stack at least; a signature takes most of it.
_STACK_BYTES = {"soc": 5 << 10, "tuner": 2 << 10, "selftest": 2 << 10}
#: Stands before the public key that the firmware trusts (soc_root.c).
_ROOT_MARK = b"gradloom root : "
# What is compiled, and what that includes; a tuner has no memory card.
_UNITS = {
    "soc": (
        "soc_start.S",
        "soc_main.c",
        "soc_card.c",
        "soc_deliver.c",
        "soc_device.c",
        "soc_infer.c",
        "soc_job.c",
        "soc_keep.c",
        "soc_library.c",
        "soc_line.c",
        "soc_package.c",
        "soc_part.c",
        "soc_result.c",
        "soc_root.c",
        "soc_sd.c",
        "soc_serve.c",
        "soc_sha.c",
        "soc_text.c",
        "soc_trial.c",
        "gradloom.c",
        "gradloom_steps.c",
        "gradloom_store.c",
        "gradloom_sum.c",
    ),
    "tuner": (
        "soc_start.S",
        "tuner_main.c",
        "soc_device.c",
        "soc_line.c",
        "soc_text.c",
        "gradloom.c",
        "gradloom_sum.c",
    ),
    # For a system that somebody else puts the accelerator into; no image of it is committed.
    "selftest": ("soc_start.S", "selftest_main.c", "soc_device.c", "soc_text.c", "gradloom.c"),
}
_SHARED = (
    "gradloom.h",
    "gradloom_sum.h",
    "soc_device.h",
    "soc_text.h",
    "gradloom_regs.h",
    "soc_board.h",
    "soc_memory.h",
    "soc.ld",
)
_MORE = {
    "soc": (
        "gradloom_steps.h",
        "gradloom_store.h",
        "soc_card.h",
        "soc_deliver.h",
        "soc_infer.h",
        "soc_job.h",
        "soc_keep.h",
        "soc_line.h",
        "soc_package.h",
        "soc_part.h",
        "soc_result.h",
        "soc_root.h",
        "soc_sd.h",
        "soc_serve.h",
        "soc_sha.h",
        "soc_trial.h",
    ),
    "tuner": ("soc_line.h",),
    "selftest": (),
}
_GCC = ("riscv64-unknown-elf-gcc", "riscv32-unknown-elf-gcc")
_OPTIONS = (
    "-Os",
    "-std=c99",
    "-ffreestanding",
    "-fno-builtin",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
)
_LINKING = ("-nostdlib", "-static", "-Wl,--gc-sections", "-Wl,--build-id=none")


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A compiler of the machine.

    ``command`` compiles and links for a bare RV32; ``name`` says what it is, its version included.
    """

    name: str
    command: tuple[str, ...]


def compilers(march: str = MARCH["soc"]) -> list[Compiler]:
    """Every compiler of this machine that can build the firmware.

    The one that made the committed image is first.
    """
    found = []
    try:
        version = metadata.version("ziglang")
    except metadata.PackageNotFoundError:
        pass
    else:
        features = "".join(f"+{letter}" for letter in march.removeprefix("rv32i"))
        found.append(
            Compiler(
                name=f"ziglang {version}",
                command=(
                    sys.executable,
                    "-m",
                    "ziglang",
                    "cc",
                    "-target",
                    "riscv32-freestanding-none",
                    f"-mcpu=generic_rv32{features}",
                    "-fno-sanitize=all",
                    "-fno-stack-protector",
                ),
            )
        )
    for name in _GCC:
        path = shutil.which(name)
        if path is not None:
            done = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=True)
            found.append(
                Compiler(
                    name=f"{name} {done.stdout.strip()}",
                    command=(path, f"-march={march}", "-mabi=ilp32", "-fno-tree-loop-distribute-patterns"),
                )
            )
    return found


def sources(main: str = "soc") -> tuple[str, ...]:
    """Names of all files that an image is made of; :func:`source` finds them."""
    return *_UNITS[main], *_MORE[main], *_SHARED


@functools.cache
def _files() -> dict[str, Path]:
    """Files by their names, which are unique but for ``__init__.py``: that of the outermost folder."""
    return {path.name: path for path in sorted(_ROOT.rglob("*.*"), key=lambda path: (-len(path.parts), path))}


def source(name: str) -> Path:
    """A file of the firmware by its name alone."""
    return _files()[name]


def includes() -> list[str]:
    """Options of a C compiler for the folders with headers."""
    return [f"-I{folder}" for folder in sorted({path.parent for path in _files().values() if path.suffix == ".h"})]


def build(compiler: Compiler, *, main: str = "soc", board_header: Path | None = None, ram_base: int = 0) -> bytes:
    """The image, from the first byte of the processor's memory on.

    It has whole words.

    ``main``: a key of :data:`MARCH`. ``board_header`` stands in for ``soc_board.h``. :class:`ValueError` if the
    compiler refuses, if code and variables do not fit, or if Monocypher's source is not there.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "firmware.elf"
        more = [] if board_header is None else [f'-DGL_BOARD_HEADER="{board_header.resolve()}"']
        script = Path(folder) / "soc.ld"
        layout = source("soc.ld").read_text(encoding="ascii")
        script.write_text(
            f"GL_RAM = {ram_base:#x};\nGL_RAM_BYTES = {_RAM_BYTES[main]};\nGL_STACK = {_STACK_BYTES[main]};\n{layout}",
            encoding="ascii",
        )
        units = [str(source(name)) for name in _UNITS[main]]
        if main == "soc":
            place = monocypher()
            more += [f"-I{place}", "-DBLAKE2_NO_UNROLLING"]
            units.append(str(place / "monocypher.c"))
        command = [
            *compiler.command,
            *_OPTIONS,
            *_LINKING,
            *includes(),
            *more,
            "-T",
            str(script),
            "-o",
            str(target),
            *units,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"{compiler.name} does not build the firmware:\n{done.stderr[-4000:]}")
        return image_bytes(target.read_bytes(), ram_base, _RAM_BYTES[main])


def image_bytes(elf: bytes, ram_base: int = 0, ram_bytes: int = RAM_BYTES) -> bytes:
    """Memory contents of a 32-bit little-endian ELF file.

    They begin at ``ram_base``.
    """
    if elf[:6] != b"\x7fELF\x01\x01":
        raise ValueError("not a 32-bit little-endian ELF file")
    (table,) = struct.unpack_from("<I", elf, 28)
    size, count = struct.unpack_from("<2H", elf, 42)
    image = bytearray()
    for index in range(count):
        kind, offset, address, _, length, used = struct.unpack_from("<6I", elf, table + index * size)
        if kind != 1 or not used:
            continue
        at = address - ram_base
        if at < 0 or at + used > ram_bytes:
            raise ValueError(f"the firmware reaches from {address:#x} over {used} bytes, the memory has {ram_bytes}")
        image.extend(bytes(max(at + length - len(image), 0)))
        image[at : at + length] = elf[offset : offset + length]
    image.extend(bytes(-len(image) % 4))
    return bytes(image)


def sources_sum(main: str = "soc") -> str:
    """A sum of all that an image is made of."""
    digest = hashlib.sha256()
    for name in sources(main):
        digest.update(name.encode() + b"\0" + source(name).read_bytes() + b"\0")
    if main == "soc":
        digest.update(f"monocypher {VERSION} {SUMS}".encode())
    return digest.hexdigest()


def image_text(image: bytes, compiler: str, sources: str) -> str:
    """``image`` as ``$readmemh`` reads it."""
    words = struct.unpack(f"<{len(image) // 4}I", image)
    return (
        "\n".join(
            [
                f"// compiler: {compiler}",
                f"// sources: {sources}",
                f"// bytes: {len(image)}",
                *(f"{word:08x}" for word in words),
            ]
        )
        + "\n"
    )


def memory_text(main: str = "soc") -> str:
    """The committed image for Vivado's ``$readmemh``.

    It has words alone, as many as the memory has.

    Vivado takes no comments there and wants every word; an image that it cannot read leaves the memory empty.
    """
    notes, image = read_image(IMAGES[main])
    size = _RAM_BYTES[main]
    if not image or len(image) != int(notes.get("bytes", 0)) or len(image) > size:
        raise ValueError(
            f"{IMAGES[main].name}: {len(image)} bytes are there, its head says {notes.get('bytes', 0)}, "
            f"the memory has {size}: build it again "
            f"(python -m gradloom.firmware.chip.soc_image --main {main})"
        )
    words = struct.unpack(f"<{size // 4}I", image + bytes(size - len(image)))
    return "".join(f"{word:08x}\n" for word in words)


def trusting(memory: str, root: bytes) -> str:
    """An image whose firmware trusts the public key ``root``.

    ``memory``: a text of :func:`memory_text`.
    """
    image = b"".join(int(line, 16).to_bytes(4, "little") for line in memory.split())
    at = image.find(_ROOT_MARK) + len(_ROOT_MARK)
    if len(root) != 32 or image.count(_ROOT_MARK) != 1:
        raise ValueError("the firmware has no place for a key of 32 bytes: build it again")
    image = image[:at] + root + image[at + 32 :]
    return "".join(f"{word:08x}\n" for word in struct.unpack(f"<{len(image) // 4}I", image))


def read_image(path: Path = IMAGE) -> tuple[dict[str, str], bytes]:
    """Notes in the first lines of an image, and its bytes."""
    lines = path.read_text(encoding="ascii").splitlines()
    notes = {match[1]: match[2] for match in map(re.compile(r"// (\w+): (.*)").fullmatch, lines) if match}
    words = [int(line, 16) for line in lines if not line.startswith("//")]
    return notes, struct.pack(f"<{len(words)}I", *words)


def main() -> None:
    """Writes the image, or that of another system."""
    parser = argparse.ArgumentParser(description="Builds the firmware of a system on chip.")
    parser.add_argument("--main", choices=sorted(MARCH), default="soc", help="which firmware (default: soc)")
    parser.add_argument("--board-header", type=Path, help="stands in for soc_board.h")
    parser.add_argument("--march", help="instructions that the processor has, such as rv32ima")
    parser.add_argument(
        "--ram-base", type=lambda text: int(text, 0), default=0, help="first address of the processor's memory"
    )
    parser.add_argument("-o", "--output", type=Path, help="default: the committed image")
    options = parser.parse_args()
    if options.output is None and options.main not in IMAGES:
        parser.error(f"--main {options.main} needs -o: no image of it is kept")
    found = compilers(options.march or MARCH[options.main])
    if not found:
        parser.error("no RISC-V compiler: pip install ziglang, or apt install gcc-riscv64-unknown-elf")
    try:
        image = build(found[0], main=options.main, board_header=options.board_header, ram_base=options.ram_base)
    except ValueError as error:
        parser.error(str(error))
    output = options.output or IMAGES[options.main]
    output.write_text(image_text(image, found[0].name, sources_sum(options.main)), encoding="ascii", newline="\n")
    print(f"{len(image)} bytes of {_RAM_BYTES[options.main]}, {found[0].name}")


if __name__ == "__main__":
    main()
