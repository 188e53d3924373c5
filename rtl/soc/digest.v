// SHA-256 on the processor's bus: the unit sha256.v, which takes a byte a cycle, behind registers.
//
// A message is bytes that were sent, and the end. The unit wants to know which byte is the last, so one byte waits until
// another one comes or the end. `busy`: an access must wait, for room or for the digest. Before a message has ended a digest
// is 0, and the end of a message without a byte is nothing: no access waits for ever.
module gradloom_digest (
    input  wire        clk,
    input  wire        rst,
    input  wire        four,    // four bytes of a message arrive, the first is the lowest
    input  wire        one,     // a byte does
    input  wire        end_of,  // the message has ended
    input  wire        forget,  // a message begins; what there was of another is gone
    input  wire [31:0] data,
    input  wire        asked,   // the digest is to be read; with the last word it is taken
    input  wire [2:0]  index,
    input  wire        taken,
    output wire        busy,
    output wire [31:0] word     // bytes of the digest, the first is the lowest
);
    reg [39:0] bytes;
    reg [2:0] left;
    reg ended;

    wire [255:0] digest;
    wire wants, done;
    wire gives = left > 3'd1 || left == 3'd1 && ended;
    wire sends = four || one;
    // A digest that nobody took does not hold the next message up.
    wire drops = done && (taken || sends);

    sha256 unit (
        .clk(clk), .rst(rst || forget), .i_payload({ended && left == 3'd1, bytes[7:0]}), .i_valid(gives), .i_ready(wants),
        .o_payload(digest), .o_valid(done), .o_ready(drops)
    );

    assign busy = asked ? ended && !done : gives || ended && !done;
    wire [31:0] part = digest[32 * (7 - index) +: 32];
    assign word = done ? {part[7:0], part[15:8], part[23:16], part[31:24]} : 32'd0;

    always @(posedge clk) begin
        if (gives && wants) begin
            bytes <= bytes >> 8;
            left <= left - 3'd1;
        end else if (sends) begin
            bytes <= left == 3'd1 ? {data, bytes[7:0]} : {8'd0, data};
            left <= left + (four ? 3'd4 : 3'd1);
        end
        if (end_of && left != 3'd0) ended <= 1'b1;
        if (drops) ended <= 1'b0;
        if (rst || forget) begin
            left <= 3'd0;
            ended <= 1'b0;
        end
    end
endmodule
