// A memory of words wider than a block's, and what synthesis makes of it. No word is read while it is written.
module wide_ram(input clk, input write, input [8:0] to, input [72:0] data, input read, input [8:0] from,
                output reg [72:0] q);
  reg [72:0] memory [0:511];
  always @(posedge clk) begin
    if (write) memory[to] <= data;
    if (read) q <= memory[from];
  end
endmodule

module wide_bench(input clk, output reg [31:0] differing, output reg [31:0] changes);
  initial begin differing = 0; changes = 0; end
  reg write = 0, read = 0;
  reg [8:0] to = 0, from = 0, next;
  reg [72:0] data = 0, earlier = 0;
  wire [72:0] a, b;
  wide_ram plain(.clk(clk), .write(write), .to(to), .data(data), .read(read), .from(from), .q(a));
  wide_netlist made(.clk(clk), .write(write), .to(to), .data(data), .read(read), .from(from), .q(b));
  reg [9:0] filled = 0;
  always @(posedge clk) begin
    // First all words, since what none was written to is not said.
    if (!filled[9]) filled <= filled + 1;
    next = filled[9] ? $urandom : filled[8:0];
    write <= !filled[9] || $urandom % 2 == 0;
    to <= next;
    from <= next ^ 9'h1 << $urandom % 9;
    read <= filled[9] && $urandom % 4 != 0;
    data <= {$urandom, $urandom, $urandom};
    earlier <= a;
    if (a !== b) differing <= differing + 1;
    if (a != earlier) changes <= changes + 1;
  end
endmodule
