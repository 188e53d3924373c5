# Pins that are not the memory's: those, and the clock's, MIG constrains itself.
set_property -dict {PACKAGE_PIN R19 IOSTANDARD LVCMOS33} [get_ports reset_n]
set_property -dict {PACKAGE_PIN Y23 IOSTANDARD LVCMOS33} [get_ports uart_txd]
# LD0: memory calibrated; LD1: the processor has stopped; LD2: one of its accesses failed.
set_property -dict {PACKAGE_PIN T28 IOSTANDARD LVCMOS33} [get_ports led_memory]
set_property -dict {PACKAGE_PIN V19 IOSTANDARD LVCMOS33} [get_ports led_trap]
set_property -dict {PACKAGE_PIN U30 IOSTANDARD LVCMOS33} [get_ports led_fault]

# A button, a lamp and a line at 115,200 baud: nothing here has to be on time.
set_false_path -from [get_ports reset_n]
set_false_path -to [get_ports {uart_txd led_memory led_trap led_fault}]

set_property CFGBVS VCCO [current_design]
set_property CONFIG_VOLTAGE 3.3 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
# The flash that the FPGA starts from is read four bits at a time.
set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]
set_property BITSTREAM.CONFIG.CONFIGRATE 33 [current_design]
