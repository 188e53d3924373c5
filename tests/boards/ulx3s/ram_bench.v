// The ULX3S's block RAM and the memory whose place it takes, filled alike and asked alike. No port reads
// or writes the word that the other writes in that cycle: what it would get is not said for the chip.
module ram_bench(input clk, output reg [31:0] differing, output reg [31:0] changes);
  initial begin differing = 0; changes = 0; end
  reg [12:0] a_word = 0, b_word = 0, near = 0;
  reg a_write = 0, write, other;
  reg [3:0] b_write = 0;
  reg [31:0] b_data = 0;
  reg [127:0] a_data = 0, earlier = 0;
  wire [127:0] a_1, a_2, b_1, b_2;
  gradloom_ram filled(.clk(clk), .a_word(a_word), .a_write(a_write), .a_data(a_data), .a_read(a_1), .b_word(b_word),
                      .b_write(b_write), .b_data(b_data), .b_read(b_1));
  plain_ram #(.WORDS(8192), .IMAGE("image.mem")) plain(
    .clk(clk), .a_word(a_word), .a_write(a_write), .a_data(a_data), .a_read(a_2), .b_word(b_word),
    .b_write(b_write), .b_data(b_data), .b_read(b_2));
  always @(posedge clk) begin
    write = $urandom % 3 == 0;
    other = $urandom % 4 == 0;
    // Few words, so that what is written is read again; and any.
    near = $urandom % 3 == 0 ? $urandom : $urandom & 13'h101f;
    a_write <= write;
    a_word <= near;
    b_word <= write || other ? near ^ 13'h1 << $urandom % 13 : $urandom % 2 == 0 ? near : $urandom;
    b_write <= other ? 4'd1 << $urandom % 4 : 4'd0;
    b_data <= $urandom;
    a_data <= {$urandom, $urandom, $urandom, $urandom};
    earlier <= a_1;
    // Registers that have no reset yet hold nothing.
    if ({a_1, b_1} !== {a_2, b_2}) differing <= differing + 1;
    if (a_1 != earlier) changes <= changes + 1;
  end
endmodule
