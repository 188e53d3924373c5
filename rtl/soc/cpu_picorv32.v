// PicoRV32 as the processor of gradloom_soc: RV32IMC or RV32IM, no caches, no interrupts, starts at address 0.
//
// Another core takes this one's place by a module of the same name and ports: an AXI4-Lite manager of 32 bits that
// keeps one access under way at a time.
//
// With FAST products take four cycles in place of 40, and shifts one, and there are instructions of 16 bits (C), which
// save a quarter of the firmware's memory; all need more of the chip.
module gradloom_cpu #(
    parameter integer FAST = 1
) (
    input  wire        clk,
    input  wire        rst,
    output wire        trap,

    output wire [31:0] m_awaddr,
    output wire        m_awvalid,
    input  wire        m_awready,
    output wire [31:0] m_wdata,
    output wire [3:0]  m_wstrb,
    output wire        m_wvalid,
    input  wire        m_wready,
    input  wire        m_bvalid,
    output wire        m_bready,
    output wire [31:0] m_araddr,
    output wire        m_arvalid,
    input  wire        m_arready,
    input  wire [31:0] m_rdata,
    input  wire        m_rvalid,
    output wire        m_rready
);
    wire product_asked, product_ready;
    wire [31:0] product_insn, product_rs1, product_rs2, product;
    generate
        if (FAST != 0) begin : multiplies
            gradloom_multiplier multiplier (
                .clk(clk), .rst(rst), .valid(product_asked), .insn(product_insn), .rs1(product_rs1), .rs2(product_rs2),
                .ready(product_ready), .rd(product)
            );
        end else begin : none
            assign product_ready = 1'b0;
            assign product = 32'd0;
        end
    endgenerate

    picorv32_axi #(
        .ENABLE_COUNTERS64(0),
        // A branch compares in one cycle and decides in the next: in one cycle it is the SoC's longest path.
        .TWO_CYCLE_COMPARE(1),
        .COMPRESSED_ISA(FAST != 0),
        .ENABLE_PCPI(FAST != 0),
        .ENABLE_MUL(FAST == 0),
        .BARREL_SHIFTER(FAST != 0),
        .ENABLE_DIV(1),
        .PROGADDR_RESET(32'h0000_0000)
    ) core (
        .clk(clk), .resetn(!rst), .trap(trap),
        .mem_axi_awvalid(m_awvalid), .mem_axi_awready(m_awready), .mem_axi_awaddr(m_awaddr), .mem_axi_awprot(),
        .mem_axi_wvalid(m_wvalid), .mem_axi_wready(m_wready), .mem_axi_wdata(m_wdata), .mem_axi_wstrb(m_wstrb),
        .mem_axi_bvalid(m_bvalid), .mem_axi_bready(m_bready),
        .mem_axi_arvalid(m_arvalid), .mem_axi_arready(m_arready), .mem_axi_araddr(m_araddr), .mem_axi_arprot(),
        .mem_axi_rvalid(m_rvalid), .mem_axi_rready(m_rready), .mem_axi_rdata(m_rdata),
        .pcpi_valid(product_asked), .pcpi_insn(product_insn), .pcpi_rs1(product_rs1), .pcpi_rs2(product_rs2),
        .pcpi_wr(product_ready), .pcpi_rd(product), .pcpi_wait(1'b0), .pcpi_ready(product_ready),
        .irq(32'd0), .eoi(), .trace_valid(), .trace_data()
    );
endmodule
