"""Measures the energy of a program on a KV260, over ssh."""

import json
import subprocess
from typing import TYPE_CHECKING

from ..links.ssh import ssh, valid_host
from .bundle.flash import FOLDER, silent

if TYPE_CHECKING:
    from gradloom.firmware.device.measured import RunEnergy

__all__ = ["REMEDIES", "measured"]

#: What a line of the other side's means for the user, by words in it.
REMEDIES = {
    "No such file or directory": "run gradloom flash kv260 DIR first",
    "can't cd to": "run gradloom flash kv260 DIR first",
    "No module named": "its host software is older: run gradloom flash again",
    "password is required": "sudo must not ask for a password there: allow python3 in /etc/sudoers.d",
    "terminal is required": "sudo must not ask for a password there: allow python3 in /etc/sudoers.d",
}


def measured(host: str, *, name: str, request: bytes) -> "RunEnergy":
    """The answer of ``gradloom_host.measured`` of the design ``name``.

    ``request`` is its standard input.
    """
    host = valid_host(host)
    # The registers are root's.
    command = f"cd {FOLDER}/{name}/firmware && sudo -n python3 -m gradloom_host.measured"
    try:
        done = subprocess.run(ssh(host, command), input=request, capture_output=True, check=False)
    except OSError as error:
        raise ValueError(f"ssh does not start: {error.strerror}") from None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode == 255:
        raise ValueError(silent(host))
    if done.returncode:
        line = said[-1].removeprefix("gradloom: ") if said else f"exit code {done.returncode}"
        remedy = next((f"; {text}" for words, text in REMEDIES.items() if words in line), "")
        raise ValueError(f"host={host}: {line}{remedy}")
    try:
        result: RunEnergy = json.loads(done.stdout.decode("utf-8").strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise ValueError(f"host={host}: gave no result; run gradloom doctor --board kv260 --host {host}") from None
    return result
