// The firmware of the system on chip on this machine, beside a model of a card (sd_card.h), until its job ends or power is
// cut. Usage: power_host CARD MEMORY [NAME=VALUE ...]: files of the card, which is written at the end, and of the shared
// memory; settings are those of sd_card.h, and
//   cut_runs N      power goes when the accelerator is asked for the N-th time
//   cut_bytes N     when N bytes have been on the card's line
//   status N        STATUS until the accelerator is reset
// Lines on standard output: "u TEXT" the UART's; "r OFFSET COMMANDS" the accelerator is asked for a program, and one line
// comes back when it has ended: saturated words, cycles, and whether mains power is lost; last "e CUT WRITE_BYTES STORED
// VIOLATIONS RUNS BYTES".
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "sd_card.h"

extern "C" {
#include "gradloom_regs.h"
uintptr_t host_memory;
}

static SdCard card;
static const char *card_path;
static bool selected, fast, miso = true, mains_lost;
// Looks at a chip that is too warm, before it is cool again.
static unsigned warm;
static uint32_t arrived, cycles, saturated, ready_lines;
static uint64_t bytes, runs, cut_bytes, cut_runs;
static uint16_t sum;
static bool sum_sent;
static std::string text;

static void end(bool cut) {
    FILE *file = fopen(card_path, "wb");
    fwrite(card.content.data(), 1, card.content.size(), file);
    fclose(file);
    printf("e %d %llu %llu %llu %llu %llu\n", cut, (unsigned long long)card.write_bytes, (unsigned long long)card.stored,
           (unsigned long long)card.violations, (unsigned long long)runs, (unsigned long long)bytes);
    fflush(stdout);
    exit(0);
}

static uint32_t shift(uint32_t byte) {
    const unsigned half = (fast ? SdCard::DATA_PERIOD : SdCard::IDENTIFICATION_PERIOD) / 2;
    uint32_t got = 0;
    for (int bit = 7; bit >= 0; --bit) {
        const bool mosi = byte >> bit & 1;
        card.step(false, mosi, !selected);
        miso = card.rest(half - 1);
        got = got << 1 | miso;
        card.step(true, mosi, !selected);
        miso = card.rest(half - 1);
        sum = (sum << 1) ^ ((sum >> 15 ^ (sum_sent ? mosi : miso)) & 1 ? 0x1021 : 0);
    }
    if (card.dark || (cut_bytes && ++bytes >= cut_bytes)) end(true);
    if (!cut_bytes) ++bytes;
    return got;
}

extern "C" {
int gl_firmware(void);
void host_put(char character) {
    if (character != '\n') {
        text.push_back(character);
        return;
    }
    printf("u %s\n", text.c_str());
    // Nobody brings a second job.
    if (text == "ready" && (ready_lines++ || *(volatile uint32_t *)host_memory != 0x4e524c47u)) end(false);
    text.clear();
}
void host_card(uint32_t selects, uint32_t hurries) { selected = selects; fast = hurries; sum = 0; sum_sent = false; }
void host_card_send(uint32_t byte) { arrived = shift(byte); }
uint32_t host_card_got() { return arrived; }
void host_card_give(uint32_t word) { arrived = 0; for (int n = 0; n < 4; ++n) arrived |= shift(word >> 8 * n & 0xff) << 8 * n; }
uint32_t host_card_word() { return arrived; }
void host_card_sum_sent() { sum = 0; sum_sent = true; }
uint32_t host_card_sum() { return sum; }
// Pauses take longer than the whole job.
static const uint32_t PAUSE = 1u << 20;
uint32_t host_temperature() { if (!warm) return 2500; --warm; cycles += PAUSE; return 3000; }
int host_mains_lost() { const bool lost = mains_lost; mains_lost = false; cycles += lost ? PAUSE : 0; return lost; }
uint32_t host_cycles() { return cycles; }

static uint32_t registers[1024];
// The forward cache may hold words of another job, until it is cleared.
static bool stale = true;
// The machine table, and FORMATS of it and of programs, which the command line of the compiler gives.
static const char table[512] = TABLE;
uint32_t host_read(void *, uint32_t offset) {
    if (offset != offsetof(gradloom_t, TABLE_WORD)) return registers[offset / 4];
    uint32_t word;
    memcpy(&word, table + 4 * (registers[offsetof(gradloom_t, TABLE_PLACE) / 4] & 127), 4);
    return word;
}
void host_write(void *, uint32_t offset, uint32_t value) {
    if (offset != offsetof(gradloom_t, CONTROL) || !(value & GRADLOOM__CONTROL__BELL_bm)) {
        if (offset == offsetof(gradloom_t, CACHE_CLEAR)) stale = false;
        else if (offset == offsetof(gradloom_t, CONTROL) && value & GRADLOOM__CONTROL__RESET_bm)
            registers[offsetof(gradloom_t, STATUS) / 4] = 0;
        else if (offset != offsetof(gradloom_t, STATUS) && offset >= 12) registers[offset / 4] = value;
        return;
    }
    if (stale) {
        printf("u the cache was not cleared\n");
        exit(1);
    }
    if (cut_runs && runs + 1 == cut_runs) end(true);
    ++runs;
    printf("r %u %u\n", registers[offsetof(gradloom_t, PROGRAM_OFFSET) / 4], registers[offsetof(gradloom_t, PROGRAM_COMMANDS) / 4]);
    fflush(stdout);
    unsigned spent = 0, lost = 0;
    if (scanf("%u %u %u", &saturated, &spent, &lost) != 3) exit(1);
    cycles += spent;
    mains_lost = lost & 1;
    warm = lost & 2 ? 4 : 0;
    registers[offsetof(gradloom_t, SATURATED) / 4] = saturated;
    registers[offsetof(gradloom_t, CYCLES_LO) / 4] = spent;
}
}

int main(int argc, char **argv) {
    card_path = argv[1];
    FILE *file = fopen(card_path, "rb");
    struct stat found;
    fstat(fileno(file), &found);
    card.content.resize(found.st_size);
    if (fread(card.content.data(), 1, found.st_size, file) != size_t(found.st_size)) return 1;
    fclose(file);
    const int memory = open(argv[2], O_RDWR);
    fstat(memory, &found);
    host_memory = reinterpret_cast<uintptr_t>(mmap(nullptr, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    card.set("card", SdCard::LARGE);
    for (int n = 0; n < 100; ++n) card.step(false, true, true);
    for (int n = 3; n < argc; ++n) {
        char *value = strchr(argv[n], '=');
        *value++ = 0;
        const uint64_t number = strtoull(value, nullptr, 0);
        if (!strcmp(argv[n], "cut_runs")) cut_runs = number;
        else if (!strcmp(argv[n], "cut_bytes")) cut_bytes = number;
        else if (!strcmp(argv[n], "status")) registers[offsetof(gradloom_t, STATUS) / 4] = number;
        else if (!card.set(argv[n], number)) return 1;
    }
    registers[0] = GRADLOOM__ID__MAGIC_reset;
    registers[1] = GRADLOOM__VERSION__MAJOR_reset << GRADLOOM__VERSION__MAJOR_bp;
    registers[2] = FORMATS;
    return gl_firmware();
}
