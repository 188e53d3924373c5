// The part of a DSP48E2 that the stand-ins use, after its user guide; options are checked where they are few.
module DSP48E2 #(
  parameter USE_MULT = "MULTIPLY", parameter AMULTSEL = "A", parameter BMULTSEL = "B",
  parameter integer AREG = 1, parameter integer ACASCREG = 1, parameter integer BREG = 1, parameter integer BCASCREG = 1,
  parameter integer CREG = 1, parameter integer DREG = 1, parameter integer ADREG = 1, parameter integer MREG = 1,
  parameter integer PREG = 1, parameter integer OPMODEREG = 1, parameter integer ALUMODEREG = 1,
  parameter integer INMODEREG = 1, parameter integer CARRYINREG = 1, parameter integer CARRYINSELREG = 1,
  parameter [47:0] RND = 0, parameter [47:0] PATTERN = 0, parameter [47:0] MASK = 48'h3fffffffffff,
  parameter USE_PATTERN_DETECT = "NO_PATDET", parameter SEL_MASK = "MASK", parameter SEL_PATTERN = "PATTERN"
) (
  input CLK, input [29:0] A, input [17:0] B, input [47:0] C, input [26:0] D, output reg [47:0] P,
  output reg PATTERNDETECT, input [8:0] OPMODE, input [3:0] ALUMODE, input [4:0] INMODE, input [2:0] CARRYINSEL,
  input CARRYIN, CARRYCASCIN, MULTSIGNIN, input [29:0] ACIN, input [17:0] BCIN, input [47:0] PCIN,
  input CEA1, CEA2, CEAD, CEB1, CEB2, CEC, CED, CEM, CEP, CEALUMODE, CECARRYIN, CECTRL, CEINMODE,
  input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP
);
  reg [29:0] a1 = 0, a2 = 0;
  reg [17:0] b1 = 0, b2 = 0;
  reg signed [44:0] m = 0;
  reg [8:0] opmode_q = 0;
  initial begin P = 0; PATTERNDETECT = 0; end
  wire [29:0] a = AREG == 0 ? A : a2;
  wire [17:0] b = BREG == 0 ? B : b2;
  wire [8:0] op = OPMODEREG == 0 ? OPMODE : opmode_q;
  // The multiplier takes 27 bits of A; its product comes as two partial ones, through X and Y together.
  wire signed [44:0] product = $signed(a[26:0]) * $signed(b);
  wire [47:0] x = op[1:0] == 1 ? {{3{m[44]}}, m} : op[1:0] == 2 ? P : op[1:0] == 3 ? {a, b} : 0;
  wire [47:0] y = op[3:2] == 3 ? C : 0;
  wire [47:0] z = op[6:4] == 2 ? P : op[6:4] == 3 ? C : 0;
  wire [47:0] w = op[8:7] == 1 ? P : op[8:7] == 2 ? RND : op[8:7] == 3 ? C : 0;
  wire [47:0] sum = w + x + y + z;
  always @(posedge CLK) begin
    if (RSTA) a1 <= 0; else if (CEA1) a1 <= A;
    if (RSTA) a2 <= 0; else if (CEA2) a2 <= AREG == 2 ? a1 : A;
    if (RSTB) b1 <= 0; else if (CEB1) b1 <= B;
    if (RSTB) b2 <= 0; else if (CEB2) b2 <= BREG == 2 ? b1 : B;
    if (RSTM) m <= 0; else if (CEM) m <= product;
    if (RSTCTRL) opmode_q <= 0; else if (CECTRL) opmode_q <= OPMODE;
    if (RSTP) begin P <= 0; PATTERNDETECT <= 0; end
    else if (CEP) begin
      P <= sum;
      PATTERNDETECT <= USE_PATTERN_DETECT == "PATDET" && ((sum ^ PATTERN) & ~MASK) == 0;
    end
    if ((op[1:0] == 1) != (op[3:2] == 1) || (op[1:0] == 1 && USE_MULT == "NONE") || CREG != 0 || PREG != 1
        || (USE_MULT != "NONE" && MREG != 1) || ALUMODE != 0 || CARRYIN || CARRYINSEL != 0) $stop;
  end
endmodule
