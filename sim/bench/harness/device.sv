// The accelerator beside a memory: what device.cpp drives. TWO_PORTS and FOUR_PORTS, both with four, are defined where
// PORTS says so.
module device #(
    parameter int BYTES = 1 << 26,
    parameter int ADDRESS = 40,
    parameter int DATA_BITS = 128,
    parameter int LONGEST = 16,
    parameter int PORTS = 1,
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
    input  logic [15:0] spread,
    input  logic [60:0] dram,
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
    logic [PORTS-1:0][ADDRESS-1:0] m_awaddr, m_araddr;
    logic [PORTS-1:0][7:0] m_awlen, m_arlen;
    logic [PORTS-1:0][2:0] m_awsize, m_arsize;
    logic [PORTS-1:0][1:0] m_awburst, m_arburst, m_bresp, m_rresp;
    logic [PORTS-1:0] m_awid, m_arid, m_bid, m_rid;
    logic [PORTS-1:0] m_awvalid, m_awready, m_wvalid, m_wready, m_wlast, m_bvalid, m_bready;
    logic [PORTS-1:0] m_arvalid, m_arready, m_rvalid, m_rready, m_rlast;
    logic [PORTS-1:0][DATA_BITS-1:0] m_wdata, m_rdata;
    logic [PORTS-1:0][DATA_BITS/8-1:0] m_wstrb;

`define MANAGER(NAME, P) \
        .NAME``_awid(m_awid[P]), .NAME``_awaddr(m_awaddr[P]), .NAME``_awlen(m_awlen[P]), \
        .NAME``_awsize(m_awsize[P]), .NAME``_awburst(m_awburst[P]), .NAME``_awlock(), .NAME``_awcache(), \
        .NAME``_awprot(), .NAME``_awqos(), .NAME``_awvalid(m_awvalid[P]), .NAME``_awready(m_awready[P]), \
        .NAME``_wdata(m_wdata[P]), .NAME``_wstrb(m_wstrb[P]), .NAME``_wlast(m_wlast[P]), \
        .NAME``_wvalid(m_wvalid[P]), .NAME``_wready(m_wready[P]), \
        .NAME``_bid(m_bid[P]), .NAME``_bresp(m_bresp[P]), .NAME``_bvalid(m_bvalid[P]), .NAME``_bready(m_bready[P]), \
        .NAME``_arid(m_arid[P]), .NAME``_araddr(m_araddr[P]), .NAME``_arlen(m_arlen[P]), \
        .NAME``_arsize(m_arsize[P]), .NAME``_arburst(m_arburst[P]), .NAME``_arlock(), .NAME``_arcache(), \
        .NAME``_arprot(), .NAME``_arqos(), .NAME``_arvalid(m_arvalid[P]), .NAME``_arready(m_arready[P]), \
        .NAME``_rid(m_rid[P]), .NAME``_rdata(m_rdata[P]), .NAME``_rresp(m_rresp[P]), .NAME``_rlast(m_rlast[P]), \
        .NAME``_rvalid(m_rvalid[P]), .NAME``_rready(m_rready[P])

    gradloom dut (
        .clk, .rst, .irq, .trace(events),
        .s_axi_awaddr(awaddr), .s_axi_awprot(3'd0), .s_axi_awvalid(awvalid), .s_axi_awready(awready),
        .s_axi_wdata(wdata), .s_axi_wstrb(4'hf), .s_axi_wvalid(wvalid), .s_axi_wready(wready),
        .s_axi_bresp(bresp), .s_axi_bvalid(bvalid), .s_axi_bready(1'b1),
        .s_axi_araddr(araddr), .s_axi_arprot(3'd0), .s_axi_arvalid(arvalid), .s_axi_arready(arready),
        .s_axi_rdata(rdata), .s_axi_rresp(rresp), .s_axi_rvalid(rvalid), .s_axi_rready(1'b1),
`ifdef TWO_PORTS
        `MANAGER(m_axi_1, 1),
`endif
`ifdef FOUR_PORTS
        `MANAGER(m_axi_2, 2),
        `MANAGER(m_axi_3, 3),
`endif
        `MANAGER(m_axi, 0)
    );

    axi_memory #(.ADDR_BITS(ADDRESS), .DATA_BITS(DATA_BITS), .ID_BITS(1), .BYTES(BYTES), .BASE(BASE),
        .LONGEST(LONGEST), .PORTS(PORTS)) ram (
        .clk, .rst, .read_latency, .write_latency, .port_reads, .stall, .spread, .dram, .seed,
        .fail_enable, .fail_address, .fail_resp,
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
        else
            for (int p = 0; p < PORTS; p++)
                if ((m_arvalid[p] && strays(m_araddr[p], m_arlen[p]))
                        || (m_awvalid[p] && strays(m_awaddr[p], m_awlen[p]))) begin
                    strayed <= 1'b1;
                    $fdisplay(32'h8000_0002, "device: a burst beyond the fence");
                end
    assign protocol_error = broken || strayed;
endmodule
