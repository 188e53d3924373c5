// Serves a simulated tuner to sim/bench/tuner.py: requests on standard input, answers on standard output. Each request is a
// line; numbers are hexadecimal without prefix.
//   g CYCLES             -> "SPENT STATE COUNT"    runs so long, or to the end of a line on the UART, or till something
//                                                  is wrong; COUNT bytes of the UART follow. STATE: 1 the processor has
//                                                  stopped, 2 an access failed, 8 a frame is broken
//   t BIT GAP LENGTH                               to the UART, see speaker.h
//   s NAME VALUE         -> "ok"                   an input: locked (0 at first) or away; or late: broken frames and
//                                                  bytes are the listener's own fault
//   c                    -> "PULSES RUNNING"       of the design's clock so far; the lamp
//   q                                              ends
#include <cstdio>
#include <cstring>
#include <string>

#include "Vtuner.h"
#include "harness.h"
#include "speaker.h"

static Vtuner *top;
static Speaker speaker;

static void tick() {
    top->rxd = speaker.step();
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
}

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vtuner;
    top->locked = 0;
    top->away = 1;
    for (int n = 0; n < 16; ++n) tick();
    top->away = 0;

    char line[256], name[32];
    bool late = false;
    end_with_writer();
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0;
        switch (line[0]) {
        case 'g': {
            sscanf(line + 1, "%llx", &a);
            std::string text;
            unsigned long long spent = 0;
            unsigned state = 0;
            while (spent < a && !state && (text.empty() || text.back() != '\n')) {
                tick();
                ++spent;
                if (top->heard) text.push_back(static_cast<char>(top->byte_heard));
                state = top->trap | top->fault << 1 | (top->broken && !late) << 3;
            }
            printf("%llx %x %zx\n", spent, state, text.size());
            fwrite(text.data(), 1, text.size(), stdout);
            break;
        }
        case 't':
            if (!speaker.take(line)) return 2;
            break;
        case 's':
            if (sscanf(line + 1, "%31s %llx", name, &a) != 2) return 2;
            if (!strcmp(name, "locked")) top->locked = a;
            else if (!strcmp(name, "away")) top->away = a;
            else if (!strcmp(name, "late")) late = a;
            else return 2;
            printf("ok\n");
            break;
        case 'c':
            printf("%x %x\n", top->pulses, top->running);
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
