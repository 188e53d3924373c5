/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "linux_job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "linux_board.h"
#include "linux_plan.h"

#define PIECE ((size_t)1 << 20)

static int root = -1; /* the job's folder */
static board place;
static uint8_t piece[PIECE];
static gl_error stopped;
static int program_error;

/* ---- files of the folder */

static void say(const char *format, ...)
{
    char now[32], line[700];
    time_t seconds = time(NULL);
    va_list more;
    int file = openat(root, "log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

    va_start(more, format);
    vsnprintf(line, sizeof line, format, more);
    va_end(more);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", localtime(&seconds));
    printf("%s %s\n", now, line);
    fflush(stdout);
    if (file >= 0) {
        dprintf(file, "%s %s\n", now, line);
        close(file);
    }
}

/* Replaces a file; power cuts leave the old one or the new one. 0, or -1. */
static int keep(const char *name, const char *content, size_t length)
{
    char made[100];
    int file;

    snprintf(made, sizeof made, "%s.new", name);
    file = openat(root, made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return -1;
    if (write(file, content, length) != (ssize_t)length || fsync(file) || close(file) ||
        renameat(root, made, root, name)) {
        unlinkat(root, made, 0);
        return -1;
    }
    return fsync(root);
}

static void status(const job *of, const char *state, uint64_t done, const char *text)
{
    char line[300];
    uint64_t total = of->losses != JSON_NONE && of->sums ? of->loss_count : json_length(&of->plan, of->stages);
    int length = snprintf(line, sizeof line,
                          "{\"state\": \"%s\", \"done\": %" PRIu64 ", \"total\": %" PRIu64 ", \"text\": \"%s\", "
                          "\"process\": %ld}",
                          state, done, total, text, (long)getpid());

    keep("status.json", line, (size_t)length);
}

/* What a fault leaves: its line, and where a program has stopped. */
static void failed(const char *line)
{
    char text[1000], safe[700], *at;
    int length;

    snprintf(safe, sizeof safe, "%s", line);
    for (at = safe; *at; at++)
        if (*at == '"' || *at == '\\' || *at < ' ')
            *at = ' ';
    say("failed: %s", line);
    length = snprintf(text, sizeof text, "{\"error\": \"%s\", \"message\": \"%s\"",
                      program_error ? "ProgramError" : "AcceleratorError", safe);
    if (program_error) {
        length += snprintf(text + length, sizeof text - (size_t)length,
                           ", \"code\": %" PRIu32 ", \"name\": \"%s\", \"command\": %" PRIu32 ", \"address\": ",
                           stopped.code, gl_error_name(stopped.code), stopped.command);
        length += snprintf(text + length, sizeof text - (size_t)length, stopped.address ? "%" PRIu64 : "null",
                           stopped.address);
    }
    length += snprintf(text + length, sizeof text - (size_t)length, "}");
    keep("failed.json", text, (size_t)length);
    board_stop(&place);
}

/* ---- the run */

static void read_stage(job *of, uint32_t reads)
{
    const json_value *values = of->plan.values;
    uint64_t offset, length;
    uint32_t at;
    size_t part;

    for (at = reads + 1; at < values[reads].next; at = values[at].next) {
        offset = plan_number(of, at + 1, 0, UINT64_MAX, "reads");
        length = plan_number(of, at + 2, 0, UINT64_MAX, "reads");
        for (; length; length -= part, offset += part) {
            part = length < PIECE ? (size_t)length : PIECE;
            board_fetch(&place, offset, piece, part);
            sha_bytes(&of->sum, piece, (uint32_t)part);
            if (fwrite(piece, 1, part, of->result) != part)
                board_fail("result.part", "no room to write: make room and run it again");
        }
    }
}

static void count(job *of, const char *format, ...)
{
    char text[200];
    va_list more;
    size_t length;

    va_start(more, format);
    length = (size_t)vsnprintf(text, sizeof text, format, more);
    va_end(more);
    of->counters = realloc(of->counters, of->counters_length + length + 1);
    if (!of->counters)
        board_fail("counters", "no memory");
    memcpy(of->counters + of->counters_length, text, length + 1);
    of->counters_length += length;
}

/* The counters, as the host in Python tells them. */
static uint64_t count_program(job *of)
{
    gl_counters found;
    gl_health health;
    char name[GL_NAME_BYTES];
    uint32_t phase;

    gl_get_counters(&place.device, &found);
    gl_get_health(&place.device, &health);
    count(of, "{\"cycles\": %" PRIu64 ", \"phases\": {", found.cycles);
    for (phase = 0; phase < place.config.phases && phase < GL_PHASES; phase++) {
        gl_phase_name(place.table, phase, name);
        count(of, "%s\"%s\": %" PRIu32, phase ? ", " : "", name, found.phase_cycles[phase]);
    }
    count(of, "}, \"commands_done\": %" PRIu32 ", \"commands_dropped\": %" PRIu32, found.commands_done,
          found.commands_dropped);
    count(of, ", \"cache_hits\": %" PRIu32 ", \"cache_misses\": %" PRIu32 ", \"read_beats\": %" PRIu32, found.cache_hits,
          found.cache_misses, found.read_beats);
    count(of, ", \"write_beats\": %" PRIu32 ", \"saturated\": %" PRIu32 ", \"underflowed\": %" PRIu32, found.write_beats,
          health.saturated, health.underflowed);
    count(of, ", \"gradient_norm\": %" PRIu64 "}", health.gradient_norm);
    return found.cycles;
}

static int64_t little(const uint8_t *bytes, uint64_t count)
{
    uint64_t found = 0;

    while (count--)
        found = found << 8 | bytes[count];
    return (int64_t)found;
}

/* The mean square of tiles: a row of codes with one exponent of two each. */
static double mean_square(const job *of, const uint8_t *tiles)
{
    uint64_t size = loss_bytes(of) / of->loss_count, tile, at, step = of->loss_bits / 8;
    double total = 0, sum, code;
    int exponent;

    for (tile = 0; tile < of->loss_count; tile++, tiles += size) {
        for (sum = 0, at = LOSS_HEADER; at < size; at += step) {
            code = step == 1 ? (double)(int8_t)tiles[at] : (double)(int16_t)little(tiles + at, 2);
            sum += code * code;
        }
        for (exponent = (int8_t)tiles[0]; exponent > 0; exponent--)
            sum *= 4;
        for (; exponent < 0; exponent++)
            sum /= 4;
        total += sum;
    }
    return total / (double)of->loss_scale;
}

static void tell_losses(job *of)
{
    uint64_t size = loss_bytes(of), samples;
    uint8_t *content;

    if (of->losses == JSON_NONE)
        return;
    content = malloc(size);
    if (!content)
        board_fail("losses", "no memory");
    board_fetch(&place, of->loss_offset, content, size);
    if (!of->sums) {
        of->told++;
        say("step %" PRIu64 " of %" PRIu32 ": loss %.6f", of->told, json_length(&of->plan, of->stages),
            mean_square(of, content));
    }
    for (; of->sums && of->told < of->loss_count; of->told++) {
        samples = (uint64_t)little(content + 16 * of->told + 8, 4);
        if (!samples)
            break;
        say("step %" PRIu64 " of %" PRIu64 ": loss %.6f", of->told + 1, of->loss_count,
            (double)(uint64_t)little(content + 16 * of->told, 8) / (double)of->loss_scale / (double)samples);
    }
    free(content);
}

static void run_program(job *of, uint32_t program)
{
    char text[400];

    if (board_run(&place, (uint32_t)plan_number(of, program + 1, 0, UINT32_MAX, "program"),
                  (uint32_t)plan_number(of, program + 2, 0, UINT32_MAX, "program"), &stopped, text,
                  sizeof text) == GL_FAILED) {
        program_error = 1;
        board_fail("program stopped", text);
    }
}

/* What an interrupted run of the agent has left: this one begins again. */
static void forget(void)
{
    int copy = dup(root);
    DIR *listed = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    while (listed && (entry = readdir(listed)))
        if (!strncmp(entry->d_name, "state", 5))
            unlinkat(root, entry->d_name, 0);
    if (listed)
        closedir(listed);
    unlinkat(root, "failed.json", 0);
}

static void finish(job *of)
{
    char head[400], digest[65], *text;
    uint8_t sum[32];
    int length;

    sha_end(&of->sum, sum);
    plan_hex(sum, digest);
    if (fflush(of->result) || fsync(fileno(of->result)) || renameat(root, "result.part", root, "result.bin"))
        board_fail("result.bin", strerror(errno));
    length = snprintf(head, sizeof head,
                      "], \"result_bytes\": %" PRIu64 ", \"result_sha256\": \"%s\", \"data_sha256\": \"%s\", \"begun\": 1}",
                      of->result_bytes, digest, of->sha);
    text = malloc(of->counters_length + (size_t)length + 20);
    if (!text)
        board_fail("result.json", "no memory");
    length = sprintf(text, "{\"counters\": [%s%s", of->counters, head);
    if (keep("result.json", text, (size_t)length))
        board_fail("result.json", "no room to write: make room and run it again");
    free(text);
}

int job_run(const char *folder, const char *at)
{
    static job made;
    char text[100];
    uint32_t stage, program, number_of = 0, stages;
    uint64_t cycles;
    int lock;

    board_lock(at);
    plan_read(&made, folder);
    if (made.answers != JSON_NONE)
        board_fail(folder, "answers prompts: run gradloom_run answer");
    root = made.root;
    lock = openat(root, ".lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB))
        board_fail(folder, "this job runs already, or its folder may not be written");
    if (faccessat(root, "result.json", F_OK, 0) == 0) {
        printf("job %s is done already\n", folder);
        return 0;
    }
    board_on_fault = failed;
    forget();
    made.result = plan_file(&made, "result.part", "wb", O_WRONLY | O_CREAT | O_TRUNC);
    plan_begin(&made, &place, at);
    sha_start(&made.sum);
    stages = json_length(&made.plan, made.stages);
    status(&made, "running", 0, "begins");
    say("begins, stages: %" PRIu32, stages);
    for (stage = made.stages + 1; stage < made.plan.values[made.stages].next; stage = made.plan.values[stage].next) {
        count(&made, number_of++ ? ", " : "");
        plan_write(&made, &place, json_field(&made.plan, stage, "writes"));
        program = json_field(&made.plan, stage, "program");
        if (made.plan.values[program].kind == '[') {
            run_program(&made, program);
            cycles = count_program(&made);
            tell_losses(&made);
            snprintf(text, sizeof text, "%" PRIu64 " cycles", cycles);
            status(&made, "running", made.losses != JSON_NONE && made.sums ? made.told : number_of, text);
        } else {
            count(&made, "{}");
        }
        read_stage(&made, json_field(&made.plan, stage, "reads"));
    }
    finish(&made);
    board_on_fault = NULL;
    say("done");
    status(&made, "done", made.losses != JSON_NONE && made.sums ? made.loss_count : stages, "done");
    return 0;
}
