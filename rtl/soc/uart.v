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

// Receiver of a UART, 8N1, of any clock: a bit takes DIVISOR cycles. `valid` means that a byte has arrived; it stays until
// `taken`. Up to ROOM - 1 bytes wait, since the processor does not listen while it prints a line or writes to a card; others
// are lost, and so is a frame without its stop bit.
module gradloom_uart_in #(
    parameter integer DIVISOR = 1736,
    parameter integer ROOM = 256
) (
    input  wire       clk,
    input  wire       rst,
    input  wire       rxd,
    input  wire       taken,
    output wire [7:0] data,
    output wire       valid
);
    localparam [15:0] LAST = DIVISOR - 1;
    localparam BITS = $clog2(ROOM);
    // From the start bit's edge to the middle of the first data bit, less what the edge takes to get here.
    localparam [15:0] FIRST = DIVISOR + DIVISOR / 2 - 1;

    (* ASYNC_REG = "TRUE" *) reg [1:0] line = 2'b11;
    reg [7:0] bits;
    reg [3:0] left;
    reg [15:0] timer;
    // After a frame the line must rest before the next start bit: a line that is held low, or cut, sends nothing.
    reg rested;

    reg [7:0] waiting [0:ROOM-1];
    reg [BITS-1:0] first, free;
    wire [BITS-1:0] behind = free + 1'b1;
    wire arrived = left == 4'd1 && timer == 0 && line[1] && behind != first;

    assign valid = first != free;
    assign data = waiting[first];

    always @(posedge clk) begin
        line <= {line[0], rxd};
        if (arrived) begin
            waiting[free] <= bits;
            free <= behind;
        end
        if (taken && valid) first <= first + 1'b1;
        if (left == 0) begin
            rested <= line[1];
            if (rested && !line[1]) begin
                left <= 4'd9;
                timer <= FIRST;
            end
        end else if (timer != 0) timer <= timer - 1'b1;
        else begin
            timer <= LAST;
            left <= left - 1'b1;
            rested <= line[1];
            if (left != 4'd1) bits <= {line[1], bits[7:1]};
        end
        if (rst) begin
            left <= 4'd0;
            rested <= 1'b0;
            first <= {BITS{1'b0}};
            free <= {BITS{1'b0}};
        end
    end
endmodule
