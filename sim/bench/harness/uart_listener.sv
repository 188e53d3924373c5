// The other end of a UART, 8N1: samples in the middle of each bit.
module uart_listener #(
    parameter int DIVISOR = 4
) (
    input  logic clk,
    input  logic rst,
    input  logic txd,
    output logic heard,
    output logic [7:0] byte_heard,
    output logic broken      // a frame without its stop bit
);
    logic [15:0] timer;
    logic [3:0] bit_number;
    logic listening;

    always_ff @(posedge clk) begin
        heard <= 1'b0;
        if (rst) begin
            listening <= 1'b0;
            broken <= 1'b0;
        end else if (!listening) begin
            if (!txd) begin
                listening <= 1'b1;
                bit_number <= 4'd0;
                timer <= 16'(DIVISOR + DIVISOR / 2 - 1);
            end
        end else if (timer != 0) timer <= timer - 1'b1;
        else begin
            timer <= 16'(DIVISOR - 1);
            bit_number <= bit_number + 1'b1;
            if (bit_number == 4'd8) begin
                listening <= 1'b0;
                heard <= txd;
                broken <= broken | !txd;
            end else byte_heard <= {txd, byte_heard[7:1]};
        end
    end
endmodule
