"""Texts of a Kria bundle: overlay, boot image recipe, shell.json.

Everything runs in one clock domain on the ports that the power-on state already sets to 128 bits, so that a
missing or late ``afi`` node cannot leave a port at the wrong width.
"""

import json
from collections.abc import Sequence

from gradloom.firmware.device.uio_transport import BUFFER

#: Shared peripheral interrupt of pl_ps_irq1[0]. Kria-PYNQ's node holds 89, that of pl_ps_irq0[0], and no two share one.
INTERRUPT = 104

# AFI registers hold 0, 1, 2 for 128, 64, 32 bits (manager into PS) and two bits at 9:8 with 0, 1, 2 for 32,
# 64, 128 (HPM0). Indices 4 and 5 are the read and write sides of S_AXI_HP0_FPD, 6 to 11 those of HP1 to HP3, 14 is
# AFI_FS.
_HP_WIDTH = {128: 0, 64: 1, 32: 2}
_HPM0_128 = 0x200


def device_files(device: str) -> tuple[str, str]:
    """Registers (UIO) and buffer (u-dma-buf) of a design, as udev's rules match them."""
    return f'SUBSYSTEM=="uio", ATTR{{name}}=="{device}"', f'KERNEL=="{BUFFER}{device}"'


def device_tree(
    *,
    name: str,
    device: str,
    register_base: int,
    register_range: int,
    clock_hz: int,
    memory_bits: int,
    hp_ports: Sequence[int],
    window_bytes: int,
) -> str:
    """Overlay source of a design.

    It loads ``NAME.bit.bin``, keeps the clock on, shows registers and a contiguous buffer, which Linux calls by
    ``device``. Nodes and labels begin with it, too: those of two designs in one tree must differ. ``hp_ports``: numbers
    of the HP ports in use, each ``memory_bits`` wide.
    """
    sides = (4 + 2 * port + side for port in sorted(hp_ports) for side in (0, 1))
    widths = ", ".join(f"<{side} {_HP_WIDTH[memory_bits]}>" for side in sides)
    return f"""\
// SPDX-License-Identifier: Apache-2.0
// Device tree overlay of {name}. Compile: dtc -@ -I dts -O dtb -o {name}.dtbo {name}.dtso
/dts-v1/;
/plugin/;

&fpga_full {{
	#address-cells = <2>;
	#size-cells = <2>;
	firmware-name = "{name}.bit.bin";
	resets = <&zynqmp_reset 116>;
}};

&amba {{
	#address-cells = <2>;
	#size-cells = <2>;

	{device}_afi: {device}-afi {{
		compatible = "xlnx,afi-fpga";
		config-afi = {widths}, <14 {_HPM0_128:#x}>;
	}};

	/* Linux gates a clock that no node claims, and an access to a stopped accelerator hangs the CPU. */
	{device}_clock: {device}-clock {{
		compatible = "xlnx,fclk";
		#clock-cells = <0>;
		clocks = <&zynqmp_clk 71>;
		assigned-clocks = <&zynqmp_clk 71>;
		assigned-clock-rates = <{clock_hz}>;
		clock-output-names = "{device}_clk";
	}};

	{device}_registers: {device}@{register_base:x} {{
		compatible = "generic-uio";
		linux,uio-name = "{device}";
		reg = <{register_base >> 32:#x} {register_base & 0xFFFFFFFF:#x} 0x0 {register_range:#x}>;
		interrupt-parent = <&gic>;
		interrupts = <0 {INTERRUPT} 4>;
		clocks = <&zynqmp_clk 71>;
	}};

	/* From CMA: an overlay is loaded long after boot, too late to reserve memory. */
	/* S_AXI_HP0_FPD does not see the CPU's caches. sync-mode 2 maps the buffer uncached, write-combining: */
	/* both sides see the same bytes, and unaligned accesses stay legal (mode 1 is device memory). */
	{device}_buffer: {device}-buffer {{
		compatible = "ikwzm,u-dma-buf";
		device-name = "{BUFFER}{device}";
		size = <{window_bytes:#x}>;
		sync-mode = <2>;
		sync-always;
	}};
}};
"""


def boot_image(name: str) -> str:
    """Recipe (.bif) that turns ``NAME.bit`` into ``NAME.bit.bin``."""
    return f"all:\n{{\n    [destination_device = pl] {name}.bit\n}}\n"


def shell_json() -> str:
    """``shell.json`` for dfx-mgr: a whole-device bitstream, one slot."""
    return json.dumps({"shell_type": "XRT_FLAT", "num_slots": "1"}) + "\n"
