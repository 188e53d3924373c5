// Joins a processor's AXI4-Lite manager of 32 bits and an accelerator's AXI4 manager into one AXI4 manager of
// DATA_BITS, as a board's interconnect does. Ids get a bit on top: 1 for the processor, whose accesses are bursts of
// one whole beat. Neither waits for more than one address of the other.
module soc_bus #(
    parameter int ADDRESS = 32,
    parameter int DATA_BITS = 128,
    parameter int ID_BITS = 1,
    parameter int OUTSTANDING = 64
) (
    input  logic clk,
    input  logic rst,

    input  logic [31:0] c_awaddr,
    input  logic c_awvalid,
    output logic c_awready,
    input  logic [31:0] c_wdata,
    input  logic [3:0] c_wstrb,
    input  logic c_wvalid,
    output logic c_wready,
    output logic [1:0] c_bresp,
    output logic c_bvalid,
    input  logic c_bready,
    input  logic [31:0] c_araddr,
    input  logic c_arvalid,
    output logic c_arready,
    output logic [31:0] c_rdata,
    output logic [1:0] c_rresp,
    output logic c_rvalid,
    input  logic c_rready,

    input  logic [ID_BITS-1:0] a_awid,
    input  logic [ADDRESS-1:0] a_awaddr,
    input  logic [7:0] a_awlen,
    input  logic a_awvalid,
    output logic a_awready,
    input  logic [DATA_BITS-1:0] a_wdata,
    input  logic [DATA_BITS/8-1:0] a_wstrb,
    input  logic a_wlast,
    input  logic a_wvalid,
    output logic a_wready,
    output logic [ID_BITS-1:0] a_bid,
    output logic [1:0] a_bresp,
    output logic a_bvalid,
    input  logic a_bready,
    input  logic [ID_BITS-1:0] a_arid,
    input  logic [ADDRESS-1:0] a_araddr,
    input  logic [7:0] a_arlen,
    input  logic a_arvalid,
    output logic a_arready,
    output logic [ID_BITS-1:0] a_rid,
    output logic [DATA_BITS-1:0] a_rdata,
    output logic [1:0] a_rresp,
    output logic a_rlast,
    output logic a_rvalid,
    input  logic a_rready,

    output logic [ID_BITS:0] m_awid,
    output logic [ADDRESS-1:0] m_awaddr,
    output logic [7:0] m_awlen,
    output logic m_awvalid,
    input  logic m_awready,
    output logic [DATA_BITS-1:0] m_wdata,
    output logic [DATA_BITS/8-1:0] m_wstrb,
    output logic m_wlast,
    output logic m_wvalid,
    input  logic m_wready,
    input  logic [ID_BITS:0] m_bid,
    input  logic [1:0] m_bresp,
    input  logic m_bvalid,
    output logic m_bready,
    output logic [ID_BITS:0] m_arid,
    output logic [ADDRESS-1:0] m_araddr,
    output logic [7:0] m_arlen,
    output logic m_arvalid,
    input  logic m_arready,
    input  logic [ID_BITS:0] m_rid,
    input  logic [DATA_BITS-1:0] m_rdata,
    input  logic [1:0] m_rresp,
    input  logic m_rlast,
    input  logic m_rvalid,
    output logic m_rready
);
    localparam int LANES = DATA_BITS / 32;
    localparam int SLOTS = $clog2(OUTSTANDING);

    // Which of the two has the address channel: changes only while no address waits there.
    logic ar_cpu, aw_cpu;
    always_ff @(posedge clk) begin
        if (rst) begin
            ar_cpu <= 1'b0;
            aw_cpu <= 1'b0;
        end else begin
            if (!m_arvalid || m_arready) ar_cpu <= ar_cpu ? !a_arvalid && c_arvalid : c_arvalid;
            if (!m_awvalid || m_awready) aw_cpu <= aw_cpu ? !a_awvalid && c_awvalid : c_awvalid;
        end
    end

    // ---- reads
    logic [$clog2(LANES)-1:0] read_lane;
    always_ff @(posedge clk) if (c_arvalid && c_arready) read_lane <= c_araddr[2 +: $clog2(LANES)];
    assign m_arid = {ar_cpu, ar_cpu ? ID_BITS'(0) : a_arid};
    assign m_araddr = ar_cpu ? ADDRESS'(c_araddr) & ~ADDRESS'(DATA_BITS / 8 - 1) : a_araddr;
    assign m_arlen = ar_cpu ? 8'd0 : a_arlen;
    assign m_arvalid = ar_cpu ? c_arvalid : a_arvalid;
    assign c_arready = ar_cpu && m_arready;
    assign a_arready = !ar_cpu && m_arready;
    wire r_cpu = m_rid[ID_BITS];
    assign c_rdata = m_rdata[32 * read_lane +: 32];
    assign c_rresp = m_rresp;
    assign c_rvalid = m_rvalid && r_cpu;
    assign a_rid = m_rid[ID_BITS-1:0];
    assign a_rdata = m_rdata;
    assign a_rresp = m_rresp;
    assign a_rlast = m_rlast;
    assign a_rvalid = m_rvalid && !r_cpu;
    assign m_rready = r_cpu ? c_rready : a_rready;

    // ---- writes: data in the order of addresses, which `owner` remembers
    logic owner [OUTSTANDING];
    logic [SLOTS:0] put, take;
    wire full = (SLOTS+1)'(put - take) == (SLOTS+1)'(OUTSTANDING);
    wire some = put != take;
    wire w_cpu = owner[take[SLOTS-1:0]];
    logic [$clog2(LANES)-1:0] write_lane;
    always_ff @(posedge clk) begin
        if (c_awvalid && c_awready) write_lane <= c_awaddr[2 +: $clog2(LANES)];
        if (m_awvalid && m_awready) begin
            owner[put[SLOTS-1:0]] <= aw_cpu;
            put <= put + 1'b1;
        end
        if (m_wvalid && m_wready && m_wlast) take <= take + 1'b1;
        if (rst) begin
            put <= '0;
            take <= '0;
        end
    end
    assign m_awid = {aw_cpu, aw_cpu ? ID_BITS'(0) : a_awid};
    assign m_awaddr = aw_cpu ? ADDRESS'(c_awaddr) & ~ADDRESS'(DATA_BITS / 8 - 1) : a_awaddr;
    assign m_awlen = aw_cpu ? 8'd0 : a_awlen;
    assign m_awvalid = (aw_cpu ? c_awvalid : a_awvalid) && !full;
    assign c_awready = aw_cpu && m_awready && !full;
    assign a_awready = !aw_cpu && m_awready && !full;
    assign m_wdata = w_cpu ? {LANES{c_wdata}} : a_wdata;
    assign m_wstrb = w_cpu ? (DATA_BITS/8)'(c_wstrb) << 4 * write_lane : a_wstrb;
    assign m_wlast = w_cpu || a_wlast;
    assign m_wvalid = some && (w_cpu ? c_wvalid : a_wvalid);
    assign c_wready = some && w_cpu && m_wready;
    assign a_wready = some && !w_cpu && m_wready;
    wire b_cpu = m_bid[ID_BITS];
    assign c_bresp = m_bresp;
    assign c_bvalid = m_bvalid && b_cpu;
    assign a_bid = m_bid[ID_BITS-1:0];
    assign a_bresp = m_bresp;
    assign a_bvalid = m_bvalid && !b_cpu;
    assign m_bready = b_cpu ? c_bready : a_bready;
endmodule
