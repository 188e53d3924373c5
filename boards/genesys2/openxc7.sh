#!/bin/sh
# From generated Verilog to bitstream by open tools: sh build.sh
# Nobody has built this design so, or run it. It takes
#   yosys, nextpnr-xilinx, fasm2frames and xc7frames2bit of openXC7 (https://github.com/openXC7), CHIPDB=FILE.bin, the
#   chip's data base for nextpnr-xilinx, and PRJXRAY_DB=FOLDER, Project X-Ray's with the folder kintex7;
#   pip install litex==2024.12 litedram==2024.12 pythondata-cpu-vexriscv pythondata-software-picolibc
#   pythondata-software-compiler_rt meson ninja, and a RISC-V compiler, for the memory controller with its firmware.
set -eu
cd "$(dirname "$0")"
: "${CHIPDB:?name the data base of @PART@ for nextpnr-xilinx}"
: "${PRJXRAY_DB:?name the folder of the data base of Project X-Ray}"
for tool in yosys nextpnr-xilinx fasm2frames xc7frames2bit litedram_gen; do
    command -v "$tool" >/dev/null || { echo "build.sh: $tool is not installed: see the first lines of build.sh" >&2; exit 2; }
done
rm -rf build
mkdir build

litedram_gen memory.yml --output-dir build/litedram
# Where its processor's Verilog lies, the generator's script for Vivado says. Memories' contents are read from here.
sources=$(sed -n 's/^read_verilog {\(.*\)}.*$/\1/p' build/litedram/gateware/litedram_core.tcl)
cp ../soc/soc_image.mem build/litedram/gateware/*.init build/

# A module of synth holds this family's primitives and stands in for its namesake.
for file in ../../rtl/*.v; do
    stands_in=../../synth/${file##*/}
    if [ -f "$stands_in" ]; then file=$stands_in; fi
    sources="$sources ../$file"
done
for file in ../soc/*.v; do sources="$sources ../$file"; done

cd build
yosys -q -l yosys.log -p "read_verilog ../@TOP@.v $sources; synth_xilinx -flatten -abc9 -family xc7 -top @TOP@; write_json design.json"
nextpnr-xilinx --chipdb "$CHIPDB" --xdc ../pins.xdc --json design.json --fasm design.fasm --freq @MHZ@
fasm2frames --part @PART@ --db-root "$PRJXRAY_DB/kintex7" design.fasm > design.frames
xc7frames2bit --part_file "$PRJXRAY_DB/kintex7/@PART@/part.yaml" --part_name @PART@ --frm_file design.frames \
    --output_file design.tmp
mv design.tmp design.bit
echo "board/openxc7/build/design.bit: load it with openFPGALoader -b genesys2"
