"""load.sh on a board that is a folder: a made-up /sys, and programs that change it as dfx-mgr and the kernel do."""

import shlex
import struct
import subprocess

import pytest

from gradloom import boards
from gradloom.firmware.device import registers

BOARD = boards.find("kv260")
NAME = "instantft-kv260"
OVERLAYS = "sys/kernel/config/device-tree/overlays"
STALE = "k26-starter-kits_image_0"
LOADED = f"gradloom: {NAME} is loaded"

#: What the programs share. ``holds``: the app that dfx-mgr knows of. One overlay at a time holds the region.
COMMON = """
b={board}; o=$b/{overlays}; s=$b/state
ours="$b/sys/bus/platform/devices/a0010000.{device} $b/sys/class/uio/uio1 $b/sys/class/u-dma-buf/udmabuf-{device}"
appear() {{ mkdir -p $(cat $s/shows) $b/proc/device-tree/axi/{device}-clock
    [ -d $b/sys/class/uio/uio1 ] && echo {device} >$b/sys/class/uio/uio1/name
    [ -e $s/rate ] && cp $s/rate $b/sys/kernel/debug/clk/pl0_ref/clk_rate
    cp $s/asked $b/proc/device-tree/axi/{device}-clock/assigned-clock-rates; true; }}
region() {{ ls $o | grep -v -e pynq -e somebody | head -n 1; }}
put() {{ /bin/mkdir -p $o/$1; echo applied >$o/$1/status; }}
gone() {{ rm -rf $o/$1; case $1 in {name}*) rm -rf $ours;; esac; }}
"""
PROGRAMS = {
    "xmutil": """
echo "$1" >>$s/asked-of-xmutil
case $1 in
unloadapp)
    held=$(cat $s/holds)
    [ -n "$held" ] || { echo "remove from slot 0 returns: -1 (Error)"; exit; }
    gone ${held}_image_0; : >$s/holds ;;
loadapp)
    if [ -n "$(region)" ]; then echo "Region already has overlay applied"; echo "$2: load Error: -1"
    elif [ -s $s/says ]; then cat $s/says
    else put $2_image_0; echo $2 >$s/holds; appear; echo "$2: loaded to slot 0"; fi ;;
esac""",
    "systemctl": """
echo "$*" >>$s/asked-of-systemctl
[ ! -e $s/no-systemd ] || exit 1
: >$s/holds; [ -e $s/broken ] || : >$s/says
if [ -s $b/etc/dfx-mgrd/default_firmware ] && [ -z "$(region)" ]; then
    put k26-starter-kits_image_0; echo k26-starter-kits >$s/holds
fi""",
    "rmdir": """
case $1 in
$o/*) [ ! -e $s/sticks ] || { echo "rmdir: device or resource busy" >&2; exit 1; }; gone ${1##*/} ;;
*) exec /bin/rmdir "$@" ;;
esac""",
    "mkdir": """
case $1 in
$o/*) [ -z "$(region)" ] && [ ! -e $s/refuses ] || { /bin/mkdir -p "$1"; echo unapplied >$1/status; exit; }
    put ${1##*/}; appear ;;
*) exec /bin/mkdir "$@" ;;
esac""",
    "modprobe": "exit 0",
    "sleep": "exit 0",
}
SHOWS = {
    "device": "sys/bus/platform/devices/a0010000.{device}",
    "uio": "sys/class/uio/uio1",
    "buffer": "sys/class/u-dma-buf/udmabuf-{device}",
}


class Kria:
    """A board with the bundle, which nothing has loaded yet."""

    def __init__(self, project, root, tools, device="gradloom"):
        self.project, self.root, self.device = project, root, device
        self.put("proc/device-tree/compatible", "xlnx,zynqmp-sk-kv260-rev2\0xlnx,zynqmp\0")
        self.put("sys/class/uio/uio0/name", "fabric\n")
        self.put(f"sys/bus/platform/devices/axi:{device}-clock/uevent", "")
        self.put("sys/kernel/debug/clk/pl0_ref/clk_rate", "99999999\n")
        self.put("sys/class/fpga_manager/fpga0/flags", "40\n")
        for name in ("holds", "says", "shows"):
            self.put(f"state/{name}", "")
        self.put("state/rate", "199999998\n")
        (root / "state/asked").write_bytes(struct.pack(">I", 200_000_000))
        (root / OVERLAYS).mkdir(parents=True)
        self.shows("device", "uio", "buffer")
        for file in (f"{NAME}.bit.bin", f"{NAME}.dtbo", "shell.json"):
            (project / "board" / "bundle").mkdir(exist_ok=True)
            (project / "board" / "bundle" / file).write_text(file)
        common = COMMON.format(board=shlex.quote(str(root)), overlays=OVERLAYS, name=NAME, device=device)
        for name, text in PROGRAMS.items():
            tools(name, common + text)

    def put(self, path, text=""):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def shows(self, *what):
        """What a load makes appear in sysfs."""
        self.put("state/shows", "\n".join(str(self.root / SHOWS[each].format(device=self.device)) for each in what))

    def stale(self, name=STALE, holds=""):
        self.put(f"{OVERLAYS}/{name}/status", "applied\n")
        self.put("state/holds", holds)

    @property
    def overlays(self):
        return sorted(path.name for path in (self.root / OVERLAYS).iterdir())

    def load(self):
        """Exit code, lines and error lines."""
        done = subprocess.run(
            ["sh", str(self.project / "board" / "load.sh"), NAME, str(self.root)],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture
def kria(design, report, tools, tmp_path):
    boards.write_project(BOARD, design, report)
    return Kria(design, tmp_path / "kria", tools)


def test_a_design_that_is_there_is_loaded(kria):
    for again in (False, True):
        code, lines, errors = kria.load()
        assert (code, errors) == (0, []) and lines[-2:] == [f"{NAME}: loaded to slot 0", LOADED]
        assert again or "gradloom: " not in "".join(lines[:-1])
    firmware = kria.root / "lib/firmware/xilinx" / NAME
    assert {file.name for file in firmware.iterdir()} == {f"{NAME}.bit.bin", f"{NAME}.dtbo", "shell.json"}
    assert not (kria.root / "state/asked-of-systemctl").exists()


def test_a_design_of_another_name_has_nodes_of_that_name(design, report, tools, tmp_path):
    """Registers, UIO, buffer, and the clock, which is read back and set again; another design's node stands there."""
    boards.write_project(BOARD, design, report | {"module": "loom2"})
    kria = Kria(design, tmp_path / "kria", tools, "loom2")
    kria.put("sys/bus/platform/devices/a0020000.gradloom/uevent")
    kria.put("state/rate", "99999999\n")
    kria.put("sys/bus/platform/devices/axi:loom2-clock/set_rate", "")
    kria.put("sys/bus/platform/devices/axi:gradloom-clock/set_rate", "")
    code, lines, errors = kria.load()
    assert (code, errors, lines[-1]) == (0, [], LOADED) and "pl_clk0 stays at 99999999 Hz" in lines[-2]
    rates = [kria.root / f"sys/bus/platform/devices/axi:{each}-clock/set_rate" for each in ("loom2", "gradloom")]
    assert [each.read_text() for each in rates] == ["200000000\n", ""]
    kria.shows()
    kria.put("state/holds", f"{NAME}\n")
    assert "its registers are not among the platform's devices" in kria.load()[2][0]


# ---- overlays that are left in configfs while dfx-mgr holds nothing


def test_a_stale_overlay_is_removed_and_the_design_loaded(kria):
    kria.stale()
    code, lines, errors = kria.load()
    assert (code, errors) == (0, []) and lines[-2:] == [f"{NAME}: loaded to slot 0", LOADED]
    assert f"gradloom: overlay {STALE} was left in configfs and is removed" in lines
    assert kria.overlays == [f"{NAME}_image_0"]


@pytest.mark.parametrize("reloads", [True, False])
def test_a_manager_that_fails_is_started_again_once_and_what_it_reloads_is_unloaded(kria, reloads):
    kria.stale()
    kria.put("state/says", f"{NAME}: load Error: -1\n")
    if reloads:
        kria.put("etc/dfx-mgrd/default_firmware", "k26-starter-kits\n")
    code, lines, errors = kria.load()
    assert (code, errors) == (0, []) and lines[-2:] == [f"{NAME}: loaded to slot 0", LOADED]
    assert (kria.root / "state/asked-of-systemctl").read_text().splitlines() == ["restart dfx-mgr"]
    asked = (kria.root / "state/asked-of-xmutil").read_text().split()
    assert asked == ["unloadapp", "loadapp", "unloadapp", "loadapp"]
    assert kria.overlays == [f"{NAME}_image_0"]


@pytest.mark.parametrize("why", ["xmutil fails", "no xmutil", "no systemd"])
def test_configfs_loads_what_dfx_mgr_does_not(kria, tmp_path, why):
    kria.stale()
    kria.put("state/broken")
    kria.put("state/says", f"{NAME}: load Error: -1\n")
    if why == "no xmutil":
        (tmp_path / "tools/xmutil").unlink()
    if why == "no systemd":
        kria.put("state/no-systemd")
    code, lines, errors = kria.load()
    assert (code, errors, lines[-1]) == (0, [], LOADED)
    assert kria.overlays == [NAME] and (kria.root / OVERLAYS / NAME / "path").read_text() == f"{NAME}.dtbo"
    assert (kria.root / "lib/firmware" / f"{NAME}.bit.bin").exists()
    assert (kria.root / "sys/class/fpga_manager/fpga0/flags").read_text() == "0\n"
    # dfx-mgr knows nothing of it, and the next load removes it.
    code, lines, errors = kria.load()
    assert (code, errors, lines[-1]) == (0, [], LOADED) and kria.overlays == [NAME]


def test_every_way_that_was_tried_is_named_where_all_fail(kria):
    kria.stale()
    for name in ("broken", "refuses"):
        kria.put(f"state/{name}")
    kria.put("state/says", "load Error: -1\n")
    kria.stale("somebody")
    code, _, (error,) = kria.load()
    assert code == 1 and error == (
        f'gradloom: {NAME} is not loaded; tried: dfx-mgr: xmutil says "load Error: -1"; dfx-mgr, started again: xmutil '
        'says "load Error: -1"; configfs without dfx-mgr: its status is "unapplied"; overlays that are there: somebody '
        "(see dmesg, and xmutil listapps)"
    )


def test_an_overlay_that_stays_is_named(kria):
    kria.stale()
    kria.put("state/sticks")
    code, _, (error,) = kria.load()
    assert code == 1 and f"tried: overlay {STALE} cannot be removed; dfx-mgr: xmutil says" in error


def test_overlays_that_hold_no_region_stay(kria):
    """PYNQ's node, which is none of the FPGA's; another one's bitstream, by the file that it was made of."""
    kria.stale("pynq")
    kria.stale("camera")
    kria.put(f"{OVERLAYS}/camera/path", "camera.dtbo\n")
    kria.put("lib/firmware/camera.dtbo", "\0firmware-name\0")
    assert kria.load()[0] == 0
    assert kria.overlays == [f"{NAME}_image_0", "pynq"]


# ---- the clock


def test_a_clock_that_stays_slow_is_told(kria):
    """As on a real board after a write that succeeded."""
    (kria.root / "state/rate").unlink()
    kria.put("sys/bus/platform/devices/axi:gradloom-clock/set_rate", "")
    code, lines, errors = kria.load()
    assert (code, errors) == (0, []) and lines[-2] == (
        "gradloom: pl_clk0 stays at 99999999 Hz, not 200000000 Hz: the design runs, slower; seconds are those of "
        "99999999 Hz"
    )
    assert (kria.root / "sys/bus/platform/devices/axi:gradloom-clock/set_rate").read_text() == "200000000\n"


def test_a_clock_above_the_timing_is_refused_and_the_design_unloaded(kria):
    kria.put("state/rate", "299999997\n")
    code, _, errors = kria.load()
    assert code == 1 and errors == [
        f"gradloom: {NAME} is unloaded: pl_clk0 stays at 299999997 Hz, its timing holds up to 200000000 Hz: start the "
        "board again"
    ]
    assert kria.overlays == []


def test_a_clock_that_nobody_tells_is_said(kria):
    (kria.root / "state/rate").unlink()
    (kria.root / "sys/kernel/debug/clk/pl0_ref/clk_rate").unlink()
    code, lines, _ = kria.load()
    assert code == 0 and lines[-2].startswith("gradloom: pl_clk0 cannot be read back")


# ---- the port to the registers


@pytest.mark.parametrize("bits", [128, 32])
def test_a_port_of_32_bits_is_told(kria, tmp_path, bits):
    """The host beside load.sh reads one register on a lane of 16 bytes, and one off it."""
    words = bytearray(4096)
    for name in ("ID", "VERSION"):
        if bits == 128 or getattr(registers, name) % 16 == 0:
            struct.pack_into("<I", words, getattr(registers, name), registers.CONSTANTS[name])
    (kria.root / "dev").mkdir()
    (kria.root / "dev/uio1").write_bytes(words)
    (kria.project / "board/firmware").symlink_to(kria.project / "firmware")
    code, lines, errors = kria.load()
    if bits == 128:
        assert (code, errors, lines[-1]) == (0, [], LOADED)
    else:
        assert code == 1 and len(errors) == 1
        assert f"{NAME} is loaded, but registers off the 16-byte lanes read 0: the port HPM0 is at 32" in errors[0]


# ---- what is refused, and what there is to be said


@pytest.mark.parametrize(
    "shows, said",
    [
        ((), "dfx-mgr: its registers are not among the platform's devices"),
        (("device",), "no UIO device is called gradloom: load uio_pdrv_genirq with of_id=generic-uio"),
    ],
)
def test_a_load_that_failed_is_told_in_a_line(kria, shows, said):
    kria.shows(*shows)
    code, _, errors = kria.load()
    assert code == 1 and len(errors) == 1 and errors[0].startswith("gradloom: ") and said in errors[0]


def test_a_design_that_does_not_go_is_told(kria):
    """Somebody has loaded it by neither."""
    kria.put("sys/bus/platform/devices/a0010000.gradloom/uevent")
    code, _, errors = kria.load()
    assert code == 1 and "that neither xmutil nor configfs unloads" in errors[0]
    assert (kria.root / "state/asked-of-xmutil").read_text() == "unloadapp\n"


def test_another_board_keeps_what_it_has(kria):
    kria.put("proc/device-tree/compatible", "xlnx,zynqmp-sk-kr260-rev1\0")
    code, lines, errors = kria.load()
    assert (code, lines) == (1, []) and errors == ["gradloom: this is no KV260: its device tree names another board"]
    assert not (kria.root / "lib").exists()


def test_a_design_in_use_is_not_unloaded(kria):
    assert kria.load()[0] == 0
    (kria.root / "proc/417/fd").mkdir(parents=True)
    (kria.root / "proc/417/fd/5").symlink_to("/dev/uio1")
    code, lines, errors = kria.load()
    assert (code, lines) == (1, [])
    assert errors == ["gradloom: the design that is loaded is in use by process 417: end it first"]


def test_a_half_copied_bundle_is_not_loaded(kria):
    (kria.project / "board/bundle" / f"{NAME}.dtbo").write_text("")
    code, lines, errors = kria.load()
    assert (code, lines) == (1, []) and f"{NAME}.dtbo is missing or empty: run gradloom flash again" in errors[0]
    assert not (kria.root / "lib").exists()


def test_a_firmware_folder_without_room_keeps_what_is_loaded(kria, tools):
    tools("cp", "echo 'cp: No space left on device' >&2; exit 1")
    code, lines, errors = kria.load()
    assert (code, lines) == (1, []) and errors[0].endswith(f"xilinx/{NAME}: make room there")
    assert not (kria.root / "state/asked-of-xmutil").exists()


def test_a_firmware_folder_without_rights_keeps_what_is_loaded(kria):
    kria.put("lib/firmware/xilinx", "no folder, so that none can be made in it")
    code, lines, errors = kria.load()
    assert (code, lines) == (1, []) and errors[0].endswith(f"xilinx/{NAME}: run with sudo")
    assert not (kria.root / "state/asked-of-xmutil").exists()


def test_a_missing_buffer_is_told_but_pynq_needs_none(kria):
    kria.shows("device", "uio")
    code, lines, errors = kria.load()
    assert (code, errors) == (0, [])
    assert lines[-2] == (
        "gradloom: no buffer udmabuf-gradloom: without PYNQ, build and load u-dma-buf (docs/guides/boards/kv260.md)"
    )
