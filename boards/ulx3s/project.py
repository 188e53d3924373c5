"""The ULX3S project of a design: top, pins, firmware, memory."""

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from gradloom.preset import Preset, find_preset
from gradloom.program.power_up import PowerUp
from gradloom.rtl.soc import tuner_sources

from ..board import Board
from ..firmware_files import soc_files
from ..flow import NoProjectError
from ..links.usb import RULES, udev_rules
from .facts import BAUD, CABLES
from .ram import WORDS, ram_verilog

__all__ = ["BAUD", "INPUT_MHZ", "check", "project_files", "pll", "top_verilog", "tuner_files"]

_HERE = Path(__file__).parent
# How the tuner names the accelerator in it.
_ACCELERATOR = "    gradloom accelerator ("
INPUT_MHZ = 25
#: The PLL's oscillator runs at 400 to 800 MHz, best near the middle: the loop filter (`top.v`) is that of ecppll, which
#: aims there too.
_OSCILLATOR = range(400, 801)
_MIDDLE_MHZ = 600


def pll(mhz: float) -> dict[str, int]:
    """Dividers of the PLL for a clock of ``mhz``.

    It is a multiple of 5 MHz, 25 to 125 MHz. The first output, of 25 MHz, is compared with the board's clock; the
    second is the design's.
    """
    if not 25 <= mhz <= 125 or mhz % 5:
        raise ValueError(f"clock_mhz={mhz:g}: the PLL makes multiples of 5 from 25 to 125 MHz of the board's 25")
    whole = int(mhz)
    ratio = Fraction(whole, INPUT_MHZ)
    first = min(
        (
            first
            for first in range(ratio.numerator, _OSCILLATOR.stop, ratio.numerator)
            if first * INPUT_MHZ in _OSCILLATOR
        ),
        key=lambda first: abs(first * INPUT_MHZ - _MIDDLE_MHZ),
    )
    second = first * INPUT_MHZ // whole
    return {"CLKOP_DIV": first, "CLKOP_PHASE": first // 2, "CLKOS_DIV": second, "CLKOS_PHASE": second // 2}


def top_verilog(*, mhz: float, words: int, baud: int = BAUD) -> str:
    """The board's top around a tuner whose memory has ``words`` beats."""
    text = (_HERE / "top.v").read_text(encoding="utf-8")
    for name, value in {**pll(mhz), "MHZ": int(mhz), "WORDS": words, "DIVISOR": round(mhz * 1e6 / baud)}.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def tuner_files(plan: PowerUp, *, mhz: float, memory_bytes: int, module: str = "gradloom") -> dict[str, str]:
    """Verilog around the accelerator ``module`` with its memories' contents.

    It is by file name.
    """
    files = {path.name: path.read_text(encoding="utf-8") for path in tuner_sources()}
    files["tuner.v"] = files["tuner.v"].replace(_ACCELERATOR, f"    {module} accelerator (")
    files["top.v"] = top_verilog(mhz=mhz, words=memory_bytes // 16)
    files["memory.mem"] = plan.text()
    files["tuner_image.mem"] = soc_files("tuner")["tuner_image.mem"]
    return files


def check(board: Board, preset: Preset) -> None:
    """Refuses a clock that the PLL does not make, and too much data.

    See :func:`gradloom.boards.check`.
    """
    pll(preset.config.clock_mhz)
    assert board.memory_bytes == 16 * WORDS
    _power_up(board, preset)


#: Seeds of the placement with which presets reach their clocks, of those that were tried.
_SEEDS = {"digits-ulx3s": 3, "lstm-ulx3s": 2}


def _power_up(board: Board, preset: Preset) -> PowerUp:
    """Contents of the memory at power-up."""
    if not preset.workload.can("power_up"):
        raise ValueError(
            f"board={board.name}: fine-tunes or answers by itself at power-up, with all data on the chip; "
            f"{preset.name} cannot, choose another board"
        )
    plan: PowerUp = preset.workload.function("power_up")(preset.config, memory=board.memory_bytes)
    return plan


def project_files(board: Board, report: Mapping) -> dict[str, str]:
    """Content of every project file, by its path in the design's folder.

    Writes nothing.
    """
    preset = find_preset(report["preset"])
    config = type(preset.config)(**report["parameters"])
    plan = _power_up(board, replace(preset, config=config))
    try:
        files = tuner_files(plan, mhz=config.clock_mhz, memory_bytes=board.memory_bytes, module=report["module"])
    except ValueError as error:
        if "not installed" in str(error):
            raise NoProjectError(f"board={board.name}: no board project: {error}") from None
        raise
    seed = _SEEDS.get(preset.name, 1)
    settings = {"device": "85k", "package": "CABGA381", "speed": 6, "mhz": config.clock_mhz, "seed": seed}
    return {
        **{f"board/{name}": text for name, text in files.items()},
        "board/pins.lpf": (_HERE / "pins.lpf").read_text(encoding="utf-8"),
        "board/settings.json": json.dumps(settings, indent=2) + "\n",
        "board/synth/onchip_ram.v": ram_verilog(plan.image),
        RULES: udev_rules(CABLES),
        **{f"firmware/gradloom_soc/{path}": text for path, text in soc_files("tuner").items()},
    }
