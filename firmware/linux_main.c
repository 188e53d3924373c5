/* SPDX-License-Identifier: Apache-2.0
 * Runs a program on a gradloom accelerator under Linux: registers over UIO, buffer from u-dma-buf.
 *
 *   gradloom_run PROGRAM.bin COMMANDS [OUTPUT.bin OFFSET LENGTH]
 *
 * PROGRAM.bin is the window's content from its first byte on, the program first. Prints the counters, and
 * writes LENGTH bytes at OFFSET of the window to OUTPUT.bin.
 * Exit code: 0 done, 1 stopped with an error, 2 bad use.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gradloom.h"
#include "gradloom_design.h"

#define UIO_NAME "gradloom"
#define BUFFER_NAME "udmabuf-gradloom"
#define TIMEOUT_MS 60000

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "gradloom: %s: %s\n", what, why);
    exit(2);
}

static int read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    size_t length;

    if (!file)
        return -1;
    length = fread(text, 1, size - 1, file);
    fclose(file);
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

static uint64_t read_number(const char *path)
{
    char text[64];

    if (read_text(path, text, sizeof text))
        fail(path, strerror(errno));
    return strtoull(text, NULL, 0);
}

static uint64_t number(const char *text, uint64_t bound, const char *what)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || value > bound)
        fail(what, "not a number in range");
    return value;
}

/* The UIO device with our name: its number, or exit. */
static int find_uio(void)
{
    char path[300], text[64];
    struct dirent *entry;
    DIR *directory = opendir("/sys/class/uio");
    int found = -1;

    while (directory && found < 0 && (entry = readdir(directory))) {
        snprintf(path, sizeof path, "/sys/class/uio/%s/name", entry->d_name);
        if (read_text(path, text, sizeof text) == 0 && strcmp(text, UIO_NAME) == 0)
            found = atoi(entry->d_name + 3);
    }
    if (directory)
        closedir(directory);
    if (found < 0)
        fail("no UIO device called " UIO_NAME,
             "is the design loaded, and uio_pdrv_genirq with of_id=generic-uio?");
    return found;
}

static int64_t milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The end of a started program: GL_OK, GL_FAILED, or GL_TIMEOUT after so many milliseconds. An interrupt only wakes, as
 * does a second without one: STATUS alone says that the program has ended. */
static int wait_end(const gl_device *device, int uio, int64_t timeout)
{
    struct pollfd waiting = {.fd = uio, .events = POLLIN};
    int64_t end = milliseconds() + timeout, left;
    uint32_t count = 1;
    int status, ready;

    while ((status = gl_poll(device)) == GL_RUNNING) {
        left = end - milliseconds();
        if (left <= 0)
            return GL_TIMEOUT;
        /* UIO masks the line at each interrupt. */
        count = 1;
        if (write(uio, &count, sizeof count) != sizeof count)
            fail("UIO interrupt", strerror(errno));
        ready = poll(&waiting, 1, left < 1000 ? (int)left : 1000);
        if (ready < 0 && errno != EINTR)
            fail("UIO interrupt", strerror(errno));
        if (ready == 1) {
            if (read(uio, &count, sizeof count) != sizeof count)
                fail("UIO interrupt", strerror(errno));
            gl_acknowledge(device);
        }
    }
    return status;
}

int main(int argc, char **argv)
{
    char table[GL_TABLE_BYTES], name[GL_NAME_BYTES];
    char path[100];
    struct stat information;
    gl_device device;
    gl_config config;
    gl_counters counters;
    gl_health health;
    gl_error error;
    uint64_t address, size, map_size, commands, offset = 0, length = 0;
    uint8_t *window;
    void *registers;
    FILE *file;
    int uio, buffer, status, phase;

    if (argc != 3 && argc != 6) {
        fprintf(stderr, "usage: %s PROGRAM.bin COMMANDS [OUTPUT.bin OFFSET LENGTH]\n", argv[0]);
        return 2;
    }
    commands = number(argv[2], GRADLOOM__PROGRAM_COMMANDS__VALUE_bm, "COMMANDS");
    file = fopen(argv[1], "rb");
    if (!file || fstat(fileno(file), &information))
        fail(argv[1], strerror(errno));

    address = read_number("/sys/class/u-dma-buf/" BUFFER_NAME "/phys_addr");
    size = read_number("/sys/class/u-dma-buf/" BUFFER_NAME "/size");
    if ((uint64_t)information.st_size > size)
        fail(argv[1], "larger than the buffer");
    if (argc == 6) {
        offset = number(argv[4], size, "OFFSET");
        length = number(argv[5], size - offset, "LENGTH");
    }

    uio = find_uio();
    snprintf(path, sizeof path, "/sys/class/uio/uio%d/maps/map0/size", uio);
    map_size = read_number(path);
    snprintf(path, sizeof path, "/dev/uio%d", uio);
    uio = open(path, O_RDWR | O_SYNC);
    if (uio < 0)
        fail(path, errno == EACCES ? "no permission: run with sudo" : strerror(errno));
    registers = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, uio, 0);
    if (registers == MAP_FAILED)
        fail(path, strerror(errno));
    /* O_SYNC: mapped uncached, so that the accelerator and we see the same bytes. */
    buffer = open("/dev/" BUFFER_NAME, O_RDWR | O_SYNC);
    if (buffer < 0)
        fail("/dev/" BUFFER_NAME, errno == EACCES ? "no permission: run with sudo" : strerror(errno));
    window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    if (window == MAP_FAILED)
        fail("/dev/" BUFFER_NAME, strerror(errno));

    /* The design is compared before anything is written. */
    gl_init_mmio(&device, registers);
    status = gl_probe(&device, &config);
    if (status != GL_OK)
        fail("registers", status == GL_NOT_FOUND ? "no gradloom accelerator here" : "another major version, or format of tables or programs");
    gl_table(&device, table);
    if (*GL_DESIGN_TABLE && strcmp(table, GL_DESIGN_TABLE) != 0)
        fail("the board has another design than " GL_DESIGN_NAME, "run gradloom flash again");
    if (fread(window, 1, (size_t)information.st_size, file) != (size_t)information.st_size)
        fail(argv[1], "cannot be read");
    fclose(file);
    printf("machine    %s\n", table);
    if (gl_set_window(&device, address, (uint32_t)size) != GL_OK)
        fail("window", "refused: is a program running?");

    gl_acknowledge(&device);
    gl_enable_interrupt(&device, 1);
    if (gl_start(&device, 0, (uint32_t)commands) != GL_OK)
        fail("COMMANDS", "refused");
    status = wait_end(&device, uio, TIMEOUT_MS);
    gl_enable_interrupt(&device, 0);
    gl_acknowledge(&device);
    if (status == GL_TIMEOUT) {
        gl_reset(&device, 1000000);
        fail("program", "did not end in a minute; stopped");
    }

    gl_get_counters(&device, &counters);
    gl_get_health(&device, &health);
    printf("cycles     %" PRIu64 "\n", counters.cycles);
    for (phase = 0; phase < (int)config.phases && phase < GL_PHASES; phase++) {
        gl_phase_name(table, (uint32_t)phase, name);
        printf("  %-11s %" PRIu32 "\n", name, counters.phase_cycles[phase]);
    }
    printf("commands   %" PRIu32 " done, %" PRIu32 " dropped\n", counters.commands_done,
           counters.commands_dropped);
    printf("cache      %" PRIu32 " hits, %" PRIu32 " misses\n", counters.cache_hits, counters.cache_misses);
    printf("beats      %" PRIu32 " read, %" PRIu32 " written\n", counters.read_beats, counters.write_beats);
    printf("health     %" PRIu32 " saturated, %" PRIu32 " underflowed, gradient norm %" PRIu64 "\n",
           health.saturated, health.underflowed, health.gradient_norm);
    if (status == GL_FAILED) {
        gl_get_error(&device, &error);
        fprintf(stderr, "gradloom: %s at command %" PRIu32 ", address 0x%" PRIx64 ": %s\n",
                gl_error_name(error.code), error.command, error.address, gl_error_text(error.code));
        return 1;
    }
    if (argc == 6) {
        file = fopen(argv[3], "wb");
        if (!file || fwrite(window + offset, 1, length, file) != length || fclose(file))
            fail(argv[3], strerror(errno));
    }
    return 0;
}
