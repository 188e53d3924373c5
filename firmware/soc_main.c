/* SPDX-License-Identifier: Apache-2.0
 * Bare-metal firmware of a system on chip: runs the jobs that somebody puts in memory, and tells a UART about them.
 *
 * A job is a row of programs for the accelerator with their data, or programs and a table that patches one for each step
 * of a fine-tune (gradloom_steps.h). Its header (firmware/soc.py writes it) is the first thing in the shared memory; its
 * first word is written last. The firmware polls for it, checks the sums, runs one program after the other, and at last
 * replaces the first word by DONE or FAILED. A job may keep an adapter in a store (gradloom_store.h): it starts from the newest one, and each run makes a
 * newer one. Before the first job the firmware reads what a memory card brings (soc_card.h), which may be a job. Needs
 * no C library and no interrupt.
 */
#include "gradloom.h"
#include "gradloom_steps.h"
#include "gradloom_store.h"
#include "gradloom_sum.h"
#include "soc_card.h"
#include "soc_device.h"
#include "soc_text.h"

#ifdef GL_BOARD_HEADER
#include GL_BOARD_HEADER
#else
#include "soc_board.h"
#endif

#define MAGIC 0x4e524c47u  /* "GLRN" */
#define DONE 0x454e4f44u   /* "DONE" */
#define FAILED 0x4c494146u /* "FAIL" */
#define LAYOUT 3u
#define MAX_PROGRAMS 180u
#define MAX_RESULTS 16u
/* Looks at a machine that is to stop; it takes as long as the memory needs for what is on its way. */
#define STOP_POLLS 100000u

/* How a result is told. */
enum { NUMBER, SUM, LOSS };

/* Words of the header, little-endian. Offsets count from the window's first byte, where nothing else is said. */
struct program {
    uint32_t offset;
    uint32_t commands;
    uint32_t sum;     /* CRC-32 */
    uint32_t checked; /* 0: who brought it has checked it, as a card's section is; the sum takes as long as a step */
    uint32_t runs;    /* one after the other */
};

struct result {
    uint32_t name[2]; /* eight characters, padded with zeros */
    uint32_t kind;    /* NUMBER: a word; SUM: the CRC-32 of words; LOSS: what the loss's command leaves, four words */
    uint32_t offset;
    uint32_t words;
    uint32_t fraction; /* bits of a number behind the point, 0 to 31 */
};

struct job {
    uint32_t magic;
    uint32_t layout;
    uint32_t length;        /* bytes of the header, programs and results included */
    uint32_t sum;           /* CRC-32 of the header from the next word on */
    uint32_t window_offset; /* from the header's first byte */
    uint32_t window_bytes;
    uint32_t watchdog; /* cycles without progress; 0: no limit */
    uint32_t adapter;  /* offset of the words that are kept */
    uint32_t adapter_bytes; /* of them; 0: none are */
    uint32_t store;    /* offset of the adapter's store from the header's first byte; its capacity is adapter_bytes */
    uint32_t keep;     /* runs after which the adapter is kept; it is at the end, too */
    uint32_t table;    /* offset of the step table, which says what runs; 0: each program runs in its turn */
    uint32_t programs;
    uint32_t results;
    struct program program[MAX_PROGRAMS]; /* so many as there are; the results follow */
};

static volatile const struct result *results_of(volatile const struct job *job)
{
    return (volatile const struct result *)&job->program[job->programs];
}

static volatile uint32_t *in_window(volatile const struct job *job, uint32_t offset)
{
    return (volatile uint32_t *)(GL_MEMORY + job->window_offset + offset);
}

/* Whether `bytes` bytes at `offset` lie in the first `size`, from a whole word on. */
static int inside(uint32_t offset, uint32_t bytes, uint32_t size)
{
    return offset % 4 == 0 && offset <= size && bytes <= size - offset;
}

static void store_of(volatile const struct job *job, gl_store *store)
{
    gl_init_mmio(&store->memory, (volatile void *)GL_MEMORY);
    store->offset = job->store;
    store->capacity = job->adapter_bytes;
}

static const char *refuse_adapter(volatile const struct job *job)
{
    uint32_t bytes = job->adapter_bytes, window_end = job->window_offset + job->window_bytes, room;

    if (bytes % 64 || job->keep == 0 || !inside(job->adapter, bytes, job->window_bytes))
        return "the adapter is outside the window";
    if (job->store % 64 || job->store > GL_MEMORY_BYTES)
        return "the adapter's store is outside the memory";
    room = (GL_MEMORY_BYTES - job->store) / 2;
    if (room < GL_STORE_HEADER_BYTES || bytes > room - GL_STORE_HEADER_BYTES)
        return "the adapter's store is outside the memory";
    /* A program could write there. */
    if (job->store < window_end && job->window_offset < job->store + 2 * (GL_STORE_HEADER_BYTES + bytes))
        return "the adapter's store is in the window";
    return NULL;
}

static const char *refuse(volatile const struct job *job)
{
    uint32_t i, length = job->length, programs, results;
    volatile const struct result *result;

    if (job->layout != LAYOUT)
        return "the header is of another layout";
    if (length % 4 || length < offsetof(struct job, program) ||
        length > sizeof(struct job) + MAX_RESULTS * sizeof(struct result))
        return "the header has no such length";
    if (gl_sum_words(&job->window_offset, (length - offsetof(struct job, window_offset)) / 4) != job->sum)
        return "the header's sum is wrong";
    programs = job->programs;
    results = job->results;
    if (programs > MAX_PROGRAMS || results > MAX_RESULTS ||
        length != offsetof(struct job, program) + programs * sizeof(struct program) + results * sizeof(struct result))
        return "the header has another number of programs or results";
    if (!inside(job->window_offset, job->window_bytes, GL_MEMORY_BYTES))
        return "the window is outside the memory";
    for (i = 0; i < programs; i++)
        if (job->program[i].commands > job->window_bytes / 32 ||
            !inside(job->program[i].offset, 32 * job->program[i].commands, job->window_bytes))
            return "a program is outside the window";
    for (i = 0; i < results; i++) {
        result = results_of(job) + i;
        if (result->words > job->window_bytes / 4 || result->fraction > 31 || result->kind > LOSS ||
            !inside(result->offset, 4 * result->words, job->window_bytes))
            return "a result is outside the window";
        if (result->words != (result->kind == NUMBER ? 1 : result->kind == LOSS ? 4 : result->words))
            return "a result has another number of words";
    }
    if (job->table && (programs == 0 || programs > GL_STEPS_PROGRAMS))
        return "the header has another number of programs for its steps";
    return job->adapter_bytes ? refuse_adapter(job) : NULL;
}

/* Mean cross-entropy in nats of a token, 16 bits behind the point, of a sum to base 2 with as many. By long division:
 * 64-bit division would need a library. */
static uint32_t nats(uint32_t high, uint32_t low, uint32_t tokens)
{
    uint32_t rest = 0, mean = 0, bit;

    for (bit = 0; bit < 64; bit++) {
        rest = rest << 1 | high >> 31;
        high = high << 1 | low >> 31;
        low <<= 1;
        mean <<= 1;
        if (rest >= tokens) {
            rest -= tokens;
            mean |= 1;
        }
    }
    return (uint32_t)((uint64_t)mean * 45426u >> 16); /* ln 2 */
}

static void put_result(volatile const struct job *job, volatile const struct result *result)
{
    volatile const uint32_t *words = in_window(job, result->offset);

    put_name(result->name, sizeof result->name);
    if (result->kind == NUMBER) {
        put_text(" = ");
        put_fixed(words[0], result->fraction);
    } else if (result->kind == LOSS) {
        put_text(" = ");
        if (words[2]) {
            put_fixed(nats(words[1], words[0], words[2]), 16);
            put_text(" nats a token, ");
        }
        put_number(words[2]);
        put_text(" tokens");
    } else {
        put_text(": ");
        put_number(result->words);
        put_text(" words, sum ");
        put_hex(gl_sum_words(words, result->words));
    }
    put_text("\n");
}

static void copy(volatile uint32_t *to, volatile const uint32_t *from, uint32_t bytes)
{
    uint32_t i;

    for (i = 0; i < bytes / 4; i++)
        to[i] = from[i];
}

/* The newest adapter to where programs want it, if there is one of that size. */
static void restore(volatile const struct job *job)
{
    gl_store store;
    gl_adapter found;

    store_of(job, &store);
    if (gl_store_find(&store, &found) != GL_OK || found.bytes != job->adapter_bytes)
        return;
    copy(in_window(job, job->adapter), (volatile const uint32_t *)(GL_MEMORY + found.offset), found.bytes);
    put_text("adapter: number ");
    put_number(found.sequence);
    put_text(" goes on\n");
}

static void keep(volatile const struct job *job)
{
    gl_store store;
    gl_adapter found;
    uint32_t offset;

    store_of(job, &store);
    offset = gl_store_begin(&store);
    copy((volatile uint32_t *)(GL_MEMORY + offset), in_window(job, job->adapter), job->adapter_bytes);
    if (gl_store_commit(&store, job->adapter_bytes) != GL_OK || gl_store_find(&store, &found) != GL_OK ||
        found.offset != offset) {
        put_text("adapter: memory does not keep it\n");
        return;
    }
    put_text("adapter: number ");
    put_number(found.sequence);
    put_text(" kept\n");
}

static void put_run(const gl_device *device, uint32_t number)
{
    gl_counters counters;
    gl_health health;

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
}

/* Counters and results of a run; keeps the adapter if it is time to. */
static void put_all(const gl_device *device, volatile const struct job *job, uint32_t number)
{
    uint32_t i;

    put_run(device, number);
    for (i = 0; i < job->results; i++)
        put_result(job, results_of(job) + i);
    if (job->adapter_bytes && number % job->keep == 0)
        keep(job);
}

static int put_why(const char *why)
{
    put_text("error: ");
    put_text(why);
    put_text("\n");
    return GL_ARGUMENT;
}

/* Tells of a program, and checks its sum. */
static int begin(volatile const struct job *job, volatile const struct program *program)
{
    put_text("program: ");
    put_number(program->commands);
    put_text(" commands\n");
    if (program->checked && gl_sum_words(in_window(job, program->offset), 8 * program->commands) != program->sum)
        return put_why("the program's sum is wrong");
    return GL_OK;
}

/* The runs that the step table asks for; `number` counts them. */
static int run_steps(const gl_device *device, volatile const struct job *job, uint32_t *number)
{
    gl_steps steps;
    uint32_t i, count, program;
    const char *why;
    int status;

    steps.window = in_window(job, 0);
    steps.window_bytes = job->window_bytes;
    steps.table = job->table;
    steps.programs = job->programs;
    for (i = 0; i < job->programs; i++) {
        status = begin(job, &job->program[i]);
        if (status != GL_OK)
            return status;
        steps.offset[i] = job->program[i].offset;
        steps.commands[i] = job->program[i].commands;
    }
    why = gl_steps_check(&steps);
    if (why)
        return put_why(why);
    count = gl_steps_count(&steps);
    put_text("steps: ");
    put_number(count);
    put_text("\n");
    while (*number < count) {
        why = gl_steps_prepare(&steps, *number, &program);
        if (why)
            return put_why(why);
        status = run_program(device, steps.offset[program], steps.commands[program]);
        if (status != GL_OK)
            return status;
        ++*number;
        /* What is kept has the exponents that its words have. */
        why = gl_steps_measure(&steps, *number);
        put_all(device, job, *number);
        if (why)
            return put_why(why);
    }
    return GL_OK;
}

/* Each program in its turn. */
static int run_programs(const gl_device *device, volatile const struct job *job, uint32_t *number)
{
    volatile const struct program *program = job->program;
    uint32_t times;
    int status;

    for (; program != job->program + job->programs; program++) {
        status = begin(job, program);
        for (times = 0; status == GL_OK && times < program->runs; times++) {
            status = run_program(device, program->offset, program->commands);
            if (status == GL_OK)
                put_all(device, job, ++*number);
        }
        if (status != GL_OK)
            return status;
    }
    return GL_OK;
}

static int run_all(const gl_device *device, volatile const struct job *job)
{
    uint32_t number = 0;
    int status = gl_set_window(device, GL_MEMORY + job->window_offset, job->window_bytes);

    if (status == GL_OK)
        status = gl_set_watchdog(device, job->watchdog);
    if (status != GL_OK) {
        put_text("error: the driver refused the window\n");
        return status;
    }
    if (job->adapter_bytes)
        restore(job);
    status = job->table ? run_steps(device, job, &number) : run_programs(device, job, &number);
    if (status == GL_OK && job->adapter_bytes && number % job->keep)
        keep(job);
    return status;
}

int main(void)
{
    volatile struct job *job = (volatile struct job *)GL_MEMORY;
    const char *why;
    gl_device device;
    int status;

    gl_board_start();
    if (find_device(&device) != GL_OK)
        return 1;
    /* The reset button starts the processor alone: a program may still run. */
    if (gl_poll(&device) == GL_RUNNING || gl_poll_request(&device) == GL_RUNNING) {
        status = gl_reset(&device, STOP_POLLS);
        put_text(status == GL_OK ? "accelerator: stopped\n" : "error: the accelerator does not stop\n");
        if (status != GL_OK)
            return 1;
    }
    card_load();

    for (;;) {
        put_text("ready\n");
        while (job->magic != MAGIC)
            ;
        why = refuse(job);
        status = why ? put_why(why) : run_all(&device, job);
        job->magic = status == GL_OK ? DONE : FAILED;
        put_text(status == GL_OK ? "done\n" : "failed\n");
    }
}
