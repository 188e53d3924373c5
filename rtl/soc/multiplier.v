// MUL, MULH, MULHSU and MULHU for PicoRV32's co-processor interface, in four cycles.
//
// An operand is split into 16 low bits and 17 high bits with sign. The four products fit a DSP slice each, and no path is
// longer than a product or a sum of three.
module gradloom_multiplier (
    input  wire        clk,
    input  wire        rst,
    input  wire        valid,
    input  wire [31:0] insn,
    input  wire [31:0] rs1,
    input  wire [31:0] rs2,
    output wire        ready,
    output wire [31:0] rd
);
    wire mine = valid && insn[6:0] == 7'b0110011 && insn[31:25] == 7'b0000001 && !insn[14];

    // Stages that a result has passed; it leaves behind the third.
    reg [2:0] passed;
    reg high;
    reg signed [16:0] a_low, a_high, b_low, b_high;
    reg signed [33:0] low_low, low_high, high_low, high_high;
    reg [63:0] product;
    wire signed [34:0] middle = low_high + high_low;

    always @(posedge clk) begin
        passed <= rst || ready ? 3'd0 : {passed[1:0], mine && passed == 3'd0};
        high <= insn[13:12] != 2'd0;
        a_low <= {1'b0, rs1[15:0]};
        b_low <= {1'b0, rs2[15:0]};
        a_high <= {rs1[31] && insn[13:12] != 2'd3, rs1[31:16]};
        b_high <= {rs2[31] && !insn[13], rs2[31:16]};
        low_low <= a_low * b_low;
        low_high <= a_low * b_high;
        high_low <= a_high * b_low;
        high_high <= a_high * b_high;
        product <= {high_high[31:0], low_low[31:0]} + {{13{middle[34]}}, middle, 16'd0};
    end

    assign ready = passed[2];
    assign rd = high ? product[63:32] : product[31:0];
endmodule
