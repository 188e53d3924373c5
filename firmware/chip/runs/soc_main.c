/* SPDX-License-Identifier: Apache-2.0
 * Bare-metal firmware of a system on chip: runs the jobs that somebody puts in memory, and tells a UART about them.
 *
 * A job is a row of programs for the accelerator with their data, or programs and a table that patches one for each step
 * of a fine-tune (gradloom_steps.h). Its header (firmware/chip/soc.py writes it) is the first thing in the shared memory; its
 * first word is written last. The firmware polls for it, checks the sums, runs one program after the other, and at last
 * replaces the first word by DONE, FAILED or STOPPED. A job may keep what it learns, on the card (soc_keep.h) or in memory
 * (gradloom_store.h), and goes on from there. Before the first job the firmware reads what a memory card brings
 * (soc_card.h), which may be a job. Meanwhile it answers requests by UART (soc_serve.h). Needs no C library and no
 * interrupt.
 */
#include "gradloom.h"
#include "gradloom_steps.h"
#include "gradloom_store.h"
#include "gradloom_sum.h"
#include "soc_card.h"
#include "soc_device.h"
#include "soc_infer.h"
#include "soc_job.h"
#include "soc_keep.h"
#include "soc_memory.h"
#include "soc_result.h"
#include "soc_serve.h"
#include "soc_text.h"
#include "soc_trial.h"

#define MAGIC 0x4e524c47u  /* "GLRN" */
#define DONE 0x454e4f44u   /* "DONE" */
#define FAILED 0x4c494146u /* "FAIL" */
#define STOPPED 0x504f5453u /* "STOP" */
/* Looks at a machine that is to stop; it takes as long as the memory needs for what is on its way. */
#define STOP_POLLS 100000u
/* Beside those of gradloom.h: a job's limit is reached. */
#define LIMIT 2
/* A pause for heat ends so far below its limit: 5 degrees. */
#define COOLER 41u

/* A job while it runs. `runs` are made, `count` are all there are; of them `begun` were made before power-up; `kept` is
 * when its words were kept the last time. */
struct session {
    const gl_device *device;
    volatile const struct job *job;
    uint32_t runs, count, begun, seen;
    uint64_t elapsed, kept;
};

static void copy(volatile uint32_t *to, volatile const uint32_t *from, uint32_t bytes)
{
    uint32_t i;

    for (i = 0; i < bytes / 4; i++)
        to[i] = from[i];
}

static void store_of(volatile const struct job *job, gl_store *store)
{
    gl_init_mmio(&store->memory, (volatile void *)GL_MEMORY);
    store->offset = job->store;
    store->capacity = job->adapter_bytes;
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

static void keep_in_memory(volatile const struct job *job)
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

/* What a job has learnt, on the card: at its start, and after runs. */
static const char *resume(struct session *session)
{
    const char *why = keep_find(session->job, &session->runs);

    session->begun = session->runs;
    if (!why && session->runs) {
        put_text("kept: goes on after run ");
        put_number(session->runs);
        put_text("\n");
    }
    return why;
}

static void keep_on_card(struct session *session, uint32_t reason)
{
    const char *why = keep_write(session->job, session->runs, reason);

    put_text(why ? "kept: error: " : "kept: after run ");
    if (why)
        put_text(why);
    else {
        put_number(session->runs);
        infer_copy(INFER_KEPT);
    }
    put_text("\n");
    session->kept = session->elapsed;
}

/* A run's record: the first result that is a loss, and saturated words. */
static void put_record(const struct session *session)
{
    volatile const struct job *job = session->job;
    volatile uint32_t *record = (volatile uint32_t *)(GL_MEMORY + job->log + RECORD_BYTES * (session->runs - 1));
    gl_health health;
    uint32_t i, k;

    if (job->store || session->runs > job->records)
        return;
    gl_get_health(session->device, &health);
    for (k = 0; k < 3; k++)
        record[k] = 0;
    record[3] = health.saturated;
    for (i = 0; i < job->results; i++)
        if (results_of(job)[i].kind == LOSS) {
            for (k = 0; k < 3; k++)
                record[k] = in_window(job, results_of(job)[i].offset)[k];
            return;
        }
}

/* Counts cycles; called more often than they wrap around. */
static void count_cycles(struct session *session)
{
    uint32_t now = GL_BOARD_CYCLES();

    session->elapsed += now - session->seen;
    session->seen = now;
}

/* Why a job stops before its end. */
static uint32_t limit_of(const struct session *session)
{
    volatile const struct job *job = session->job;

    if (job->limit_runs && session->runs - session->begun >= job->limit_runs)
        return KEPT_RUNS;
    if (pair(job->limit_cycles) && session->elapsed >= pair(job->limit_cycles))
        return KEPT_CYCLES;
    if (GL_BOARD_MAINS_LOST())
        return KEPT_MAINS;
    return job->limit_heat && GL_BOARD_TEMPERATURE() > job->limit_heat ? KEPT_HEAT : KEPT_GOES_ON;
}

/* While the processor waits. */
static void meanwhile(void)
{
    serve(0);
    infer_step();
}

/* Degrees Celsius of a temperature as the board has it. */
static void put_degrees(uint32_t heat)
{
    uint32_t kelvin = heat * 503975u / 4096;

    put_number(kelvin > 273150 ? (kelvin - 273150 + 500) / 1000 : 0);
    put_text(" degrees");
}

/* Until the chip is some degrees below its limit. */
static void cool(uint32_t limit)
{
    put_text("paused: the chip has ");
    put_degrees(GL_BOARD_TEMPERATURE());
    put_text("\n");
    while (GL_BOARD_TEMPERATURE() + COOLER > limit)
        meanwhile();
    put_text("goes on: the chip has ");
    put_degrees(GL_BOARD_TEMPERATURE());
    put_text("\n");
}

/* Whether it is time to keep what was learnt. */
static int due(const struct session *session)
{
    volatile const struct job *job = session->job;

    return (job->keep && session->runs % job->keep == 0) ||
           (!job->store && pair(job->keep_cycles) && session->elapsed - session->kept >= pair(job->keep_cycles));
}

/* Behind a run: counters and results, what is kept, and whether the job goes on. */
static int after_run(struct session *session)
{
    volatile const struct job *job = session->job;
    uint32_t reason;

    session->runs++;
    put_run(session->device, session->runs);
    put_results(job);
    put_record(session);
    count_cycles(session);
    reason = session->runs == session->count ? KEPT_DONE : limit_of(session);
    if (job->adapter_bytes && (reason || due(session))) {
        if (job->store)
            keep_in_memory(job);
        else
            keep_on_card(session, reason);
    }
    if (reason == KEPT_MAINS) {
        put_text("paused: mains power is gone\n");
        while (GL_BOARD_MAINS_LOST())
            meanwhile();
        put_text("goes on: mains power is back\n");
        session->seen = GL_BOARD_CYCLES();
    } else if (reason == KEPT_HEAT) {
        cool(job->limit_heat);
        session->seen = GL_BOARD_CYCLES();
    } else if (reason == KEPT_RUNS || reason == KEPT_CYCLES) {
        put_text(reason == KEPT_RUNS ? "stopped: limit of runs\n" : "stopped: limit of cycles\n");
        return LIMIT;
    }
    return GL_OK;
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

/* The runs that the step table asks for. */
static int run_steps(struct session *session)
{
    volatile const struct job *job = session->job;
    gl_steps steps;
    uint32_t i, program;
    const char *why;
    int status = GL_OK;

    steps.window = in_window(job, 0);
    steps.window_bytes = job->window_bytes;
    steps.table = job->table;
    steps.programs = job->programs;
    steps.first = session->begun;
    for (i = 0; i < job->programs && status == GL_OK; i++) {
        status = begin(job, &job->program[i]);
        steps.offset[i] = job->program[i].offset;
        steps.commands[i] = job->program[i].commands;
    }
    if (status != GL_OK)
        return status;
    why = gl_steps_check(&steps);
    if (why)
        return put_why(why);
    session->count = gl_steps_count(&steps);
    put_text("steps: ");
    put_number(session->count);
    put_text("\n");
    while (status == GL_OK && session->runs < session->count) {
        why = gl_steps_prepare(&steps, session->runs, &program);
        if (why)
            return put_why(why);
        status = run_program(session->device, steps.offset[program], steps.commands[program], meanwhile);
        if (status != GL_OK)
            return status;
        /* What is kept has the exponents that its words have. */
        why = gl_steps_measure(&steps, session->runs + 1);
        if (why)
            return put_why(why);
        status = after_run(session);
    }
    return status;
}

/* Each program in its turn. */
static int run_programs(struct session *session)
{
    volatile const struct job *job = session->job;
    volatile const struct program *program;
    uint32_t passed = 0, times;
    int status = GL_OK;

    for (program = job->program; program != job->program + job->programs; program++)
        session->count += program->runs;
    for (program = job->program; status == GL_OK && program != job->program + job->programs; program++) {
        status = begin(job, program);
        for (times = 0; status == GL_OK && times < program->runs; times++)
            if (passed++ >= session->begun) {
                status = run_program(session->device, program->offset, program->commands, meanwhile);
                if (status == GL_OK)
                    status = after_run(session);
            }
    }
    return status;
}

static int run_all(const gl_device *device, volatile const struct job *job)
{
    struct session session;
    const char *why = NULL;
    int status;

    infer_close();
    status = gl_set_window(device, GL_MEMORY + job->window_offset, job->window_bytes);
    if (status == GL_OK)
        status = gl_set_watchdog(device, job->watchdog);
    if (status != GL_OK) {
        put_text("error: the driver refused the window\n");
        return status;
    }
    /* A reset leaves the forward cache as it is, with words of another job. */
    if (gl_clear_cache(device, STOP_POLLS) != GL_OK)
        return put_why("the forward cache is not cleared");
    session.device = device;
    session.job = job;
    session.runs = session.count = session.begun = 0;
    session.elapsed = session.kept = 0;
    session.seen = GL_BOARD_CYCLES();
    why = trial(device, job);
    if (why) {
        put_text("install: ");
        return put_why(why);
    }
    why = infer_open(device, job);
    if (why) {
        put_text("prompts: ");
        return put_why(why);
    }
    if (job->adapter_bytes && job->store)
        restore(job);
    else if (job->adapter_bytes)
        why = resume(&session);
    if (why) {
        put_text("kept: ");
        return put_why(why);
    }
    infer_copy(INFER_KEPT);
    return job->table ? run_steps(&session) : run_programs(&session);
}

/* Whether the machine is one that the job's programs may run on. */
static int fits(const gl_device *device, volatile const struct job *job)
{
    char table[GL_TABLE_BYTES], unlike[GL_UNLIKE_BYTES];

    gl_table(device, table);
    if (gl_unlike(table, machine_of(job), unlike) == 0)
        return 1;
    put_text("error: the job is for another design: ");
    put_text(unlike);
    put_text("\n");
    return 0;
}

static void run_job(const gl_device *device, volatile struct job *job)
{
    const char *why = refuse_job(job);
    int status = why ? put_why(why) : fits(device, job) ? run_all(device, job) : GL_ARGUMENT;

    job->magic = status == GL_OK ? DONE : status == LIMIT ? STOPPED : FAILED;
    put_text(status == GL_OK ? "done\n" : status == LIMIT ? "stopped\n" : "failed\n");
}

int main(void)
{
    volatile struct job *job = (volatile struct job *)GL_MEMORY;
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
        while (job->magic != MAGIC) {
            if (serve(1)) {
                infer_close();
                card_load();
                put_text("ready\n");
            }
            infer_step();
        }
        run_job(&device, job);
    }
}
