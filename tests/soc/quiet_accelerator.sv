// Stands in for an accelerator that nobody asks for anything but what it is: reads give its registers, writes nothing.
// FORMATS: those of tables and programs, as in the register; 0 for benches that do not read it.
`ifndef FORMATS
`define FORMATS 0
`endif

module gradloom #(
    parameter int ADDRESS = 32,
    parameter int DATA_BITS = 64
) (
    input  logic clk,
    input  logic rst,
    output logic irq,
    output logic trace,

    input  logic [11:0] s_axi_awaddr,
    input  logic [2:0] s_axi_awprot,
    input  logic s_axi_awvalid,
    output logic s_axi_awready,
    input  logic [31:0] s_axi_wdata,
    input  logic [3:0] s_axi_wstrb,
    input  logic s_axi_wvalid,
    output logic s_axi_wready,
    output logic [1:0] s_axi_bresp,
    output logic s_axi_bvalid,
    input  logic s_axi_bready,
    input  logic [11:0] s_axi_araddr,
    input  logic [2:0] s_axi_arprot,
    input  logic s_axi_arvalid,
    output logic s_axi_arready,
    output logic [31:0] s_axi_rdata,
    output logic [1:0] s_axi_rresp,
    output logic s_axi_rvalid,
    input  logic s_axi_rready,

    output logic m_axi_awid,
    output logic [ADDRESS-1:0] m_axi_awaddr,
    output logic [7:0] m_axi_awlen,
    output logic [2:0] m_axi_awsize,
    output logic [1:0] m_axi_awburst,
    output logic m_axi_awlock,
    output logic [3:0] m_axi_awcache,
    output logic [2:0] m_axi_awprot,
    output logic [3:0] m_axi_awqos,
    output logic m_axi_awvalid,
    input  logic m_axi_awready,
    output logic [DATA_BITS-1:0] m_axi_wdata,
    output logic [DATA_BITS/8-1:0] m_axi_wstrb,
    output logic m_axi_wlast,
    output logic m_axi_wvalid,
    input  logic m_axi_wready,
    input  logic m_axi_bid,
    input  logic [1:0] m_axi_bresp,
    input  logic m_axi_bvalid,
    output logic m_axi_bready,
    output logic m_axi_arid,
    output logic [ADDRESS-1:0] m_axi_araddr,
    output logic [7:0] m_axi_arlen,
    output logic [2:0] m_axi_arsize,
    output logic [1:0] m_axi_arburst,
    output logic m_axi_arlock,
    output logic [3:0] m_axi_arcache,
    output logic [2:0] m_axi_arprot,
    output logic [3:0] m_axi_arqos,
    output logic m_axi_arvalid,
    input  logic m_axi_arready,
    input  logic m_axi_rid,
    input  logic [DATA_BITS-1:0] m_axi_rdata,
    input  logic [1:0] m_axi_rresp,
    input  logic m_axi_rlast,
    input  logic m_axi_rvalid,
    output logic m_axi_rready
);
    localparam logic [31:0] ID = 32'h4752_4c4d, VERSION = 32'h0001_0000, MACHINE = `FORMATS;
    // Its machine table: a=1, and its end.
    localparam logic [31:0] TABLE = 32'h0031_3d61;

    always_comb begin
        {irq, trace, s_axi_bresp, s_axi_rresp} = '0;
        {m_axi_awid, m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst, m_axi_awlock, m_axi_awcache} = '0;
        {m_axi_awprot, m_axi_awqos, m_axi_awvalid, m_axi_wdata, m_axi_wstrb, m_axi_wlast, m_axi_wvalid} = '0;
        {m_axi_bready, m_axi_arid, m_axi_araddr, m_axi_arlen, m_axi_arsize, m_axi_arburst, m_axi_arlock} = '0;
        {m_axi_arcache, m_axi_arprot, m_axi_arqos, m_axi_arvalid, m_axi_rready} = '0;
    end

    // Writes are taken and forgotten: which word of its table, which has one, shall be shown.
    assign s_axi_awready = s_axi_awvalid && s_axi_wvalid && !s_axi_bvalid;
    assign s_axi_wready = s_axi_awready;
    always_ff @(posedge clk)
        if (rst) s_axi_bvalid <= 1'b0;
        else if (s_axi_awready) s_axi_bvalid <= 1'b1;
        else if (s_axi_bready) s_axi_bvalid <= 1'b0;

    assign s_axi_arready = !s_axi_rvalid;
    always_ff @(posedge clk) begin
        if (s_axi_arvalid && s_axi_arready) begin
            s_axi_rvalid <= 1'b1;
            s_axi_rdata <= s_axi_araddr == 12'd0 ? ID : s_axi_araddr == 12'd4 ? VERSION :
                s_axi_araddr == 12'd8 ? MACHINE : s_axi_araddr == 12'h0b4 ? TABLE : 32'd0;
        end else if (s_axi_rready) s_axi_rvalid <= 1'b0;
        if (rst) s_axi_rvalid <= 1'b0;
    end
endmodule
