// An AXI4 memory for whole runs at simulator speed.
//
// Bursts are answered in order, INCR only. The first `rvalid` follows the address's handshake by `read_latency + 1`
// cycles (`read_latency` at least 1), `bvalid` the last datum's by `write_latency + 1` (at least 1); beats follow each
// other without gaps unless stalls are asked for. Each channel stalls on its own in `stall` of 256 cycles, by a random
// sequence that `seed` begins (taken while `rst`). An access to the beat at `fail_address` is answered by `fail_resp`
// (2 SLVERR, 3 DECERR), one beyond the memory by DECERR; a failing write leaves the memory as it is. Timing and faults
// may change at run time.
//
// The port keeps at most `port_reads` reads in flight, each from its address's handshake to its last datum's: further
// addresses wait. 0: as many as come.
//
// Bursts of more than LONGEST beats are not allowed.
//
// The host port reads and writes a beat a cycle beside the bus. For speed a Verilator harness may rather touch the
// array `memory` (public_flat_rw), word i of which is the beat at address i * DATA_BITS / 8 + BASE.
module axi_memory #(
    parameter int ADDR_BITS = 64,
    parameter int DATA_BITS = 128,
    parameter int ID_BITS = 1,
    parameter int BYTES = 1 << 24,
    parameter logic [63:0] BASE = 0,
    parameter int OUTSTANDING = 64,
    parameter int LONGEST = 16
) (
    input  logic clk,
    input  logic rst,

    input  logic [15:0] read_latency,
    input  logic [15:0] write_latency,
    input  logic [7:0] port_reads,
    input  logic [7:0] stall,
    input  logic [31:0] seed,
    input  logic fail_enable,
    input  logic [63:0] fail_address,
    input  logic [1:0] fail_resp,

    input  logic [31:0] host_word,
    input  logic host_we,
    input  logic [DATA_BITS-1:0] host_wdata,
    output logic [DATA_BITS-1:0] host_rdata,

    input  logic [ID_BITS-1:0] awid,
    input  logic [ADDR_BITS-1:0] awaddr,
    input  logic [7:0] awlen,
    input  logic [2:0] awsize,
    input  logic [1:0] awburst,
    input  logic awvalid,
    output logic awready,
    input  logic [DATA_BITS-1:0] wdata,
    input  logic [DATA_BITS/8-1:0] wstrb,
    input  logic wlast,
    input  logic wvalid,
    output logic wready,
    output logic [ID_BITS-1:0] bid,
    output logic [1:0] bresp,
    output logic bvalid,
    input  logic bready,

    input  logic [ID_BITS-1:0] arid,
    input  logic [ADDR_BITS-1:0] araddr,
    input  logic [7:0] arlen,
    input  logic [2:0] arsize,
    input  logic [1:0] arburst,
    input  logic arvalid,
    output logic arready,
    output logic [ID_BITS-1:0] rid,
    output logic [DATA_BITS-1:0] rdata,
    output logic [1:0] rresp,
    output logic rlast,
    output logic rvalid,
    input  logic rready,

    // 1 after an access that this memory, or AXI4, does not allow; see the assertions' messages.
    output logic protocol_error
);
    localparam int STEP = DATA_BITS / 8;
    localparam int SHIFT = $clog2(STEP);
    localparam logic [63:0] WORDS = 64'(BYTES / STEP);
    localparam int SLOTS = $clog2(OUTSTANDING);

    logic [DATA_BITS-1:0] memory [BYTES / STEP] /* verilator public_flat_rw */;

    logic [63:0] now;
    logic [31:0] lfsr [5];
    logic [4:0] stalls;

    function automatic logic [31:0] step(input logic [31:0] x);
        // xorshift32
        logic [31:0] y;
        y = x ^ (x << 13);
        y = y ^ (y >> 17);
        return y ^ (y << 5);
    endfunction

    always_ff @(posedge clk) begin
        for (int i = 0; i < 5; i++) begin
            lfsr[i] <= rst ? ((seed ^ (32'h9E3779B9 * 32'(i + 1))) | 32'd1) : step(lfsr[i]);
            stalls[i] <= lfsr[i][15:8] < stall;
        end
        now <= rst ? 64'd0 : now + 64'd1;
    end

    function automatic logic outside(input logic [63:0] address);
        return address < BASE || ((address - BASE) >> SHIFT) >= WORDS;
    endfunction

    function automatic logic [1:0] answer(input logic [63:0] address);
        if (fail_enable && (address >> SHIFT) == (fail_address >> SHIFT)) return fail_resp;
        return outside(address) ? 2'd3 : 2'd0;
    endfunction

    // ---- reads
    logic [63:0] ar_address [OUTSTANDING];
    logic [7:0] ar_len [OUTSTANDING];
    logic [ID_BITS-1:0] ar_id [OUTSTANDING];
    logic [63:0] ar_time [OUTSTANDING];
    logic [SLOTS:0] ar_w, ar_r;
    logic [7:0] r_beat;
    wire [SLOTS-1:0] ar_i = ar_r[SLOTS-1:0];
    wire [63:0] r_address = ar_address[ar_i] + (64'(r_beat) << SHIFT);
    wire r_due = ar_w != ar_r && now >= ar_time[ar_i] && !stalls[1];
    wire r_go = r_due && (!rvalid || rready);
    logic [7:0] flying;
    wire [7:0] flies = flying + 8'(arvalid && arready) - 8'(rvalid && rready && rlast);

    always_ff @(posedge clk) begin
        if (rst) begin
            arready <= 1'b0;
            ar_w <= '0;
            ar_r <= '0;
            r_beat <= '0;
            rvalid <= 1'b0;
            flying <= '0;
        end else begin
            flying <= flies;
            arready <= (SLOTS+1)'(ar_w - ar_r) < (SLOTS+1)'(OUTSTANDING - 2) && !stalls[0]
                && (port_reads == 0 || flies < port_reads);
            if (arvalid && arready) begin
                ar_address[ar_w[SLOTS-1:0]] <= 64'(araddr);
                ar_len[ar_w[SLOTS-1:0]] <= arlen;
                ar_id[ar_w[SLOTS-1:0]] <= arid;
                ar_time[ar_w[SLOTS-1:0]] <= now + 64'(read_latency);
                ar_w <= ar_w + 1'b1;
            end
            if (rready) rvalid <= 1'b0;
            if (r_go) begin
                rvalid <= 1'b1;
                rid <= ar_id[ar_i];
                rresp <= answer(r_address);
                rdata <= outside(r_address) ? '0 : memory[32'((r_address - BASE) >> SHIFT)];
                rlast <= r_beat == ar_len[ar_i];
                r_beat <= r_beat == ar_len[ar_i] ? 8'd0 : r_beat + 8'd1;
                if (r_beat == ar_len[ar_i]) ar_r <= ar_r + 1'b1;
            end
        end
    end

    // ---- writes: data waits for its address
    logic [63:0] aw_address [OUTSTANDING];
    logic [7:0] aw_len [OUTSTANDING];
    logic [ID_BITS-1:0] aw_id [OUTSTANDING];
    logic [SLOTS:0] aw_w, aw_r;
    logic [7:0] w_beat;
    logic [1:0] w_resp;
    wire [SLOTS-1:0] aw_i = aw_r[SLOTS-1:0];
    wire [63:0] w_address = aw_address[aw_i] + (64'(w_beat) << SHIFT);
    wire [1:0] w_answer = answer(w_address);

    logic [1:0] b_resp [OUTSTANDING];
    logic [ID_BITS-1:0] b_id [OUTSTANDING];
    logic [63:0] b_time [OUTSTANDING];
    logic [SLOTS:0] b_w, b_r;
    wire [SLOTS-1:0] b_i = b_r[SLOTS-1:0];

    assign wready = aw_w != aw_r && !stalls[3] && (SLOTS+1)'(b_w - b_r) < (SLOTS+1)'(OUTSTANDING - 2);

    always_ff @(posedge clk) begin
        if (host_we) memory[host_word] <= host_wdata;
        host_rdata <= memory[host_word];
        if (rst) begin
            awready <= 1'b0;
            aw_w <= '0;
            aw_r <= '0;
            b_w <= '0;
            b_r <= '0;
            w_beat <= '0;
            w_resp <= '0;
            bvalid <= 1'b0;
        end else begin
            awready <= (SLOTS+1)'(aw_w - aw_r) < (SLOTS+1)'(OUTSTANDING - 2) && !stalls[2];
            if (awvalid && awready) begin
                aw_address[aw_w[SLOTS-1:0]] <= 64'(awaddr);
                aw_len[aw_w[SLOTS-1:0]] <= awlen;
                aw_id[aw_w[SLOTS-1:0]] <= awid;
                aw_w <= aw_w + 1'b1;
            end
            if (wvalid && wready) begin
                if (w_answer == 2'd0)
                    for (int i = 0; i < STEP; i++)
                        if (wstrb[i]) memory[32'((w_address - BASE) >> SHIFT)][8*i +: 8] <= wdata[8*i +: 8];
                w_beat <= wlast ? 8'd0 : w_beat + 8'd1;
                w_resp <= wlast ? 2'd0 : (w_resp | w_answer);
                if (wlast) begin
                    b_resp[b_w[SLOTS-1:0]] <= w_resp | w_answer;
                    b_id[b_w[SLOTS-1:0]] <= aw_id[aw_i];
                    b_time[b_w[SLOTS-1:0]] <= now + 64'(write_latency);
                    b_w <= b_w + 1'b1;
                    aw_r <= aw_r + 1'b1;
                end
            end
            if (bready) bvalid <= 1'b0;
            if (b_w != b_r && now >= b_time[b_i] && !stalls[4] && (!bvalid || bready)) begin
                bvalid <= 1'b1;
                bresp <= b_resp[b_i];
                bid <= b_id[b_i];
                b_r <= b_r + 1'b1;
            end
        end
    end

    // ---- what AXI4 and a Zynq UltraScale+ port demand of the manager
    function automatic logic illegal(input logic [ADDR_BITS-1:0] address, input logic [7:0] len, input logic [2:0] size,
                                     input logic [1:0] burst);
        return burst != 2'd1 || size != 3'(SHIFT) || 32'(len) >= LONGEST || address[SHIFT-1:0] != '0
            || 32'(address[11:0]) + (32'(len) + 1) * STEP > 4096;
    endfunction

    logic ar_held, aw_held, w_held;
    logic [ADDR_BITS+7:0] ar_was, aw_was;
    logic [DATA_BITS:0] w_was;
    always_ff @(posedge clk) begin
        ar_held <= arvalid && !arready && !rst;
        ar_was <= {araddr, arlen};
        aw_held <= awvalid && !awready && !rst;
        aw_was <= {awaddr, awlen};
        w_held <= wvalid && !wready && !rst;
        w_was <= {wdata, wlast};
        if (rst) protocol_error <= 1'b0;
        else begin
            if ((arvalid && illegal(araddr, arlen, arsize, arburst)) || (awvalid && illegal(awaddr, awlen, awsize, awburst))) begin
                protocol_error <= 1'b1;
                $display("axi_memory: burst of a kind that is not allowed");
            end
            if ((ar_held && (!arvalid || ar_was != {araddr, arlen})) || (aw_held && (!awvalid || aw_was != {awaddr, awlen}))
                    || (w_held && (!wvalid || w_was != {wdata, wlast}))) begin
                protocol_error <= 1'b1;
                $display("axi_memory: a channel changed before it was taken");
            end
            if (wvalid && wready && wlast != (w_beat == aw_len[aw_i])) begin
                protocol_error <= 1'b1;
                $display("axi_memory: wlast does not fit awlen");
            end
        end
    end
endmodule
