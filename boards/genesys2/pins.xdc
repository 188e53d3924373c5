# Pins that are not the memory's: those, and the clock's, MIG constrains itself.
set_property -dict {PACKAGE_PIN R19 IOSTANDARD LVCMOS33} [get_ports reset_n]
set_property -dict {PACKAGE_PIN Y23 IOSTANDARD LVCMOS33} [get_ports uart_txd]
set_property -dict {PACKAGE_PIN Y20 IOSTANDARD LVCMOS33 PULLTYPE PULLUP} [get_ports uart_rxd]
# The memory card in SPI mode: command line, first and last data line. Its slot has power while the reset is low.
set_property -dict {PACKAGE_PIN AE24 IOSTANDARD LVCMOS33} [get_ports sd_reset]
set_property -dict {PACKAGE_PIN R28 IOSTANDARD LVCMOS33 SLEW FAST} [get_ports sd_sclk]
set_property -dict {PACKAGE_PIN R29 IOSTANDARD LVCMOS33} [get_ports sd_mosi]
set_property -dict {PACKAGE_PIN T30 IOSTANDARD LVCMOS33} [get_ports sd_cs_n]
set_property -dict {PACKAGE_PIN R26 IOSTANDARD LVCMOS33 PULLTYPE PULLUP} [get_ports sd_miso]
# First pin of the connector JA: high while the board runs from its backup supply. Nothing is connected: low.
set_property -dict {PACKAGE_PIN U27 IOSTANDARD LVCMOS33 PULLTYPE PULLDOWN} [get_ports mains_lost]
# LD0: memory calibrated; LD1: the processor has stopped; LD2: one of its accesses failed.
set_property -dict {PACKAGE_PIN T28 IOSTANDARD LVCMOS33} [get_ports led_memory]
set_property -dict {PACKAGE_PIN V19 IOSTANDARD LVCMOS33} [get_ports led_trap]
set_property -dict {PACKAGE_PIN U30 IOSTANDARD LVCMOS33} [get_ports led_fault]
# The fan turns while this is high.
set_property -dict {PACKAGE_PIN W19 IOSTANDARD LVCMOS33} [get_ports fan_pwm]

# A button, a lamp, a line at 115,200 baud, a fan, power of a slot: nothing here has to be on time.
set_false_path -from [get_ports {reset_n mains_lost uart_rxd}]
set_false_path -to [get_ports {uart_txd sd_reset led_memory led_trap led_fault fan_pwm}]
# From the clock's fall to where its answer is looked at are 40 ns, 14 of which a card may need itself.
set_max_delay -datapath_only -from [all_clocks] -to [get_ports {sd_sclk sd_mosi sd_cs_n}] 10.000
set_max_delay -datapath_only -from [get_ports sd_miso] 10.000

set_property CFGBVS VCCO [current_design]
set_property CONFIG_VOLTAGE 3.3 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
# The flash that the FPGA starts from is read four bits at a time.
set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]
set_property BITSTREAM.CONFIG.CONFIGRATE 33 [current_design]
