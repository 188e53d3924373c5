// Units and what stands in for them on an ECP5, on the same random operands, zeros and extremes often.
module ecp5_bench(input clk, output reg [31:0] differing, output reg [31:0] changes, output reg [31:0] ties);
  initial begin differing = 0; changes = 0; ties = 0; end
  reg rst = 1, add = 0;
  reg [17:0] a = 0, b = 0;
  reg [26:0] wide = 0;
  reg [47:0] c = 0, earlier = 0;
  reg [4:0] tag = 0;
  reg [2:0] mode;
  wire [44:0] round_a, round_b, mac_a, mac_b;
  wire [17:0] x_a, x_b, w_a, w_b;
  wire [4:0] tag_a, tag_b;
  wire [47:0] pe_a, pe_b;
  wire [45:0] wide_a, wide_b;
  wire [44:0] both_a, both_b;
  wire [20:0] power_a, power_b, log_a, log_b;
  wire tie_a, tie_b, wide_tie_a, wide_tie_b;
  wire [23:0] total_a, total_b;
  total_behaviour u30(.clk(clk), .rst(rst), .a(a[7:0]), .b(b[8:0]), .add(add), .p(total_a));
  total_sliced u31(.clk(clk), .rst(rst), .a(a[7:0]), .b(b[8:0]), .add(add), .p(total_b));
  mac_behaviour u2(.clk(clk), .rst(rst), .a(a[15:0]), .b(b), .c(c[44:0]), .add(add), .p(mac_a));
  mac_sliced u3(.clk(clk), .rst(rst), .a(a[15:0]), .b(b), .c(c[44:0]), .add(add), .p(mac_b));
  round_behaviour u4(.clk(clk), .rst(rst), .a(a), .b(b), .c(c[44:0]), .add(add), .p(round_a), .tie(tie_a));
  round_sliced u5(.clk(clk), .rst(rst), .a(a), .b(b), .c(c[44:0]), .add(add), .p(round_b), .tie(tie_b));
  wide_behaviour u8(.clk(clk), .rst(rst), .a(wide), .b(b), .c(c[45:0]), .add(add), .p(wide_a), .tie(wide_tie_a));
  wide_sliced u9(.clk(clk), .rst(rst), .a(wide), .b(b), .c(c[45:0]), .add(add), .p(wide_b), .tie(wide_tie_b));
  both_behaviour u10(.clk(clk), .rst(rst), .a(wide[23:0]), .b(b), .c(c[44:0]), .add(add), .p(both_a));
  both_sliced u11(.clk(clk), .rst(rst), .a(wide[23:0]), .b(b), .c(c[44:0]), .add(add), .p(both_b));
  power_behaviour u12(.clk(clk), .enable(add), .x(wide[19:0]), .y(power_a));
  power_sliced u13(.clk(clk), .enable(add), .x(wide[19:0]), .y(power_b));
  log_behaviour u14(.clk(clk), .enable(add), .x(wide[20:0]), .y(log_a));
  log_sliced u15(.clk(clk), .enable(add), .x(wide[20:0]), .y(log_b));
  pe_behaviour u6(.clk(clk), .rst(rst), .x_i(a), .x_o(x_a), .tag_i(tag), .tag_o(tag_a), .w_i(b), .w_o(w_a), .p_i(c),
                  .p_o(pe_a));
  pe_sliced u7(.clk(clk), .rst(rst), .x_i(a), .x_o(x_b), .tag_i(tag), .tag_o(tag_b), .w_i(b), .w_o(w_b), .p_i(c),
               .p_o(pe_b));
  always @(posedge clk) begin
    rst <= $urandom % 500 == 0;
    add <= $urandom % 2 == 0;
    a <= $urandom % 4 == 0 ? 18'h20000 : $urandom % 4 == 0 ? 0 : $urandom;
    wide <= $urandom % 4 == 0 ? 27'h4000000 : $urandom % 4 == 0 ? 27'h10000 : $urandom;
    b <= $urandom % 4 == 0 ? 18'h20000 : $urandom % 4 == 0 ? 18'h10000 : $urandom;
    // Half a unit, often: with a product of whole units it is a tie.
    c <= $urandom % 2 == 0 ? {$urandom, 16'h8000} : {$urandom, $urandom};
    case ($urandom % 5)
      0: mode = 3'b011;  // use_m, from_above
      1: mode = 3'b100;  // hold
      2: mode = 3'b101;  // accumulate
      3: mode = 3'b001;  // restart
      default: mode = 3'b010;  // drain
    endcase
    tag <= {mode, $urandom % 3 == 0, $urandom % 3 == 0};
    earlier <= mac_a;
    if ({mac_a, total_a, round_a, tie_a, wide_a, wide_tie_a, both_a, power_a, log_a, pe_a, x_a, w_a, tag_a} !==
        {mac_b, total_b, round_b, tie_b, wide_b, wide_tie_b, both_b, power_b, log_b, pe_b, x_b, w_b, tag_b})
      differing <= differing + 1;
    if (mac_a != earlier) changes <= changes + 1;
    if (tie_a | wide_tie_a) ties <= ties + 1;
  end
endmodule
