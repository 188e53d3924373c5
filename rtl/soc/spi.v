// Manager of a serial line to one memory card: SPI mode 0, the highest bit of a byte first. Half a period takes SLOW
// cycles until the card knows what it is, FAST cycles (at least 4) then.
//
// The card's answer is looked at where the clock falls, a whole period after it was sent for: that leaves the line
// almost a period of time, there and back. `sum` is the CRC-16 of all that has arrived since `set`; with the two bytes
// that follow a block it is 0. After `outward` it is that of all that has been sent since.
module gradloom_spi #(
    parameter integer SLOW = 250,
    parameter integer FAST = 5
) (
    input  wire        clk,
    input  wire        rst,

    input  wire        set,        // takes the two settings
    input  wire        selects,
    input  wire        hurries,    // FAST instead of SLOW
    input  wire        sends,      // starts one byte, `data`
    input  wire        fetches,    // starts all four bytes of `data`, the lowest first
    input  wire        outward,    // from here on the sum is of what is sent
    input  wire [31:0] data,
    output wire        busy,
    output reg  [31:0] arrived,    // the last byte lowest
    output reg  [15:0] sum,

    output reg         sclk,
    output wire        mosi,
    output wire        cs_n,
    input  wire        miso
);
    localparam [15:0] SLOW_LAST = SLOW - 1, FAST_LAST = FAST - 1;

    reg selected, fast, sent;
    reg [31:0] bits;
    reg [6:0] halves;
    reg [15:0] timer;
    // The card's clock is ours with some delay: two steps to be sure.
    reg [1:0] line;

    wire [15:0] last = fast ? FAST_LAST : SLOW_LAST;

    assign busy = halves != 0;
    assign mosi = bits[31];
    assign cs_n = !selected;

    always @(posedge clk) begin
        line <= {line[0], miso};
        if (set) begin
            selected <= selects;
            fast <= hurries;
        end
        if (set || outward) begin
            sent <= outward;
            sum <= 16'd0;
        end
        if (sends || fetches) begin
            bits <= sends ? {data[7:0], 24'hffffff} : {data[7:0], data[15:8], data[23:16], data[31:24]};
            halves <= sends ? 7'd16 : 7'd64;
            timer <= last;
        end else if (timer != 0) timer <= timer - 1'b1;
        else if (busy) begin
            halves <= halves - 1'b1;
            timer <= last;
            sclk <= !sclk;
            if (sclk) begin
                bits <= {bits[30:0], 1'b1};
                arrived <= {arrived[30:0], line[1]};
                sum <= {sum[14:0], 1'b0} ^ (sum[15] ^ (sent ? mosi : line[1]) ? 16'h1021 : 16'h0000);
            end
        end
        if (rst) begin
            selected <= 1'b0;
            fast <= 1'b0;
            sent <= 1'b0;
            bits <= 32'hffffffff;
            halves <= 7'd0;
            timer <= 16'd0;
            sclk <= 1'b0;
            line <= 2'b11;
        end
    end
endmodule
