#!/bin/sh
# Loads a design on the board and looks whether it is there: sudo sh load.sh NAME
# The design's bundle and host lie beside this file. xmutil returns 0 even where a load failed, so that sysfs is asked.
# Three ways, one after another: dfx-mgr by xmutil; dfx-mgr, started again; configfs without dfx-mgr.
# ROOT, a second argument, stands before every path of the system: for tests.
set -u
name=$1
root=${2:-}
# What Linux calls the registers, and how names of the buffer and of nodes in the device tree end or begin.
device=gradloom
here=$(dirname "$0")
bundle=$here/bundle
firmware=$root/lib/firmware/xilinx/$name
overlays=$root/sys/kernel/config/device-tree/overlays
tried=

fail() {
    echo "gradloom: $*" >&2
    exit 1
}

# A way that was tried, and how it ended.
note() {
    echo "gradloom: $1"
    tried="$tried${tried:+; }$1"
}

# The node that the overlay makes for the registers, by its name in the device tree.
registers() {
    ls -d "$root"/sys/bus/platform/devices/*."$device" 2>/dev/null | head -n 1
}

uio() {
    grep -lx "$device" "$root"/sys/class/uio/uio*/name 2>/dev/null | head -n 1
}

# Programs that have the registers of a loaded design open.
users() {
    number=$(uio | sed 's|.*/uio\([0-9]*\)/name|\1|')
    [ -n "$number" ] || return
    for file in "$root"/proc/[0-9]*/fd/*; do
        [ "$(readlink "$file")" = "/dev/uio$number" ] && echo "$file" | sed 's|.*/proc/\([0-9]*\)/fd/.*|\1|'
    done | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Overlays in configfs that hold the FPGA's region, the newest first. dfx-mgr calls them APP_image_N, fpgautil full;
# others are known by a bitstream that their file names. Overlays that only add nodes, as PYNQ's, are not among them.
holders() {
    for each in $(ls -t "$overlays" 2>/dev/null); do
        file=$root/lib/firmware/$(cat "$overlays/$each/path" 2>/dev/null)
        case $each in
        *_image_[0-9]* | full | "$name") echo "$each" ;;
        *) [ -f "$file" ] && grep -q firmware-name "$file" && echo "$each" ;;
        esac
    done
}

# Removes what holds the region while dfx-mgr says that nothing is loaded.
remove_stale() {
    for each in $(holders); do
        if rmdir "$overlays/$each"; then
            echo "gradloom: overlay $each was left in configfs and is removed"
        else
            note "overlay $each cannot be removed"
        fi
    done 2>/dev/null
}

by_manager() {
    said=$(xmutil loadapp "$name" 2>&1)
    echo "$said"
    case $said in
    *[Ee]rror*) note "$1: xmutil says \"$(echo "$said" | grep -i error | head -n 1)\"" ;;
    *)
        [ -z "$(registers)" ] || return 0
        note "$1: its registers are not among the platform's devices"
        ;;
    esac
    return 1
}

# dfx-mgr reloads its own app as it starts, which comes a moment later.
start_manager_again() {
    systemctl restart dfx-mgr 2>/dev/null || {
        note "dfx-mgr does not start again"
        return 1
    }
    if [ -s "$root/etc/dfx-mgrd/default_firmware" ]; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            [ -z "$(holders)" ] || break
            sleep 1
        done
    fi
    xmutil unloadapp
    remove_stale
}

by_configfs() {
    way="configfs without dfx-mgr"
    [ -d "$overlays" ] || [ -n "$root" ] || mount -t configfs configfs /sys/kernel/config 2>/dev/null
    [ -d "$overlays" ] || {
        note "$way: the kernel has no $overlays"
        return 1
    }
    cp "$bundle/$name.bit.bin" "$bundle/$name.dtbo" "$root/lib/firmware/" || {
        note "$way: the bundle cannot be copied to $root/lib/firmware"
        return 1
    }
    # 0: a bitstream of the whole device, not encrypted.
    echo 0 >"$root/sys/class/fpga_manager/fpga0/flags"
    mkdir "$overlays/$name" && printf %s "$name.dtbo" >"$overlays/$name/path"
    status=$(cat "$overlays/$name/status")
    [ "$status" != applied ] || [ -z "$(registers)" ] || return 0
    rmdir "$overlays/$name"
    note "$way: its status is \"${status:-none}\""
    return 1
} 2>/dev/null

# What the design runs at, and what its overlay asked for, both in Hz; empty where the kernel does not say.
clock() {
    [ -d "$root/sys/kernel/debug/clk" ] || [ -n "$root" ] || mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
    cat "$root/sys/kernel/debug/clk/pl0_ref/clk_rate" 2>/dev/null
}

asked_clock() {
    set -- $(od -An -tu1 "$root"/proc/device-tree/*/"$device-clock"/assigned-clock-rates 2>/dev/null)
    [ $# -ne 4 ] || echo $(((($1 * 256 + $2) * 256 + $3) * 256 + $4))
}

# A write to the clock can succeed and change nothing, so that it is read back.
check_clock() {
    asked=$(asked_clock)
    found=$(clock)
    [ -n "$asked" ] || return 0
    [ -n "$found" ] || {
        echo "gradloom: pl_clk0 cannot be read back: $root/sys/kernel/debug/clk/pl0_ref is missing"
        return 0
    }
    most=$((asked + asked / 1000))
    least=$((asked - asked / 1000))
    if [ "$found" -gt "$most" ] || [ "$found" -lt "$least" ]; then
        for file in "$root"/sys/bus/platform/devices/*:"$device-clock"/set_rate; do
            [ -e "$file" ] && echo "$asked" >"$file"
        done
        found=$(clock)
    fi
    if [ "$found" -gt "$most" ]; then
        command -v xmutil >/dev/null 2>&1 && xmutil unloadapp
        remove_stale
        fail "$name is unloaded: pl_clk0 stays at $found Hz, its timing holds up to $asked Hz: start the board again"
    fi
    [ "$found" -ge "$least" ] ||
        echo "gradloom: pl_clk0 stays at $found Hz, not $asked Hz: the design runs, slower; seconds are those of $found Hz"
}

# Everything is checked before anything is changed.
cat "$root/proc/device-tree/compatible" "$root/proc/device-tree/model" 2>/dev/null | tr '\000' ' ' | grep -qi -e kv260 -e k26 ||
    fail "this is no KV260: its device tree names another board"
for file in "$name.bit.bin" "$name.dtbo" shell.json; do
    [ -s "$bundle/$file" ] || fail "$bundle/$file is missing or empty: run gradloom flash again"
done
busy=$(users)
[ -z "$busy" ] || fail "the design that is loaded is in use by process $busy: end it first"
{ mkdir -p "$firmware" && [ -w "$firmware" ]; } 2>/dev/null ||
    fail "the bundle cannot be copied to $firmware: run with sudo"
cp "$bundle/$name.bit.bin" "$bundle/$name.dtbo" "$bundle/shell.json" "$firmware/" 2>/dev/null ||
    fail "the bundle does not fit into $firmware: make room there"

manager=$(command -v xmutil)
# Nothing may be loaded yet, which is no fault.
[ -z "$manager" ] || xmutil unloadapp
remove_stale
[ -z "$(registers)" ] ||
    fail "a gradloom design is loaded that neither xmutil nor configfs unloads: end what loaded it, or start the board again"

[ -n "$manager" ] || note "dfx-mgr: there is no xmutil"
{ [ -n "$manager" ] && by_manager dfx-mgr; } ||
    { remove_stale && [ -n "$manager" ] && start_manager_again && by_manager "dfx-mgr, started again"; } ||
    { remove_stale && by_configfs; } ||
    fail "$name is not loaded; tried: $tried; overlays that are there: \
$(ls "$overlays" 2>/dev/null | tr '\n' ' ')(see dmesg, and xmutil listapps)"
check_clock

# Registers over UIO: the driver is Linux's own, told which nodes it is for.
modprobe uio_pdrv_genirq of_id=generic-uio
[ -n "$(uio)" ] ||
    fail "$name is loaded, but no UIO device is called $device: load uio_pdrv_genirq with of_id=generic-uio (see dmesg)"

# A port of another width than the design's answers 0 for most registers.
if [ -d "$here/firmware/gradloom_host" ] && command -v python3 >/dev/null 2>&1; then
    said=$(cd "$here/firmware" && python3 -m gradloom_host.lanes "$root/" 2>&1) ||
        fail "$name is loaded, but ${said#gradloom: }"
fi

# PYNQ allocates its own buffers; all others want u-dma-buf.
[ -d "$root/sys/class/u-dma-buf/udmabuf-$device" ] || modprobe u-dma-buf 2>/dev/null
[ -d "$root/sys/class/u-dma-buf/udmabuf-$device" ] ||
    echo "gradloom: no buffer udmabuf-$device: without PYNQ, build and load u-dma-buf (docs/guides/boards/kv260.md)"
echo "gradloom: $name is loaded"
