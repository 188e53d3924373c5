"""Self-test: identity, registers, errors, interrupt, memory, clock.

On a board: ``python3 -m gradloom_host.selftest`` (UIO), or with ``--bitfile NAME.bit`` (PYNQ).
"""

import argparse
import sys
import time
from collections.abc import Callable

from . import program, registers
from .host import Accelerator, AcceleratorError, ProgramError
from .transport import Transport

_TIMEOUT = 5.0
#: Cycles that the clock is measured over, the times that this is done, and the error that passes.
_CYCLES, _TIMES, _OFF = 20_000_000, 3, 0.01
# Any failure is a finding, and the next check still runs.
_FAULTS = (AcceleratorError, AssertionError, OSError, ValueError)

Result = tuple[str, bool, str]


class CheckFailed(AssertionError):
    """A check found something wrong."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def check_identity(acc: Accelerator) -> str:
    """Checks that the registers belong to a gradloom accelerator.

    The host must be able to drive it.
    """
    c = acc.configuration
    _require(acc.read("ID") == registers.CONSTANTS["ID"], f"ID reads 0x{acc.read('ID'):08X}")
    told = ", ".join(f"{name} {value}" for name, value in c.table.parameters.items())
    names = ", ".join(each.name for each in c.table.engines)
    return f"version {'.'.join(map(str, c.version))}, {c.data_bits} bits, {c.slots} slots; engines {names}; {told}"


def check_registers(acc: Accelerator) -> str:
    """A register holds every bit that is written to it."""
    before = acc.read("WATCHDOG")
    patterns = (0x5555_5555, 0xAAAA_AAAA, 0xFFFF_FFFF, 0x0000_0001, 0x8000_0000)
    try:
        for value in patterns:
            acc.write("WATCHDOG", value)
            got = acc.read("WATCHDOG")
            _require(got == value, f"WATCHDOG: wrote 0x{value:08X}, read 0x{got:08X}")
    finally:
        acc.write("WATCHDOG", before)
    return f"{len(patterns)} patterns"


def check_memory(acc: Accelerator) -> str:
    """The host can write and read the window, at its start and at its end."""
    length = min(4096, acc.window_size)
    pattern = bytes((7 * i + 3) % 251 for i in range(length))
    for offset in (0, acc.window_size - length):
        acc.store(offset, pattern)
        _require(acc.fetch(offset, length) == pattern, f"window + 0x{offset:X} does not hold what was written")
    return f"window of {acc.window_size} bytes at 0x{acc.window_base:X}"


def check_end(acc: Accelerator) -> str:
    """Checks that the smallest program is fetched from memory and ends.

    It must raise the interrupt line.
    """
    acc.store(0, program.end())
    acc.start(0, 1)
    _require(acc.transport.wait_interrupt(_TIMEOUT), "no interrupt")
    _require(acc.read("IRQ_STATUS.done") == 1, f"IRQ_STATUS reads 0x{acc.read('IRQ_STATUS'):X}")
    counters = acc.wait(timeout=_TIMEOUT)
    _require(counters.cycles > 0, "the cycle counter stands still")
    _require(sum(counters.phases.values()) == counters.cycles, "the phases do not add up to the cycles")
    return f"{counters.cycles} cycles from bell to interrupt"


def check_window(acc: Accelerator) -> str:
    """Checks that a read outside the window is refused.

    The error, command and address must be right, and the next program must run.
    """
    base, size = acc.window_base, acc.window_size
    small = 4096
    acc.store(0, program.load(small, 1, 0) + program.end())
    acc.set_window(base, small)
    try:
        acc.run(0, 2, timeout=_TIMEOUT)
    except ProgramError as error:
        _require(error.name == "LOAD_WINDOW", f"stopped with {error.name}, not LOAD_WINDOW")
        _require(error.address == base + small, f"address {error.address or 0:#x}, not {base + small:#x}")
        _require(error.command == 0, f"command {error.command}, not 0")
    else:
        raise CheckFailed("a read outside the window was not refused")
    finally:
        acc.set_window(base, size)
    acc.run_program([program.end()], timeout=_TIMEOUT)
    return f"LOAD_WINDOW at 0x{base + small:X}"


def check_unknown(acc: Accelerator) -> str:
    """A command for no engine is refused."""
    word = bytearray(program.end())
    word[1] = word[1] & 0xF0 | 0xF  # engine 15
    try:
        acc.run_program([bytes(word), program.end()], timeout=_TIMEOUT)
    except ProgramError as error:
        _require(error.name == "UNKNOWN_ENGINE", f"stopped with {error.name}, not UNKNOWN_ENGINE")
        return "UNKNOWN_ENGINE"
    raise CheckFailed("a command for engine 15 was not refused")


def check_copy(acc: Accelerator) -> str:
    """Checks that data go through the accelerator and back.

    LOAD to a memory that its table names, STORE from it.
    """
    configuration = acc.configuration
    loop = configuration.table.loop
    if loop is None:
        return "not checked: no memory of this machine gives back what it is given"
    length, size = loop.beats * configuration.data_bits // 8, loop.bits // 8
    source, target = 4096, 4096 + -(-length // 4096) * 4096
    # Small values, so that any number format holds them.
    words = [(3331 * i + 1285) % 0x7FFF for i in range(length // size)]
    acc.store(source, b"".join(word.to_bytes(size, "little") for word in words))
    acc.store(target, bytes(length))
    counters = acc.run_program(
        [
            program.load(source, loop.beats, loop.dest, loop.arg, post=1),
            program.store(target, loop.beats, loop.source, loop.arg, wait=1),
            program.end(),
        ],
        timeout=_TIMEOUT,
    )
    got = acc.fetch(target, length)
    wrong = next(
        (
            i
            for i, word in enumerate(words)
            if i % loop.group < loop.kept and got[size * i : size * (i + 1)] != word.to_bytes(size, "little")
        ),
        None,
    )
    _require(wrong is None, f"word {wrong} came back wrong")
    _require(counters.write_beats == loop.beats, f"{counters.write_beats} beats written, not {loop.beats}")
    return f"{length} bytes to {configuration.table.loads[loop.dest]} and back"


def check_clock(acc: Accelerator) -> str:
    """The accelerator's clock is the one that turns cycles into seconds.

    CYCLES of a program of loads are held against the wall clock. A short program's time, which is mostly the host's, is
    taken from a long one's.
    """
    hz, loop = acc.transport.clock_hz, acc.configuration.table.loop
    if not acc.transport.real_time:
        return "not checked: the accelerator is simulated"
    if hz is None or loop is None:
        return f"not checked: {'the clock is not known' if hz is None else 'no memory of this machine takes any data'}"
    size = registers.COMMAND_BYTES
    most = min((acc.window_size - 4096 - loop.beats * acc.configuration.data_bits // 8) // size, (1 << 24) - 1)
    word = program.load(most * size + -most * size % 4096, loop.beats, loop.dest, loop.arg)

    def timed(count: int) -> tuple[int, float]:
        """Cycles of ``count`` loads, and the least time that they took."""
        acc.store((count - 1) * size, program.end())
        runs = []
        for _ in range(_TIMES):
            start = time.perf_counter()
            cycles = acc.run(0, count, timeout=_TIMEOUT).cycles
            runs.append((time.perf_counter() - start, cycles))
        acc.store((count - 1) * size, word)
        return min(runs)[1], min(runs)[0]

    few = min(256, most // 2)
    acc.store(0, word * few)
    each = timed(few)[0] / few
    many = min(int(_CYCLES / each), most)
    acc.store(0, word * many)
    (short, less), (long, more) = timed(few), timed(many)
    if (more - less) * hz < _CYCLES / 20:
        return f"not checked: a window of {acc.window_size} bytes is too small for a program that lasts"
    found = (long - short) / (more - less)
    _require(
        abs(found / hz - 1) <= _OFF,
        f"cycles pass at {found / 1e6:.1f} MHz by the wall clock, not {hz / 1e6:.1f}: seconds are "
        f"{100 * abs(hz / found - 1):.1f} % off; the board did not take the clock, or another program changed it",
    )
    return f"{found / 1e6:.1f} MHz by the wall clock, {hz / 1e6:.1f} expected"


CHECKS: tuple[tuple[str, Callable[[Accelerator], str]], ...] = (
    ("identity", check_identity),
    ("registers", check_registers),
    ("memory", check_memory),
    ("end", check_end),
    ("window", check_window),
    ("unknown command", check_unknown),
    ("copy", check_copy),
    ("clock", check_clock),
)


def run_selftest(accelerator: Accelerator, *, skip: tuple[str, ...] = ()) -> list[Result]:
    """Runs every check but those in ``skip``: ``(name, ok, detail)`` each."""
    unknown = set(skip) - {name for name, _ in CHECKS}
    if unknown:
        known = ", ".join(name for name, _ in CHECKS)
        raise ValueError(f"skip must name checks ({known}), not {', '.join(sorted(unknown))}")
    results = []
    for name, check in CHECKS:
        if name in skip:
            continue
        try:
            results.append((name, True, check(accelerator)))
        except _FAULTS as fault:
            results.append((name, False, str(fault) or type(fault).__name__))
            if accelerator.busy:
                accelerator.reset(timeout=_TIMEOUT)
    return results


def main(argv: list[str] | None = None) -> int:
    """Prints one line a check.

    Exit code 1 if one failed, 2 if there is no accelerator to ask.
    """
    parser = argparse.ArgumentParser(prog="gradloom-selftest", description=__doc__.splitlines()[0])
    parser.add_argument("--bitfile", help="load NAME.bit (with NAME.hwh) through PYNQ; without it: UIO and u-dma-buf")
    arguments = parser.parse_args(argv)
    try:
        if arguments.bitfile:
            from .pynq_transport import PynqTransport

            transport: Transport = PynqTransport(arguments.bitfile)
        else:
            from .uio_transport import UioTransport

            transport = UioTransport()
        accelerator = Accelerator(transport)
    except (AcceleratorError, ImportError, OSError, ValueError) as fault:
        print(f"gradloom: {fault}", file=sys.stderr)
        return 2
    with transport:
        results = run_selftest(accelerator)
    for name, ok, detail in results:
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {detail}")
    return 0 if all(ok for _, ok, _ in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
