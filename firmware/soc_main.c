/* SPDX-License-Identifier: Apache-2.0
 * Bare-metal firmware of a system on chip: runs the jobs that somebody puts in memory, and tells a UART about them.
 *
 * A job is a program for the accelerator with its data. Its header (firmware/soc.py writes it) is the first thing in
 * the shared memory; its first word is written last. The firmware polls for it, checks both sums, runs the program as
 * often as asked, and at last replaces the first word by DONE or FAILED. Before the first job it reads what a memory
 * card brings (soc_card.h). Needs no C library and no interrupt.
 */
#include "gradloom.h"
#include "gradloom_sum.h"
#include "soc_card.h"
#include "soc_text.h"

#ifdef GL_BOARD_HEADER
#include GL_BOARD_HEADER
#else
#include "soc_board.h"
#endif

#define MAGIC 0x4e524c47u  /* "GLRN" */
#define DONE 0x454e4f44u   /* "DONE" */
#define FAILED 0x4c494146u /* "FAIL" */
#define LAYOUT 1u
#define MAX_RESULTS 16u

/* Words of the header, little-endian. Offsets of the program and of results count from the window's first byte. */
struct result {
    uint32_t name[2];  /* eight characters, padded with zeros */
    uint32_t offset;
    uint32_t words;    /* one: printed as a number; more: as their sum */
    uint32_t fraction; /* bits of such a number behind the point, 0 to 31 */
};

struct job {
    uint32_t magic;
    uint32_t layout;
    uint32_t length;        /* bytes of the header, results included */
    uint32_t sum;           /* CRC-32 of the header from the next word on */
    uint32_t window_offset; /* from the header's first byte */
    uint32_t window_bytes;
    uint32_t program_offset;
    uint32_t commands;
    uint32_t program_sum; /* CRC-32 */
    uint32_t runs;
    uint32_t watchdog; /* cycles without progress; 0: no limit */
    uint32_t results;
    struct result result[MAX_RESULTS];
};

static volatile const uint32_t *in_window(volatile const struct job *job, uint32_t offset)
{
    return (volatile const uint32_t *)(GL_MEMORY + job->window_offset + offset);
}

/* Whether `bytes` bytes at `offset` lie in the first `size`, from a whole word on. */
static int inside(uint32_t offset, uint32_t bytes, uint32_t size)
{
    return offset % 4 == 0 && offset <= size && bytes <= size - offset;
}

static const char *refuse(volatile const struct job *job)
{
    uint32_t i, length = job->length;

    if (job->layout != LAYOUT)
        return "the header is of another layout";
    if (length % 4 || length < offsetof(struct job, result) || length > sizeof(struct job))
        return "the header has no such length";
    if (gl_sum_words(&job->window_offset, (length - offsetof(struct job, window_offset)) / 4) != job->sum)
        return "the header's sum is wrong";
    if (length != offsetof(struct job, result) + job->results * sizeof(struct result))
        return "the header has another number of results";
    if (!inside(job->window_offset, job->window_bytes, GL_MEMORY_BYTES))
        return "the window is outside the memory";
    if (job->commands > job->window_bytes / 32 ||
        !inside(job->program_offset, 32 * job->commands, job->window_bytes))
        return "the program is outside the window";
    for (i = 0; i < job->results; i++)
        if (job->result[i].words > job->window_bytes / 4 || job->result[i].fraction > 31 ||
            !inside(job->result[i].offset, 4 * job->result[i].words, job->window_bytes))
            return "a result is outside the window";
    if (gl_sum_words(in_window(job, job->program_offset), 8 * job->commands) != job->program_sum)
        return "the program's sum is wrong";
    return NULL;
}

static void put_result(volatile const struct job *job, volatile const struct result *result)
{
    volatile const uint32_t *words = in_window(job, result->offset);

    put_name(result->name, sizeof result->name);
    if (result->words == 1) {
        put_text(" = ");
        put_fixed(words[0], result->fraction);
    } else {
        put_text(": ");
        put_number(result->words);
        put_text(" words, sum ");
        put_hex(gl_sum_words(words, result->words));
    }
    put_text("\n");
}

static int run(const gl_device *device, volatile const struct job *job)
{
    gl_counters counters;
    gl_health health;
    uint32_t number, i;
    int status = gl_set_window(device, GL_MEMORY + job->window_offset, job->window_bytes);

    if (status == GL_OK)
        status = gl_set_watchdog(device, job->watchdog);
    for (number = 1; status == GL_OK && number <= job->runs; number++) {
        status = gl_start(device, job->program_offset, job->commands);
        if (status != GL_OK)
            break;
        do
            status = gl_poll(device);
        while (status == GL_RUNNING);
        gl_acknowledge(device);
        if (status == GL_FAILED) {
            put_error(device);
            return status;
        }
        gl_get_counters(device, &counters);
        gl_get_health(device, &health);
        put_text("run ");
        put_number(number);
        put_text(": ");
        put_number(counters.cycles);
        put_text(" cycles, ");
        put_number(counters.read_beats);
        put_text(" beats read, ");
        put_number(counters.write_beats);
        put_text(" written, ");
        put_number(health.saturated);
        put_text(" saturated\n");
        for (i = 0; i < job->results; i++)
            put_result(job, &job->result[i]);
    }
    if (status != GL_OK)
        put_text("error: the driver refused the program\n");
    return status;
}

int main(void)
{
    volatile struct job *job = (volatile struct job *)GL_MEMORY;
    const char *why;
    gl_device device;
    gl_config config;
    int status;

    gl_board_start();
    gl_init_mmio(&device, (volatile void *)GL_REGISTERS);
    status = gl_probe(&device, &config);
    if (status != GL_OK) {
        put_text(status == GL_NOT_FOUND ? "gradloom: no accelerator\n" : "gradloom: another register map\n");
        return 1;
    }
    put_text("gradloom: ");
    put_number(config.rows);
    put_text(" rows, rank ");
    put_number(config.rank);
    put_text(", ");
    put_number(config.data_bits);
    put_text(" bits\n");
    card_load();

    for (;;) {
        put_text("ready\n");
        while (job->magic != MAGIC)
            ;
        why = refuse(job);
        if (why) {
            put_text("error: ");
            put_text(why);
            put_text("\n");
            status = GL_ARGUMENT;
        } else {
            put_text("program: ");
            put_number(job->commands);
            put_text(" commands\n");
            status = run(&device, job);
        }
        job->magic = status == GL_OK ? DONE : FAILED;
        put_text(status == GL_OK ? "done\n" : "failed\n");
    }
}
