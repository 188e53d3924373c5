// Two PEs on the same random operands: every mode, loads, swaps, and now and then a reset.
module pe_bench(input clk, output reg [31:0] differing, output reg [31:0] changes);
  initial begin differing = 0; changes = 0; end
  reg rst = 1;
  reg [23:0] x = 0;
  reg [17:0] w = 0;
  reg [47:0] p = 0, earlier = 0;
  reg [4:0] tag = 0;
  wire [23:0] x_a, x_b;
  wire [17:0] w_a, w_b;
  wire [47:0] p_a, p_b;
  wire [4:0] tag_a, tag_b;
  behaviour a(.clk(clk), .rst(rst), .x_i(x), .x_o(x_a), .tag_i(tag), .tag_o(tag_a), .w_i(w), .w_o(w_a),
              .p_i(p), .p_o(p_a));
  sliced b(.clk(clk), .rst(rst), .x_i(x), .x_o(x_b), .tag_i(tag), .tag_o(tag_b), .w_i(w), .w_o(w_b),
              .p_i(p), .p_o(p_b));
  reg [2:0] mode;
  always @(posedge clk) begin
    rst <= $urandom % 500 == 0;
    // Weights that are extreme, and operands, often.
    x <= $urandom % 8 == 0 ? 24'h800000 : $urandom;
    w <= $urandom % 8 == 0 ? 18'h20000 : $urandom;
    p <= {$urandom, $urandom};
    case ($urandom % 5)
      0: mode = 3'b011;  // use_m, from_above
      1: mode = 3'b100;  // hold
      2: mode = 3'b101;  // accumulate
      3: mode = 3'b001;  // restart
      default: mode = 3'b010;  // drain
    endcase
    tag <= {mode, $urandom % 3 == 0, $urandom % 3 == 0};
    earlier <= p_a;
    if ({x_a, w_a, p_a, tag_a} !== {x_b, w_b, p_b, tag_b}) differing <= differing + 1;
    if (p_a != earlier) changes <= changes + 1;
  end
endmodule
