/* SPDX-License-Identifier: Apache-2.0
 * The header of a job, the first thing in the shared memory; firmware/chip/soc.py writes it.
 */
#ifndef GRADLOOM_SOC_JOB_H
#define GRADLOOM_SOC_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "soc_memory.h"

#define MAX_PROGRAMS 150u
/* A run's record in the log: the loss's first three words, and saturated words. */
#define RECORD_BYTES 16u

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
    uint32_t store;    /* offset of their store from the header's first byte, with a capacity of adapter_bytes; 0: on the
                          card */
    uint32_t keep;     /* runs after which they are kept; they are at the end, too */
    uint32_t keep_cycles[2]; /* on the card: or after so many cycles, the low word first; 0: no matter how many */
    uint32_t log;            /* on the card: offset from the header's first byte of a record for each run */
    uint32_t records;        /* that have room there */
    uint32_t limit_runs;     /* after power-up, then the job stops; 0: no limit */
    uint32_t limit_cycles[2];
    uint32_t limit_heat; /* temperature above which the job pauses, as the board has it; 0: no limit */
    uint32_t table;    /* offset of the step table, which says what runs; 0: each program runs in its turn */
    uint32_t answers;  /* offset of what prompts need (soc_infer.h); 0: the job answers none */
    uint32_t trial;    /* offset of what a trial of installed words needs (soc_trial.h); 0: there is none */
    uint32_t programs;
    uint32_t results;
    uint32_t machine;        /* bytes of the text of what the programs need of the machine (gl_unlike), with its final 0 */
    struct program program[MAX_PROGRAMS]; /* so many as there are; the results follow, then the text */
};

static inline volatile const struct result *results_of(volatile const struct job *job)
{
    return (volatile const struct result *)&job->program[job->programs];
}

static inline const char *machine_of(volatile const struct job *job)
{
    return (const char *)(uintptr_t)(results_of(job) + job->results);
}

static inline volatile uint32_t *in_window(volatile const struct job *job, uint32_t offset)
{
    return (volatile uint32_t *)(GL_MEMORY + job->window_offset + offset);
}

static inline uint64_t pair(volatile const uint32_t *words)
{
    return (uint64_t)words[1] << 32 | words[0];
}

/* Whether `bytes` bytes at `offset` lie in the first `size`, from a whole word on. */
static inline int inside(uint32_t offset, uint32_t bytes, uint32_t size)
{
    return offset % 4 == 0 && offset <= size && bytes <= size - offset;
}

/* NULL, or why the header is refused. */
const char *refuse_job(volatile const struct job *job);

#endif
