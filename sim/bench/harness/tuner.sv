// A board's design that fine-tunes on its own, and a listener at its UART: what tuner.cpp drives. The PLL is a wire: one
// cycle of `clk` is one of the design. Its lock is an input. With NETLIST the design comes as it left synthesis.
module tuner #(
    parameter int DIVISOR = 4
) (
    input  logic clk,
    input  logic locked,      // what the PLL says
    input  logic away,        // nobody listens
    input  logic rxd,         // what the listener says
    output logic heard,
    output logic [7:0] byte_heard,
    output logic broken,     // a frame without its stop bit
    output logic trap,
    output logic fault,
    output logic running,    // the lamp
    output logic [31:0] pulses  // of the design's clock
);
    logic [7:0] led;
    logic txd;

`ifdef NETLIST
    gradloom_ulx3s board (.clk_25mhz(clk), .led, .ftdi_rxd(txd), .ftdi_txd(rxd), .wifi_gpio0());
`else
    gradloom_ulx3s #(.DIVISOR(DIVISOR)) board (.clk_25mhz(clk), .led, .ftdi_rxd(txd), .ftdi_txd(rxd), .wifi_gpio0());
`endif
    assign running = led[0];
    // A processor that has had no reset yet says nothing.
    assign trap = led[1] && running;
    assign fault = led[2] && running;

    uart_listener #(.DIVISOR(DIVISOR)) listener (.clk, .rst(away), .txd, .heard, .byte_heard, .broken);

    initial pulses = 0;
    always_ff @(posedge board.gate.CLKO) pulses <= pulses + 1;
endmodule

module EHXPLLL #(
    parameter PLLRST_ENA = "", parameter INTFB_WAKE = "", parameter STDBY_ENABLE = "", parameter DPHASE_SOURCE = "",
    parameter OUTDIVIDER_MUXA = "", parameter FEEDBK_PATH = "", parameter CLKOP_ENABLE = "",
    parameter CLKI_DIV = 1, parameter CLKFB_DIV = 1, parameter CLKOP_DIV = 1, parameter CLKOP_CPHASE = 0,
    parameter CLKOP_FPHASE = 0, parameter OUTDIVIDER_MUXB = "", parameter CLKOS_ENABLE = "", parameter CLKOS_DIV = 1,
    parameter CLKOS_CPHASE = 0, parameter CLKOS_FPHASE = 0
) (
    input  logic CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC, ENCLKOP,
    output logic CLKOP, CLKOS, LOCK
);
    assign CLKOP = CLKI;
    assign CLKOS = CLKI;
    assign LOCK = $root.tuner.locked;
endmodule

// A clock that goes on or stops between its pulses.
module DCCA (input logic CLKI, CE, output logic CLKO);
    logic enabled = 1'b0;
    always_latch if (!CLKI) enabled = CE;
    assign CLKO = CLKI & enabled;
endmodule
