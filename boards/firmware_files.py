"""The sources that go to a board with a design: the C driver and the Python host."""
from importlib.resources import files

_DRIVER = ("gradloom.c", "gradloom.h", "gradloom_regs.h", "linux_main.c")
_HOST = ("__init__.py", "energy.py", "host.py", "program.py", "pynq_transport.py", "registers.py",
         "selftest.py", "transport.py", "uio_transport.py")


def firmware_files() -> dict[str, str]:
    """Content of every file, by its path: ``driver/*`` and the Python package ``gradloom_host``.

    The host is a package of its own there, since a board has numpy, but neither an HDL nor its simulator.
    """
    folder = files("gradloom.firmware")
    texts = {f"driver/{name}": folder.joinpath(name).read_text(encoding="utf-8") for name in _DRIVER}
    texts |= {f"gradloom_host/{name}": folder.joinpath(name).read_text(encoding="utf-8") for name in _HOST}
    return texts
