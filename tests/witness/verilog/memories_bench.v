// A queue in block RAM and a sum in ultra RAM, each beside its netlist of vendor's memories.
module memories_bench(input clk, output reg [31:0] differing, output reg [31:0] changes);
  initial begin differing = 0; changes = 0; end
  reg rst = 1;
  reg [7:0] age = 0;  // the chip's own reset lasts for the first cycles
  always @(posedge clk) begin
    age <= age + !(&age);
    rst <= !(&age) || $urandom % 2000 == 0;
  end

  // Long phases in which the queue fills and empties.
  reg [199:0] w_data = 0;
  reg w_en = 0, r_en = 0, filling = 0;
  wire [199:0] r_data_a, r_data_b;
  wire w_rdy_a, w_rdy_b, r_rdy_a, r_rdy_b;
  queue queue_a(.clk(clk), .rst(rst), .w_data(w_data), .w_en(w_en), .w_rdy(w_rdy_a),
                .r_data(r_data_a), .r_en(r_en), .r_rdy(r_rdy_a));
  queue_mapped queue_b(.clk(clk), .rst(rst), .w_data(w_data), .w_en(w_en), .w_rdy(w_rdy_b),
                       .r_data(r_data_b), .r_en(r_en), .r_rdy(r_rdy_b));
  always @(posedge clk) begin
    filling <= $urandom % 1000 ? filling : ~filling;
    w_data <= {$urandom, $urandom, $urandom, $urandom, $urandom, $urandom, $urandom};
    w_en <= $urandom % 8 < (filling ? 7 : 3);
    r_en <= $urandom % 8 < (filling ? 3 : 7);
    if ({w_rdy_a, r_rdy_a} !== {w_rdy_b, r_rdy_b}) differing <= differing + 1;
    else if (r_rdy_a && r_data_a !== r_data_b) differing <= differing + 1;
    else if (r_rdy_a && r_en) changes <= changes + 1;
  end

`ifdef ULTRA
  // A position is not asked for again within GAP cycles.
  reg [`WIDTH-1:0] sums [0:3];
  reg [12:0] ahead = 0;
  reg [9:0] past [0:`GAP-2];
  reg [1023:0] written = 0;
  reg [9:0] position;
  reg free, last;
  wire [4*`WIDTH:0] o_a, o_b;
  wire same = !(o_a[0] === 1'b1) || o_a === o_b;
  integer n;
  sums sums_a(.clk(clk), .rst(rst), .ahead(ahead), .alone(1'b0), .sums_0(sums[0]), .sums_1(sums[1]),
              .sums_2(sums[2]), .sums_3(sums[3]), .o(o_a));
  sums_mapped sums_b(.clk(clk), .rst(rst), .ahead(ahead), .alone(1'b0), .sums_0(sums[0]), .sums_1(sums[1]),
                     .sums_2(sums[2]), .sums_3(sums[3]), .o(o_b));
  always @(posedge clk) begin
    for (n = 0; n < 4; n = n + 1) sums[n] <= {$urandom, $urandom};
    position = $urandom % 16 * 67;
    free = 1;
    for (n = 0; n < `GAP - 1; n = n + 1) begin
      if (past[n] === position) free = 0;
      past[n] <= n ? past[n-1] : position;
    end
    last = $urandom % 4 == 0;
    // A reset between a token and its word loses the word: what is there is known after the next first one.
    if (rst) written <= 0;
    else if (free && !last) written[position] <= 1;
    ahead <= {position, last, !written[position] || $urandom % 8 == 0, free && !rst};
    if (o_a[0] !== o_b[0] || !same) differing <= differing + 1;
  end
`endif
endmodule
