#!/bin/sh
# Loads a design on the board and looks whether it is there: sudo sh load.sh NAME
# The design's bundle lies beside this file. xmutil returns 0 even where the load failed, so that sysfs is asked.
# ROOT, a second argument, stands before every path of the system: for tests.
set -u
name=$1
root=${2:-}
bundle=$(dirname "$0")/bundle
firmware=$root/lib/firmware/xilinx/$name

fail() {
    echo "gradloom: $*" >&2
    exit 1
}

# The node that the overlay makes for the registers, by its name in the device tree.
registers() {
    ls -d "$root"/sys/bus/platform/devices/*.gradloom 2>/dev/null | head -n 1
}

uio() {
    grep -lx gradloom "$root"/sys/class/uio/uio*/name 2>/dev/null | head -n 1
}

# Programs that have the registers of a loaded design open.
users() {
    number=$(uio | sed 's|.*/uio\([0-9]*\)/name|\1|')
    [ -n "$number" ] || return
    for file in "$root"/proc/[0-9]*/fd/*; do
        [ "$(readlink "$file")" = "/dev/uio$number" ] && echo "$file" | sed 's|.*/proc/\([0-9]*\)/fd/.*|\1|'
    done | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Everything is checked before anything is changed.
cat "$root/proc/device-tree/compatible" "$root/proc/device-tree/model" 2>/dev/null | tr '\000' ' ' | grep -qi -e kv260 -e k26 ||
    fail "this is no KV260: its device tree names another board"
command -v xmutil >/dev/null 2>&1 || fail "xmutil is missing: use Kria's Ubuntu"
for file in "$name.bit.bin" "$name.dtbo" shell.json; do
    [ -s "$bundle/$file" ] || fail "$bundle/$file is missing or empty: run gradloom flash again"
done
busy=$(users)
[ -z "$busy" ] || fail "the design that is loaded is in use by process $busy: end it first"

# Nothing may be loaded yet, which is no fault; what is still there then belongs to another program.
xmutil unloadapp
[ -z "$(registers)" ] ||
    fail "a gradloom design is loaded that xmutil does not unload: end what loaded it, or start the board again"

mkdir -p "$firmware" && cp "$bundle/$name.bit.bin" "$bundle/$name.dtbo" "$bundle/shell.json" "$firmware/" ||
    fail "the bundle cannot be copied to $firmware: run with sudo"

said=$(xmutil loadapp "$name" 2>&1)
echo "$said"
case $said in
*[Ee]rror*) fail "$name is not loaded: xmutil says \"$(echo "$said" | grep -i error | head -n 1)\"" ;;
esac
[ -n "$(registers)" ] ||
    fail "$name is not loaded: its registers are not among the platform's devices; overlays that are there: \
$(ls "$root/sys/kernel/config/device-tree/overlays" 2>/dev/null | tr '\n' ' ')(see dmesg, and xmutil listapps)"

# Registers over UIO: the driver is Linux's own, told which nodes it is for.
modprobe uio_pdrv_genirq of_id=generic-uio
[ -n "$(uio)" ] ||
    fail "$name is loaded, but no UIO device is called gradloom: load uio_pdrv_genirq with of_id=generic-uio (see dmesg)"

# PYNQ allocates its own buffers; all others want u-dma-buf.
[ -d "$root/sys/class/u-dma-buf/udmabuf-gradloom" ] || modprobe u-dma-buf 2>/dev/null
[ -d "$root/sys/class/u-dma-buf/udmabuf-gradloom" ] ||
    echo "gradloom: no buffer udmabuf-gradloom: without PYNQ, build and load u-dma-buf (docs/guides/kv260.md)"
echo "gradloom: $name is loaded"
