// What the benches behind Harness of sim/run/device.py share: clock, reset, and requests on standard input with answers on
// standard output.
//
// Each request is a line; numbers are hexadecimal without prefix. Bytes follow the line that announces them.
//   l OFFSET LENGTH      -> "ok"                   LENGTH bytes follow, for the memory
//   d OFFSET LENGTH      -> LENGTH bytes           of the memory
//   s NAME VALUE         -> "ok"                   sets an input of the bench: read_latency, write_latency, stall, seed,
//                                                  rst, or one of its own
//   q                                              ends
// The rest is the bench's own.
// A simulation ends with who asks: when nobody can write to its standard input any more, also in the middle of a request.
#pragma once
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "verilated.h"

template <class Top> void cycle(Top *top) {
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
}

// Inputs as they are before the first request, and 16 ticks of reset.
template <class Top, class Tick> void reset(Top *top, Tick tick) {
    top->read_latency = 40;
    top->write_latency = 10;
    top->seed = 1;
    top->rst = 1;
    for (int n = 0; n < 16; ++n) tick();
    top->rst = 0;
}

template <class Top> bool set_shared(Top *top, const char *name, uint64_t value) {
    if (!strcmp(name, "read_latency")) top->read_latency = value;
    else if (!strcmp(name, "write_latency")) top->write_latency = value;
    else if (!strcmp(name, "stall")) top->stall = value;
    else if (!strcmp(name, "seed")) top->seed = value;
    else if (!strcmp(name, "rst")) top->rst = value;
    else return false;
    return true;
}

inline void end_with_writer() {
    std::thread([] {
        struct pollfd input = {STDIN_FILENO, 0, 0};
        while (poll(&input, 1, -1) < 0 || !(input.revents & POLLHUP)) {}
        _exit(1);
    }).detach();
}

// Answers requests up to the last one; returns what main does. `answer(line)` and `set(name, value)` are asked for what
// is the bench's own, and say whether there is such a thing.
template <class Top, class Memory, class Answer, class Set>
int serve(Top *top, Memory &memory, Answer answer, Set set) {
    uint8_t *bytes = reinterpret_cast<uint8_t *>(&memory[0]);
    const uint64_t size = sizeof(memory);
    char line[256];
    end_with_writer();
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        char name[32] = "";
        switch (line[0]) {
        case 'l':
            sscanf(line + 1, "%llx %llx", &a, &b);
            if (a + b > size || fread(bytes + a, 1, b, stdin) != b) return 2;
            printf("ok\n");
            break;
        case 'd':
            sscanf(line + 1, "%llx %llx", &a, &b);
            if (a + b > size) return 2;
            fwrite(bytes + a, 1, b, stdout);
            break;
        case 's':
            sscanf(line + 1, "%31s %llx", name, &a);
            if (!set_shared(top, name, a) && !set(name, a)) return 2;
            top->eval();
            printf("ok\n");
            break;
        case 'q':
            return 0;
        default:
            if (!answer(line)) return 2;
        }
        fflush(stdout);
    }
    return 0;
}
