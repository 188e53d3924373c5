/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_job.h"

#include "gradloom.h"
#include "gradloom_steps.h"
#include "gradloom_store.h"
#include "gradloom_sum.h"

#define LAYOUT 6u
#define MAX_RESULTS 16u

/* Whether `bytes` bytes at `offset` of the memory are out of a program's reach. */
static int beside(volatile const struct job *job, uint32_t offset, uint32_t bytes)
{
    return offset >= job->length && inside(offset, bytes, GL_MEMORY_BYTES) &&
           (offset >= job->window_offset + job->window_bytes || job->window_offset >= offset + bytes);
}

static const char *refuse_adapter(volatile const struct job *job)
{
    uint32_t bytes = job->adapter_bytes, records = job->records;

    if (bytes % 64 || !inside(job->adapter, bytes, job->window_bytes))
        return "the adapter is outside the window";
    if (job->keep == 0 && (job->store || pair(job->keep_cycles) == 0))
        return "the adapter is never kept";
    if (job->store == 0)
        return records > GL_MEMORY_BYTES / RECORD_BYTES || !beside(job, job->log, records * RECORD_BYTES)
                   ? "the log is in the window, or outside the memory" : NULL;
    if (job->store % 64 || bytes > GL_MEMORY_BYTES / 2 - GL_STORE_HEADER_BYTES ||
        !beside(job, job->store, 2 * (GL_STORE_HEADER_BYTES + bytes)))
        return "the adapter's store is in the window, or outside the memory";
    return NULL;
}

const char *refuse_job(volatile const struct job *job)
{
    uint32_t i, length = job->length, programs, results, machine;
    volatile const struct result *result;

    if (job->layout != LAYOUT)
        return "the header is of another layout";
    if (length % 4 || length < offsetof(struct job, program) ||
        length > sizeof(struct job) + MAX_RESULTS * sizeof(struct result) + GL_NEEDS_BYTES)
        return "the header has no such length";
    if (gl_sum_words(&job->window_offset, (length - (uint32_t)offsetof(struct job, window_offset)) / 4) != job->sum)
        return "the header's sum is wrong";
    programs = job->programs;
    results = job->results;
    machine = job->machine;
    if (programs > MAX_PROGRAMS || results > MAX_RESULTS || machine == 0 || machine % 4 || machine > GL_NEEDS_BYTES ||
        length != offsetof(struct job, program) + programs * sizeof(struct program) + results * sizeof(struct result) +
                      machine ||
        machine_of(job)[machine - 1])
        return "the header has another number of programs or results, or names no machine";
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
