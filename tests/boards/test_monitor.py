"""The monitor, on a pseudo terminal in place of a board."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import tty

import pytest
import serial

from gradloom.boards.links import monitor as room
from gradloom.boards.links.monitor import monitor


@pytest.fixture
def line():
    """The board's end of a line, and the name of the other."""
    board, port = pty.openpty()
    tty.setraw(port)
    yield board, os.ttyname(port)
    os.close(port)
    try:
        os.close(board)
    except OSError:  # a test has closed it
        pass


@pytest.fixture
def says(line, monkeypatch):
    """Makes the board say something as soon as somebody listens: what came before is not kept."""

    def say(text):
        class Line(serial.Serial):
            def open(self):
                super().open()
                os.write(line[0], text)

        monkeypatch.setattr(serial, "Serial", Line)

    return say


@contextlib.contextmanager
def listener(line, text):
    """The verb in a process of its own, which hears ``text`` all the time; it has heard it once already."""
    board, port = line
    process = subprocess.Popen(
        [sys.executable, "-m", "gradloom", "monitor", "--port", port, "--baud", "9600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background leaves interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    heard = threading.Event()

    def talk():
        while not heard.wait(0.1):
            os.write(board, text.encode())

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        assert process.stdout.readline() == text
        heard.set()
        talker.join()
        yield process
    finally:
        heard.set()
        process.kill()
        process.communicate()


class Heard(list):
    """What was written, up to a mark, at which it interrupts."""

    def write(self, text):
        self.append(text)
        if "#" in text:
            raise KeyboardInterrupt


def test_what_the_board_says_is_shown(line, says):
    says(b"ready\r\nprogram: 43 commands\r\n\x1b[2J\xff#")
    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        monitor(line[1], write=heard.write)
    assert "".join(heard) == "ready\nprogram: 43 commands\n?[2J?#"


def test_an_interrupt_ends_the_verb_cleanly(line):
    with listener(line, "gradloom: rows=16\n") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out.replace("gradloom: rows=16\n", ""), err) == (0, "\n", "")


def test_a_board_that_is_unplugged_is_told(line, says):
    board, port = line
    says(b"rea")
    heard = []

    def write(text):
        heard.append(text)
        if len("".join(heard)) == 3:
            os.close(board)

    with pytest.raises(ValueError, match=f"port={port}: is gone"):
        monitor(port, write=write)
    assert "".join(heard) == "rea"


def test_two_do_not_listen_at_once(line, run):
    with listener(line, "x\n"):
        assert run("monitor", "--port", line[1]) == (2, "", f"gradloom: port={line[1]}: is in use by another program\n")


def test_a_file_is_no_port(run, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, out, err = run("monitor", "--port", tmp_path / "file")
    assert (code, out, err) == (2, "", f"gradloom: port={tmp_path / 'file'}: is no serial port\n")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "found, said",
    [
        ([], "port: there is no USB serial port; name one with --port"),
        (["/dev/ttyUSB0", "/dev/ttyUSB1"], "port: there are /dev/ttyUSB0, /dev/ttyUSB1; name one with --port"),
    ],
)
def test_a_port_is_only_chosen_where_there_is_one(run, monkeypatch, found, said):
    monkeypatch.setattr(room, "_usb", lambda: found)
    assert run("monitor") == (2, "", f"gradloom: {said}\n")


def test_the_only_port_is_taken(line, says, monkeypatch):
    monkeypatch.setattr(room, "_usb", lambda: [line[1]])
    says(b"#")
    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        monitor(write=heard.write)
    assert heard == ["#"]
