// Models of the ECP5's large blocks, as far as synthesis uses them, for simulating what leaves it. Yosys brings models
// of the small ones. Memories: 1024 words of 18 bits, two bytes of 9; words of 1, 2 and 4 bits leave the ninth bit out.
// Words of 36 bits are two of 18, of which port B's pins have the upper one: port A writes them, port B reads.

// A place in memory: word and first bit, of an address in bits, for a port of `width` bits.
`define WORD(address) address[13:4]
`define FIRST(address, width) \
    ((width) >= 18 ? 5'd0 : (width) == 9 ? 5'd9 * address[3] : 5'd9 * address[3] + (5'(address[2:0]) & ~5'((width) - 1)))
`define MASK(width) ((width) >= 18 ? 18'h3ffff : 18'((1 << (width)) - 1))

module DP16KD #(
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18, REGMODE_A = "NOREG", REGMODE_B = "NOREG", RESETMODE = "SYNC",
    parameter ASYNC_RESET_RELEASE = "SYNC", CSDECODE_A = "0b000", CSDECODE_B = "0b000", CLKAMUX = "CLKA",
    parameter CLKBMUX = "CLKB", WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL", GSR = "AUTO",
    parameter logic [319:0]
        INITVAL_00 = 320'd0, INITVAL_01 = 320'd0, INITVAL_02 = 320'd0, INITVAL_03 = 320'd0, INITVAL_04 = 320'd0,
        INITVAL_05 = 320'd0, INITVAL_06 = 320'd0, INITVAL_07 = 320'd0, INITVAL_08 = 320'd0, INITVAL_09 = 320'd0,
        INITVAL_0A = 320'd0, INITVAL_0B = 320'd0, INITVAL_0C = 320'd0, INITVAL_0D = 320'd0, INITVAL_0E = 320'd0,
        INITVAL_0F = 320'd0, INITVAL_10 = 320'd0, INITVAL_11 = 320'd0, INITVAL_12 = 320'd0, INITVAL_13 = 320'd0,
        INITVAL_14 = 320'd0, INITVAL_15 = 320'd0, INITVAL_16 = 320'd0, INITVAL_17 = 320'd0, INITVAL_18 = 320'd0,
        INITVAL_19 = 320'd0, INITVAL_1A = 320'd0, INITVAL_1B = 320'd0, INITVAL_1C = 320'd0, INITVAL_1D = 320'd0,
        INITVAL_1E = 320'd0, INITVAL_1F = 320'd0, INITVAL_20 = 320'd0, INITVAL_21 = 320'd0, INITVAL_22 = 320'd0,
        INITVAL_23 = 320'd0, INITVAL_24 = 320'd0, INITVAL_25 = 320'd0, INITVAL_26 = 320'd0, INITVAL_27 = 320'd0,
        INITVAL_28 = 320'd0, INITVAL_29 = 320'd0, INITVAL_2A = 320'd0, INITVAL_2B = 320'd0, INITVAL_2C = 320'd0,
        INITVAL_2D = 320'd0, INITVAL_2E = 320'd0, INITVAL_2F = 320'd0, INITVAL_30 = 320'd0, INITVAL_31 = 320'd0,
        INITVAL_32 = 320'd0, INITVAL_33 = 320'd0, INITVAL_34 = 320'd0, INITVAL_35 = 320'd0, INITVAL_36 = 320'd0,
        INITVAL_37 = 320'd0, INITVAL_38 = 320'd0, INITVAL_39 = 320'd0, INITVAL_3A = 320'd0, INITVAL_3B = 320'd0,
        INITVAL_3C = 320'd0, INITVAL_3D = 320'd0, INITVAL_3E = 320'd0, INITVAL_3F = 320'd0
) (
    input
        CLKA, WEA, CEA, OCEA, RSTA, CSA0, CSA1, CSA2, ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4,
        ADA3, ADA2, ADA1, ADA0, DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5,
        DIA4, DIA3, DIA2, DIA1, DIA0, CLKB, WEB, CEB, OCEB, RSTB, CSB0, CSB1, CSB2, ADB13, ADB12, ADB11, ADB10, ADB9,
        ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0, DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10,
        DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
    output
        DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1,
        DOA0, DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2,
        DOB1, DOB0
);
    logic [17:0] memory [1024];
    localparam logic [64 * 320 - 1:0] INIT = {
        INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38, INITVAL_37,
        INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E,
        INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25,
        INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C,
        INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13,
        INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A,
        INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
        INITVAL_00};
    initial for (int n = 0; n < 1024; n++) memory[n] = INIT[20 * n +: 18];

    wire [13:0] address_a = {
        ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [17:0] data_a = {
        DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1,
        DIA0};
    wire [17:0] enable_a = DATA_WIDTH_A == 18 ? {{9{ADA1}}, {9{ADA0}}}
        : `MASK(DATA_WIDTH_A) << `FIRST(address_a, DATA_WIDTH_A);
    wire [17:0] low_a = {{9{ADA1}}, {9{ADA0}}}, high_a = {{9{ADA3}}, {9{ADA2}}};
    wire [17:0] moved_a = data_a << `FIRST(address_a, DATA_WIDTH_A);
    wire [17:0] old_a = memory[`WORD(address_a)];
    wire [17:0] new_a = old_a & ~enable_a | moved_a & enable_a;
    logic [17:0] out_a = 0, late_a = 0;
    assign {
        DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1,
        DOA0} = DATA_WIDTH_B == 36 ? (REGMODE_B == "OUTREG" ? late_low : out_low)
            : REGMODE_A == "OUTREG" ? late_a : out_a;
    always_ff @(posedge CLKA) begin
        if (RSTA) late_a <= 0;
        else if (OCEA) late_a <= out_a;
        if (CEA && WEA && !RSTA) begin
            if (DATA_WIDTH_A == 36) begin
                memory[{address_a[13:5], 1'b0}] <= memory[{address_a[13:5], 1'b0}] & ~low_a | data_a & low_a;
                memory[{address_a[13:5], 1'b1}] <= memory[{address_a[13:5], 1'b1}] & ~high_a | data_b & high_a;
            end else memory[`WORD(address_a)] <= new_a;
        end
        if (RSTA) out_a <= 0;
        else if (CEA && (!WEA || WRITEMODE_A != "NORMAL"))
            out_a <= ((WEA && WRITEMODE_A == "WRITETHROUGH" ? new_a : old_a ^ met_a)
                >> `FIRST(address_a, DATA_WIDTH_A)) & `MASK(DATA_WIDTH_A);
    end
    wire [13:0] address_b = {
        ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [17:0] data_b = {
        DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1,
        DIB0};
    wire [17:0] enable_b = DATA_WIDTH_B == 18 ? {{9{ADB1}}, {9{ADB0}}}
        : `MASK(DATA_WIDTH_B) << `FIRST(address_b, DATA_WIDTH_B);
    wire [17:0] moved_b = data_b << `FIRST(address_b, DATA_WIDTH_B);
    wire [17:0] old_b = memory[`WORD(address_b)];
    wire [17:0] new_b = old_b & ~enable_b | moved_b & enable_b;
    // What a port reads while the other writes it is not said for the chip: wrong bits, so that nobody relies on it.
    wire meet = `WORD(address_a) == `WORD(address_b), meet_wide = address_a[13:5] == address_b[13:5];
    wire [17:0] met_a = meet && CEB && WEB ? enable_b : 18'd0;
    wire [17:0] met_low = meet_wide && CEA && WEA ? low_a : 18'd0, met_high = meet_wide && CEA && WEA ? high_a : 18'd0;
    wire [17:0] met_b = DATA_WIDTH_A == 36 ? (address_b[4] ? met_high : met_low)
        : meet && CEA && WEA ? enable_a : 18'd0;
    wire [17:0] wide_low = memory[{address_b[13:5], 1'b0}] ^ met_low;
    wire [17:0] wide_high = memory[{address_b[13:5], 1'b1}] ^ met_high;
    logic [17:0] out_low = 0, late_low = 0;
    logic [17:0] out_b = 0, late_b = 0;
    assign {
        DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1,
        DOB0} = REGMODE_B == "OUTREG" ? late_b : out_b;
    always_ff @(posedge CLKB) begin
        if (RSTB) {late_low, late_b} <= 0;
        else if (OCEB) {late_low, late_b} <= {out_low, out_b};
        if (CEB && WEB && !RSTB) memory[`WORD(address_b)] <= new_b;
        if (RSTB) {out_low, out_b} <= 0;
        else if (CEB && DATA_WIDTH_B == 36) {out_low, out_b} <= {wide_low, wide_high};
        else if (CEB && (!WEB || WRITEMODE_B != "NORMAL"))
            out_b <= ((WEB && WRITEMODE_B == "WRITETHROUGH" ? new_b : old_b ^ met_b)
                >> `FIRST(address_b, DATA_WIDTH_B)) & `MASK(DATA_WIDTH_B);
    end
endmodule

module MULT18X18D #(
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0",
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0",
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0"
) (
    input
        A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0, B17, B16, B15, B14, B13, B12,
        B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0, C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5,
        C4, C3, C2, C1, C0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3,
        RST2, RST1, RST0,
    output
        P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14,
        P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
    // Registers of CLK0, with an enable of CE0 or CE1, and no reset.
    wire [17:0] a_i = {
        A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
    wire [17:0] b_i = {
        B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
    logic [17:0] a_kept = 0, b_kept = 0;
    logic [35:0] p_kept = 0;
    wire [17:0] a = REG_INPUTA_CLK == "NONE" ? a_i : a_kept, b = REG_INPUTB_CLK == "NONE" ? b_i : b_kept;
    wire signed [35:0] product = $signed({SIGNEDA & a[17], a}) * $signed({SIGNEDB & b[17], b});
    always_ff @(posedge CLK0) begin
        if (REG_INPUTA_CE == "CE1" ? CE1 : CE0) a_kept <= a_i;
        if (REG_INPUTB_CE == "CE1" ? CE1 : CE0) b_kept <= b_i;
        if (REG_OUTPUT_CE == "CE1" ? CE1 : CE0) p_kept <= product;
    end
    assign {
        P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14,
        P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = REG_OUTPUT_CLK == "NONE" ? product : p_kept;
endmodule
