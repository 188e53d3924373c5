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
// `dram` makes of it a DRAM with one data bus behind all ports; 0: data is there after the latencies above. It takes
// bursts in the order in which their addresses (reads) or last data (writes) come; in one cycle writes first, each by
// port. A burst begins when its latency is over, with `miss` cycles more where its bank has another page open, and when
// the bus is free, `turn` cycles later where the last burst went the other way; not during a refresh, the last
// `refresh_for` of each `refresh_every` cycles, which closes all pages. After `refresh_every` cycles without an access
// the memory is as it was first: the next access is the first of such cycles, and finds closed pages. A beat keeps the bus for `beat` / 256 cycles, at most one. Pages of 2**`page` bytes go round 2**`bank` banks,
// at most 16. A write is answered as without it, and keeps the bus afterwards. The bits of `dram`, from the lowest:
// refresh_every 16, refresh_for 12, beat 9, turn 8, miss 8, page 5, bank 3.
//
// Bursts of more than LONGEST beats are not allowed.
//
// PORTS of them share the memory, each with its own bursts, stalls, reads in flight and order. With several a burst's
// port is given by its address: stripes of LONGEST beats go round; another is not allowed. `spread` makes the latency of
// each burst longer by 0 to `spread` cycles, at random.
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
    parameter int LONGEST = 16,
    parameter int PORTS = 1
) (
    input  logic clk,
    input  logic rst,

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

    input  logic [31:0] host_word,
    input  logic host_we,
    input  logic [DATA_BITS-1:0] host_wdata,
    output logic [DATA_BITS-1:0] host_rdata,

    input  logic [PORTS-1:0][ID_BITS-1:0] awid,
    input  logic [PORTS-1:0][ADDR_BITS-1:0] awaddr,
    input  logic [PORTS-1:0][7:0] awlen,
    input  logic [PORTS-1:0][2:0] awsize,
    input  logic [PORTS-1:0][1:0] awburst,
    input  logic [PORTS-1:0] awvalid,
    output logic [PORTS-1:0] awready,
    input  logic [PORTS-1:0][DATA_BITS-1:0] wdata,
    input  logic [PORTS-1:0][DATA_BITS/8-1:0] wstrb,
    input  logic [PORTS-1:0] wlast,
    input  logic [PORTS-1:0] wvalid,
    output logic [PORTS-1:0] wready,
    output logic [PORTS-1:0][ID_BITS-1:0] bid,
    output logic [PORTS-1:0][1:0] bresp,
    output logic [PORTS-1:0] bvalid,
    input  logic [PORTS-1:0] bready,

    input  logic [PORTS-1:0][ID_BITS-1:0] arid,
    input  logic [PORTS-1:0][ADDR_BITS-1:0] araddr,
    input  logic [PORTS-1:0][7:0] arlen,
    input  logic [PORTS-1:0][2:0] arsize,
    input  logic [PORTS-1:0][1:0] arburst,
    input  logic [PORTS-1:0] arvalid,
    output logic [PORTS-1:0] arready,
    output logic [PORTS-1:0][ID_BITS-1:0] rid,
    output logic [PORTS-1:0][DATA_BITS-1:0] rdata,
    output logic [PORTS-1:0][1:0] rresp,
    output logic [PORTS-1:0] rlast,
    output logic [PORTS-1:0] rvalid,
    input  logic [PORTS-1:0] rready,

    // 1 after an access that this memory, or AXI4, does not allow; see the assertions' messages.
    output logic protocol_error
);
    localparam int STEP = DATA_BITS / 8;
    localparam int SHIFT = $clog2(STEP);
    localparam logic [63:0] WORDS = 64'(BYTES / STEP);
    localparam int SLOTS = $clog2(OUTSTANDING);

    logic [DATA_BITS-1:0] memory [BYTES / STEP] /* verilator public_flat_rw */;

    logic [63:0] now;
    logic [31:0] lfsr [PORTS][5];
    logic [4:0] stalls [PORTS];

    function automatic logic [31:0] step(input logic [31:0] x);
        // xorshift32
        logic [31:0] y;
        y = x ^ (x << 13);
        y = y ^ (y >> 17);
        return y ^ (y << 5);
    endfunction

    always_ff @(posedge clk) begin
        for (int p = 0; p < PORTS; p++)
            for (int i = 0; i < 5; i++) begin
                lfsr[p][i] <= rst ? ((seed ^ (32'h9E3779B9 * 32'(5 * p + i + 1))) | 32'd1) : step(lfsr[p][i]);
                stalls[p][i] <= lfsr[p][i][15:8] < stall;
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

    function automatic logic [63:0] later(input logic [31:0] x);
        return 64'((32'(x[31:16]) * (32'(spread) + 32'd1)) >> 16);
    endfunction

    logic [63:0] aw_address [PORTS][OUTSTANDING];
    logic [7:0] aw_len [PORTS][OUTSTANDING];
    logic [ID_BITS-1:0] aw_id [PORTS][OUTSTANDING];
    logic [SLOTS:0] aw_w [PORTS], aw_r [PORTS];

    // ---- reads
    logic [63:0] ar_address [PORTS][OUTSTANDING];
    logic [7:0] ar_len [PORTS][OUTSTANDING];
    logic [ID_BITS-1:0] ar_id [PORTS][OUTSTANDING];
    logic [63:0] ar_time [PORTS][OUTSTANDING];
    logic [SLOTS:0] ar_w [PORTS], ar_r [PORTS];
    logic [7:0] r_beat [PORTS];
    logic [7:0] flying [PORTS];

    for (genvar p = 0; p < PORTS; p++) begin : reads
        wire [SLOTS-1:0] ar_i = ar_r[p][SLOTS-1:0];
        wire [63:0] r_address = ar_address[p][ar_i] + (64'(r_beat[p]) << SHIFT);
        wire r_due = ar_w[p] != ar_r[p] && now >= ar_time[p][ar_i] && !stalls[p][1];
        wire r_go = r_due && (!rvalid[p] || rready[p]);
        wire [7:0] flies = flying[p] + 8'(arvalid[p] && arready[p]) - 8'(rvalid[p] && rready[p] && rlast[p]);

        always_ff @(posedge clk) begin
            if (rst) begin
                arready[p] <= 1'b0;
                ar_w[p] <= '0;
                ar_r[p] <= '0;
                r_beat[p] <= '0;
                rvalid[p] <= 1'b0;
                flying[p] <= '0;
            end else begin
                flying[p] <= flies;
                arready[p] <= (SLOTS+1)'(ar_w[p] - ar_r[p]) < (SLOTS+1)'(OUTSTANDING - 2) && !stalls[p][0]
                    && (port_reads == 0 || flies < port_reads);
                if (arvalid[p] && arready[p]) begin
                    ar_address[p][ar_w[p][SLOTS-1:0]] <= 64'(araddr[p]);
                    ar_len[p][ar_w[p][SLOTS-1:0]] <= arlen[p];
                    ar_id[p][ar_w[p][SLOTS-1:0]] <= arid[p];
                    ar_w[p] <= ar_w[p] + 1'b1;
                end
                if (rready[p]) rvalid[p] <= 1'b0;
                if (r_go) begin
                    rvalid[p] <= 1'b1;
                    rid[p] <= ar_id[p][ar_i];
                    rresp[p] <= answer(r_address);
                    rdata[p] <= outside(r_address) ? '0 : memory[32'((r_address - BASE) >> SHIFT)];
                    rlast[p] <= r_beat[p] == ar_len[p][ar_i];
                    r_beat[p] <= r_beat[p] == ar_len[p][ar_i] ? 8'd0 : r_beat[p] + 8'd1;
                    if (r_beat[p] == ar_len[p][ar_i]) ar_r[p] <= ar_r[p] + 1'b1;
                end
            end
        end
    end

    // ---- the DRAM
    wire [15:0] refresh_every = dram[15:0];
    wire [11:0] refresh_for = dram[27:16];
    wire [8:0] dram_beat = dram[36:28];
    wire [7:0] dram_turn = dram[44:37];
    wire [7:0] dram_miss = dram[52:45];
    wire [4:0] dram_page = dram[57:53];
    wire [2:0] dram_bank = dram[60:58];

    // When the bus is free, in 1/256 cycles; the first cycle of all intervals, and the number of this one; the last
    // access; the open pages.
    logic [63:0] bus_free, refreshed, interval, accessed, opened [16], begins, page, into;
    logic bus_writes;
    localparam logic [63:0] LONG_AGO = 64'h8000_0000_0000_0000, CLOSED = '1;

    task automatic use_bus(input logic [63:0] address, input logic [7:0] len, input logic is_write,
                           input logic [63:0] ready);
        begins = ready;
        if (dram != 0) begin
            if (now - accessed >= 64'(refresh_every)) begin
                refreshed = now;
                interval = 0;
                bus_writes = 1'b0;
                for (int i = 0; i < 16; i++) opened[i] = CLOSED;
            end
            accessed = now;
            page = address >> dram_page;
            if (opened[page[3:0] & 4'((8'd1 << dram_bank) - 8'd1)] != page) begins = begins + 64'(dram_miss);
            into = ((bus_free + 64'd255) >> 8) + (is_write != bus_writes ? 64'(dram_turn) : 64'd0);
            if (into > begins) begins = into;
            bus_writes = is_write;
            into = (begins - refreshed) % 64'(refresh_every);
            if (into >= 64'(refresh_every - 16'(refresh_for))) begins = begins + 64'(refresh_every) - into;
            into = (begins - refreshed) / 64'(refresh_every);
            if (into != interval) for (int i = 0; i < 16; i++) opened[i] = CLOSED;
            interval = into;
            opened[page[3:0] & 4'((8'd1 << dram_bank) - 8'd1)] = page;
            bus_free = (begins << 8) + (64'(len) + 1) * 64'(dram_beat);
        end
    endtask

    always @(posedge clk)
        if (rst) begin
            bus_free = '0;
            accessed = LONG_AGO;
        end else begin
            for (int p = 0; p < PORTS; p++)
                if (wvalid[p] && wready[p] && wlast[p])
                    use_bus(aw_address[p][aw_r[p][SLOTS-1:0]], aw_len[p][aw_r[p][SLOTS-1:0]], 1'b1, now);
            for (int p = 0; p < PORTS; p++)
                if (arvalid[p] && arready[p]) begin
                    use_bus(64'(araddr[p]), arlen[p], 1'b0, now + 64'(read_latency) + later(lfsr[p][0]));
                    ar_time[p][ar_w[p][SLOTS-1:0]] <= begins;
                end
        end

    // ---- writes: data waits for its address
    logic [7:0] w_beat [PORTS];
    logic [1:0] w_resp [PORTS];
    logic [1:0] b_resp [PORTS][OUTSTANDING];
    logic [ID_BITS-1:0] b_id [PORTS][OUTSTANDING];
    logic [63:0] b_time [PORTS][OUTSTANDING];
    logic [SLOTS:0] b_w [PORTS], b_r [PORTS];

    always_ff @(posedge clk) begin
        if (host_we) memory[host_word] <= host_wdata;
        host_rdata <= memory[host_word];
    end

    for (genvar p = 0; p < PORTS; p++) begin : writes
        wire [SLOTS-1:0] aw_i = aw_r[p][SLOTS-1:0];
        wire [63:0] w_address = aw_address[p][aw_i] + (64'(w_beat[p]) << SHIFT);
        wire [1:0] w_answer = answer(w_address);
        wire w_last = w_beat[p] == aw_len[p][aw_i];
        wire [SLOTS-1:0] b_i = b_r[p][SLOTS-1:0];

        assign wready[p] = aw_w[p] != aw_r[p] && !stalls[p][3]
            && (SLOTS+1)'(b_w[p] - b_r[p]) < (SLOTS+1)'(OUTSTANDING - 2);

        always_ff @(posedge clk) begin
            if (rst) begin
                awready[p] <= 1'b0;
                aw_w[p] <= '0;
                aw_r[p] <= '0;
                b_w[p] <= '0;
                b_r[p] <= '0;
                w_beat[p] <= '0;
                w_resp[p] <= '0;
                bvalid[p] <= 1'b0;
            end else begin
                awready[p] <= (SLOTS+1)'(aw_w[p] - aw_r[p]) < (SLOTS+1)'(OUTSTANDING - 2) && !stalls[p][2];
                if (awvalid[p] && awready[p]) begin
                    aw_address[p][aw_w[p][SLOTS-1:0]] <= 64'(awaddr[p]);
                    aw_len[p][aw_w[p][SLOTS-1:0]] <= awlen[p];
                    aw_id[p][aw_w[p][SLOTS-1:0]] <= awid[p];
                    aw_w[p] <= aw_w[p] + 1'b1;
                end
                if (wvalid[p] && wready[p]) begin
                    if (w_answer == 2'd0)
                        for (int i = 0; i < STEP; i++)
                            if (wstrb[p][i])
                                memory[32'((w_address - BASE) >> SHIFT)][8*i +: 8] <= wdata[p][8*i +: 8];
                    w_beat[p] <= wlast[p] ? 8'd0 : w_beat[p] + 8'd1;
                    w_resp[p] <= wlast[p] ? 2'd0 : (w_resp[p] | w_answer);
                    if (wlast[p]) begin
                        b_resp[p][b_w[p][SLOTS-1:0]] <= w_resp[p] | w_answer;
                        b_id[p][b_w[p][SLOTS-1:0]] <= aw_id[p][aw_i];
                        b_time[p][b_w[p][SLOTS-1:0]] <= now + 64'(write_latency) + later(lfsr[p][2]);
                        b_w[p] <= b_w[p] + 1'b1;
                        aw_r[p] <= aw_r[p] + 1'b1;
                    end
                end
                if (bready[p]) bvalid[p] <= 1'b0;
                if (b_w[p] != b_r[p] && now >= b_time[p][b_i] && !stalls[p][4] && (!bvalid[p] || bready[p])) begin
                    bvalid[p] <= 1'b1;
                    bresp[p] <= b_resp[p][b_i];
                    bid[p] <= b_id[p][b_i];
                    b_r[p] <= b_r[p] + 1'b1;
                end
            end
        end
    end

    // ---- what AXI4 and a Zynq UltraScale+ port demand of the manager
    function automatic logic illegal(input int p, input logic [ADDR_BITS-1:0] address, input logic [7:0] len,
                                     input logic [2:0] size, input logic [1:0] burst);
        return burst != 2'd1 || size != 3'(SHIFT) || 32'(len) >= LONGEST || address[SHIFT-1:0] != '0
            || 32'(address[11:0]) + (32'(len) + 1) * STEP > 4096
            || (PORTS > 1 && (32'(address[31:0]) / (LONGEST * STEP) % PORTS != p
                || 32'(address[11:0]) % (LONGEST * STEP) + (32'(len) + 1) * STEP > LONGEST * STEP));
    endfunction

    logic [PORTS-1:0] wrong;
    assign protocol_error = |wrong;
    for (genvar p = 0; p < PORTS; p++) begin : rules
        logic ar_held, aw_held, w_held;
        logic [ADDR_BITS+7:0] ar_was, aw_was;
        logic [DATA_BITS:0] w_was;
        always_ff @(posedge clk) begin
            ar_held <= arvalid[p] && !arready[p] && !rst;
            ar_was <= {araddr[p], arlen[p]};
            aw_held <= awvalid[p] && !awready[p] && !rst;
            aw_was <= {awaddr[p], awlen[p]};
            w_held <= wvalid[p] && !wready[p] && !rst;
            w_was <= {wdata[p], wlast[p]};
            if (rst) wrong[p] <= 1'b0;
            else begin
                if ((arvalid[p] && illegal(p, araddr[p], arlen[p], arsize[p], arburst[p]))
                        || (awvalid[p] && illegal(p, awaddr[p], awlen[p], awsize[p], awburst[p]))) begin
                    wrong[p] <= 1'b1;
                    $display("axi_memory: burst of a kind that is not allowed");
                end
                if ((ar_held && (!arvalid[p] || ar_was != {araddr[p], arlen[p]}))
                        || (aw_held && (!awvalid[p] || aw_was != {awaddr[p], awlen[p]}))
                        || (w_held && (!wvalid[p] || w_was != {wdata[p], wlast[p]}))) begin
                    wrong[p] <= 1'b1;
                    $display("axi_memory: a channel changed before it was taken");
                end
                if (wvalid[p] && wready[p] && wlast[p] != (writes[p].w_last)) begin
                    wrong[p] <= 1'b1;
                    $display("axi_memory: wlast does not fit awlen");
                end
            end
        end
    end
endmodule
