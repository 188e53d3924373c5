// The ULX3S around a tuner: the board's 25 MHz come in, the PLL makes the design's clock of them, and the UART goes to
// the USB connector, and comes from it, by the FTDI chip. LED 0: it runs. LED 1: the processor has stopped. LED 2: an access failed.
module gradloom_ulx3s #(
    parameter integer WORDS = @WORDS@,
    parameter integer DIVISOR = @DIVISOR@,
    parameter FIRMWARE = "tuner_image.mem",
    parameter MEMORY = "memory.mem"
) (
    input  wire       clk_25mhz,
    output wire [7:0] led,
    output wire       ftdi_rxd,
    input  wire       ftdi_txd,
    output wire       wifi_gpio0
);
    wire raw, clk, locked;
    // The oscillator runs CLKOP_DIV times as fast as the board's clock, with which CLKOP is compared. nextpnr reads the
    // loop filter's settings from attributes, and writes 0 for each that is absent; these are ecppll's.
    wire compared;
    (* FREQUENCY_PIN_CLKI = "25", FREQUENCY_PIN_CLKOP = "25", FREQUENCY_PIN_CLKOS = "@MHZ@", ICP_CURRENT = "12",
       LPF_RESISTOR = "8", MFG_ENABLE_FILTEROPAMP = "1", MFG_GMCREF_SEL = "2" *)
    EHXPLLL #(
        .PLLRST_ENA("DISABLED"), .INTFB_WAKE("DISABLED"), .STDBY_ENABLE("DISABLED"), .DPHASE_SOURCE("DISABLED"),
        .OUTDIVIDER_MUXA("DIVA"), .OUTDIVIDER_MUXB("DIVB"), .CLKI_DIV(1), .CLKFB_DIV(1), .FEEDBK_PATH("CLKOP"),
        .CLKOP_ENABLE("ENABLED"), .CLKOP_DIV(@CLKOP_DIV@), .CLKOP_CPHASE(@CLKOP_PHASE@), .CLKOP_FPHASE(0),
        .CLKOS_ENABLE("ENABLED"), .CLKOS_DIV(@CLKOS_DIV@), .CLKOS_CPHASE(@CLKOS_PHASE@), .CLKOS_FPHASE(0)
    ) pll (
        .CLKI(clk_25mhz), .CLKFB(compared), .CLKOP(compared), .CLKOS(raw), .LOCK(locked), .RST(1'b0), .STDBY(1'b0),
        .PHASESEL0(1'b0), .PHASESEL1(1'b0), .PHASEDIR(1'b1), .PHASESTEP(1'b1), .PHASELOADREG(1'b1),
        .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0)
    );

    // The design's clock begins 16 cycles after the lock, and stops if that is lost. Till then all registers are as the
    // bitstream left them, which is how a reset would: no wire has to bring one to all of the chip.
    reg [1:0] lock = 2'd0;
    reg [4:0] settled = 5'd0;
    always @(posedge raw) begin
        lock <= {lock[0], locked};
        if (!lock[1]) settled <= 5'd0;
        else if (!settled[4]) settled <= settled + 1'b1;
    end
    DCCA gate (.CLKI(raw), .CE(settled[4]), .CLKO(clk));

    // Processor and memory ask for a reset.
    reg [4:0] count = 5'd0;
    reg rst = 1'b1;
    always @(posedge clk) begin
        if (!count[4]) count <= count + 1'b1;
        rst <= !count[4];
    end

    wire trap, fault;
    gradloom_tuner #(.WORDS(WORDS), .DIVISOR(DIVISOR), .FIRMWARE(FIRMWARE), .MEMORY(MEMORY)) tuner (
        .clk(clk), .rst(rst), .uart_txd(ftdi_rxd), .uart_rxd(ftdi_txd), .trap(trap), .fault(fault)
    );
    assign led = {5'd0, fault, trap, !rst};
    // High, or the board's ESP32 takes over.
    assign wifi_gpio0 = 1'b1;
endmodule
