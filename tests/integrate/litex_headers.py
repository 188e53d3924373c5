"""Headers that LiteX's simulator is compiled with: those of the system, or Debian's packages unpacked, without root."""

import os
import subprocess

from ..witness.debian import UNPACKED, unpack

__all__ = ["litex_environment"]

#: Headers, and the libraries that they lead to.
_PACKAGES = ("libevent-dev", "libevent-2.1-7", "libjson-c-dev", "libjson-c5", "zlib1g-dev", "zlib1g")
_PROBE = "#include <event2/event.h>\n#include <json-c/json.h>\n#include <zlib.h>\nint main(void) { return 0; }\n"


def _compiles(environment):
    done = subprocess.run(
        ["cc", "-xc", "-", "-fsyntax-only"], input=_PROBE, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def litex_environment():
    """The environment in which LiteX's simulator builds and runs; None where its libraries cannot be had."""
    environment = dict(os.environ)
    if _compiles(environment):
        return environment
    try:
        if not (UNPACKED / "usr/include/event2").is_dir():
            unpack(*_PACKAGES)
    except (OSError, subprocess.CalledProcessError):
        return None
    libraries = os.pathsep.join(map(str, [*UNPACKED.glob("usr/lib/*-linux-gnu"), *UNPACKED.glob("lib/*-linux-gnu")]))
    environment |= {"CPATH": str(UNPACKED / "usr/include"), "LIBRARY_PATH": libraries, "LD_LIBRARY_PATH": libraries}
    return environment if _compiles(environment) else None
