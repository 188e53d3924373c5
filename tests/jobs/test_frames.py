"""Frames, and what the agent says to messages that it does not understand."""

import os
import threading
import time

import pytest

from gradloom.firmware.device import registers
from gradloom.firmware.device.transport import Transport
from gradloom.firmware.jobs.agent import serve
from gradloom.firmware.jobs.board_device import BoardDevice
from gradloom.firmware.jobs.frames import PIECE, Channel, ChannelTimeout, FrameError
from gradloom.firmware.jobs.job import JobError
from gradloom.firmware.jobs.remote import LARGE, Agent, AgentTransport, Connection, JobFailed, RemoteError

from ..firmware.conftest import Machine


@pytest.fixture
def pipes():
    """Two channels, each the other's end."""
    ends = [os.pipe(), os.pipe()]
    made = Channel(ends[0][0], ends[1][1], timeout=5), Channel(ends[1][0], ends[0][1], timeout=5)
    yield made, ends
    for pair in ends:
        for end in pair:
            try:
                os.close(end)
            except OSError:
                pass


def test_frames_arrive_whole_and_bytes_are_counted(pipes):
    (one, other), _ = pipes
    content = os.urandom(3 << 20)
    sender = threading.Thread(target=one.send, args=({"do": "store", "offset": 7}, content))
    sender.start()
    message, data = other.receive()
    sender.join()
    assert (message, data) == ({"do": "store", "offset": 7}, content)
    assert one.sent == other.received == 12 + len('{"do":"store","offset":7}') + len(content)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"Last login: today\nmore", "'Last login: today' arrived in place of a frame"),
        (b"GLF1\x01\0\x40\0\0\0\0\0", "is too long"),
        (b"GLF1\0\0\0\0\x01\0\0\x01", "is too long"),
        (b"GLF1\x01\0\0\0\0\0\0\0[", "has no JSON"),
        (b"GLF1\x02\0\0\0\0\0\0\0[]", "is no object"),
    ],
)
def test_what_is_no_frame_is_named(pipes, content, said):
    (one, _), ends = pipes
    os.write(ends[0][1], content)
    with pytest.raises(FrameError, match=said):
        one.receive()


def test_a_line_that_comes_in_parts_is_named_whole_and_one_without_an_end_is_not_waited_for(pipes):
    (one, _), ends = pipes

    def say():
        for part in (b"bash: gradloom: ", b"command not ", b"found\n"):
            os.write(ends[0][1], part)
            time.sleep(0.04)

    said = threading.Thread(target=say)
    said.start()
    with pytest.raises(FrameError, match="'bash: gradloom: command not found' arrived"):
        one.receive()
    said.join()
    os.write(ends[0][1], b"a prompt without an end> ")
    start = time.monotonic()
    with pytest.raises(FrameError, match="'a prompt without an end>' arrived"):
        one.receive()
    assert time.monotonic() - start < 2


def test_nothing_waits_for_ever(pipes):
    (one, other), ends = pipes
    with pytest.raises(ChannelTimeout, match="no answer within 0.05 s"):
        one.receive(0.05)
    other.timeout = 0.05
    with pytest.raises(ChannelTimeout, match="nothing was read for 0.05 s"):
        other.send({}, bytes(1 << 20))
    os.close(ends[1][1])
    with pytest.raises(EOFError):
        Channel(ends[1][0], 0).receive()


class _Closed(Transport):
    """Never reached: each question is refused before."""

    def read32(self, offset):
        raise AssertionError

    write32 = read_memory = write_memory = read32


@pytest.fixture
def asked(pipes, tmp_path):
    """``asked(message, data)``: the answer of an agent in this process."""
    (one, _), ends = pipes
    device = BoardDevice((), tmp_path / "lock", _Closed)
    thread = threading.Thread(target=serve, args=(ends[1][0], ends[0][1], device, tmp_path / "jobs"))
    thread.start()
    connection = Connection(ends[0][0], ends[1][1], timeout=5, close=lambda: None)
    connection.channel = one
    yield lambda message, data=b"": connection.ask(message, data)[0]
    os.close(ends[1][1])
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "message, said",
    [
        ({"do": "fly"}, "do='fly': is unknown, or the device is not open"),
        ({"do": "read", "offset": 0}, "do='read': is unknown, or the device is not open"),
        ({"do": "hello", "protocol": "1"}, "protocol='1': must be of type int"),
        ({"do": "hello", "protocol": True}, "protocol=True: must be of type int"),
        ({"do": "hello", "protocol": 9, "client": "a"}, "speaks protocol 2, this gradloom 9"),
        ({"do": "open", "design": 3, "window": 0}, "design=3: must be of type dict"),
        ({"do": "open", "design": {"name": "a"}, "window": 0}, "must have a name, a table and data_bits"),
        ({"do": "start", "name": "none"}, "job=none: there is none of this name"),
        ({"do": "get", "name": "none", "file": "../../etc/passwd", "at": 0}, "file='../../etc/passwd': must be one of"),
        ({"do": "put", "name": "../up", "files": {}}, "job='../up': must be 1 to 64 letters"),
        ({"do": "put", "name": "a", "files": {"data.bin": 1}}, "must be data.bin, job.json"),
        ({"do": "put", "name": "a", "files": {"data.bin": 1 << 60, "job.json": 1}}, "the job needs 1,152,921,"),
        ({"do": "piece", "file": "data.bin", "size": 1}, "no job comes"),
        ({"do": "placed"}, "no job comes"),
    ],
)
def test_messages_that_are_not_understood_are_refused_and_the_next_is_answered(asked, message, said, tmp_path):
    with pytest.raises((RemoteError, JobError)) as refused:
        asked(message)
    assert said in str(refused.value)
    assert asked({"do": "jobs"}) == {"jobs": {}}
    assert not any((tmp_path / "jobs").glob("*")) and not any((tmp_path / "jobs").glob(".*"))


def test_pieces_that_are_not_those_of_the_job_are_refused(asked, tmp_path):
    import zlib

    for size, content, said in ((2, b"abc", "the piece has another one"), (3, b"abc", "is longer than was said")):
        asked({"do": "put", "name": "a", "files": {"data.bin": 2, "job.json": 2}})
        with pytest.raises(RemoteError, match=said):
            asked({"do": "piece", "file": "data.bin", "size": size}, zlib.compress(content))
        with pytest.raises((RemoteError, JobError)):
            asked({"do": "placed"})
        assert not any((tmp_path / "jobs").iterdir())


def test_registers_and_memory_are_those_of_the_device(machine_served):
    ask = machine_served
    assert ask({"do": "read", "offset": registers.ID})[0]["value"] == registers.CONSTANTS["ID"]
    size = ask({"do": "open"})[0]["size"]
    for message, data, said in (
        ({"do": "read", "offset": 2}, b"", "offset=0x2: is of no register"),
        ({"do": "write", "offset": registers.WATCHDOG, "value": 1 << 32}, b"", "value=4294967296: must be from 0"),
        ({"do": "fetch", "offset": size - 4, "length": 5}, b"", "must lie in the window"),
        ({"do": "digest", "offset": size - 4, "length": 5}, b"", "must lie in the window"),
        ({"do": "store", "offset": -1}, b"a", "offset=-1: must be from 0"),
        ({"do": "store", "offset": size}, b"a", "must lie in the window"),
        ({"do": "wait", "seconds": "x"}, b"", "seconds='x': must be of type float"),
    ):
        with pytest.raises(RemoteError) as refused:
            ask(message, data)
        assert said in str(refused.value)


def test_what_is_in_memory_is_not_sent_again(machine_served):
    """Only the pieces that differ go; what is there afterwards is what was written."""
    asked = []

    class Watched:
        def ask(self, message, data=b""):
            asked.append((message["do"], len(data)))
            return machine_served(message, data)

    held = AgentTransport(Watched(), machine_served({"do": "open"})[0])
    content = bytearray(os.urandom(LARGE + 2 * PIECE))
    for changed, sent in ((None, [PIECE, PIECE, LARGE]), (None, []), (PIECE + 5, [PIECE])):
        if changed is not None:
            content[changed] ^= 1
        asked.clear()
        held.write_memory(12, bytes(content))
        assert [size for do, size in asked if do == "store"] == sent
        assert held.read_memory(12, len(content)) == content
    asked.clear()
    held.write_memory(0, bytes(LARGE - 1))
    assert asked == [("store", LARGE - 1)]


class Played:
    """A connection with the answers that it is given."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def ask(self, message, data=b""):
        self.asked.append(message)
        return self.next()

    def next(self):
        return self.answers.pop(0)


def client(*answers):
    made = Agent.__new__(Agent)
    made.connection = Played(*answers)
    return made


def test_a_job_is_followed_to_its_end():
    """By one question; what is not done at the end is an error, with what the board said of it."""

    def told(state, *lines, end=False, **more):
        return {"status": {"state": state}, "lines": list(lines), "end": end, **more}, b""

    agent = client(told("running", "a", "b"), told("running"), told("done", "c", end=True))
    assert [lines for _, lines in agent.follow("x")] == [["a", "b"], [], ["c"]]
    assert agent.connection.asked == [{"do": "follow", "name": "x"}]
    failed = told("failed", end=True, failed={"message": "it stopped", "code": 7})
    with pytest.raises(JobFailed, match="^it stopped$") as error:
        list(client(failed).follow("x"))
    assert error.value.code == 7
    with pytest.raises(RemoteError, match="^job x is interrupted: start it again"):
        list(client(told("running"), told("interrupted", end=True)).follow("x"))


def test_jobs_are_told_by_name():
    assert client(({"jobs": {"a": {"state": "done"}}}, b"")).jobs() == {"a": {"state": "done"}}


def test_a_file_comes_in_parts_and_whole(tmp_path):
    agent = client(({"size": 5}, b"abc"), ({"size": 5}, b"de"))
    agent.fetch("x", "result.bin", tmp_path / "result")
    assert (tmp_path / "result").read_bytes() == b"abcde"
    assert [each["at"] for each in agent.connection.asked] == [0, 3]
    client(({"size": 0}, b"")).fetch("x", "result.bin", tmp_path / "result")
    assert (tmp_path / "result").read_bytes() == b""
    with pytest.raises(RemoteError, match="^result.bin of job x ended early$"):
        client(({"size": 5}, b"abc"), ({"size": 5}, b"")).fetch("x", "result.bin", tmp_path / "result")


def test_a_client_that_ends_leaves_nothing_running(pipes, tmp_path):
    (one, _), ends = pipes
    machine = Machine(stuck=True)
    device = BoardDevice((), tmp_path / "lock", lambda: machine)
    thread = threading.Thread(target=serve, args=(ends[1][0], ends[0][1], device, tmp_path / "jobs"))
    thread.start()
    connection = Connection(ends[0][0], ends[1][1], timeout=5, close=lambda: None)
    connection.channel = one
    connection.ask({"do": "open", "design": None, "window": 0})
    machine.write32(registers.PROGRAM_COMMANDS, 1)
    machine.write32(registers.CONTROL, 1 << registers.FIELDS["CONTROL.bell"][0])
    assert machine.busy
    os.close(ends[1][1])
    thread.join(5)
    assert not thread.is_alive() and not machine.busy
