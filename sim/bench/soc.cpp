// Serves a simulated system on chip to sim/soc.py: requests on standard input, answers on standard output.
//
// Each request is a line; numbers are hexadecimal without prefix. Bytes follow the line that announces them.
//   l OFFSET LENGTH      -> "ok"                   LENGTH bytes follow, for the memory
//   d OFFSET LENGTH      -> LENGTH bytes           of the memory
//   s NAME VALUE         -> "ok"                   sets an input of the bench
//   g CYCLES             -> "SPENT STATE COUNT"    runs so long, or to the end of a line on the UART, or till something
//                                                  is wrong; COUNT bytes of the UART follow. STATE: 1 the processor has
//                                                  stopped, 2 an access failed, 4 a rule of AXI4 is broken, 8 a frame is
//   q                                              ends
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "Vsoc.h"
#include "Vsoc___024root.h"
#include "verilated.h"

static Vsoc *top;

static void tick() {
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
}

static uint8_t *memory(uint64_t offset) {
    return reinterpret_cast<uint8_t *>(&top->rootp->soc__DOT__ram__DOT__memory[0]) + offset;
}

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vsoc;
    const uint64_t size = sizeof(top->rootp->soc__DOT__ram__DOT__memory);
    top->read_latency = 40;
    top->write_latency = 10;
    top->seed = 1;
    top->rst = 1;
    for (int n = 0; n < 16; ++n) tick();
    top->rst = 0;

    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        char name[32] = "";
        switch (line[0]) {
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
            else if (!strcmp(name, "rst")) top->rst = a;
            else return 2;
            printf("ok\n");
            break;
        case 'g': {
            sscanf(line + 1, "%llx", &a);
            std::string text;
            unsigned long long spent = 0;
            unsigned state = 0;
            while (spent < a && !state && (text.empty() || text.back() != '\n')) {
                tick();
                ++spent;
                if (top->heard) text.push_back(static_cast<char>(top->byte_heard));
                state = top->trap | top->fault << 1 | top->protocol_error << 2 | top->broken << 3;
            }
            printf("%llx %x %zx\n", spent, state, text.size());
            fwrite(text.data(), 1, text.size(), stdout);
            break;
        }
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
