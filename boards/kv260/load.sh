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

mkdir -p "$firmware" && cp "$bundle/$name.bit.bin" "$bundle/$name.dtbo" "$bundle/shell.json" "$firmware/" ||
    fail "the bundle cannot be copied to $firmware: run with sudo"

# Nothing may be loaded yet, which is no fault; what is still there then belongs to another program.
xmutil unloadapp
[ -z "$(registers)" ] ||
    fail "a gradloom design is loaded that xmutil does not unload: end what loaded it, or start the board again"

said=$(xmutil loadapp "$name" 2>&1)
echo "$said"
case $said in
*[Ee]rror*) fail "$name is not loaded: xmutil says \"$(echo "$said" | grep -i error | head -n 1)\"" ;;
esac
[ -n "$(registers)" ] ||
    fail "$name is not loaded: its registers are not among the platform's devices (see dmesg, and xmutil listapps)"

# Registers over UIO: the driver is Linux's own, told which nodes it is for.
modprobe uio_pdrv_genirq of_id=generic-uio
[ -n "$(uio)" ] ||
    fail "$name is loaded, but no UIO device is called gradloom: load uio_pdrv_genirq with of_id=generic-uio (see dmesg)"

# PYNQ allocates its own buffers; all others want u-dma-buf.
[ -d "$root/sys/class/u-dma-buf/udmabuf-gradloom" ] || modprobe u-dma-buf 2>/dev/null
[ -d "$root/sys/class/u-dma-buf/udmabuf-gradloom" ] ||
    echo "gradloom: no buffer udmabuf-gradloom: without PYNQ, build and load u-dma-buf (docs/guides/kv260.md)"
echo "gradloom: $name is loaded"
