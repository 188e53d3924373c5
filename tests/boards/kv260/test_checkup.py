"""What ``gradloom doctor --board`` says of a KV260: its script in a real shell on made-up folders."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.boards.checkup import Workplace

from ..conftest import by_name

#: What two systems of the board say of themselves.
SYSTEMS = {
    "22.04": ("Ubuntu 22.04.5 LTS", "5.15.0-1031-xilinx-zynqmp", "root=LABEL=writable cma=1000M quiet\n"),
    "24.04": ("Ubuntu 24.04.2 LTS", "6.8.0-1017-xilinx", "root=LABEL=writable quiet\n"),
}


def kria(root, *, model="ZynqMP SMK-K26 Rev1/B/A", loaded=True, cma=900_000, system="22.04", uboot="2022.01-g91ad7924"):
    """What a board's kernel shows."""
    name, kernel, cmdline = SYSTEMS[system]
    for path, text in (
        ("proc/device-tree/chosen/u-boot,version", f"{uboot}\0"),
        ("etc/os-release", f'PRETTY_NAME="{name}"\nNAME="Ubuntu"\nVERSION_ID="{system}"\nID=ubuntu\nID_LIKE=debian\n'),
        ("proc/sys/kernel/osrelease", f"{kernel}\n"),
        ("proc/cmdline", cmdline),
        ("proc/device-tree/model", model + "\0"),
        ("proc/device-tree/compatible", "xlnx,zynqmp\0"),
        ("proc/meminfo", f"MemTotal: 4000000 kB\nCmaTotal:        1024000 kB\nCmaFree:          {cma} kB\n"),
        ("sys/class/fpga_manager/fpga0/state", "operating\n"),
        ("sys/kernel/config/device-tree/overlays/pynq/status", "applied\n"),
        *(
            (
                ("sys/bus/platform/devices/a0010000.gradloom/modalias", ""),
                ("sys/class/uio/uio4/name", "gradloom\n"),
                ("sys/class/u-dma-buf/udmabuf-gradloom/size", "67108864\n"),
                ("dev/uio4", ""),
            )
            if loaded
            else ()
        ),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def board(tools, tmp_path):
    """Checks a KV260 that a shell plays behind ``ssh``."""

    def run(root, *, ssh="", login="", xmutil=True, python="echo 3.10", name="kv260", design=None):
        tools("ssh", ssh or f"""exec {login} sh -c "$(printf %s "$4" | sed "s|''|{root}|")\"""")
        tools("modinfo", "exit 1")
        if xmutil:
            tools("xmutil", "exit 0")
        tools("python3", python)
        place = Workplace(host="ubuntu@kria", root=tmp_path, tell=lambda line: None, design=design)
        return by_name(boards.checkup(boards.find(name), place))

    return run


NAMES = (
    "board",
    "boot firmware",
    "board's type",
    "system",
    "kernel",
    "xmutil",
    "python3",
    "numpy",
    "FPGA manager",
    "overlay",
    "reserved memory",
    "u-dma-buf",
    "UIO",
)


def test_a_board_that_is_ready_passes(board, tmp_path):
    kria(tmp_path)
    found = board(tmp_path)
    assert {name: found[name].state for name in NAMES} == dict.fromkeys(NAMES, "ok")
    assert found["overlay"].found == "a gradloom design is loaded; overlays: pynq"


def test_a_fresh_board_is_told_what_is_missing(board, tmp_path):
    kria(tmp_path, loaded=False, cma=1000)
    found = board(tmp_path, xmutil=False)
    assert found["overlay"].state == "skipped" and "overlays: pynq" in found["overlay"].found
    assert found["reserved memory"].state == "fault" and "others hold it" in found["reserved memory"].advice
    assert {found[name].state for name in ("u-dma-buf", "UIO")} == {"fault"}
    assert found["xmutil"].state == "skipped" and "the snap xlnx-config has none" in found["xmutil"].advice
    assert "install Kria-PYNQ" in found["u-dma-buf"].advice


@pytest.mark.parametrize("name, model", [("kr260", "ZynqMP SMK-K26 KR260 revB"), ("zcu104", "ZynqMP ZCU104 RevC")])
def test_boards_of_the_same_family_have_the_same_checks(board, tmp_path, name, model):
    """But those of Kria's own boot firmware and system, which a ZCU104 has on its card."""
    kria(tmp_path, model=model, uboot="2021.01" if name == "zcu104" else "2022.01")
    found = board(tmp_path, name=name, xmutil=name == "kr260")
    states = dict.fromkeys(NAMES, "ok") | ({"xmutil": "skipped"} if name == "zcu104" else {})
    assert {each: found[each].state for each in NAMES} == states
    other = board(tmp_path)["board's type"]
    assert other.state == "fault" and other.advice == "this is another board: a design for the KV260 does not fit"


@pytest.mark.parametrize("model", ["ZynqMP KR260 revB", "Raspberry Pi 4 Model B"])
def test_another_board_is_no_kv260(board, tmp_path, model):
    kria(tmp_path, model=model)
    assert board(tmp_path)["board's type"].state == "fault"


def test_registers_for_root_only_are_told(board, open_folder, nobody):
    kria(open_folder)
    (open_folder / "dev/uio4").chmod(0o600)
    # The stand-in of ssh logs in as somebody else than root.
    login = "setpriv --reuid 65534 --clear-groups" if not os.geteuid() else ""
    if not os.geteuid() and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    if os.geteuid():
        (open_folder / "dev/uio4").chmod(0)
    assert board(open_folder, login=login)["UIO"].advice.startswith("run the self-test with sudo, or install")


@pytest.mark.parametrize("ssh", ['echo "ssh: connect to host kria port 22: No route to host" >&2; exit 255', "exit 0"])
def test_a_board_that_does_not_answer_ends_its_checks(board, tmp_path, ssh):
    found = board(tmp_path, ssh=ssh)
    assert found["board"].state == "fault" and "does not answer over ssh" in found["board"].found
    assert "overlay" not in found


def test_the_board_script_is_plain_shell():
    script = Path(boards.__file__).with_name("kv260") / "doctor.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_boot_firmware_comes_first(board, tmp_path):
    kria(tmp_path, uboot="2021.01")
    found = board(tmp_path)
    rows = list(found)
    assert rows[rows.index("board") + 1] == "boot firmware" and found["boot firmware"].state == "fault"
    assert found["boot firmware"].advice.startswith("2022.1 or newer is needed: ")
    (tmp_path / "proc/device-tree/chosen/u-boot,version").unlink()
    assert board(tmp_path)["boot firmware"].state == "skipped"


def test_ubuntu_24_04_is_told_what_is_right_there(board, tmp_path, tools):
    kria(tmp_path, system="24.04", loaded=False)
    (tmp_path / "usr/lib/python3.12").mkdir(parents=True)
    (tmp_path / "usr/lib/python3.12/EXTERNALLY-MANAGED").touch()
    found = board(tmp_path, python='case "$2" in *numpy*) exit 1;; esac; echo 3.12')
    assert found["system"].state == "ok" and "Kria-PYNQ refuses this release" in found["system"].advice
    assert found["kernel"].advice.startswith(
        "its updates leave u-dma-buf behind: sudo apt-mark hold linux-image-6.8.0-"
    )
    assert found["numpy"].state == "skipped" and found["numpy"].advice.endswith("pip is externally managed here")
    assert "PYNQ" not in found["u-dma-buf"].advice


def test_other_systems_and_kernels_are_named(board, tmp_path):
    kria(tmp_path)
    (tmp_path / "etc/os-release").write_text('ID=ubuntu\nVERSION_ID="20.04"\nPRETTY_NAME="Ubuntu 20.04"\n')
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.4.0-generic\n")
    found = board(tmp_path)
    assert (found["system"].state, found["kernel"].state) == ("fault", "fault")
    (tmp_path / "etc/os-release").write_text("ID=petalinux\nVERSION_ID=2023.2\nPRETTY_NAME=PetaLinux\n")
    assert (board(tmp_path)["system"].state, board(tmp_path)["system"].found) == ("skipped", "PetaLinux")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_kernel_with_little_memory_is_told_no_less_than_what_kria_boots_with(board, tmp_path, system):
    kria(tmp_path, loaded=False, system=system)
    (tmp_path / "proc/meminfo").write_text("CmaTotal:        32768 kB\nCmaFree:         1000 kB\n")
    found = board(tmp_path)["reserved memory"]
    assert "boot with cma=1000M" in found.advice and "256" not in found.advice
    assert ("does by itself" in found.advice) == (system == "22.04") != ("flash-kernel" in found.advice)
    assert ("(cma=1000M)" in found.found) == (system == "22.04")


def test_the_order_of_overlays_is_told_where_pynq_is(board, tmp_path):
    kria(tmp_path)
    assert "load it first, flash after it" in board(tmp_path)["overlay"].advice
    (tmp_path / "sys/kernel/config/device-tree/overlays/pynq/status").unlink()
    (tmp_path / "sys/kernel/config/device-tree/overlays/pynq").rmdir()
    assert "PYNQ" not in board(tmp_path)["overlay"].advice


def test_xmutil_is_needed_only_where_configfs_takes_no_overlays(board, tmp_path):
    kria(tmp_path)
    shutil.rmtree(tmp_path / "sys/kernel/config")
    assert board(tmp_path, xmutil=False)["xmutil"].state == "fault"
