// Serves a simulated accelerator to sim/device.py: requests on standard input, answers on standard output.
//
// Each request is a line; numbers are hexadecimal without prefix. Bytes follow the line that announces them.
//   r ADDRESS            -> "DATA RESP"            reads a register
//   w ADDRESS DATA       -> "RESP"                 writes one
//   l OFFSET LENGTH      -> "ok"                   LENGTH bytes follow, for the memory
//   d OFFSET LENGTH      -> LENGTH bytes           of the memory
//   s NAME VALUE         -> "ok"                   sets an input of the bench
//   g CYCLES             -> "IRQ CYCLES ERROR"     runs until the interrupt, or so long
//   t                    -> "COUNT", events        takes the trace: 8 bytes each, cycle << 12 | events
//   q                                              ends
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "Vdevice.h"
#include "Vdevice___024root.h"
#include "verilated.h"

static Vdevice *top;
static uint64_t cycles;
static bool tracing;
static std::vector<uint64_t> trace;

static void tick() {
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
    ++cycles;
    if (tracing && top->events) trace.push_back(cycles << 12 | top->events);
}

static uint8_t *memory(uint64_t offset) {
    return reinterpret_cast<uint8_t *>(&top->rootp->device__DOT__ram__DOT__memory[0]) + offset;
}

static const int PATIENCE = 100000;

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vdevice;
    const uint64_t size = sizeof(top->rootp->device__DOT__ram__DOT__memory);
    top->read_latency = 40;
    top->write_latency = 10;
    top->seed = 1;
    top->rst = 1;
    for (int n = 0; n < 16; ++n) tick();
    top->rst = 0;
    tick();

    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        char name[32] = "";
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
            break;
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
            break;
        }
        case 'l':
            sscanf(line + 1, "%llx %llx", &a, &b);
            if (a + b > size || fread(memory(a), 1, b, stdin) != b) return 2;
            printf("ok\n");
            break;
        case 'd':
            sscanf(line + 1, "%llx %llx", &a, &b);
            if (a + b > size) return 2;
            fwrite(memory(a), 1, b, stdout);
            break;
        case 's':
            sscanf(line + 1, "%31s %llx", name, &a);
            if (!strcmp(name, "read_latency")) top->read_latency = a;
            else if (!strcmp(name, "write_latency")) top->write_latency = a;
            else if (!strcmp(name, "stall")) top->stall = a;
            else if (!strcmp(name, "seed")) top->seed = a;
            else if (!strcmp(name, "fail_enable")) top->fail_enable = a;
            else if (!strcmp(name, "fail_address")) top->fail_address = a;
            else if (!strcmp(name, "fail_resp")) top->fail_resp = a;
            else if (!strcmp(name, "rst")) top->rst = a;
            else if (!strcmp(name, "trace")) tracing = a;
            else return 2;
            top->eval();
            printf("ok\n");
            break;
        case 'g': {
            sscanf(line + 1, "%llx", &a);
            uint64_t start = cycles;
            while (!top->irq && !top->protocol_error && cycles - start < a) tick();
            printf("%x %llx %x\n", top->irq, (unsigned long long)(cycles - start), top->protocol_error);
            break;
        }
        case 't':
            printf("%zx\n", trace.size());
            fwrite(trace.data(), 8, trace.size(), stdout);
            trace.clear();
            break;
        case 'q':
            delete top;
            return 0;
        default:
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
