"""Test benches of generated Verilog, with cocotb and numpy only."""
