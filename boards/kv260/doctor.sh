#!/bin/sh
# Looks whether a board can run a design, and changes nothing: sh doctor.sh ROOT BOARD DEVICE
# ROOT stands before every path of the system: for tests. BOARD: kv260, kr260 or zcu104. DEVICE: what Linux calls it.
# A line of JSON for each check.
set -u
root=$1
board=$2
device=$3
buffer=67108864
kria=yes
[ "$board" != zcu104 ] || kria=
usual="Kria's Ubuntu"
[ -n "$kria" ] || usual="AMD's PetaLinux or PYNQ for the board"

tell() { # check state found advice
    printf '{"check": "%s", "state": "%s", "found": "%s", "advice": "%s"}\n' "$1" "$2" \
        "$(printf %s "$3" | tr '\000-\037"\\' ' ')" "$4"
}

# The release of AMD's tools that made the boot firmware: U-Boot's version is that of its January.
uboot=$(tr -d '\000' <"$root/proc/device-tree/chosen/u-boot,version" 2>/dev/null)
case "${kria:+$uboot}" in
20[0-9][0-9].*)
    if [ "${uboot%%.*}" -ge 2022 ]; then
        tell "boot firmware" ok "U-Boot $uboot" ""
    else
        tell "boot firmware" fault "U-Boot $uboot" "2022.1 or newer is needed: sudo xmutil bootfw_update -i with AMD's image for the K26, before anything else"
    fi
    ;;
*)
    if [ -n "$kria" ]; then
        tell "boot firmware" skipped "U-Boot's version is not told" "2022.1 or newer is needed: sudo xmutil bootfw_status, or the first lines on the serial console"
    else
        tell "boot firmware" ok "on the card with the system" ""
    fi
    ;;
esac

tree=$(tr '\000' ' ' <"$root/proc/device-tree/compatible" 2>/dev/null)
model=$(tr '\000' ' ' <"$root/proc/device-tree/model" 2>/dev/null)
# All K26 have one chip; the carrier's name comes first.
case "$tree $model" in
*[Kk][Rr]260*) kind=kr260 ;;
*[Kk][Dd]240*) kind=kd240 ;;
*[Zz][Cc][Uu]104*) kind=zcu104 ;;
*[Kk][Vv]260* | *[Kk]26*) kind=kv260 ;;
*) kind= ;;
esac
title=$(printf %s "$board" | tr a-z A-Z)
if [ "$kind" = "$board" ]; then
    tell "board's type" ok "$model" ""
elif [ -n "$kind" ]; then
    tell "board's type" fault "$model" "this is another board: a design for the $title does not fit"
else
    tell "board's type" fault "${model:-no device tree}" "this is no $title: give the board's own name with --host"
fi

release() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$root/etc/os-release" 2>/dev/null; }
system=$(release PRETTY_NAME)
version=$(release VERSION_ID)
case "${kria:-other} $(release ID) $version" in
other*) tell system ok "${system:-no os-release}" "" ;;
"yes ubuntu 22.04") tell system ok "$system" "" ;;
"yes ubuntu 24.04") tell system ok "$system" "UIO and u-dma-buf drive the design: Kria-PYNQ refuses this release" ;;
"yes ubuntu "*) tell system fault "$system" "use Kria's Ubuntu 22.04 or 24.04" ;;
*) tell system skipped "${system:-no os-release}" "made for Kria's Ubuntu 22.04 and 24.04" ;;
esac

kernel=$(cat "$root/proc/sys/kernel/osrelease" 2>/dev/null)
case "$kernel" in
*xilinx*) tell kernel ok "$kernel" "its updates leave u-dma-buf behind: sudo apt-mark hold linux-image-$kernel, or build it again" ;;
*) tell kernel fault "${kernel:-unknown}" "a kernel for the board has xilinx in its name: use that of $usual" ;;
esac

overlays=$root/sys/kernel/config/device-tree/overlays
if command -v xmutil >/dev/null 2>&1; then
    tell xmutil ok there ""
elif [ -d "$overlays" ]; then
    tell xmutil skipped "not on PATH" "flash loads by configfs alone; Kria's Ubuntu comes with xmutil, the snap xlnx-config has none"
else
    tell xmutil fault "not on PATH, and no overlays in configfs" "nothing can load a design: use $usual"
fi

python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
case "$python" in
3.1[0-9] | 3.[2-9][0-9]) tell python3 ok "$python" "" ;;
*) tell python3 fault "${python:-missing}" "Python 3.10 or newer: Ubuntu 22.04 has it" ;;
esac

if python3 -c 'import numpy' 2>/dev/null; then
    tell numpy ok there ""
else
    managed=
    ls "$root"/usr/lib/python3*/EXTERNALLY-MANAGED >/dev/null 2>&1 && managed="; pip is externally managed here"
    tell numpy skipped missing "jobs need none; for arrays: sudo apt install python3-numpy$managed"
fi

state=$(cat "$root/sys/class/fpga_manager/fpga0/state" 2>/dev/null)
if [ -n "$state" ]; then
    tell "FPGA manager" ok "$state" ""
else
    tell "FPGA manager" fault "no fpga0" "the kernel cannot load a bitstream: use $usual"
fi

node=$(ls -d "$root"/sys/bus/platform/devices/*."$device" 2>/dev/null | head -n 1)
others=$(ls "$overlays" 2>/dev/null | tr '\n' ' ' | sed 's/ $//')
order=
case " $others " in *[Pp][Yy][Nn][Qq]*) order="; PYNQ's own overlay sets HPM0 to 32 bits: load it first, flash after it" ;; esac
if [ -z "$node" ]; then
    tell overlay skipped "no gradloom design is loaded${others:+; overlays: $others}" "gradloom flash $board loads one$order"
else
    tell overlay ok "a gradloom design is loaded${others:+; overlays: $others}" "the self-test tells which one$order"
fi

have=$(sed -n 's/^CmaTotal: *\([0-9]*\) kB/\1/p' "$root/proc/meminfo" 2>/dev/null)
free=$(sed -n 's/^CmaFree: *\([0-9]*\) kB/\1/p' "$root/proc/meminfo" 2>/dev/null)
made=$(cat "$root/sys/class/u-dma-buf/udmabuf-$device/size" 2>/dev/null)
given=$(tr ' ' '\n' <"$root/proc/cmdline" 2>/dev/null | grep '^cma=' | tail -n 1)
cma="CMA: ${free:-0} of ${have:-0} kB are free (${given:-no cma= on the kernel's command line})"
if [ -n "$made" ]; then
    tell "reserved memory" ok "udmabuf-$device, $made bytes" ""
elif [ "${free:-0}" -ge $((buffer / 1024)) ]; then
    tell "reserved memory" ok "$cma" ""
elif [ "${have:-0}" -ge $((buffer / 1024)) ]; then
    tell "reserved memory" fault "$cma" "the buffer needs $((buffer / 1024)) kB: others hold it; unload their overlays, close the desktop, or start again"
else
    case "$version" in
    22.04) how="as Kria's Ubuntu 22.04 does by itself: put that back" ;;
    *) how="in LINUX_KERNEL_CMDLINE of /etc/default/flash-kernel, then sudo flash-kernel" ;;
    esac
    tell "reserved memory" fault "$cma" "the buffer needs $((buffer / 1024)) kB: boot with cma=1000M, $how"
fi

if [ -d "$root/sys/class/u-dma-buf" ] || modinfo u-dma-buf >/dev/null 2>&1; then
    tell u-dma-buf ok there ""
elif [ -d "$root/usr/local/share/pynq-venv" ]; then
    tell u-dma-buf ok "missing, but PYNQ is there" ""
else
    pynq=", or install Kria-PYNQ"
    [ "$version" != 24.04 ] || pynq=
    tell u-dma-buf fault missing "build and load it (docs/guides/boards/kv260.md)$pynq"
fi

number=$(grep -lx "$device" "$root"/sys/class/uio/uio*/name 2>/dev/null | head -n 1 | sed 's|.*/uio\([0-9]*\)/name|\1|')
if [ -n "$number" ]; then
    file=$root/dev/uio$number
    if [ -r "$file" ] && [ -w "$file" ]; then
        tell UIO ok "/dev/uio$number" ""
    else
        tell UIO ok "/dev/uio$number, for root only" "run the self-test with sudo, or install 60-gradloom.rules of the design"
    fi
elif [ -n "$node" ]; then
    tell UIO fault "no UIO device is called $device" "sudo modprobe uio_pdrv_genirq of_id=generic-uio"
elif modinfo uio_pdrv_genirq >/dev/null 2>&1; then
    tell UIO ok "the module is there" ""
else
    tell UIO fault "no module uio_pdrv_genirq" "use $usual; PYNQ does not need it"
fi
