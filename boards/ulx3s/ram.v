// rtl/soc/onchip_ram.v for the ECP5, filled: blocks hold bits of all its @WORDS@ words. The last register is the block's.
module gradloom_ram #(
    parameter integer WORDS = @WORDS@,
    parameter IMAGE = ""
) (
    input  wire                 clk,
    input  wire [@ADDRESS@-1:0] a_word,
    input  wire                 a_write,
    input  wire [127:0]         a_data,
    output wire [127:0]         a_read,
    input  wire [@ADDRESS@-1:0] b_word,
    input  wire [3:0]           b_write,
    input  wire [31:0]          b_data,
    output wire [127:0]         b_read
);
    reg [@ADDRESS@-1:0] a_asked, b_asked;
    reg [127:0] a_data_asked, a_data_there;
    reg a_writes_asked;
    reg [3:0] b_writes_asked;
    reg [31:0] b_data_asked;
    always @(posedge clk) begin
        {a_asked, a_writes_asked, a_data_asked, b_asked} <= {a_word, a_write, a_data, b_word};
        {b_writes_asked, b_data_asked} <= {b_write, b_data};
        a_data_there <= a_data_asked;
    end

@BLOCKS@
endmodule

// Address and write for as many blocks as can lie near each other. Kept: equal registers would be made one.
module gradloom_ram_group (
    input  wire               clk,
    input  wire [@ASKED@-1:0] asked,
    output wire [@ASKED@-1:0] there
);
    genvar n;
    generate
        for (n = 0; n < @ASKED@; n = n + 1) begin : bits
            (* keep *) TRELLIS_FF #(
                .GSR("DISABLED"), .CEMUX("1"), .CLKMUX("CLK"), .LSRMUX("LSR"), .REGSET("RESET")
            ) register (.CLK(clk), .LSR(1'b0), .CE(1'b1), .DI(asked[n]), .Q(there[n]));
        end
    endgenerate
endmodule
