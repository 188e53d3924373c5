# Block design: memory controller, accelerator, processor, and what lies between them. Called by build.tcl.

create_bd_design $design

# ---- outside
set pins(ddr3) [create_bd_intf_port -mode Master -vlnv xilinx.com:interface:ddrx_rtl:1.0 ddr3]
set pins(sys_clk) [create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 sys_clk]
set_property CONFIG.FREQ_HZ 200000000 $pins(sys_clk)
create_bd_port -dir I -type rst reset_n
set_property CONFIG.POLARITY ACTIVE_LOW [get_bd_ports reset_n]
foreach output {uart_txd sd_reset sd_sclk sd_mosi sd_cs_n led_memory led_trap led_fault fan_pwm} {
    create_bd_port -dir O $output
}
create_bd_port -dir I sd_miso
create_bd_port -dir I mains_lost
create_bd_port -dir I uart_rxd

# ---- memory controller: its generator takes a project file that lies in the folder of the core
set mig [create_bd_cell -type ip -vlnv xilinx.com:ip:mig_7series mig]
set mig_dir [get_property IP_DIR [get_ips [get_property CONFIG.Component_Name $mig]]]
file mkdir $mig_dir
file copy -force [file join $here mig.prj] [file join $mig_dir mig.prj]
set_property -dict [list \
    CONFIG.BOARD_MIG_PARAM Custom \
    CONFIG.MIG_DONT_TOUCH_PARAM Custom \
    CONFIG.RESET_BOARD_INTERFACE Custom \
    CONFIG.XML_INPUT_FILE mig.prj \
] $mig

create_bd_cell -type ip -vlnv gradloom:accelerator:$module:1.0 accelerator
create_bd_cell -type module -reference gradloom_soc soc
set_property -dict [list CONFIG.DIVISOR $uart_divisor CONFIG.CARD_SLOW $card_slow CONFIG.CARD_FAST $card_fast \
    CONFIG.CARD_TRIES $card_tries] [get_bd_cells soc]
# A way into memory from the machine that flashes: Vivado's hardware manager writes through it.
create_bd_cell -type ip -vlnv xilinx.com:ip:jtag_axi jtag
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect memory
set_property -dict [list CONFIG.NUM_SI 3 CONFIG.NUM_MI 1 CONFIG.NUM_CLKS 1] [get_bd_cells memory]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
# Nobody starts before the memory is calibrated.
set_property -dict [list CONFIG.C_EXT_RESET_HIGH 1 CONFIG.C_AUX_RESET_HIGH 0] [get_bd_cells reset]

# ---- clock: the memory controller's own, for everything
foreach pin [list accelerator/$clock_port soc/clk jtag/aclk memory/aclk reset/slowest_sync_clk] {
    connect_bd_net [get_bd_pins mig/ui_clk] [get_bd_pins $pin]
}

# ---- reset
# The button restarts the processor alone, which stops the accelerator: a reset of the memory controller would calibrate
# again and lose what memory holds. Its own reset (active low) is never pressed; at power-up its clock's lock resets it.
connect_bd_net [get_bd_ports reset_n] [get_bd_pins soc/restart_n]
set never [create_bd_cell -type ip -vlnv xilinx.com:ip:xlconstant never]
set_property -dict [list CONFIG.CONST_WIDTH 1 CONFIG.CONST_VAL 1] $never
connect_bd_net [get_bd_pins never/dout] [get_bd_pins mig/sys_rst]
# The fan runs at full speed: nothing here measures a board's needs.
connect_bd_net [get_bd_pins never/dout] [get_bd_ports fan_pwm]
connect_bd_net [get_bd_pins mig/ui_clk_sync_rst] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins mig/mmcm_locked] [get_bd_pins reset/dcm_locked]
connect_bd_net [get_bd_pins mig/init_calib_complete] [get_bd_pins reset/aux_reset_in]
foreach pin [list mig/aresetn memory/aresetn jtag/aresetn] {
    connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins reset/$reset_source] [get_bd_pins accelerator/$reset_port]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins soc/rst]

# ---- buses
connect_bd_intf_net [get_bd_intf_pins soc/m_axi_reg] [get_bd_intf_pins accelerator/s_axi]
connect_bd_intf_net [get_bd_intf_pins accelerator/m_axi] [get_bd_intf_pins memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins soc/m_axi_mem] [get_bd_intf_pins memory/S01_AXI]
connect_bd_intf_net [get_bd_intf_pins jtag/M_AXI] [get_bd_intf_pins memory/S02_AXI]
connect_bd_intf_net [get_bd_intf_pins memory/M00_AXI] [get_bd_intf_pins mig/S_AXI]
connect_bd_intf_net [get_bd_intf_ports ddr3] [get_bd_intf_pins mig/DDR3]
connect_bd_intf_net [get_bd_intf_ports sys_clk] [get_bd_intf_pins mig/SYS_CLK]

# ---- lamps and lines
connect_bd_net [get_bd_pins mig/init_calib_complete] [get_bd_ports led_memory]
connect_bd_net [get_bd_pins soc/trap] [get_bd_ports led_trap]
connect_bd_net [get_bd_pins soc/fault] [get_bd_ports led_fault]
foreach line {uart_txd sd_reset sd_sclk sd_mosi sd_cs_n} {
    connect_bd_net [get_bd_pins soc/$line] [get_bd_ports $line]
}
connect_bd_net [get_bd_ports sd_miso] [get_bd_pins soc/sd_miso]
connect_bd_net [get_bd_ports mains_lost] [get_bd_pins soc/mains_lost]
# The memory controller measures the chip's temperature for itself (XADC), in its own clock, which is everybody's.
connect_bd_net [get_bd_pins mig/device_temp] [get_bd_pins soc/temperature]
connect_bd_net [get_bd_ports uart_rxd] [get_bd_pins soc/uart_rxd]

# ---- addresses: the processor decodes the registers' address itself and puts out its lowest bits
assign_bd_address -offset 0x0 -range $register_range -target_address_space [get_bd_addr_spaces soc/m_axi_reg] \
    [get_bd_addr_segs accelerator/s_axi/*] -force
foreach space {accelerator/m_axi soc/m_axi_mem jtag/Data} {
    assign_bd_address -offset $memory_base -range $memory_range -target_address_space [get_bd_addr_spaces $space] \
        [get_bd_addr_segs mig/memmap/memaddr] -force
}

validate_bd_design
save_bd_design
