# Every port of the design ends in the processing system: no pin is used and no board clock. The processing system's
# own constraints hold pl_clk0.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
