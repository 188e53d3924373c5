"""Measures energy by the board's power sensor.

INA260 on the KV260, through Linux hwmon.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

SENSOR = "ina260"


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Result of an :class:`EnergyMeter`.

    ``joules`` is the whole board's energy over ``seconds``; ``net_joules`` is what is left of it when the
    idle power is taken off. That was measured just before, and just after if the meter was asked to: then
    ``idle_watts`` is the mean of both, and ``idle_drift`` what the second has more than the first.
    """

    seconds: float
    samples: int
    joules: float
    idle_watts: float
    idle_drift: float = 0.0

    @property
    def mean_watts(self) -> float:
        """Mean power of the whole board."""
        return self.joules / self.seconds if self.seconds else 0.0

    @property
    def net_joules(self) -> float:
        """Energy above idle."""
        return self.joules - self.idle_watts * self.seconds


def find_sensor(hwmon: Path | str = "/sys/class/hwmon") -> Path:
    """The ``power1_input`` file of the board's INA260."""
    for device in sorted(Path(hwmon).glob("hwmon*")):
        name = device / "name"
        power = device / "power1_input"
        # Kria calls it ina260_u14 after its place on the carrier board.
        if power.is_file() and name.is_file() and name.read_text().strip().startswith(SENSOR):
            return power
    raise ValueError(f"no sensor {SENSOR} with power1_input under {hwmon}")


def integrate(samples: list[tuple[float, float]]) -> float:
    """Joules under ``(seconds, watts)`` samples, by the trapezoid rule."""
    return sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in zip(samples, samples[1:]))


class EnergyMeter:
    """Measures the energy of a ``with`` block.

    ``result`` holds it afterwards.

    Reads the sensor in a thread, once before the block and once after it too, so that a block shorter than
    ``interval`` is measured as well. The INA260 averages over about a millisecond or more: shorter events are
    smeared.

    Parameters
    ----------
    sensor : :class:`~pathlib.Path` or ``None``
        File that holds the power in microwatts; found if not given.
    interval : :class:`float`
        Seconds between samples.
    idle_seconds : :class:`float`
        How long to measure the idle power before the block.
    both : :class:`bool`
        Measure it after the block, too.
    """

    def __init__(
        self,
        sensor: Path | str | None = None,
        *,
        interval: float = 0.005,
        idle_seconds: float = 0.5,
        both: bool = False,
    ):
        if interval <= 0:
            raise ValueError(f"interval must be positive, not {interval}")
        if idle_seconds < 0:
            raise ValueError(f"idle_seconds must not be negative, not {idle_seconds}")
        self.sensor = find_sensor() if sensor is None else Path(sensor)
        self.interval = interval
        self.idle_seconds = idle_seconds
        self.both = both
        self.result: Energy | None = None
        self._idle_watts = 0.0
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None

    def _sample(self) -> tuple[float, float]:
        # The read itself takes a millisecond on I2C; its middle is the sample's time.
        begin = time.monotonic()
        watts = int(self.sensor.read_text()) * 1e-6
        return (begin + time.monotonic()) / 2, watts

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.interval):
                self._samples.append(self._sample())
        except (OSError, ValueError) as fault:
            self._fault = fault

    def _idle(self) -> float:
        idle = [self._sample()]
        while idle[-1][0] - idle[0][0] < self.idle_seconds:
            time.sleep(self.interval)
            idle.append(self._sample())
        seconds = idle[-1][0] - idle[0][0]
        return integrate(idle) / seconds if seconds else idle[0][1]

    def __enter__(self) -> "EnergyMeter":
        self._idle_watts = self._idle()
        self.result = None
        self._fault = None
        self._stop.clear()
        self._samples = [self._sample()]
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._fault is not None:
            raise ValueError(f"sensor {self.sensor} stopped: {self._fault}") from self._fault
        self._samples.append(self._sample())
        after = self._idle() if self.both else self._idle_watts
        self.result = Energy(
            seconds=self._samples[-1][0] - self._samples[0][0],
            samples=len(self._samples),
            joules=integrate(self._samples),
            idle_watts=(self._idle_watts + after) / 2,
            idle_drift=after - self._idle_watts,
        )
