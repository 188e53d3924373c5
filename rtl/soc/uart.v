// Transmitter of a UART, 8N1: a bit takes DIVISOR cycles. `full` means that a byte offered now is lost.
module gradloom_uart #(
    parameter integer DIVISOR = 1736
) (
    input  wire       clk,
    input  wire       rst,
    input  wire [7:0] data,
    input  wire       valid,
    output wire       full,
    output wire       txd
);
    localparam [15:0] LAST = DIVISOR - 1;

    // What waits behind the byte on the line.
    reg [7:0] next;
    reg held;
    // Start bit first, ones behind: the line rests at one, before its clock begins too.
    reg [9:0] bits = 10'h3ff;
    reg [3:0] left;
    reg [15:0] timer;

    assign full = held;
    assign txd = bits[0];

    always @(posedge clk) begin
        if (valid && !held) begin
            next <= data;
            held <= 1'b1;
        end
        if (timer != 0) timer <= timer - 1'b1;
        else if (left != 0) begin
            bits <= {1'b1, bits[9:1]};
            left <= left - 1'b1;
            timer <= LAST;
        end else if (held) begin
            bits <= {1'b1, next, 1'b0};
            held <= 1'b0;
            left <= 4'd9;
            timer <= LAST;
        end
        if (rst) begin
            held <= 1'b0;
            bits <= 10'h3ff;
            left <= 4'd0;
            timer <= 16'd0;
        end
    end
endmodule
