"""Other machines over ssh."""

import re

__all__ = ["SILENCE", "ssh", "valid_host"]

#: Options by which ssh ends after a minute without an answer of the other side.
SILENCE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*")


def valid_host(host: str) -> str:
    """A machine's user and host name, as ssh takes them."""
    if not _HOST.fullmatch(host):
        raise ValueError(f"host must be like user@machine, not {host!r}")
    return host


def ssh(host: str, command: str) -> tuple[str, ...]:
    """Runs ``command`` on ``host``.

    ssh ends after 10 s if nobody answers.
    """
    return "ssh", "-o", "ConnectTimeout=10", host, command
