/* SPDX-License-Identifier: Apache-2.0
 * Self-test of an accelerator by the processor of a system on chip: what selftest.py checks, with less text. Each check
 * is a line on the UART, and the last line is "done" or "failed".
 */
#include "gradloom.h"
#include "soc_device.h"
#include "soc_memory.h"
#include "soc_text.h"

/* Polls of a program that ends within some thousand cycles. */
#define POLLS 1000000u
#define BLOCK 4096u
#define WINDOW (16 * BLOCK)
/* Where data are copied from. */
#define SOURCE BLOCK

enum { CONTROL = 0, LOAD = 1, STORE = 2, NOBODY = 15 };
enum { COMMAND_WORDS = 8, END = 0 };

/* Whether the interrupt line of the accelerator is high, where the board can tell. */
#ifndef GL_BOARD_INTERRUPT
#define GL_BOARD_INTERRUPT(expected) (expected)
#endif

static gl_device device;

static volatile uint32_t *memory(uint32_t offset)
{
    return (volatile uint32_t *)(GL_MEMORY + offset);
}

/* Writes the command at `place` of the window's program. */
static void put_command(uint32_t place, uint32_t engine, uint32_t wait, uint32_t post, uint32_t offset, uint32_t beats,
                        uint32_t port, uint32_t arg)
{
    volatile uint32_t *word = memory(0) + COMMAND_WORDS * place;

    word[0] = END | engine << 8 | wait << 16;
    word[1] = post;
    word[2] = 0;
    word[3] = offset;
    word[4] = beats | port << 24;
    word[5] = arg;
    word[6] = word[7] = 0;
}

static void put_end(uint32_t place)
{
    put_command(place, CONTROL, 0, 0, 0, 0, 0, 0);
}

/* A check gives NULL, or what is wrong. */
static const char *check_registers(void)
{
    static const uint32_t patterns[] = {0x55555555u, 0xaaaaaaaau, 0xffffffffu, 0x00000001u, 0x80000000u};
    uint32_t at = offsetof(gradloom_t, WATCHDOG), before = gl_read(&device, at), i;
    const char *wrong = NULL;

    for (i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        gl_write(&device, at, patterns[i]);
        if (gl_read(&device, at) != patterns[i])
            wrong = "WATCHDOG does not hold what is written";
    }
    gl_write(&device, at, before);
    return wrong;
}

static const char *check_memory(void)
{
    uint32_t at, i;

    for (at = 0; at < WINDOW; at += WINDOW - BLOCK) {
        for (i = 0; i < BLOCK / 4; i++)
            memory(at)[i] = 0x9e3779b9u * (i + at + 1);
        for (i = 0; i < BLOCK / 4; i++)
            if (memory(at)[i] != 0x9e3779b9u * (i + at + 1))
                return "the window does not hold what is written";
    }
    return NULL;
}

static const char *check_end(void)
{
    gl_counters counters;

    put_end(0);
    if (gl_start(&device, 0, 1) != GL_OK)
        return "the driver refused the program";
    if (gl_wait(&device, POLLS) != GL_OK)
        return "the smallest program does not end";
    if (!GL_BOARD_INTERRUPT(1))
        return "the interrupt line is low";
    if (!gl_acknowledge(&device) || gl_acknowledge(&device))
        return "no interrupt is pending, or it is not cleared";
    if (GL_BOARD_INTERRUPT(0))
        return "the interrupt line stays high";
    gl_get_counters(&device, &counters);
    return counters.cycles ? NULL : "the cycle counter stands still";
}

/* Runs a program of `commands` that must be refused with `code` at `address`, and then one that must end. */
static const char *refused(uint32_t commands, uint32_t code, uint64_t address)
{
    gl_error error;
    int status = gl_run(&device, 0, commands, POLLS);

    gl_acknowledge(&device);
    gl_get_error(&device, &error);
    if (status != GL_FAILED || error.code != code)
        return "it was not refused, or with another code";
    if (error.command != 0 || error.address != address)
        return "the error names another command or address";
    put_end(0);
    status = gl_run(&device, 0, 1, POLLS);
    gl_acknowledge(&device);
    return status == GL_OK ? NULL : "the next program does not end";
}

static const char *check_window(void)
{
    const char *wrong;

    put_command(0, LOAD, 0, 0, BLOCK, 1, 0, 0);
    put_end(1);
    gl_set_window(&device, GL_MEMORY, BLOCK);
    wrong = refused(2, GRADLOOM_ERROR_LOAD_WINDOW, (uint64_t)GL_MEMORY + BLOCK);
    gl_set_window(&device, GL_MEMORY, WINDOW);
    return wrong;
}

static const char *check_unknown(void)
{
    put_command(0, NOBODY, 0, 0, 0, 0, 0, 0);
    put_end(1);
    return refused(2, GRADLOOM_ERROR_UNKNOWN_ENGINE, 0);
}

/* The numbers of the table's loop, dest>source,arg,beats,bits,kept,group; 0 where an engine offers none. */
static int find_loop(uint32_t *numbers, uint32_t count)
{
    char table[GL_TABLE_BYTES];
    const char *at = table;
    uint32_t i;

    gl_table(&device, table);
    while (*at && *at != ';')
        at++;
    if (!*at || at[1] == ';')
        return 0;
    for (i = 0; i < count; i++) {
        numbers[i] = 0;
        for (at++; *at >= '0' && *at <= '9'; at++)
            numbers[i] = 10 * numbers[i] + (uint32_t)(*at - '0');
    }
    return 1;
}

static uint32_t byte_at(uint32_t offset)
{
    return memory(offset & ~3u)[0] >> 8 * (offset & 3) & 0xff;
}

static void put_byte(uint32_t offset, uint32_t byte)
{
    volatile uint32_t *word = memory(offset & ~3u);
    uint32_t shift = 8 * (offset & 3);

    *word = (*word & ~(0xffu << shift)) | byte << shift;
}

/* Byte of the word `i` that is copied: small values, so that any number format holds them. */
static uint32_t pattern(uint32_t i, uint32_t byte)
{
    uint32_t value = (3331 * i + 1285) % 0x7fff;

    return byte < 2 ? value >> 8 * byte & 0xff : 0;
}

static const char *check_copy(void)
{
    enum { DEST, FROM, ARG, BEATS, BITS, KEPT, GROUP, NUMBERS };
    uint32_t loop[NUMBERS], length, size, target, i, byte;
    gl_config config;
    int status;

    if (!find_loop(loop, NUMBERS))
        return NULL;
    gl_probe(&device, &config);
    length = loop[BEATS] * config.data_bits / 8;
    size = loop[BITS] / 8;
    target = SOURCE + (length + BLOCK - 1) / BLOCK * BLOCK;
    if (!size || target + length > WINDOW)
        return "the loop of the machine table has no place";
    for (i = 0; i < length; i++) {
        put_byte(SOURCE + i, pattern(i / size, i % size));
        put_byte(target + i, 0);
    }
    put_command(0, LOAD, 0, 1, SOURCE, loop[BEATS], loop[DEST], loop[ARG]);
    put_command(1, STORE, 1, 0, target, loop[BEATS], loop[FROM], loop[ARG]);
    put_end(2);
    status = gl_run(&device, 0, 3, POLLS);
    gl_acknowledge(&device);
    if (status != GL_OK)
        return "the program does not end";
    for (i = 0; i < length / size; i++)
        for (byte = 0; byte < size; byte++)
            if (i % loop[GROUP] < loop[KEPT] && byte_at(target + size * i + byte) != pattern(i, byte))
                return "a word came back wrong";
    return NULL;
}

static const struct {
    const char *name;
    const char *(*check)(void);
} checks[] = {
    {"registers", check_registers}, {"memory", check_memory},          {"end", check_end},
    {"window", check_window},       {"unknown command", check_unknown}, {"copy", check_copy},
};

int main(void)
{
    uint32_t i, wrong = 0;

    gl_board_start();
    if (find_device(&device) != GL_OK) {
        put_text("failed\n");
        return 1;
    }
    gl_set_window(&device, GL_MEMORY, WINDOW);
    gl_enable_interrupt(&device, 1);
    for (i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *fault = checks[i].check();

        put_text(fault ? "FAIL " : "ok   ");
        put_text(checks[i].name);
        if (fault) {
            put_text(": ");
            put_text(fault);
            wrong++;
            gl_reset(&device, POLLS);
        }
        put_text("\n");
    }
    put_text(wrong ? "failed\n" : "done\n");
    return wrong != 0;
}
