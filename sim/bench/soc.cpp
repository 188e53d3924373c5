// Serves a simulated system on chip to sim/soc.py: the requests of harness.h, and one of its own.
//   g CYCLES             -> "SPENT STATE COUNT"    runs so long, or to the end of a line on the UART, or till something
//                                                  is wrong; COUNT bytes of the UART follow. STATE: 1 the processor has
//                                                  stopped, 2 an access failed, 4 a rule of AXI4 is broken, 8 a frame is
#include <string>

#include "Vsoc.h"
#include "Vsoc___024root.h"
#include "harness.h"

static Vsoc *top;

static bool answer(const char *line) {
    if (line[0] != 'g') return false;
    unsigned long long limit = 0, spent = 0;
    sscanf(line + 1, "%llx", &limit);
    std::string text;
    unsigned state = 0;
    while (spent < limit && !state && (text.empty() || text.back() != '\n')) {
        cycle(top);
        ++spent;
        if (top->heard) text.push_back(static_cast<char>(top->byte_heard));
        state = top->trap | top->fault << 1 | top->protocol_error << 2 | top->broken << 3;
    }
    printf("%llx %x %zx\n", spent, state, text.size());
    fwrite(text.data(), 1, text.size(), stdout);
    return true;
}

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vsoc;
    reset(top, [] { cycle(top); });
    int code = serve(top, top->rootp->soc__DOT__ram__DOT__memory, answer, [](const char *, uint64_t) { return false; });
    delete top;
    return code;
}
