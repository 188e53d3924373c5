// An accelerator that fine-tunes on its own after reset: processor with firmware, accelerator, and all data in block
// RAM, which the UART may bring others into and read. The reset is for power-up alone: the accelerator has none, and begins
// with what its registers are initialised to.
module gradloom_tuner #(
    parameter integer WORDS = 8192,
    parameter integer RAM_WORDS = 8192,
    parameter integer DIVISOR = 651,
    parameter FIRMWARE = "tuner_image.mem",
    parameter MEMORY = "memory.mem"
) (
    input  wire clk,
    input  wire rst,
    output wire uart_txd,
    input  wire uart_rxd,  // any clock
    output wire trap,
    output wire fault
);
    // Processor to registers (r_) and memory (c_).
    wire [11:0] r_awaddr, r_araddr;
    wire [31:0] r_wdata, r_rdata, c_awaddr, c_wdata, c_araddr, c_rdata;
    wire [3:0] r_wstrb, c_wstrb;
    wire [1:0] r_bresp, r_rresp, c_bresp, c_rresp;
    wire r_awvalid, r_awready, r_wvalid, r_wready, r_bvalid, r_bready, r_arvalid, r_arready, r_rvalid, r_rready;
    wire c_awvalid, c_awready, c_wvalid, c_wready, c_bvalid, c_bready, c_arvalid, c_arready, c_rvalid, c_rready;

    gradloom_soc #(.RAM_WORDS(RAM_WORDS), .DIVISOR(DIVISOR), .CARD(0), .LISTENS(16), .FAST(0), .IMAGE(FIRMWARE)) processor (
        .clk(clk), .rst(rst), .restart_n(1'b1), .mains_lost(1'b0), .temperature(12'd0), .uart_txd(uart_txd), .uart_rxd(uart_rxd), .trap(trap), .fault(fault),
        .sd_reset(), .sd_sclk(), .sd_mosi(), .sd_cs_n(), .sd_miso(1'b1),  // no card
        .m_axi_reg_awaddr(r_awaddr), .m_axi_reg_awprot(), .m_axi_reg_awvalid(r_awvalid), .m_axi_reg_awready(r_awready),
        .m_axi_reg_wdata(r_wdata), .m_axi_reg_wstrb(r_wstrb), .m_axi_reg_wvalid(r_wvalid), .m_axi_reg_wready(r_wready),
        .m_axi_reg_bresp(r_bresp), .m_axi_reg_bvalid(r_bvalid), .m_axi_reg_bready(r_bready),
        .m_axi_reg_araddr(r_araddr), .m_axi_reg_arprot(), .m_axi_reg_arvalid(r_arvalid), .m_axi_reg_arready(r_arready),
        .m_axi_reg_rdata(r_rdata), .m_axi_reg_rresp(r_rresp), .m_axi_reg_rvalid(r_rvalid), .m_axi_reg_rready(r_rready),
        .m_axi_mem_awaddr(c_awaddr), .m_axi_mem_awprot(), .m_axi_mem_awvalid(c_awvalid), .m_axi_mem_awready(c_awready),
        .m_axi_mem_wdata(c_wdata), .m_axi_mem_wstrb(c_wstrb), .m_axi_mem_wvalid(c_wvalid), .m_axi_mem_wready(c_wready),
        .m_axi_mem_bresp(c_bresp), .m_axi_mem_bvalid(c_bvalid), .m_axi_mem_bready(c_bready),
        .m_axi_mem_araddr(c_araddr), .m_axi_mem_arprot(), .m_axi_mem_arvalid(c_arvalid), .m_axi_mem_arready(c_arready),
        .m_axi_mem_rdata(c_rdata), .m_axi_mem_rresp(c_rresp), .m_axi_mem_rvalid(c_rvalid), .m_axi_mem_rready(c_rready)
    );

    // Accelerator to memory.
    wire [31:0] a_awaddr, a_araddr;
    wire [7:0] a_awlen, a_arlen;
    wire [127:0] a_wdata, a_rdata;
    wire [1:0] a_bresp, a_rresp;
    wire a_awid, a_arid, a_bid, a_rid, a_awvalid, a_awready, a_wlast, a_wvalid, a_wready, a_bvalid, a_bready;
    wire a_arvalid, a_arready, a_rlast, a_rvalid, a_rready;

    gradloom accelerator (
        .clk(clk), .rst(1'b0), .irq(), .trace(),
        .s_axi_awaddr(r_awaddr), .s_axi_awprot(3'd0), .s_axi_awvalid(r_awvalid), .s_axi_awready(r_awready),
        .s_axi_wdata(r_wdata), .s_axi_wstrb(r_wstrb), .s_axi_wvalid(r_wvalid), .s_axi_wready(r_wready),
        .s_axi_bresp(r_bresp), .s_axi_bvalid(r_bvalid), .s_axi_bready(r_bready),
        .s_axi_araddr(r_araddr), .s_axi_arprot(3'd0), .s_axi_arvalid(r_arvalid), .s_axi_arready(r_arready),
        .s_axi_rdata(r_rdata), .s_axi_rresp(r_rresp), .s_axi_rvalid(r_rvalid), .s_axi_rready(r_rready),
        .m_axi_awid(a_awid), .m_axi_awaddr(a_awaddr), .m_axi_awlen(a_awlen), .m_axi_awsize(), .m_axi_awburst(),
        .m_axi_awlock(), .m_axi_awcache(), .m_axi_awprot(), .m_axi_awqos(),
        .m_axi_awvalid(a_awvalid), .m_axi_awready(a_awready),
        .m_axi_wdata(a_wdata), .m_axi_wstrb(), .m_axi_wlast(a_wlast), .m_axi_wvalid(a_wvalid),
        .m_axi_wready(a_wready),
        .m_axi_bid(a_bid), .m_axi_bresp(a_bresp), .m_axi_bvalid(a_bvalid), .m_axi_bready(a_bready),
        .m_axi_arid(a_arid), .m_axi_araddr(a_araddr), .m_axi_arlen(a_arlen), .m_axi_arsize(), .m_axi_arburst(),
        .m_axi_arlock(), .m_axi_arcache(), .m_axi_arprot(), .m_axi_arqos(),
        .m_axi_arvalid(a_arvalid), .m_axi_arready(a_arready),
        .m_axi_rid(a_rid), .m_axi_rdata(a_rdata), .m_axi_rresp(a_rresp), .m_axi_rlast(a_rlast),
        .m_axi_rvalid(a_rvalid), .m_axi_rready(a_rready)
    );

    gradloom_memory #(.WORDS(WORDS), .BASE(32'h8000_0000), .ID_BITS(1), .IMAGE(MEMORY)) memory (
        .clk(clk), .rst(rst),
        .s_awid(a_awid), .s_awaddr(a_awaddr), .s_awlen(a_awlen), .s_awvalid(a_awvalid), .s_awready(a_awready),
        .s_wdata(a_wdata), .s_wlast(a_wlast), .s_wvalid(a_wvalid), .s_wready(a_wready),
        .s_bid(a_bid), .s_bresp(a_bresp), .s_bvalid(a_bvalid), .s_bready(a_bready),
        .s_arid(a_arid), .s_araddr(a_araddr), .s_arlen(a_arlen), .s_arvalid(a_arvalid), .s_arready(a_arready),
        .s_rid(a_rid), .s_rdata(a_rdata), .s_rresp(a_rresp), .s_rlast(a_rlast), .s_rvalid(a_rvalid),
        .s_rready(a_rready),
        .c_awaddr(c_awaddr), .c_awvalid(c_awvalid), .c_awready(c_awready),
        .c_wdata(c_wdata), .c_wstrb(c_wstrb), .c_wvalid(c_wvalid), .c_wready(c_wready),
        .c_bresp(c_bresp), .c_bvalid(c_bvalid), .c_bready(c_bready),
        .c_araddr(c_araddr), .c_arvalid(c_arvalid), .c_arready(c_arready), .c_rdata(c_rdata), .c_rresp(c_rresp),
        .c_rvalid(c_rvalid), .c_rready(c_rready)
    );
endmodule
