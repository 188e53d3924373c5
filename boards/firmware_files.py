"""Files of the C driver and the Python host for a board."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gradloom.firmware.chip import soc_image
from gradloom.firmware.device.machine import MachineDesign

from .integrate.identity import core_name

_DRIVER = (
    "gradloom.c",
    "gradloom.h",
    "gradloom_design.h",
    "gradloom_regs.h",
    "gradloom_steps.c",
    "gradloom_steps.h",
    "gradloom_store.c",
    "gradloom_store.h",
    "gradloom_sum.c",
    "gradloom_sum.h",
    "linux_answer.c",
    "linux_answer.h",
    "linux_board.c",
    "linux_board.h",
    "linux_job.c",
    "linux_job.h",
    "linux_json.c",
    "linux_json.h",
    "linux_main.c",
    "linux_plan.c",
    "linux_plan.h",
    "linux_sha.c",
    "linux_sha.h",
    "soc_memory.h",
    "soc_sha.c",
    "soc_sha.h",
)
_HOST = (
    "__init__.py",
    "adapter_store.py",
    "agent.py",
    "answering.py",
    "barrier.py",
    "board_device.py",
    "energy.py",
    "frames.py",
    "host.py",
    "job.py",
    "job_run.py",
    "lanes.py",
    "lock.py",
    "program.py",
    "measured.py",
    "pynq_driver.py",
    "pynq_transport.py",
    "machine.py",
    "registers.py",
    "remote.py",
    "selftest.py",
    "serving.py",
    "steps.py",
    "transport.py",
    "uio_transport.py",
)
_SOC = (
    "__init__.py",
    "adapter_store.py",
    "card.py",
    "monocypher_source.py",
    "registers.py",
    "soc.py",
    "soc_image.py",
    "steps.py",
)


def firmware_files(design: Mapping[str, Any] | None = None, module: str | None = None) -> dict[str, str]:
    """Content of every file, by its path.

    The files are ``driver/*`` and the Python package ``gradloom_host``. Both refuse a board that does not have
    ``design``, if it is given: its ``name``, ``table``, ``data_bits`` and ``device``. ``module``: of
    the core that PYNQ's driver is bound to.

    The host is a package of its own there, since a board has numpy, but neither an HDL nor its simulator.
    """
    texts = {f"driver/{name}": _text(name) for name in _DRIVER}
    texts |= {f"gradloom_host/{name}": _text(name) for name in _HOST}
    if module is not None:
        path, old = "gradloom_host/pynq_driver.py", 'NAME = "gradloom:accelerator:gradloom:1.0"'
        if old not in texts[path]:
            raise ValueError("pynq_driver.py names no core")
        texts[path] = texts[path].replace(old, f'NAME = "{core_name(module)}"')
    if design is not None:
        texts["gradloom_host/design.json"] = json.dumps(dict(design), indent=2) + "\n"
        device = MachineDesign.device
        for field, usual in (("name", ""), ("table", ""), ("device", device)):
            old = f'#define GL_DESIGN_{field.upper()} "{usual}"'
            text = texts["driver/gradloom_design.h"]
            if old not in text:
                raise ValueError(f"gradloom_design.h has no {field}")
            own = design.get(field, usual)
            texts["driver/gradloom_design.h"] = text.replace(old, f'#define GL_DESIGN_{field.upper()} "{own}"')
    return texts


def _text(name: str) -> str:
    """A file of the firmware, whose imports are of its own folder: a board has all files of a package in one."""
    text = soc_image.source(name).read_text(encoding="utf-8")
    if not name.endswith(".py"):
        return text
    text = re.sub(r"^( *from) \.\.(?:device|jobs|chip)\.", r"\1 .", text, flags=re.M)
    text = re.sub(r"^( *from) \.\.(?:device|jobs|chip) ", r"\1 . ", text, flags=re.M)
    return re.sub(r"(?:^from \..*\n)+", lambda block: "".join(sorted(block[0].splitlines(True))), text, flags=re.M)


def soc_files(main: str = "soc") -> dict[str, str]:
    """Content of every file of the firmware of a system on chip.

    It is a Python package that builds it again (``python -m gradloom_soc.soc_image --main MAIN``) and writes jobs for
    it. ``main``: ``soc`` or ``tuner``.
    """
    return {
        name: _text(name)
        for name in sorted(
            {*_SOC, *soc_image.sources(main), *soc_image.sources("selftest"), soc_image.IMAGES[main].name}
        )
    }
