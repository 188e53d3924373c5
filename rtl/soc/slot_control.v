// Registers behind an AXI4 subordinate of DATA_BITS with ids: one access of at most 32 bits at a time reaches an
// AXI4-Lite manager of 32 bits. A burst of several beats is answered by SLVERR on every beat, and reaches nothing.
module gradloom_slot_control #(
    parameter integer ADDRESS_BITS = 32,
    parameter integer DATA_BITS = 32,
    parameter integer ID_BITS = 1
) (
    input  wire clk,
    input  wire rst,

    input  wire [ID_BITS-1:0] s_awid,
    input  wire [ADDRESS_BITS-1:0] s_awaddr,
    input  wire [7:0] s_awlen,
    input  wire s_awvalid,
    output wire s_awready,
    input  wire [DATA_BITS-1:0] s_wdata,
    input  wire [DATA_BITS/8-1:0] s_wstrb,
    input  wire s_wlast,
    input  wire s_wvalid,
    output wire s_wready,
    output wire [ID_BITS-1:0] s_bid,
    output wire [1:0] s_bresp,
    output wire s_bvalid,
    input  wire s_bready,
    input  wire [ID_BITS-1:0] s_arid,
    input  wire [ADDRESS_BITS-1:0] s_araddr,
    input  wire [7:0] s_arlen,
    input  wire s_arvalid,
    output wire s_arready,
    output wire [ID_BITS-1:0] s_rid,
    output wire [DATA_BITS-1:0] s_rdata,
    output wire [1:0] s_rresp,
    output wire s_rlast,
    output wire s_rvalid,
    input  wire s_rready,

    output wire [11:0] m_awaddr,
    output wire m_awvalid,
    input  wire m_awready,
    output wire [31:0] m_wdata,
    output wire [3:0] m_wstrb,
    output wire m_wvalid,
    input  wire m_wready,
    input  wire [1:0] m_bresp,
    input  wire m_bvalid,
    output wire m_bready,
    output wire [11:0] m_araddr,
    output wire m_arvalid,
    input  wire m_arready,
    input  wire [31:0] m_rdata,
    input  wire [1:0] m_rresp,
    input  wire m_rvalid,
    output wire m_rready
);
    localparam LANES = DATA_BITS / 32;
    localparam [1:0] SLVERR = 2'b10;
    localparam [2:0] IDLE = 3'd0, DATA = 3'd1, ASK = 3'd2, WAIT = 3'd3, ANSWER = 3'd4;

    // ---- writes
    reg [2:0] w_state;
    reg [ID_BITS-1:0] w_id;
    reg [11:0] w_address;
    reg [31:0] w_data;
    reg [3:0] w_strobe;
    reg [1:0] w_response;
    reg w_refused, w_asks, w_gives;

    // The lane whose bytes are written: the address may be that of the whole beat.
    reg [31:0] lane_data;
    reg [3:0] lane_strobe;
    reg [9:0] lane_word;
    integer lane;
    always @* begin
        lane_data = s_wdata[31:0];
        lane_strobe = s_wstrb[3:0];
        lane_word = w_address[11:2];
        for (lane = 1; lane < LANES; lane = lane + 1)
            if (s_wstrb[4*lane +: 4] != 0) begin
                lane_data = s_wdata[32*lane +: 32];
                lane_strobe = s_wstrb[4*lane +: 4];
                lane_word = (w_address[11:2] & ~(LANES - 1)) | lane;
            end
    end

    assign s_awready = w_state == IDLE;
    assign s_wready = w_state == DATA;
    assign s_bid = w_id;
    assign s_bresp = w_response;
    assign s_bvalid = w_state == ANSWER;
    assign m_awaddr = w_address;
    assign m_awvalid = w_state == ASK && w_asks;
    assign m_wdata = w_data;
    assign m_wstrb = w_strobe;
    assign m_wvalid = w_state == ASK && w_gives;
    assign m_bready = w_state == ASK;

    always @(posedge clk) begin
        case (w_state)
            IDLE: if (s_awvalid) begin
                w_id <= s_awid;
                w_address <= s_awaddr[11:0];
                w_refused <= s_awlen != 0;
                w_state <= DATA;
            end
            DATA: if (s_wvalid) begin
                w_data <= lane_data;
                w_strobe <= lane_strobe;
                if (lane_strobe != 0) w_address <= {lane_word, 2'b00};
                w_response <= SLVERR;
                w_asks <= 1'b1;
                w_gives <= 1'b1;
                if (s_wlast) w_state <= w_refused ? ANSWER : ASK;
            end
            ASK: begin
                if (m_awready) w_asks <= 1'b0;
                if (m_wready) w_gives <= 1'b0;
                if (m_bvalid) begin
                    w_response <= m_bresp;
                    w_state <= ANSWER;
                end
            end
            default: if (s_bready) w_state <= IDLE;
        endcase
        if (rst) w_state <= IDLE;
    end

    // ---- reads
    reg [2:0] r_state;
    reg [ID_BITS-1:0] r_id;
    reg [11:0] r_address;
    reg [7:0] r_left;
    reg [31:0] r_data;
    reg [1:0] r_response;

    assign s_arready = r_state == IDLE;
    assign s_rid = r_id;
    assign s_rdata = {LANES{r_data}};
    assign s_rresp = r_response;
    assign s_rlast = r_left == 0;
    assign s_rvalid = r_state == ANSWER;
    assign m_araddr = {r_address[11:2], 2'b00};
    assign m_arvalid = r_state == ASK;
    assign m_rready = r_state == WAIT;

    always @(posedge clk) begin
        case (r_state)
            IDLE: if (s_arvalid) begin
                r_id <= s_arid;
                r_address <= s_araddr[11:0];
                r_left <= s_arlen;
                r_data <= 32'd0;
                r_response <= SLVERR;
                r_state <= s_arlen != 0 ? ANSWER : ASK;
            end
            ASK: if (m_arready) r_state <= WAIT;
            WAIT: if (m_rvalid) begin
                r_data <= m_rdata;
                r_response <= m_rresp;
                r_state <= ANSWER;
            end
            default: if (s_rready) begin
                r_left <= r_left - 1'b1;
                if (r_left == 0) r_state <= IDLE;
            end
        endcase
        if (rst) r_state <= IDLE;
    end
endmodule
