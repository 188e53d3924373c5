# Block design: the processing system, the accelerator, and what lies between them. Called by build.tcl.

create_bd_design $design

set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e ps]
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset 1} $ps
# The preset switches on both FPD manager ports and a second clock. An unused port left on would need a clock
# of its own and answer nothing: an access to it hangs the CPU.
set_property -dict [list \
    CONFIG.PSU__FPGA_PL0_ENABLE 1 \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL $clock_source \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $clock_mhz \
    CONFIG.PSU__FPGA_PL1_ENABLE 0 \
    CONFIG.PSU__USE__FABRIC__RST 1 \
    CONFIG.PSU__USE__M_AXI_GP0 1 \
    CONFIG.PSU__MAXIGP0__DATA_WIDTH 128 \
    CONFIG.PSU__USE__M_AXI_GP1 0 \
    CONFIG.PSU__USE__M_AXI_GP2 0 \
    CONFIG.PSU__USE__IRQ0 0 \
    CONFIG.PSU__USE__IRQ1 1 \
] $ps
# HP0 to HP3 are GP2 to GP5.
foreach hp $hp_ports {
    set gp [expr {$hp + 2}]
    set_property -dict [list CONFIG.PSU__USE__S_AXI_GP$gp 1 CONFIG.PSU__SAXIGP${gp}__DATA_WIDTH $memory_bits] $ps
}

create_bd_cell -type ip -vlnv gradloom:accelerator:$module:1.0 accelerator
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
set bridge [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect registers]
set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI 1 CONFIG.NUM_CLKS 1] $bridge

# One clock for everything: no crossing, so no latency and no constraint between clocks.
set clocked [list ps/maxihpm0_fpd_aclk accelerator/$clock_port reset/slowest_sync_clk registers/aclk]
foreach hp $hp_ports {
    lappend clocked ps/saxihp${hp}_fpd_aclk
}
foreach pin $clocked {
    connect_bd_net [get_bd_pins ps/pl_clk0] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins ps/pl_resetn0] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins registers/aresetn]
connect_bd_net [get_bd_pins reset/$reset_source] [get_bd_pins accelerator/$reset_port]

# Registers: AXI4 of 128 bits to AXI4-Lite of 32 bits.
connect_bd_intf_net [get_bd_intf_pins ps/M_AXI_HPM0_FPD] [get_bd_intf_pins registers/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins registers/M00_AXI] [get_bd_intf_pins accelerator/s_axi]
# Memory: same clock, width and protocol on both sides, so a wire.
foreach manager $managers hp $hp_ports {
    connect_bd_intf_net [get_bd_intf_pins accelerator/$manager] [get_bd_intf_pins ps/S_AXI_HP${hp}_FPD]
}
connect_bd_net [get_bd_pins accelerator/$interrupt_port] [get_bd_pins ps/pl_ps_irq1]

assign_bd_address -offset $register_base -range $register_range \
    -target_address_space [get_bd_addr_spaces ps/Data] [get_bd_addr_segs accelerator/s_axi/*] -force
# Only DDR: neither flash nor on-chip memory is any of the accelerator's business.
foreach manager $managers hp $hp_ports {
    set memory ps/SAXIGP[expr {$hp + 2}]
    set space [get_bd_addr_spaces accelerator/$manager]
    foreach segment {DDR_LOW DDR_HIGH} {
        set found [get_bd_addr_segs -quiet $memory/HP${hp}_$segment]
        if {[llength $found]} {
            assign_bd_address -target_address_space $space $found -force
        }
    }
    foreach segment {QSPI LPS_OCM} {
        set found [get_bd_addr_segs -quiet $memory/HP${hp}_$segment]
        if {[llength $found]} {
            exclude_bd_addr_seg -target_address_space $space $found
        }
    }
}

validate_bd_design
save_bd_design
