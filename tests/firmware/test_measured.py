"""Energy of a program that a board repeats: the board's side on a model of registers and a made-up sensor."""

import dataclasses
import io
import json
import time

import pytest

from gradloom.firmware.device import measured
from gradloom.firmware.device.energy import EnergyMeter, find_sensor
from gradloom.firmware.device.host import AcceleratorError, ProgramError
from gradloom.firmware.device.machine import MachineDesign
from gradloom.firmware.device.measured import MeasureRequest, serve
from gradloom.firmware.device.program import end, load
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import IMAGE_MACHINE, IMAGES
from gradloom.rtl.shell.table import machine_table

from .conftest import PARAMETERS, Machine

TABLE = machine_table(IMAGES, PARAMETERS, IMAGE_MACHINE.loop(ImageConfig(classes=16)))
DESIGN = {"name": "instantft-kv260", "table": TABLE, "data_bits": 128}
IDLE, BUSY = 3_000_000, 5_000_000


class Board(Machine):
    """Draws more power while a program runs, of which one read of the status takes a while."""

    def __init__(self, sensor, **options):
        super().__init__(**options)
        self.sensor, self.events = sensor, []

    def draw(self, power):
        """Power from now on; a reader sees the old figure or the new one."""
        new = self.sensor.with_name("new")
        new.write_text(f"{power}\n")
        new.replace(self.sensor)

    def write32(self, offset, value):
        before = self.busy
        super().write32(offset, value)
        name = self.register(offset).name
        if name in ("CACHE_CLEAR", "CONTROL") and not before:
            self.events.append(name)

    def ring(self):
        super().ring()
        self.draw(BUSY)
        time.sleep(0.002)

    def finish(self):
        super().finish()
        self.draw(IDLE)


@pytest.fixture
def sensor(tmp_path):
    path = tmp_path / "hwmon" / "hwmon3" / "power1_input"
    path.parent.mkdir(parents=True)
    (path.parent / "name").write_text("ina260_u14\n")
    path.write_text(f"{IDLE}\n")
    return path


def asked(*, commands=None, **changes):
    """What the host writes to standard input."""
    code = b"".join([load(4096, 2, 0), end()]) if commands is None else commands
    request = MeasureRequest(
        **{"design": DESIGN, "program": 0, "commands": len(code) // 32, "repeats": 100}
        | {"segments": [[0, len(code)], [4096, 32]]}
        | changes
    )
    return io.BytesIO(json.dumps(dataclasses.asdict(request)).encode() + b"\n" + code + bytes(range(32)))


def answered(sensor, source, **options):
    board = Board(sensor, **options)
    meter = EnergyMeter(find_sensor(sensor.parents[1]), interval=0.0005, idle_seconds=0.05, both=True)
    return board, serve(source, lambda: board, lambda: meter)


def test_a_program_is_repeated_and_idle_power_taken_off(sensor):
    board, found = answered(sensor, asked())
    assert bytes(board.memory[4096:4128]) == bytes(range(32))
    # The first run is not measured; the cache is cleared before each.
    assert board.bells == 101 and board.events == ["CACHE_CLEAR", "CONTROL"] * 101
    assert (found["repeats"], found["cycles"]) == (100, [0x1_FFFF_FFFF] * 2)
    assert found["idle_watts"] == pytest.approx(3) and found["idle_drift_watts"] == pytest.approx(0)
    assert found["seconds"] >= 0.2 and found["samples_of_sensor"] > 50
    assert 3 < found["mean_watts"] <= 5
    assert found["gross_joules"] == pytest.approx(found["mean_watts"] * found["seconds"])
    assert found["net_joules"] == pytest.approx(found["gross_joules"] - 3 * found["seconds"])
    assert found["net_joules"] > 0.3 * 2 * found["seconds"]
    for kind in ("gross", "net"):
        assert found[f"{kind}_joules_a_run"] == pytest.approx(found[f"{kind}_joules"] / 100)


def test_idle_power_is_that_before_and_after(tmp_path):
    path = tmp_path / "power1_input"
    path.write_text("3000000\n")
    with EnergyMeter(path, interval=0.001, idle_seconds=0.01, both=True) as meter:
        path.write_text("4000000\n")
    assert meter.result.idle_watts == pytest.approx(3.5) and meter.result.idle_drift == pytest.approx(1)


@pytest.mark.parametrize(
    "source, options, error, message",
    [
        (asked(repeats=99), {}, ValueError, "repeats=99: must be at least 100"),
        (asked(segments=[[0, 64], [4096, 90]]), {}, ValueError, "the data ended 58 bytes early"),
        (asked(segments=[[0, 64], [1 << 20, 32]]), {}, ValueError, "window"),
        (asked(design=DESIGN | {"table": TABLE.replace("rows=25", "rows=16")}), {}, AcceleratorError, "another design"),
        (asked(), {"faults": ("id",)}, AcceleratorError, "no gradloom accelerator"),
        (asked(commands=load(1 << 20, 2, 0) + end()), {}, ProgramError, "LOAD_WINDOW at command 0"),
    ],
    ids=["few", "cut", "window", "design", "none", "program"],
)
def test_what_cannot_be_measured_is_told(sensor, source, options, error, message):
    with pytest.raises(error, match=message):
        answered(sensor, source, **options)


def test_a_board_without_sensor_is_left_alone(tmp_path):
    def board():
        raise AssertionError("the machine was touched")

    with pytest.raises(ValueError, match="no sensor ina260"):
        serve(asked(), board, lambda: EnergyMeter(find_sensor(tmp_path)))


def test_an_error_is_one_line_and_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(measured.sys, "stdin", io.TextIOWrapper(asked()))
    assert measured.main() == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "no sensor ina260" in said.err


def test_the_design_is_that_of_a_preset():
    assert MachineDesign(**DESIGN).differs_in_table(TABLE) == ""
