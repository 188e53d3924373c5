"""The agent of a KV260, over ssh."""

from ..links.reach import BoardReach, plain_fault
from ..links.ssh import SILENCE, valid_host
from .bundle.flash import FOLDER, silent
from .measured import REMEDIES

__all__ = ["reached"]


def reached(host: str, *, name: str) -> BoardReach:
    """The agent that came with the design ``name``.

    It runs as root, whose the registers are. Jobs are in the user's own ``gradloom-jobs``.
    """
    host = valid_host(host)
    command = f'cd {FOLDER}/{name}/firmware && exec sudo -n python3 -m gradloom_host.agent --jobs "$HOME/gradloom-jobs"'

    def explain(code: int | None, line: str) -> str:
        if code == 255 and "Permission denied" in line:
            return f"host={host}: refuses the login: run ssh-copy-id {host} once, then no password is asked for"
        if code == 255:
            return silent(host)
        remedy = next((f"; {text}" for words, text in REMEDIES.items() if words in line), "")
        return f"host={host}: {plain_fault(code, line)}{remedy}"

    return BoardReach(
        name=host, command=("ssh", "-T", "-o", "ConnectTimeout=10", *SILENCE, host, command), explain=explain
    )
