// The far end of a UART's line: bytes on their way to the design.
//   t BIT GAP LENGTH     -> "ok"                   LENGTH bytes follow: they are sent from here on, with BIT ticks a bit and
//                                                  GAP, at least ten bits, from one byte to the next
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

struct Speaker {
    std::deque<uint8_t> said;
    uint64_t bit = 1, gap = 10, spoken = 0;

    // The line in the next tick.
    bool step() {
        if (said.empty()) return true;
        const uint64_t number = spoken / bit;
        const bool line = number == 0 ? false : number <= 8 ? said.front() >> (number - 1) & 1 : true;
        if (++spoken >= gap) {
            spoken = 0;
            said.pop_front();
        }
        return line;
    }

    // Takes such a request; whether it is whole.
    bool take(const char *line) {
        unsigned long long ticks = 0, space = 0, length = 0;
        if (sscanf(line + 1, "%llx %llx %llx", &ticks, &space, &length) != 3 || ticks == 0) return false;
        bit = ticks;
        gap = std::max<uint64_t>(space, 10 * bit);
        std::vector<uint8_t> bytes(length);
        if (fread(bytes.data(), 1, length, stdin) != length) return false;
        said.insert(said.end(), bytes.begin(), bytes.end());
        printf("ok\n");
        return true;
    }
};
