// Memory in block RAM for an accelerator and the processor beside it, filled from IMAGE: WORDS beats of 128 bits from
// address BASE on.
//
// The accelerator has an AXI4 port (INCR bursts of full beats, one burst of each direction under way; others wait at
// the address channels), the processor an AXI4-Lite port, one access at a time, which writes whole words. They have a
// port of the block RAM each, so neither waits for the other. Beyond the end, and of a part of a word, the answer is
// SLVERR.
module gradloom_memory #(
    parameter integer WORDS = 8192,
    parameter [31:0] BASE = 32'h8000_0000,
    parameter integer ID_BITS = 1,
    parameter IMAGE = "memory.mem"
) (
    input  wire               clk,
    input  wire               rst,

    input  wire [ID_BITS-1:0] s_awid,
    input  wire [31:0]        s_awaddr,
    input  wire [7:0]         s_awlen,
    input  wire               s_awvalid,
    output wire               s_awready,
    input  wire [127:0]       s_wdata,
    input  wire               s_wlast,
    input  wire               s_wvalid,
    output wire               s_wready,
    output reg  [ID_BITS-1:0] s_bid,
    output reg  [1:0]         s_bresp,
    output reg                s_bvalid,
    input  wire               s_bready,
    input  wire [ID_BITS-1:0] s_arid,
    input  wire [31:0]        s_araddr,
    input  wire [7:0]         s_arlen,
    input  wire               s_arvalid,
    output wire               s_arready,
    output wire [ID_BITS-1:0] s_rid,
    output wire [127:0]       s_rdata,
    output wire [1:0]         s_rresp,
    output wire               s_rlast,
    output wire               s_rvalid,
    input  wire               s_rready,

    input  wire [31:0]        c_awaddr,
    input  wire               c_awvalid,
    output wire               c_awready,
    input  wire [31:0]        c_wdata,
    input  wire [3:0]         c_wstrb,
    input  wire               c_wvalid,
    output wire               c_wready,
    output reg  [1:0]         c_bresp,
    output reg                c_bvalid,
    input  wire               c_bready,
    input  wire [31:0]        c_araddr,
    input  wire               c_arvalid,
    output wire               c_arready,
    output wire [31:0]        c_rdata,
    output reg  [1:0]         c_rresp,
    output reg                c_rvalid,
    input  wire               c_rready
);
    localparam BITS = $clog2(WORDS);
    // Cycles from a word's address to the word.
    localparam LATENCY = 4;
    localparam [1:0] OKAY = 2'd0, SLVERR = 2'd2;

    function outside(input [31:0] address);
        outside = address[31:4] - BASE[31:4] >= WORDS;
    endfunction

    // ---- writes: the address first, then a beat a cycle, then the answer
    reg writing;
    reg [27:0] write_word;
    assign s_awready = !writing && !s_bvalid;
    assign s_wready = writing;
    wire write_now = writing && s_wvalid;
    wire write_outside = write_word >= WORDS;

    always @(posedge clk) begin
        if (s_bready) s_bvalid <= 1'b0;
        if (s_awvalid && s_awready) begin
            writing <= 1'b1;
            write_word <= s_awaddr[31:4] - BASE[31:4];
            s_bid <= s_awid;
            s_bresp <= OKAY;
        end
        if (write_now) begin
            write_word <= write_word + 1'b1;
            if (write_outside) s_bresp <= SLVERR;
            if (s_wlast) begin
                writing <= 1'b0;
                s_bvalid <= 1'b1;
            end
        end
        if (rst) begin
            writing <= 1'b0;
            s_bvalid <= 1'b0;
        end
    end

    // ---- reads: while nothing is written; beats under way have a place in the queue at the end
    reg reading;
    reg [27:0] read_word;
    reg [7:0] read_left;
    reg [ID_BITS-1:0] read_id;
    reg [3:0] free;
    wire read_now = reading && !write_now && free != 0;
    wire read_last = read_left == 0;
    wire taken = s_rvalid && s_rready;
    assign s_arready = !reading;

    // What is told of a beat: id, last, outside.
    localparam TOLD = ID_BITS + 2;
    reg [LATENCY-1:0] due;
    reg [LATENCY*TOLD-1:0] told;
    wire [127:0] fetched;

    always @(posedge clk) begin
        if (s_arvalid && s_arready) begin
            reading <= 1'b1;
            read_word <= s_araddr[31:4] - BASE[31:4];
            read_left <= s_arlen;
            read_id <= s_arid;
        end
        if (read_now) begin
            read_word <= read_word + 1'b1;
            read_left <= read_left - 1'b1;
            if (read_last) reading <= 1'b0;
        end
        free <= free - read_now + taken;
        due <= {due[LATENCY-2:0], read_now};
        told <= {told[(LATENCY-1)*TOLD-1:0], read_id, read_last, read_word >= WORDS};
        if (rst) begin
            reading <= 1'b0;
            free <= 4'd8;
            due <= 0;
        end
    end

    wire [127:0] looked_up;
    wire c_writes = !outside(c_awaddr) && c_wstrb == 4'hf;
    gradloom_ram #(.WORDS(WORDS), .IMAGE(IMAGE)) ram (
        .clk(clk), .a_word(write_now ? write_word[BITS-1:0] : read_word[BITS-1:0]),
        .a_write(write_now && !write_outside), .a_data(s_wdata), .a_read(fetched),
        .b_word(c_awvalid ? c_awaddr[BITS+3:4] : c_araddr[BITS+3:4]),
        .b_write(c_awready && c_writes ? 4'd1 << c_awaddr[3:2] : 4'd0), .b_data(c_wdata), .b_read(looked_up)
    );

    // A queue of eight beats.
    reg [127+ID_BITS+2:0] queue [0:7];
    reg [3:0] head, tail;
    assign s_rvalid = head != tail;
    assign {s_rid, s_rlast, s_rresp[1], s_rdata} = queue[tail[2:0]];
    assign s_rresp[0] = 1'b0;
    always @(posedge clk) begin
        if (due[LATENCY-1]) queue[head[2:0]] <= {told[LATENCY*TOLD-1 -: TOLD], fetched};
        head <= head + due[LATENCY-1];
        tail <= tail + taken;
        if (rst) begin
            head <= 4'd0;
            tail <= 4'd0;
        end
    end

    // ---- the processor's port
    reg [LATENCY:0] wait_read;
    reg [1:0] lane;
    reg [31:0] answer;
    assign c_arready = wait_read == 0 && !c_rvalid;
    assign c_rdata = answer;
    always @(posedge clk) begin
        wait_read <= {wait_read[LATENCY-1:0], c_arvalid && c_arready};
        if (c_arvalid && c_arready) begin
            lane <= c_araddr[3:2];
            c_rresp <= outside(c_araddr) ? SLVERR : OKAY;
        end
        answer <= looked_up[32*lane +: 32];
        if (c_rready) c_rvalid <= 1'b0;
        if (wait_read[LATENCY]) c_rvalid <= 1'b1;
        if (rst) begin
            wait_read <= 0;
            c_rvalid <= 1'b0;
        end
    end

    // A write is there before the next access: that takes as many cycles to come here.
    assign c_awready = !c_bvalid && c_awvalid && c_wvalid;
    assign c_wready = c_awready;
    always @(posedge clk) begin
        if (c_awready) c_bresp <= c_writes ? OKAY : SLVERR;
        c_bvalid <= !rst && (c_awready || c_bvalid && !c_bready);
    end
endmodule
