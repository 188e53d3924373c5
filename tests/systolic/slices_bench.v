// Units and their slices on the same random operands, zeros and extremes often.
module slices_bench(input clk, output reg [31:0] differing, output reg [31:0] changes, output reg [31:0] ties);
  initial begin differing = 0; changes = 0; ties = 0; end
  reg rst = 1, add = 0;
  reg [26:0] a = 0;
  reg [17:0] b = 0;
  reg [47:0] c = 0, wide = 0, earlier = 0;
  reg [4:0] tag = 0;
  wire [47:0] sum_a, sum_b, pe_a, pe_b;
  wire [44:0] round_a, round_b, mac_a, mac_b;
  wire [41:0] narrow_a, narrow_b;
  wire tie_a, tie_b;
  add_behaviour u0(.clk(clk), .rst(rst), .a(wide), .c(c), .add(add), .p(sum_a));
  add_sliced u1(.clk(clk), .rst(rst), .a(wide), .c(c), .add(add), .p(sum_b));
  narrow_behaviour u8(.clk(clk), .rst(rst), .a(wide[41:0]), .c(c[41:0]), .add(add), .p(narrow_a));
  narrow_sliced u9(.clk(clk), .rst(rst), .a(wide[41:0]), .c(c[41:0]), .add(add), .p(narrow_b));
  mac_behaviour u2(.clk(clk), .rst(rst), .a(a[23:0]), .b(b), .c(c[44:0]), .add(add), .p(mac_a));
  mac_sliced u3(.clk(clk), .rst(rst), .a(a[23:0]), .b(b), .c(c[44:0]), .add(add), .p(mac_b));
  wire [37:0] total_a, total_b;
  total_behaviour u10(.clk(clk), .rst(rst), .a(a[24:0]), .b(b[8:0]), .add(add), .p(total_a));
  total_sliced u11(.clk(clk), .rst(rst), .a(a[24:0]), .b(b[8:0]), .add(add), .p(total_b));
  // Not both sums at once, which a DSP48E1 cannot add.
  wire [4:0] one = {tag[4] & ~tag[3], tag[3:0]};
  wire [47:0] duo_a, duo_b, far_a, far_b;
  duo_behaviour u12(.clk(clk), .rst(rst), .x_i(b[7:0]), .x_o(), .tag_i(one), .tag_o(), .w_i(a[15:0]), .w_o(), .p_i(c),
                    .p_o(duo_a));
  duo_sliced u13(.clk(clk), .rst(rst), .x_i(b[7:0]), .x_o(), .tag_i(one), .tag_o(), .w_i(a[15:0]), .w_o(), .p_i(c),
                 .p_o(duo_b));
`ifndef NO_ROUND
  far_behaviour u14(.clk(clk), .rst(rst), .x_i(b[7:0]), .x_o(), .tag_i(one), .tag_o(), .w_i(a[15:0]), .w_o(), .p_i(c),
                    .p_o(far_a));
  far_sliced u15(.clk(clk), .rst(rst), .x_i(b[7:0]), .x_o(), .tag_i(one), .tag_o(), .w_i(a[15:0]), .w_o(), .p_i(c),
                 .p_o(far_b));
  round_behaviour u4(.clk(clk), .rst(rst), .a(a), .b(b), .c(c[44:0]), .add(add), .p(round_a), .tie(tie_a));
  round_sliced u5(.clk(clk), .rst(rst), .a(a), .b(b), .c(c[44:0]), .add(add), .p(round_b), .tie(tie_b));
  pe_behaviour u6(.clk(clk), .rst(rst), .x_i(a[23:0]), .x_o(), .tag_i(tag), .tag_o(), .w_i(b), .w_o(), .p_i(c),
                  .p_o(pe_a));
  pe_sliced u7(.clk(clk), .rst(rst), .x_i(a[23:0]), .x_o(), .tag_i(tag), .tag_o(), .w_i(b), .w_o(), .p_i(c),
               .p_o(pe_b));
`else
  assign {round_a, pe_a, far_a, round_b, pe_b, far_b} = 0;
  assign {tie_a, tie_b} = 3;
`endif
  always @(posedge clk) begin
    rst <= $urandom % 500 == 0;
    add <= $urandom % 2 == 0;
    a <= $urandom % 4 == 0 ? 27'h4000000 : $urandom % 4 == 0 ? 0 : $urandom;
    b <= $urandom % 4 == 0 ? 18'h20000 : $urandom % 4 == 0 ? 18'h10000 : $urandom;
    // Half a unit, often: with a product of whole units it is a tie.
    c <= $urandom % 2 == 0 ? {$urandom, 16'h8000} : {$urandom, $urandom};
    wide <= {$urandom, $urandom};
    tag <= $urandom;
    earlier <= mac_a;
    if ({sum_a, narrow_a, total_a, mac_a, round_a, tie_a, pe_a, duo_a, far_a}
        !== {sum_b, narrow_b, total_b, mac_b, round_b, tie_b, pe_b, duo_b, far_b})
      differing <= differing + 1;
    if (mac_a != earlier) changes <= changes + 1;
    if (tie_a) ties <= ties + 1;
  end
endmodule
