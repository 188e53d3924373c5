#!/bin/sh
# Looks whether a board can run a design, and changes nothing: sh doctor.sh [ROOT]
# ROOT stands before every path of the system: for tests.
# A line of JSON for each check.
set -u
root=${1:-}
buffer=67108864

tell() { # check state found advice
    printf '{"check": "%s", "state": "%s", "found": "%s", "advice": "%s"}\n' "$1" "$2" \
        "$(printf %s "$3" | tr '\000-\037"\\' ' ')" "$4"
}

tree=$(tr '\000' ' ' <"$root/proc/device-tree/compatible" 2>/dev/null)
model=$(tr '\000' ' ' <"$root/proc/device-tree/model" 2>/dev/null)
case "$tree $model" in
*[Kk][Rr]260* | *[Kk][Dd]240*) tell "board's type" fault "$model" "this is another Kria kit: a design for the KV260 does not fit" ;;
*[Kk][Vv]260* | *[Kk]26*) tell "board's type" ok "$model" "" ;;
*) tell "board's type" fault "${model:-no device tree}" "this is no KV260: give the board's own name with --host" ;;
esac

if command -v xmutil >/dev/null 2>&1; then
    tell xmutil ok there ""
else
    tell xmutil fault "not on PATH" "use Kria's Ubuntu, or: apt install xlnx-config"
fi

version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
case "$version" in
3.1[0-9] | 3.[2-9][0-9]) tell python3 ok "$version" "" ;;
*) tell python3 fault "${version:-missing}" "Python 3.10 or newer: Ubuntu 22.04 has it" ;;
esac

state=$(cat "$root/sys/class/fpga_manager/fpga0/state" 2>/dev/null)
if [ -n "$state" ]; then
    tell "FPGA manager" ok "$state" ""
else
    tell "FPGA manager" fault "no fpga0" "the kernel cannot load a bitstream: use Kria's Ubuntu"
fi

device=$(ls -d "$root"/sys/bus/platform/devices/*.gradloom 2>/dev/null | head -n 1)
others=$(ls "$root/sys/kernel/config/device-tree/overlays" 2>/dev/null | tr '\n' ' ' | sed 's/ $//')
if [ -z "$device" ]; then
    tell overlay skipped "no gradloom design is loaded${others:+; overlays: $others}" "gradloom flash kv260 loads one"
else
    tell overlay ok "a gradloom design is loaded${others:+; overlays: $others}" "the self-test tells which one"
fi

have=$(sed -n 's/^CmaTotal: *\([0-9]*\) kB/\1/p' "$root/proc/meminfo" 2>/dev/null)
free=$(sed -n 's/^CmaFree: *\([0-9]*\) kB/\1/p' "$root/proc/meminfo" 2>/dev/null)
made=$(cat "$root/sys/class/u-dma-buf/udmabuf-gradloom/size" 2>/dev/null)
if [ -n "$made" ]; then
    tell "reserved memory" ok "udmabuf-gradloom, $made bytes" ""
elif [ "${free:-0}" -ge $((buffer / 1024)) ]; then
    tell "reserved memory" ok "CMA: $free of $have kB are free" ""
elif [ "${have:-0}" -ge $((buffer / 1024)) ]; then
    tell "reserved memory" fault "CMA: ${free:-0} of $have kB are free" "the buffer needs $((buffer / 1024)) kB: others hold it; unload their overlays, close the desktop, or start again"
else
    tell "reserved memory" fault "CMA: ${free:-0} of ${have:-0} kB are free" "the buffer needs $((buffer / 1024)) kB: boot with cma=1000M, as Kria's Ubuntu 22.04 does by itself"
fi

if [ -d "$root/sys/class/u-dma-buf" ] || modinfo u-dma-buf >/dev/null 2>&1; then
    tell u-dma-buf ok there ""
elif [ -d "$root/usr/local/share/pynq-venv" ]; then
    tell u-dma-buf ok "missing, but PYNQ is there" ""
else
    tell u-dma-buf fault missing "build and load it (docs/guides/kv260.md), or install Kria-PYNQ"
fi

number=$(grep -lx gradloom "$root"/sys/class/uio/uio*/name 2>/dev/null | head -n 1 | sed 's|.*/uio\([0-9]*\)/name|\1|')
if [ -n "$number" ]; then
    file=$root/dev/uio$number
    if [ -r "$file" ] && [ -w "$file" ]; then
        tell UIO ok "/dev/uio$number" ""
    else
        tell UIO ok "/dev/uio$number, for root only" "run the self-test with sudo"
    fi
elif [ -n "$device" ]; then
    tell UIO fault "no UIO device is called gradloom" "sudo modprobe uio_pdrv_genirq of_id=generic-uio"
elif modinfo uio_pdrv_genirq >/dev/null 2>&1; then
    tell UIO ok "the module is there" ""
else
    tell UIO fault "no module uio_pdrv_genirq" "use Kria's Ubuntu; PYNQ does not need it"
fi
