// Serves a simulated system on chip to sim/run/soc.py: the requests of harness.h, and five of its own.
//   g CYCLES             -> "SPENT STATE COUNT"    runs so long, or to the end of a line on the UART, or till something
//                                                  is wrong; COUNT bytes of the UART follow. STATE: 1 the processor has
//                                                  stopped, 2 an access failed, 4 a rule of AXI4 is broken, 8 a frame is,
//                                                  16 power is gone
//   t BIT GAP LENGTH                               to the UART, see speaker.h
//   c LENGTH             -> "ok"                   LENGTH bytes follow: what the memory card holds
//   r                    -> "LENGTH"               LENGTH bytes follow: what it holds now
//   k                    -> "COMMANDS BLOCKS VIOLATIONS STORED BYTES POWER"   the card has been asked, has sent, has had to
//                                                  bear, has stored; bytes on its line while a write was under way; 1: its
//                                                  slot has power
#include <cstring>
#include <string>

#include "Vsoc.h"
#include "Vsoc___024root.h"
#include "harness.h"
#include "sd_card.h"
#include "speaker.h"

static Vsoc *top;
static SdCard card;
static Speaker speaker;

static void tick() {
    top->rxd = speaker.step();
    cycle(top);
    card.supply(!top->sd_reset);
    top->sd_miso = card.step(top->sd_sclk, top->sd_mosi, top->sd_cs_n);
}

static bool answer(const char *line) {
    if (line[0] == 'k') {
        printf("%llx %llx %llx %llx %llx %x\n", (unsigned long long)card.commands, (unsigned long long)card.blocks,
               (unsigned long long)card.violations, (unsigned long long)card.stored,
               (unsigned long long)card.write_bytes, !top->sd_reset);
        return true;
    }
    if (line[0] == 'r') {
        printf("%zx\n", card.content.size());
        fwrite(card.content.data(), 1, card.content.size(), stdout);
        return true;
    }
    if (line[0] == 'c') {
        unsigned long long length = 0;
        sscanf(line + 1, "%llx", &length);
        card.content.resize(length);
        if (fread(card.content.data(), 1, length, stdin) != length) return false;
        printf("ok\n");
        return true;
    }
    if (line[0] == 't') return speaker.take(line);
    if (line[0] != 'g') return false;
    unsigned long long limit = 0, spent = 0;
    sscanf(line + 1, "%llx", &limit);
    std::string text;
    unsigned state = 0;
    while (spent < limit && !state && (text.empty() || text.back() != '\n')) {
        tick();
        ++spent;
        if (top->heard) text.push_back(static_cast<char>(top->byte_heard));
        state = top->trap | top->fault << 1 | top->protocol_error << 2 | top->broken << 3 | card.dark << 4;
    }
    printf("%llx %x %zx\n", spent, state, text.size());
    fwrite(text.data(), 1, text.size(), stdout);
    return true;
}

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vsoc;
    top->sd_miso = 1;
    top->rxd = 1;
    reset(top, tick);
    int code = serve(top, top->rootp->soc__DOT__ram__DOT__memory, answer,
                     [](const char *name, uint64_t value) {
                         if (!strcmp(name, "restart")) top->restart = value;
                         else if (!strcmp(name, "mains_lost")) top->mains_lost = value;
                         else if (!strcmp(name, "temperature")) top->temperature = value;
                         else return card.set(name, value);
                         return true;
                     });
    delete top;
    return code;
}
