// An open system on chip around the accelerator, beside a memory and somebody who listens to its UART: what soc.cpp
// drives. All that happens, the processor makes happen.
module soc #(
    parameter int BYTES = 1 << 24,
    parameter int ADDRESS = 32,
    parameter int DATA_BITS = 128,
    parameter int DIVISOR = 4,
    parameter int CARD_SLOW = 10,
    parameter int CARD_FAST = 4,
    parameter int CARD_TRIES = 6,
    parameter IMAGE = "soc_image.mem"
) (
    input  logic clk,
    input  logic rst,
    input  logic restart,    // the button
    input  logic mains_lost,
    input  logic [11:0] temperature,
    input  logic rxd,        // the UART's line into the processor
    input  logic [15:0] read_latency,
    input  logic [15:0] write_latency,
    input  logic [7:0] stall,
    input  logic [31:0] seed,

    output logic sd_reset,
    output logic sd_sclk,
    output logic sd_mosi,
    output logic sd_cs_n,
    input  logic sd_miso,

    output logic heard,
    output logic [7:0] byte_heard,
    output logic broken,     // a frame without its stop bit
    output logic trap,
    output logic fault,
    output logic protocol_error
);
    localparam int ID_BITS = 1;
    localparam logic [63:0] BASE = 64'h8000_0000;

    // ---- processor
    logic [31:0] c_awaddr, c_wdata, c_araddr, c_rdata;
    logic [3:0] c_wstrb;
    logic [1:0] c_bresp, c_rresp;
    logic c_awvalid, c_awready, c_wvalid, c_wready, c_bvalid, c_bready, c_arvalid, c_arready, c_rvalid, c_rready;
    logic [11:0] s_awaddr, s_araddr;
    logic [31:0] s_wdata, s_rdata;
    logic [3:0] s_wstrb;
    logic [1:0] s_bresp, s_rresp;
    logic s_awvalid, s_awready, s_wvalid, s_wready, s_bvalid, s_bready, s_arvalid, s_arready, s_rvalid, s_rready;
    logic txd;

    gradloom_soc #(.DIVISOR(DIVISOR), .CARD_SLOW(CARD_SLOW), .CARD_FAST(CARD_FAST), .CARD_TRIES(CARD_TRIES),
                   .IMAGE(IMAGE)) processor (
        .clk, .rst, .restart_n(!restart), .mains_lost, .temperature, .uart_txd(txd), .uart_rxd(rxd), .trap, .fault, .sd_reset, .sd_sclk, .sd_mosi, .sd_cs_n, .sd_miso,
        .m_axi_reg_awaddr(s_awaddr), .m_axi_reg_awprot(), .m_axi_reg_awvalid(s_awvalid), .m_axi_reg_awready(s_awready),
        .m_axi_reg_wdata(s_wdata), .m_axi_reg_wstrb(s_wstrb), .m_axi_reg_wvalid(s_wvalid), .m_axi_reg_wready(s_wready),
        .m_axi_reg_bresp(s_bresp), .m_axi_reg_bvalid(s_bvalid), .m_axi_reg_bready(s_bready),
        .m_axi_reg_araddr(s_araddr), .m_axi_reg_arprot(), .m_axi_reg_arvalid(s_arvalid), .m_axi_reg_arready(s_arready),
        .m_axi_reg_rdata(s_rdata), .m_axi_reg_rresp(s_rresp), .m_axi_reg_rvalid(s_rvalid), .m_axi_reg_rready(s_rready),
        .m_axi_mem_awaddr(c_awaddr), .m_axi_mem_awprot(), .m_axi_mem_awvalid(c_awvalid), .m_axi_mem_awready(c_awready),
        .m_axi_mem_wdata(c_wdata), .m_axi_mem_wstrb(c_wstrb), .m_axi_mem_wvalid(c_wvalid), .m_axi_mem_wready(c_wready),
        .m_axi_mem_bresp(c_bresp), .m_axi_mem_bvalid(c_bvalid), .m_axi_mem_bready(c_bready),
        .m_axi_mem_araddr(c_araddr), .m_axi_mem_arprot(), .m_axi_mem_arvalid(c_arvalid), .m_axi_mem_arready(c_arready),
        .m_axi_mem_rdata(c_rdata), .m_axi_mem_rresp(c_rresp), .m_axi_mem_rvalid(c_rvalid), .m_axi_mem_rready(c_rready)
    );

    // ---- accelerator
    logic [ADDRESS-1:0] a_awaddr, a_araddr;
    logic [7:0] a_awlen, a_arlen;
    logic [2:0] a_awsize, a_arsize;
    logic [1:0] a_awburst, a_arburst, a_bresp, a_rresp;
    logic [ID_BITS-1:0] a_awid, a_arid, a_bid, a_rid;
    logic a_awvalid, a_awready, a_wvalid, a_wready, a_wlast, a_bvalid, a_bready;
    logic a_arvalid, a_arready, a_rvalid, a_rready, a_rlast;
    logic [DATA_BITS-1:0] a_wdata, a_rdata;
    logic [DATA_BITS/8-1:0] a_wstrb;

    gradloom accelerator (
        .clk, .rst, .irq(), .trace(),
        .s_axi_awaddr(s_awaddr), .s_axi_awprot(3'd0), .s_axi_awvalid(s_awvalid), .s_axi_awready(s_awready),
        .s_axi_wdata(s_wdata), .s_axi_wstrb(s_wstrb), .s_axi_wvalid(s_wvalid), .s_axi_wready(s_wready),
        .s_axi_bresp(s_bresp), .s_axi_bvalid(s_bvalid), .s_axi_bready(s_bready),
        .s_axi_araddr(s_araddr), .s_axi_arprot(3'd0), .s_axi_arvalid(s_arvalid), .s_axi_arready(s_arready),
        .s_axi_rdata(s_rdata), .s_axi_rresp(s_rresp), .s_axi_rvalid(s_rvalid), .s_axi_rready(s_rready),
        .m_axi_awid(a_awid), .m_axi_awaddr(a_awaddr), .m_axi_awlen(a_awlen), .m_axi_awsize(a_awsize),
        .m_axi_awburst(a_awburst), .m_axi_awlock(), .m_axi_awcache(), .m_axi_awprot(), .m_axi_awqos(),
        .m_axi_awvalid(a_awvalid), .m_axi_awready(a_awready),
        .m_axi_wdata(a_wdata), .m_axi_wstrb(a_wstrb), .m_axi_wlast(a_wlast), .m_axi_wvalid(a_wvalid),
        .m_axi_wready(a_wready),
        .m_axi_bid(a_bid), .m_axi_bresp(a_bresp), .m_axi_bvalid(a_bvalid), .m_axi_bready(a_bready),
        .m_axi_arid(a_arid), .m_axi_araddr(a_araddr), .m_axi_arlen(a_arlen), .m_axi_arsize(a_arsize),
        .m_axi_arburst(a_arburst), .m_axi_arlock(), .m_axi_arcache(), .m_axi_arprot(), .m_axi_arqos(),
        .m_axi_arvalid(a_arvalid), .m_axi_arready(a_arready),
        .m_axi_rid(a_rid), .m_axi_rdata(a_rdata), .m_axi_rresp(a_rresp), .m_axi_rlast(a_rlast),
        .m_axi_rvalid(a_rvalid), .m_axi_rready(a_rready)
    );

    // ---- memory
    logic [ADDRESS-1:0] m_awaddr, m_araddr;
    logic [7:0] m_awlen, m_arlen;
    logic [1:0] m_bresp, m_rresp;
    logic [ID_BITS:0] m_awid, m_arid, m_bid, m_rid;
    logic m_awvalid, m_awready, m_wvalid, m_wready, m_wlast, m_bvalid, m_bready;
    logic m_arvalid, m_arready, m_rvalid, m_rready, m_rlast;
    logic [DATA_BITS-1:0] m_wdata, m_rdata;
    logic [DATA_BITS/8-1:0] m_wstrb;

    soc_bus #(.ADDRESS(ADDRESS), .DATA_BITS(DATA_BITS), .ID_BITS(ID_BITS)) bus (.*);

    axi_memory #(.ADDR_BITS(ADDRESS), .DATA_BITS(DATA_BITS), .ID_BITS(ID_BITS + 1), .BYTES(BYTES), .BASE(BASE)) ram (
        .clk, .rst, .read_latency, .write_latency, .port_reads(8'd0), .stall, .spread(16'd0), .dram(61'd0), .seed,
        .fail_enable(1'b0), .fail_address('0), .fail_resp('0),
        .host_word(32'd0), .host_we(1'b0), .host_wdata('0), .host_rdata(),
        .awid(m_awid), .awaddr(m_awaddr), .awlen(m_awlen), .awsize(3'($clog2(DATA_BITS / 8))), .awburst(2'd1),
        .awvalid(m_awvalid), .awready(m_awready),
        .wdata(m_wdata), .wstrb(m_wstrb), .wlast(m_wlast), .wvalid(m_wvalid), .wready(m_wready),
        .bid(m_bid), .bresp(m_bresp), .bvalid(m_bvalid), .bready(m_bready),
        .arid(m_arid), .araddr(m_araddr), .arlen(m_arlen), .arsize(3'($clog2(DATA_BITS / 8))), .arburst(2'd1),
        .arvalid(m_arvalid), .arready(m_arready),
        .rid(m_rid), .rdata(m_rdata), .rresp(m_rresp), .rlast(m_rlast), .rvalid(m_rvalid), .rready(m_rready),
        .protocol_error
    );

    uart_listener #(.DIVISOR(DIVISOR)) listener (.clk, .rst, .txd, .heard, .byte_heard, .broken);
endmodule
