"""No program hangs the machine: it ends, or stops with an error that says what and where, and the next one is right."""

import pytest
from hypothesis import given

from gradloom.firmware.device import registers

from .looks import looks
from .programs import cases, code
from .subjects import SUBJECTS

#: Beyond the watchdog's time: memory's latency, bursts that are brought to their end, and the machine's own steps.
SLACK = 4000
#: Counters are those of the program; of a request that runs alone only its end is seen, after so many times at most.
ALONE = 64
BUSY, DONE, ERROR, SERVING = (
    1 << registers.FIELDS[f"STATUS.{name}"][0] for name in ("busy", "done", "error", "request_busy")
)
BELL, RESET, REQUEST = (1 << registers.FIELDS[f"CONTROL.{name}"][0] for name in ("bell", "reset", "request"))


def prepare(subject, case):
    """Memory, its behaviour and registers as a case wants them."""
    device, host = subject.device, subject.host
    settings = {"stall": case.stall, "read_latency": case.latency[0], "write_latency": case.latency[1]}
    if case.fail:
        settings |= {"fail_enable": 1, "fail_address": device.window_base + case.fail[0], "fail_resp": case.fail[1]}
    for name, value in settings.items():
        device.set(name, value)
    device.write_memory(0, subject.start)
    device.write_memory(case.offset, code(case.commands)[: subject.size - case.offset])
    values = {"WATCHDOG": case.watchdog, "IRQ_ENABLE": 7, "PROGRAM_OFFSET": case.offset, "PROGRAM_COMMANDS": case.count}
    if case.request:
        device.write_memory(subject.spare + (1 << 13), code(case.request[1]))
        values |= {"REQUEST_OFFSET": subject.spare + (1 << 13), "REQUEST_COMMANDS": len(case.request[1])}
    for name, value in values.items():
        host.write(name, value)
    return device, host


def run(subject, case):
    """Rings, does what the case wants meanwhile, and returns STATUS and what has interrupted when all is over.

    In every :data:`SLACK` cycles and the watchdog's time the machine ends, or a beat or a command does.
    """
    device, host = prepare(subject, case)
    pending = 0

    def spend(cycles):
        """True after an interrupt, which is taken."""
        nonlocal pending
        if device.advance(cycles):
            interrupt = host.read("IRQ_STATUS")
            host.write("IRQ_STATUS", interrupt)
            pending |= interrupt
            return True
        return False

    host.write("CONTROL", BELL)
    begin = device.cycles
    events = [
        (when, what)
        for when, what in ((case.reset, RESET), (case.request and case.request[0], REQUEST))
        if when is not None
    ]
    for when, what in sorted(events):
        while device.cycles < begin + when:
            spend(begin + when - device.cycles)
        host.write("CONTROL", what)
    before, alone = None, 0
    while (status := host.read("STATUS")) & (BUSY | SERVING):
        if spend(case.watchdog + SLACK):
            continue
        alone += not status & BUSY
        counters = (
            status & BUSY,
            *(host.read(name) for name in ("READ_BEATS", "WRITE_BEATS", "COMMANDS_DONE", "COMMANDS_DROPPED")),
        )
        assert alone <= ALONE and (not status & BUSY or counters != before), f"nothing moves: STATUS {status:#x}"
        before = counters
    spend(0)
    return status, pending


@pytest.fixture(scope="session", params=SUBJECTS)
def subject(request):
    made = SUBJECTS[request.param]()
    yield made
    made.close()


def check(subject, case):
    try:
        status, pending = run(subject, case)
        host = subject.host
        assert bool(status & DONE) != bool(status & ERROR)
        name, _ = registers.ERRORS[host.read("ERROR_CODE.code")]
        assert pending and bool(status & ERROR) <= bool(pending & 2)
        assert name != "NONE" if status & ERROR else name == "NONE" or case.request
        assert name != "ABORTED" or case.reset is not None
        assert "DECERR" not in name or case.fail
        longest = max(case.count, len(case.request[1]) if case.request else 0)
        assert host.read("ERROR_COMMAND.index") <= longest
        subject.works()
    except BaseException:
        # Whatever state it is in: the next case finds a new one.
        subject.close()
        raise


def test_no_program_hangs_the_machine_or_spoils_it_for_the_next(subject):
    @looks(40, 2000)
    @given(cases(subject))
    def trouble(case):
        check(subject, case)

    trouble()
