// Block RAM of WORDS beats with two ports: one reads or writes, the other reads. A port that writes keeps what it read
// last. For the ECP5 another module of this name stands in, which says how the blocks lie.
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
    output reg  [127:0]             b_read
);
    reg [127:0] memory [0:WORDS-1];
    initial $readmemh(IMAGE, memory);

    always @(posedge clk) begin
        if (a_write) memory[a_word] <= a_data;
        else a_read <= memory[a_word];
        b_read <= memory[b_word];
    end
endmodule
