// Serves a simulated accelerator to sim/run/device.py: the requests of harness.h, and its own.
//   r ADDRESS            -> "DATA RESP"            reads a register
//   w ADDRESS DATA       -> "RESP"                 writes one
//   s                                              also sets spread, dram, port_reads, fail_enable, fail_address, fail_resp,
//                                                  fence_low, fence_high, and trace: to record
//   g CYCLES             -> "IRQ CYCLES ERROR"     runs until the interrupt, or so long
//   t                    -> "COUNT", events        takes the trace: 8 bytes each, cycle << 32 | events
//   c PATH               -> "ok"                   writes what was covered, where Verilator was told to count it
//   b PATH               -> "ok"                   begins to count how often each bit changes; values of this moment go
//                                                  to PATH.start as transitions from 0
//   e                    -> "CYCLES"               ends it: the counts go to PATH, in half periods of the clock
#include <vector>

#include "Vdevice.h"
#include "Vdevice___024root.h"
#include "harness.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE_SAIF
#include <memory>
#include <string>

#include "verilated_saif_c.h"
#endif

static Vdevice *top;
static uint64_t cycles;
static bool tracing;
static std::vector<uint64_t> trace;

#if VM_TRACE_SAIF
static std::unique_ptr<VerilatedSaifC> activity;
static uint64_t halves, begun;

// Verilator counts a bit that is 1 at first as one that has risen: a file of that moment tells these apart.
static void count_from_here(const std::string &path) {
    halves = 0;
    for (const std::string &name : {path + ".start", path}) {
        activity.reset();
        activity.reset(new VerilatedSaifC);
        top->trace(activity.get(), 99);
        activity->open(name.c_str());
        activity->dump(halves);
    }
    begun = cycles;
}

static void half(int clk) {
    top->clk = clk;
    top->eval();
    ++halves;
    if (activity) activity->dump(halves);
}

static void tick() {
    half(0);
    half(1);
#else
static void tick() {
    cycle(top);
#endif
    ++cycles;
    if (tracing && top->events) trace.push_back(cycles << 32 | top->events);
}

static const int PATIENCE = 100000;

static bool answer(const char *line) {
    unsigned long long a = 0, b = 0;
    switch (line[0]) {
    case 'r': {
        sscanf(line + 1, "%llx", &a);
        top->araddr = a;
        top->arvalid = 1;
        top->eval();
        int left = PATIENCE;
        bool taken = false;
        // A handshake happens at the edge at which both are high.
        while (!taken && left--) { taken = top->arready; tick(); }
        top->arvalid = 0;
        top->eval();
        uint32_t value = 0, resp = 4;
        while (left-- > 0) {
            if (top->rvalid) { value = top->rdata; resp = top->rresp; tick(); break; }
            tick();
        }
        printf("%x %x\n", value, resp);
        return true;
    }
    case 'w': {
        sscanf(line + 1, "%llx %llx", &a, &b);
        top->awaddr = a;
        top->wdata = b;
        top->awvalid = top->wvalid = 1;
        top->eval();
        int left = PATIENCE;
        uint32_t resp = 4;
        while (left--) {
            bool address = top->awvalid && top->awready, data = top->wvalid && top->wready;
            bool answered = top->bvalid;
            resp = top->bresp;
            tick();
            if (address) top->awvalid = 0;
            if (data) top->wvalid = 0;
            top->eval();
            if (answered) break;
        }
        printf("%x\n", left < 0 ? 4 : resp);
        return true;
    }
    case 'g': {
        sscanf(line + 1, "%llx", &a);
        uint64_t start = cycles;
        while (!top->irq && !top->protocol_error && cycles - start < a) tick();
        printf("%x %llx %x\n", top->irq, (unsigned long long)(cycles - start), top->protocol_error);
        return true;
    }
    case 't':
        printf("%zx\n", trace.size());
        fwrite(trace.data(), 8, trace.size(), stdout);
        trace.clear();
        return true;
#if VM_COVERAGE
    case 'c':
        Verilated::threadContextp()->coveragep()->write(std::string(line + 2, strcspn(line + 2, "\n")).c_str());
        printf("ok\n");
        return true;
#endif
#if VM_TRACE_SAIF
    case 'b':
        count_from_here(std::string(line + 2, strcspn(line + 2, "\n")));
        printf("ok\n");
        return true;
    case 'e':
        activity.reset();
        printf("%llx\n", (unsigned long long)(cycles - begun));
        return true;
#endif
    default:
        return false;
    }
}

static bool set(const char *name, uint64_t value) {
    if (!strcmp(name, "spread")) top->spread = value;
    else if (!strcmp(name, "dram")) top->dram = value;
    else if (!strcmp(name, "port_reads")) top->port_reads = value;
    else if (!strcmp(name, "fail_enable")) top->fail_enable = value;
    else if (!strcmp(name, "fail_address")) top->fail_address = value;
    else if (!strcmp(name, "fail_resp")) top->fail_resp = value;
    else if (!strcmp(name, "fence_low")) top->fence_low = value;
    else if (!strcmp(name, "fence_high")) top->fence_high = value;
    else if (!strcmp(name, "trace")) tracing = value;
    else return false;
    return true;
}

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
#if VM_TRACE_SAIF
    Verilated::traceEverOn(true);
#endif
    top = new Vdevice;
    // Inputs are the bench's, also where everything else starts as a random value.
    top->stall = top->spread = top->dram = top->port_reads = 0;
    top->fail_enable = top->fail_address = top->fail_resp = top->fence_low = 0;
    top->awaddr = top->awvalid = top->wdata = top->wvalid = top->araddr = top->arvalid = 0;
    top->fence_high = ~0ull;
    reset(top, tick);
    tick();
    int code = serve(top, top->rootp->device__DOT__ram__DOT__memory, answer, set);
    delete top;
    return code;
}
