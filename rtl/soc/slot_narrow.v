// An AXI4 manager of WIDE bits on a port of NARROW bits: each beat becomes WIDE / NARROW beats of the same burst. A
// burst of 16 beats has up to 16 * WIDE / NARROW beats then, and still crosses no 4 KB. All data pass in order.
module gradloom_slot_narrow #(
    parameter integer WIDE = 256,
    parameter integer NARROW = 128
) (
    input  wire clk,
    input  wire rst,

    input  wire [7:0] s_awlen,
    input  wire [WIDE-1:0] s_wdata,
    input  wire [WIDE/8-1:0] s_wstrb,
    input  wire s_wlast,
    input  wire s_wvalid,
    output wire s_wready,
    input  wire [7:0] s_arlen,
    output wire [WIDE-1:0] s_rdata,
    output wire [1:0] s_rresp,
    output wire s_rlast,
    output wire s_rvalid,
    input  wire s_rready,

    output wire [7:0] m_awlen,
    output wire [NARROW-1:0] m_wdata,
    output wire [NARROW/8-1:0] m_wstrb,
    output wire m_wlast,
    output wire m_wvalid,
    input  wire m_wready,
    output wire [7:0] m_arlen,
    input  wire [NARROW-1:0] m_rdata,
    input  wire [1:0] m_rresp,
    input  wire m_rlast,
    input  wire m_rvalid,
    output wire m_rready
);
    localparam RATIO = WIDE / NARROW;
    localparam BITS = $clog2(RATIO);
    localparam [BITS-1:0] LAST = RATIO - 1;

    assign m_awlen = {s_awlen[7-BITS:0], LAST};
    assign m_arlen = {s_arlen[7-BITS:0], LAST};

    reg [BITS-1:0] w_part;
    assign m_wdata = s_wdata[NARROW * w_part +: NARROW];
    assign m_wstrb = s_wstrb[NARROW / 8 * w_part +: NARROW / 8];
    assign m_wlast = s_wlast && w_part == LAST;
    assign m_wvalid = s_wvalid;
    assign s_wready = m_wready && w_part == LAST;

    // What has arrived of a beat, and the worst answer so far.
    reg [BITS-1:0] r_part;
    reg [WIDE-NARROW-1:0] r_data;
    reg [1:0] r_response;
    assign s_rdata = {m_rdata, r_data};
    assign s_rresp = m_rresp > r_response ? m_rresp : r_response;
    assign s_rlast = m_rlast;
    assign s_rvalid = m_rvalid && r_part == LAST;
    assign m_rready = r_part != LAST || s_rready;

    always @(posedge clk) begin
        if (m_wvalid && m_wready) w_part <= w_part + 1'b1;
        if (m_rvalid && m_rready) begin
            r_part <= r_part + 1'b1;
            r_response <= r_part == LAST ? 2'b00 : s_rresp;
            if (r_part != LAST) r_data[NARROW * r_part +: NARROW] <= m_rdata;
        end
        if (rst) begin
            w_part <= 0;
            r_part <= 0;
            r_response <= 2'b00;
        end
    end
endmodule
