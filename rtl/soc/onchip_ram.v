// Block RAM of WORDS beats with two ports: one reads or writes beats, the other reads them or writes their words. Blocks lie all over a chip, so what is
// asked passes two registers on its way and what is read leaves by one: a word is there LATENCY = 4 cycles after its
// address, and a port may be asked every cycle. For the ECP5 another module of this name stands in, which says how the
// blocks lie.
module gradloom_ram #(
    parameter integer WORDS = 16384,
    parameter IMAGE = "memory.mem"
) (
    input  wire                     clk,
    input  wire [$clog2(WORDS)-1:0] a_word,
    input  wire                     a_write,
    input  wire [127:0]             a_data,
    output reg  [127:0]             a_read,
    input  wire [$clog2(WORDS)-1:0] b_word,
    input  wire [3:0]               b_write,  // of each word
    input  wire [31:0]              b_data,
    output reg  [127:0]             b_read
);
    localparam BITS = $clog2(WORDS);
    reg [127:0] memory [0:WORDS-1];
    initial $readmemh(IMAGE, memory);

    reg [BITS-1:0] a_asked, a_there, b_asked, b_there;
    // Nothing is written at power-up, whatever the other registers hold.
    reg a_writes_asked = 1'b0, a_writes = 1'b0;
    reg [3:0] b_writes_asked = 4'h0, b_writes = 4'h0;
    reg [31:0] b_data_asked, b_data_there;
    reg [127:0] a_data_asked, a_data_there, a_fetched, b_fetched;
    integer lane;
    always @(posedge clk) begin
        {a_asked, a_writes_asked, a_data_asked, b_asked} <= {a_word, a_write, a_data, b_word};
        {a_there, a_writes, a_data_there, b_there} <= {a_asked, a_writes_asked, a_data_asked, b_asked};
        // A port that writes keeps what it read last.
        if (a_writes) memory[a_there] <= a_data_there;
        else a_fetched <= memory[a_there];
        {b_writes_asked, b_data_asked} <= {b_write, b_data};
        {b_writes, b_data_there} <= {b_writes_asked, b_data_asked};
        for (lane = 0; lane < 4; lane = lane + 1)
            if (b_writes[lane]) memory[b_there][32*lane +: 32] <= b_data_there;
            else b_fetched[32*lane +: 32] <= memory[b_there][32*lane +: 32];
        a_read <= a_fetched;
        b_read <= b_fetched;
    end
endmodule
