// The accelerator beside a memory: what device.cpp drives.
module device #(
    parameter int BYTES = 1 << 26,
    parameter int ADDRESS = 40,
    parameter int DATA_BITS = 128,
    parameter int LONGEST = 16,
    parameter longint unsigned BASE = 64'h1_0000
) (
    input  logic clk,
    input  logic rst,
    output logic irq,
    output logic [31:0] events,

    input  logic [15:0] read_latency,
    input  logic [15:0] write_latency,
    input  logic [7:0] port_reads,
    input  logic [7:0] stall,
    input  logic [31:0] seed,
    input  logic fail_enable,
    input  logic [63:0] fail_address,
    input  logic [1:0] fail_resp,
    // No address is asked for below `fence_low`, none from `fence_high` on; it may move while nothing runs.
    input  logic [63:0] fence_low,
    input  logic [63:0] fence_high,
    output logic protocol_error,

    input  logic [11:0] awaddr,
    input  logic awvalid,
    output logic awready,
    input  logic [31:0] wdata,
    input  logic wvalid,
    output logic wready,
    output logic [1:0] bresp,
    output logic bvalid,
    input  logic [11:0] araddr,
    input  logic arvalid,
    output logic arready,
    output logic [31:0] rdata,
    output logic [1:0] rresp,
    output logic rvalid
);
    logic [ADDRESS-1:0] m_awaddr, m_araddr;
    logic [7:0] m_awlen, m_arlen;
    logic [2:0] m_awsize, m_arsize;
    logic [1:0] m_awburst, m_arburst, m_bresp, m_rresp;
    logic m_awid, m_arid, m_bid, m_rid;
    logic m_awvalid, m_awready, m_wvalid, m_wready, m_wlast, m_bvalid, m_bready;
    logic m_arvalid, m_arready, m_rvalid, m_rready, m_rlast;
    logic [DATA_BITS-1:0] m_wdata, m_rdata;
    logic [DATA_BITS/8-1:0] m_wstrb;

    gradloom dut (
        .clk, .rst, .irq, .trace(events),
        .s_axi_awaddr(awaddr), .s_axi_awprot(3'd0), .s_axi_awvalid(awvalid), .s_axi_awready(awready),
        .s_axi_wdata(wdata), .s_axi_wstrb(4'hf), .s_axi_wvalid(wvalid), .s_axi_wready(wready),
        .s_axi_bresp(bresp), .s_axi_bvalid(bvalid), .s_axi_bready(1'b1),
        .s_axi_araddr(araddr), .s_axi_arprot(3'd0), .s_axi_arvalid(arvalid), .s_axi_arready(arready),
        .s_axi_rdata(rdata), .s_axi_rresp(rresp), .s_axi_rvalid(rvalid), .s_axi_rready(1'b1),
        .m_axi_awid(m_awid), .m_axi_awaddr(m_awaddr), .m_axi_awlen(m_awlen), .m_axi_awsize(m_awsize),
        .m_axi_awburst(m_awburst), .m_axi_awlock(), .m_axi_awcache(), .m_axi_awprot(), .m_axi_awqos(),
        .m_axi_awvalid(m_awvalid), .m_axi_awready(m_awready),
        .m_axi_wdata(m_wdata), .m_axi_wstrb(m_wstrb), .m_axi_wlast(m_wlast), .m_axi_wvalid(m_wvalid),
        .m_axi_wready(m_wready),
        .m_axi_bid(m_bid), .m_axi_bresp(m_bresp), .m_axi_bvalid(m_bvalid), .m_axi_bready(m_bready),
        .m_axi_arid(m_arid), .m_axi_araddr(m_araddr), .m_axi_arlen(m_arlen), .m_axi_arsize(m_arsize),
        .m_axi_arburst(m_arburst), .m_axi_arlock(), .m_axi_arcache(), .m_axi_arprot(), .m_axi_arqos(),
        .m_axi_arvalid(m_arvalid), .m_axi_arready(m_arready),
        .m_axi_rid(m_rid), .m_axi_rdata(m_rdata), .m_axi_rresp(m_rresp), .m_axi_rlast(m_rlast),
        .m_axi_rvalid(m_rvalid), .m_axi_rready(m_rready)
    );

    axi_memory #(.ADDR_BITS(ADDRESS), .DATA_BITS(DATA_BITS), .ID_BITS(1), .BYTES(BYTES), .BASE(BASE),
        .LONGEST(LONGEST)) ram (
        .clk, .rst, .read_latency, .write_latency, .port_reads, .stall, .seed, .fail_enable, .fail_address, .fail_resp,
        .host_word(32'd0), .host_we(1'b0), .host_wdata('0), .host_rdata(),
        .awid(m_awid), .awaddr(m_awaddr), .awlen(m_awlen), .awsize(m_awsize), .awburst(m_awburst),
        .awvalid(m_awvalid), .awready(m_awready),
        .wdata(m_wdata), .wstrb(m_wstrb), .wlast(m_wlast), .wvalid(m_wvalid), .wready(m_wready),
        .bid(m_bid), .bresp(m_bresp), .bvalid(m_bvalid), .bready(m_bready),
        .arid(m_arid), .araddr(m_araddr), .arlen(m_arlen), .arsize(m_arsize), .arburst(m_arburst),
        .arvalid(m_arvalid), .arready(m_arready),
        .rid(m_rid), .rdata(m_rdata), .rresp(m_rresp), .rlast(m_rlast), .rvalid(m_rvalid), .rready(m_rready),
        .protocol_error(broken)
    );

    logic broken, strayed;
    function automatic logic strays(input logic [ADDRESS-1:0] address, input logic [7:0] len);
        return 64'(address) < fence_low || 64'(address) + (64'(len) + 1) * (DATA_BITS / 8) > fence_high;
    endfunction
    always_ff @(posedge clk)
        if (rst) strayed <= 1'b0;
        else if ((m_arvalid && strays(m_araddr, m_arlen)) || (m_awvalid && strays(m_awaddr, m_awlen))) begin
            strayed <= 1'b1;
            $fdisplay(32'h8000_0002, "device: a burst beyond the fence");
        end
    assign protocol_error = broken || strayed;
endmodule
