/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "linux_board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "gradloom_design.h"
#include "linux_json.h"

#define UIO_NAME GL_DESIGN_DEVICE
#define BUFFER_NAME "udmabuf-" GL_DESIGN_DEVICE
#define LOCK "/run/lock/gradloom.lock"
#define PIECE ((size_t)1 << 20)
#define RUNS (GRADLOOM__STATUS__BUSY_bm | GRADLOOM__STATUS__REQUEST_BUSY_bm)
/* Milliseconds without a command that ends, after which a program is given up. */
#define PATIENCE 600000

void (*board_on_fault)(const char *line);

void board_fail(const char *what, const char *why)
{
    void (*tell)(const char *) = board_on_fault;
    char line[600];

    snprintf(line, sizeof line, "%s: %s", what, why);
    fprintf(stderr, "gradloom: %s\n", line);
    board_on_fault = NULL;
    if (tell)
        tell(line);
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
        board_fail(path, strerror(errno));
    return strtoull(text, NULL, 0);
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
        board_fail("no UIO device called " UIO_NAME,
                   "is the design loaded, and uio_pdrv_genirq with of_id=generic-uio?");
    return found;
}

/* ---- a simulation: frames of a header, a message as JSON, and bytes (firmware/jobs/frames.py) */

static void all(int socket, void *data, size_t length, int out)
{
    uint8_t *at = data;
    ssize_t done;

    for (; length; at += done, length -= (size_t)done) {
        done = out ? write(socket, at, length) : read(socket, at, length);
        if (done < 0 && errno == EINTR)
            done = 0;
        else if (done <= 0)
            board_fail("the simulation", "has ended");
    }
}

/* Asks, with `sent` bytes of data; `got` bytes come back. The number that the answer has as `name` goes to `number`. */
static void ask(int socket, const char *text, const void *data, size_t sent, void *back, size_t got, const char *name,
                uint64_t *number)
{
    uint32_t head[3] = {0x31464c47u, (uint32_t)strlen(text), (uint32_t)sent}; /* GLF1 */
    char answer[2000], why[500];
    json said;

    all(socket, head, sizeof head, 1);
    all(socket, (void *)(uintptr_t)text, strlen(text), 1);
    all(socket, (void *)(uintptr_t)data, sent, 1);
    all(socket, head, sizeof head, 0);
    if (head[0] != 0x31464c47u || head[1] >= sizeof answer)
        board_fail("the simulation", "answers no frame");
    all(socket, answer, head[1], 0);
    if (json_parse(&said, answer, head[1]))
        board_fail("the simulation", "answers no JSON");
    if (json_text(&said, json_field(&said, 0, "message"), why, sizeof why))
        board_fail("the simulation", why);
    if (head[2] != got)
        board_fail("the simulation", "answers another number of bytes");
    all(socket, back, got, 0);
    if (name && !json_number(&said, json_field(&said, 0, name), 0, UINT64_MAX, number))
        board_fail("the simulation", "answers without a number");
    json_free(&said);
}

static uint32_t read_remote(void *context, uint32_t offset)
{
    char text[100];
    uint64_t value;

    snprintf(text, sizeof text, "{\"do\":\"read\",\"offset\":%" PRIu32 "}", offset);
    ask(((board *)context)->socket, text, NULL, 0, NULL, 0, "value", &value);
    return (uint32_t)value;
}

static void write_remote(void *context, uint32_t offset, uint32_t value)
{
    char text[100];

    snprintf(text, sizeof text, "{\"do\":\"write\",\"offset\":%" PRIu32 ",\"value\":%" PRIu32 "}", offset, value);
    ask(((board *)context)->socket, text, NULL, 0, NULL, 0, NULL, NULL);
}

static void open_remote(board *made, const char *at)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(at) >= sizeof address.sun_path)
        board_fail(at, "too long for a socket's name");
    strcpy(address.sun_path, at);
    made->socket = socket(AF_UNIX, SOCK_STREAM, 0);
    if (made->socket < 0 || connect(made->socket, (struct sockaddr *)&address, sizeof address))
        board_fail(at, "nobody serves a device there");
    ask(made->socket, "{\"do\":\"open\"}", NULL, 0, NULL, 0, "base", &made->base);
    ask(made->socket, "{\"do\":\"open\"}", NULL, 0, NULL, 0, "size", &made->size);
    gl_init_access(&made->device, read_remote, write_remote, made);
}

/* ---- the board */

static void open_here(board *made)
{
    char path[100];
    void *registers, *window;
    uint64_t map_size;
    int buffer;

    made->base = read_number("/sys/class/u-dma-buf/" BUFFER_NAME "/phys_addr");
    made->size = read_number("/sys/class/u-dma-buf/" BUFFER_NAME "/size");
    made->uio = find_uio();
    snprintf(path, sizeof path, "/sys/class/uio/uio%d/maps/map0/size", made->uio);
    map_size = read_number(path);
    snprintf(path, sizeof path, "/dev/uio%d", made->uio);
    made->uio = open(path, O_RDWR | O_SYNC);
    if (made->uio < 0)
        board_fail(path, errno == EACCES ? "no permission: run with sudo" : strerror(errno));
    registers = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, made->uio, 0);
    if (registers == MAP_FAILED)
        board_fail(path, strerror(errno));
    /* O_SYNC: mapped uncached, so that the accelerator and we see the same bytes. */
    buffer = open("/dev/" BUFFER_NAME, O_RDWR | O_SYNC);
    if (buffer < 0)
        board_fail("/dev/" BUFFER_NAME, errno == EACCES ? "no permission: run with sudo" : strerror(errno));
    window = mmap(NULL, made->size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    if (window == MAP_FAILED)
        board_fail("/dev/" BUFFER_NAME, strerror(errno));
    made->window = window;
    gl_init_mmio(&made->device, registers);
}

void board_lock(const char *at)
{
    char path[200], holder[200];
    ssize_t length;
    int file;

    snprintf(path, sizeof path, "%s", LOCK);
    if (at)
        snprintf(path, sizeof path, "%s.lock", at);
    /* Of a file in a folder that all may write, Linux refuses the wish to make it, though it is there. */
    file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT)
        file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT, 0666);
    if (file < 0)
        board_fail(path, errno == EACCES ? "no permission: run with sudo" : strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB)) {
        length = pread(file, holder, sizeof holder - 1, 0);
        holder[length > 0 ? length : 0] = '\0';
        holder[strcspn(holder, "\n")] = '\0';
        board_fail("the board is in use by", *holder ? holder : "another program");
    }
    /* It stays open, and locked, until this process ends. */
    length = snprintf(holder, sizeof holder, "gradloom_run (process %ld)\n", (long)getpid());
    if (ftruncate(file, 0) || pwrite(file, holder, (size_t)length, 0) != length)
        board_fail(path, strerror(errno));
}

void board_open(board *made, const char *at)
{
    char unlike[GL_UNLIKE_BYTES], why[200];
    int status;

    *made = (board){.uio = -1, .socket = -1};
    if (at)
        open_remote(made, at);
    else
        open_here(made);
    status = gl_probe(&made->device, &made->config);
    if (status == GL_NOT_FOUND)
        board_fail("registers", "no gradloom accelerator here");
    if (status != GL_OK && gl_read(&made->device, offsetof(gradloom_t, VERSION)) == 0)
        board_fail("registers off the 16-byte lanes read 0", "the port HPM0 is at 32 bits, as PYNQ's own overlay leaves "
                                                             "it: unload that overlay, and run load.sh again");
    if (status != GL_OK)
        board_fail("registers", "another major version, or format of tables or programs");
    gl_table(&made->device, made->table);
    if (*GL_DESIGN_TABLE && gl_unlike(made->table, GL_DESIGN_TABLE, unlike)) {
        snprintf(why, sizeof why, "%s; run gradloom flash again", unlike);
        board_fail("the board has another design than " GL_DESIGN_NAME, why);
    }
}

void board_store(board *to, uint64_t offset, const void *data, size_t length)
{
    char text[100];
    size_t part;

    if (to->window) {
        memcpy(to->window + offset, data, length);
        return;
    }
    for (; length; offset += part, data = (const uint8_t *)data + part, length -= part) {
        part = length < PIECE ? length : PIECE;
        snprintf(text, sizeof text, "{\"do\":\"store\",\"offset\":%" PRIu64 "}", offset);
        ask(to->socket, text, data, part, NULL, 0, NULL, NULL);
    }
}

void board_fetch(board *from, uint64_t offset, void *data, size_t length)
{
    char text[100];
    size_t part;

    if (from->window) {
        memcpy(data, from->window + offset, length);
        return;
    }
    for (; length; offset += part, data = (uint8_t *)data + part, length -= part) {
        part = length < PIECE ? length : PIECE;
        snprintf(text, sizeof text, "{\"do\":\"fetch\",\"offset\":%" PRIu64 ",\"length\":%zu}", offset, part);
        ask(from->socket, text, NULL, 0, data, part, NULL, NULL);
    }
}

int64_t board_milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for an interrupt, so many milliseconds at most: 1 if there was one. */
static int interrupted(board *of, int64_t timeout)
{
    struct pollfd waiting = {.fd = of->uio, .events = POLLIN};
    uint32_t count = 1;
    char text[100];
    int ready;

    if (of->uio < 0) {
        snprintf(text, sizeof text, "{\"do\":\"wait\",\"seconds\":%" PRId64 ".%03" PRId64 "}", timeout / 1000,
                 timeout % 1000);
        ask(of->socket, text, NULL, 0, NULL, 0, NULL, NULL);
        return 1;
    }
    /* UIO masks the line at each interrupt. */
    if (write(of->uio, &count, sizeof count) != sizeof count)
        board_fail("UIO interrupt", strerror(errno));
    ready = poll(&waiting, 1, (int)timeout);
    if (ready < 0 && errno != EINTR)
        board_fail("UIO interrupt", strerror(errno));
    if (ready == 1 && read(of->uio, &count, sizeof count) != sizeof count)
        board_fail("UIO interrupt", strerror(errno));
    return ready == 1;
}

/* An interrupt only wakes, as does a second without one: STATUS alone says that the program has ended. */
int board_wait(board *of, int64_t timeout)
{
    int64_t end = board_milliseconds() + timeout, left;
    int status;

    while ((status = gl_poll(&of->device)) == GL_RUNNING) {
        left = end - board_milliseconds();
        if (left <= 0)
            return GL_TIMEOUT;
        if (interrupted(of, left < 1000 ? left : 1000))
            gl_acknowledge(&of->device);
    }
    return status;
}

int board_run(board *on, uint32_t offset, uint32_t commands, gl_error *error, char *line, size_t size)
{
    uint32_t done, before = 0;
    int64_t since = board_milliseconds();
    char where[100] = "";
    int end;

    gl_acknowledge(&on->device);
    gl_enable_interrupt(&on->device, 1);
    if (gl_start(&on->device, offset, commands) != GL_OK)
        board_fail("program", "refused");
    while ((end = board_wait(on, 1000)) == GL_TIMEOUT) {
        done = gl_read(&on->device, offsetof(gradloom_t, COMMANDS_DONE));
        if (done != before)
            since = board_milliseconds();
        else if (board_milliseconds() - since > PATIENCE)
            board_fail("program", "no command has ended for ten minutes");
        before = done;
    }
    gl_enable_interrupt(&on->device, 0);
    gl_acknowledge(&on->device);
    if (end != GL_FAILED)
        return end;
    gl_get_error(&on->device, error);
    if (error->address)
        snprintf(where, sizeof where, ", address 0x%" PRIX64 " (window %c 0x%" PRIX64 ")", error->address,
                 error->address < on->base ? '-' : '+',
                 error->address < on->base ? on->base - error->address : error->address - on->base);
    snprintf(line, size, "%s at command %" PRIu32 "%s: %s", gl_error_name(error->code), error->command, where,
             gl_error_text(error->code));
    return end;
}

void board_stop(board *on)
{
    if ((on->device.base || on->device.read) && gl_read(&on->device, offsetof(gradloom_t, STATUS)) & RUNS)
        gl_reset(&on->device, 1000000);
}

uint64_t board_number(const char *text, uint64_t low, uint64_t high, const char *what)
{
    char *end, name[100], why[100];
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 0);
    if (!errno && end != text && !*end && *text >= '0' && *text <= '9' && value >= low && value <= high)
        return value;
    snprintf(name, sizeof name, "%s=%s", what, text);
    snprintf(why, sizeof why, "must be a whole number from %" PRIu64 " to %" PRIu64, low, high);
    board_fail(name, why);
}
