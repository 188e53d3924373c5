// Processor, its memory with the firmware, a UART and a memory card's line; accelerator and large memory are reached by
// two AXI4-Lite managers. One access is under way at a time.
//
//   0x0000_0000  firmware and stack, RAM_WORDS words, filled from IMAGE
//   0x1000_0000  UART: write +0 sends a byte; read +0: bit 8 says that a byte has arrived, which bits 7 to 0 are; the
//                read takes it. Read +4: bit 0 says that a byte written now would be lost, bit 1 that `mains_lost` is high;
//                bits 27 to 16 are `temperature`
//   0x1100_0000  memory card. An access waits until the transfer under way has ended.
//                write +0 sends a byte, read +0: what arrived meanwhile
//                write +4 sends four bytes, read +4: what arrived meanwhile; the first byte is the lowest
//                write +8: bit 0 selects the card, bit 1 is fast, bit 2 takes its power; read +8: CRC-16 of all that arrived
//                since
//                write +12: from here on, until the next write to +8, that sum is of what is sent
//                read +12: CARD_TRIES, how often the firmware repeats a command for a card that does not answer
//   0x1200_0000  SHA-256. An access waits for room, or for the digest of a message that has ended
//                write +0: four bytes of a message, the first is the lowest; write +4: a byte; write +8: it has ended,
//                +12: a message begins, what there was of another is gone
//                read +0 to +28: bytes of the digest, the first is the lowest; the read of the last ones takes it
//   0x2000_0000  registers of the accelerator, 4 KB
//   0x8000_0000  large memory, 1 GB
//
// Vivado reads the attributes: which ports are clock and reset, and of what.
//
// Any other address, and any access that is answered with an error, sets `fault` until reset; reads give 0 then. Without
// CARD the memory card's line and SHA-256 are not there, without FAST the processor multiplies slowly and its memory takes
// a cycle more. Of what the UART's receiver hears, LISTENS - 1 bytes wait, a power of two less one; 0: there is none.
//
// `restart_n` is a button (any clock, low while pressed): it holds processor, UART and card's line in reset. It waits for
// the end of the access under way, so that a memory and an accelerator which are not reset see only whole accesses.
module gradloom_soc #(
    parameter integer RAM_WORDS = 16384,
    parameter integer DIVISOR = 1736,
    parameter integer CARD = 1,
    parameter integer LISTENS = 256,
    parameter integer FAST = 1,
    parameter integer CARD_SLOW = 250,
    parameter integer CARD_FAST = 5,
    parameter integer CARD_TRIES = 1500,
    parameter IMAGE = "soc_image.mem"
) (
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk CLK" *)
    (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF m_axi_reg:m_axi_mem, ASSOCIATED_RESET rst" *)
    input  wire        clk,
    (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 rst RST" *)
    (* X_INTERFACE_PARAMETER = "POLARITY ACTIVE_HIGH" *)
    input  wire        rst,
    input  wire        restart_n,
    input  wire        mains_lost,   // any clock
    input  wire [11:0] temperature,  // of the chip, as a converter of 12 bits has it; 0 without one
    output wire        uart_txd,
    input  wire        uart_rxd,     // any clock
    output wire        sd_reset,
    output wire        sd_sclk,
    output wire        sd_mosi,
    output wire        sd_cs_n,
    input  wire        sd_miso,
    output wire        trap,
    output reg         fault,

    output wire [11:0] m_axi_reg_awaddr,
    output wire [2:0]  m_axi_reg_awprot,
    output wire        m_axi_reg_awvalid,
    input  wire        m_axi_reg_awready,
    output wire [31:0] m_axi_reg_wdata,
    output wire [3:0]  m_axi_reg_wstrb,
    output wire        m_axi_reg_wvalid,
    input  wire        m_axi_reg_wready,
    input  wire [1:0]  m_axi_reg_bresp,
    input  wire        m_axi_reg_bvalid,
    output wire        m_axi_reg_bready,
    output wire [11:0] m_axi_reg_araddr,
    output wire [2:0]  m_axi_reg_arprot,
    output wire        m_axi_reg_arvalid,
    input  wire        m_axi_reg_arready,
    input  wire [31:0] m_axi_reg_rdata,
    input  wire [1:0]  m_axi_reg_rresp,
    input  wire        m_axi_reg_rvalid,
    output wire        m_axi_reg_rready,

    output wire [31:0] m_axi_mem_awaddr,
    output wire [2:0]  m_axi_mem_awprot,
    output wire        m_axi_mem_awvalid,
    input  wire        m_axi_mem_awready,
    output wire [31:0] m_axi_mem_wdata,
    output wire [3:0]  m_axi_mem_wstrb,
    output wire        m_axi_mem_wvalid,
    input  wire        m_axi_mem_wready,
    input  wire [1:0]  m_axi_mem_bresp,
    input  wire        m_axi_mem_bvalid,
    output wire        m_axi_mem_bready,
    output wire [31:0] m_axi_mem_araddr,
    output wire [2:0]  m_axi_mem_arprot,
    output wire        m_axi_mem_arvalid,
    input  wire        m_axi_mem_arready,
    input  wire [31:0] m_axi_mem_rdata,
    input  wire [1:0]  m_axi_mem_rresp,
    input  wire        m_axi_mem_rvalid,
    output wire        m_axi_mem_rready
);
    localparam RAM_BITS = $clog2(RAM_WORDS);

    wire [31:0] c_awaddr, c_wdata, c_araddr;
    wire [3:0] c_wstrb;
    wire c_awvalid, c_wvalid, c_bready, c_arvalid, c_rready;

    localparam [2:0] IDLE = 3'd0, HERE = 3'd1, THERE = 3'd2, ANSWER = 3'd3, FETCHED = 3'd4;
    reg [2:0] state;

    // The access under way.
    reg writes;
    reg [31:0] address, data, result;
    reg [3:0] strobe;
    reg [31:0] ram_data;
    // Address and data that still have to be taken.
    reg asks, gives;

    // ---- the button: the clock is not its own
    (* ASYNC_REG = "TRUE" *) reg [1:0] pressed = 2'b00;
    reg wanted = 1'b0, held = 1'b0;
    wire restart = pressed[1] || wanted;
    wire halt = rst || held;
    always @(posedge clk) begin
        pressed <= {pressed[0], !restart_n};
        wanted <= restart && !held;
        held <= restart && (held || state == IDLE);
    end

    wire takes_write = state == IDLE && !restart && c_awvalid && c_wvalid;
    wire takes_read = state == IDLE && !restart && c_arvalid && !takes_write;
    wire [31:0] first = takes_write ? c_awaddr : c_araddr;

    wire in_ram = address[31:RAM_BITS+2] == 0;
    wire in_uart = address[31:3] == 29'h0200_0000;
    wire in_card = CARD != 0 && address[31:4] == 28'h110_0000;
    wire in_digest = CARD != 0 && address[31:5] == 27'h090_0000;
    wire in_registers = address[31:12] == 20'h2_0000;
    wire in_memory = address[31:30] == 2'b10;

    gradloom_cpu #(.FAST(FAST)) cpu (
        .clk(clk), .rst(halt), .trap(trap),
        .m_awaddr(c_awaddr), .m_awvalid(c_awvalid), .m_awready(takes_write),
        .m_wdata(c_wdata), .m_wstrb(c_wstrb), .m_wvalid(c_wvalid), .m_wready(takes_write),
        .m_bvalid(state == ANSWER && writes), .m_bready(c_bready),
        .m_araddr(c_araddr), .m_arvalid(c_arvalid), .m_arready(takes_read),
        .m_rdata(result), .m_rvalid(state == ANSWER && !writes), .m_rready(c_rready)
    );

    // ---- memory of the firmware
    reg [31:0] ram [0:RAM_WORDS-1];
    initial $readmemh(IMAGE, ram);

    // With FAST a read begins with the processor's own address.
    wire [RAM_BITS-1:0] ram_read = FAST != 0 ? c_araddr[RAM_BITS+1:2] : address[RAM_BITS+1:2];
    // What is written in the cycle HERE is known before: the blocks of the RAM lie far apart.
    reg [3:0] ram_write;
    integer lane;
    always @(posedge clk) begin
        for (lane = 0; lane < 4; lane = lane + 1)
            if (ram_write[lane]) ram[address[RAM_BITS+1:2]][8*lane +: 8] <= data[8*lane +: 8];
        if (state == (FAST != 0 ? IDLE : HERE)) ram_data <= ram[ram_read];
    end

    // ---- UART
    wire uart_full;
    (* ASYNC_REG = "TRUE" *) reg [1:0] lost = 2'b00;
    reg [11:0] warmth;
    always @(posedge clk) begin
        lost <= {lost[0], mains_lost};
        warmth <= temperature;
    end
    wire uart_write = state == HERE && in_uart && writes && !address[2] && strobe[0];
    gradloom_uart #(.DIVISOR(DIVISOR)) uart (
        .clk(clk), .rst(halt), .data(data[7:0]), .valid(uart_write), .full(uart_full), .txd(uart_txd)
    );
    wire uart_read = state == HERE && in_uart && !writes && !address[2];
    wire [8:0] heard;
    generate
        if (LISTENS != 0) begin : ear
            gradloom_uart_in #(.DIVISOR(DIVISOR), .ROOM(LISTENS)) uart_in (
                .clk(clk), .rst(halt), .rxd(uart_rxd), .taken(uart_read), .data(heard[7:0]), .valid(heard[8])
            );
        end else begin : deaf
            assign heard = 9'd0;
        end
    endgenerate

    // ---- memory card: the slot has power while its reset is low. Without power its lines are low, or they would feed it.
    reg unpowered = 1'b0;
    wire line_sclk, line_mosi, line_cs_n;
    assign sd_reset = unpowered;
    assign sd_sclk = line_sclk && !unpowered;
    assign sd_mosi = line_mosi && !unpowered;
    assign sd_cs_n = line_cs_n && !unpowered;
    wire card_busy;
    wire [31:0] card_data;
    wire [15:0] card_sum;
    wire card_write = state == HERE && in_card && writes && strobe[0] && !card_busy;
    wire card_set = card_write && address[3:2] == 2'd2;
    always @(posedge clk)
        if (halt) unpowered <= 1'b0;
        else if (card_set) unpowered <= data[2];
    generate
        if (CARD != 0) begin : line
            gradloom_spi #(.SLOW(CARD_SLOW), .FAST(CARD_FAST)) card (
                .clk(clk), .rst(halt),
                .set(card_set), .selects(data[0]), .hurries(data[1]),
                .sends(card_write && address[3:2] == 2'd0), .fetches(card_write && address[3:2] == 2'd1),
                .outward(card_write && address[3:2] == 2'd3),
                .data(data), .busy(card_busy), .arrived(card_data), .sum(card_sum),
                .sclk(line_sclk), .mosi(line_mosi), .cs_n(line_cs_n), .miso(sd_miso)
            );
        end else begin : none
            assign card_busy = 1'b0;
            assign card_data = 32'd0;
            assign card_sum = 16'd0;
            assign line_sclk = 1'b0;
            assign line_mosi = 1'b0;
            assign line_cs_n = 1'b1;
        end
    endgenerate
    localparam [31:0] TRIES = CARD_TRIES;
    wire [31:0] card_result = address[3:2] == 2'd3 ? TRIES : address[3] ? {16'd0, card_sum}
        : address[2] ? {card_data[7:0], card_data[15:8], card_data[23:16], card_data[31:24]} : {24'd0, card_data[7:0]};

    // ---- SHA-256
    wire digest_busy;
    wire [31:0] digest_word;
    wire digest_here = state == HERE && in_digest && !digest_busy;
    wire digest_write = digest_here && writes && strobe[0];
    generate
        if (CARD != 0) begin : hashes
            gradloom_digest digest (
                .clk(clk), .rst(halt),
                .four(digest_write && address[4:2] == 3'd0), .one(digest_write && address[4:2] == 3'd1),
                .end_of(digest_write && address[4:2] == 3'd2), .forget(digest_write && address[4:2] == 3'd3), .data(data),
                .asked(!writes), .index(address[4:2]), .taken(digest_here && !writes && address[4:2] == 3'd7),
                .busy(digest_busy), .word(digest_word)
            );
        end else begin : plain
            assign digest_busy = 1'b0;
            assign digest_word = 32'd0;
        end
    endgenerate

    // ---- the two managers
    assign m_axi_reg_awaddr = address[11:0];
    assign m_axi_reg_awprot = 3'd0;
    assign m_axi_reg_awvalid = state == THERE && in_registers && writes && asks;
    assign m_axi_reg_wdata = data;
    assign m_axi_reg_wstrb = strobe;
    assign m_axi_reg_wvalid = state == THERE && in_registers && writes && gives;
    assign m_axi_reg_bready = state == THERE && writes;
    assign m_axi_reg_araddr = address[11:0];
    assign m_axi_reg_arprot = 3'd0;
    assign m_axi_reg_arvalid = state == THERE && in_registers && !writes && asks;
    assign m_axi_reg_rready = state == THERE && !writes;
    assign m_axi_mem_awaddr = address;
    assign m_axi_mem_awprot = 3'd0;
    assign m_axi_mem_awvalid = state == THERE && in_memory && writes && asks;
    assign m_axi_mem_wdata = data;
    assign m_axi_mem_wstrb = strobe;
    assign m_axi_mem_wvalid = state == THERE && in_memory && writes && gives;
    assign m_axi_mem_bready = state == THERE && writes;
    assign m_axi_mem_araddr = address;
    assign m_axi_mem_arprot = 3'd0;
    assign m_axi_mem_arvalid = state == THERE && in_memory && !writes && asks;
    assign m_axi_mem_rready = state == THERE && !writes;

    wire address_taken = in_memory ? (writes ? m_axi_mem_awready : m_axi_mem_arready)
                                   : (writes ? m_axi_reg_awready : m_axi_reg_arready);
    wire data_taken = in_memory ? m_axi_mem_wready : m_axi_reg_wready;
    wire answered = in_memory ? (writes ? m_axi_mem_bvalid : m_axi_mem_rvalid)
                              : (writes ? m_axi_reg_bvalid : m_axi_reg_rvalid);
    wire [1:0] response = in_memory ? (writes ? m_axi_mem_bresp : m_axi_mem_rresp)
                                    : (writes ? m_axi_reg_bresp : m_axi_reg_rresp);
    wire [31:0] arrived = in_memory ? m_axi_mem_rdata : m_axi_reg_rdata;

    always @(posedge clk) begin
        ram_write <= takes_write && !halt && c_awaddr[31:RAM_BITS+2] == 0 ? c_wstrb : 4'd0;
        case (state)
            IDLE: if (takes_write || takes_read) begin
                writes <= takes_write;
                address <= first;
                data <= c_wdata;
                strobe <= c_wstrb;
                asks <= 1'b1;
                gives <= 1'b1;
                state <= FAST != 0 && !takes_write && c_araddr[31:RAM_BITS+2] == 0 ? FETCHED
                    : first[31:30] == 2'b10 || first[31:12] == 20'h2_0000 ? THERE : HERE;
            end
            HERE: if ((!in_card || !card_busy) && (!in_digest || !digest_busy)) begin
                result <= in_card ? card_result : in_digest ? digest_word : !in_uart ? 32'd0 : address[2] ? {4'd0, warmth, 14'd0, lost[1], uart_full} : {23'd0, heard};
                if (!in_ram && !in_uart && !in_card && !in_digest || uart_write && uart_full) fault <= 1'b1;
                state <= in_ram && !writes ? FETCHED : ANSWER;
            end
            // Block RAM is slow from clock to output, and the processor decodes what it is given in the same cycle.
            FETCHED: begin
                result <= ram_data;
                state <= ANSWER;
            end
            THERE: begin
                if (address_taken) asks <= 1'b0;
                if (data_taken) gives <= 1'b0;
                if (answered) begin
                    result <= response[1] ? 32'd0 : arrived;
                    if (response[1]) fault <= 1'b1;
                    state <= ANSWER;
                end
            end
            default: if (writes ? c_bready : c_rready) state <= IDLE;
        endcase
        if (halt) begin
            state <= IDLE;
            fault <= 1'b0;
        end
    end
endmodule
