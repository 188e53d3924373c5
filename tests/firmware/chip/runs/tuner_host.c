/* tuner_main.c with an accelerator that does what a test says.
 * Usage: tuner_host MEMORY RUNS: files of the memory, which is written at the end, and of what each program leaves: a
 * status, cycles, a place in memory, a number of words, and the words. Standard input is what comes by the UART, up to
 * its end; a byte 1 is a cycle without any, a byte 2 are 2^26. Standard output is what the UART says; of standard
 * error a line is a program: its window's place and bytes, its offset and commands. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main gl_firmware
#include "tuner_main.c"
#undef main

#define REFUSED 99u

static uint32_t memory[MEMORY_BYTES / 4];
uintptr_t host_memory = (uintptr_t)memory;
static const char *memory_path;
static FILE *runs;
static uint32_t window, window_bytes, cycles, now;

static uint32_t next(void)
{
    uint32_t word = 0;

    if (fread(&word, 4, 1, runs) != 1)
        exit(3);
    return word;
}

int find_device(gl_device *device)
{
    (void)device;
    return next() ? GL_NOT_FOUND : GL_OK;
}

int gl_set_window(const gl_device *device, uint64_t base, uint32_t bytes)
{
    (void)device;
    window = (uint32_t)(base - host_memory);
    window_bytes = bytes;
    return bytes == REFUSED ? GL_ARGUMENT : GL_OK;
}

int run_program(const gl_device *device, uint32_t offset, uint32_t commands, void (*meanwhile)(void))
{
    uint32_t place, count, i;
    int status = (int)next();

    (void)device;
    fprintf(stderr, "%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "%s\n", window, window_bytes, offset, commands,
            meanwhile ? " not alone" : "");
    cycles = next();
    place = next();
    count = next();
    for (i = 0; i < count; i++)
        memory[place / 4 + i] = next();
    return status;
}

void gl_get_counters(const gl_device *device, gl_counters *counters)
{
    (void)device;
    memset(counters, 0, sizeof *counters);
    counters->cycles = cycles;
}

uint32_t host_cycles(void)
{
    return now;
}

uint32_t host_listen(void)
{
    int character = getchar();
    FILE *file;

    if (character == EOF) {
        file = fopen(memory_path, "wb");
        fwrite(memory, 1, sizeof memory, file);
        fclose(file);
        exit(0);
    }
    if (character > 2)
        return GL_BOARD_HEARD | (uint32_t)character;
    now += character == 1 ? 1 : 1u << 26;
    return 0;
}

int main(int count, char **words)
{
    FILE *file = fopen(memory_path = words[count - 2], "rb");

    if (!file || fread(memory, 1, sizeof memory, file) == 0)
        return 2;
    fclose(file);
    runs = fopen(words[count - 1], "rb");
    return gl_firmware();
}
