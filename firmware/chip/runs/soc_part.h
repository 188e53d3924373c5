/* SPDX-License-Identifier: Apache-2.0
 * A part of a job that has a program of its own: prompts, the trial. Its description lies in the window;
 * src/gradloom/systems/text/card/part.py writes it.
 */
#ifndef GRADLOOM_SOC_PART_H
#define GRADLOOM_SOC_PART_H

#include "gradloom_steps.h"
#include "soc_job.h"

/* Words of a description; those of the part follow. Offsets count from the window's first byte. */
struct part {
    uint32_t magic, layout, sum; /* CRC-32 of all words behind */
    uint32_t program, commands, table;
};

enum part_fault { PART_GOOD, PART_OUTSIDE, PART_LAYOUT, PART_SUM };

/* Checks the description of `bytes` bytes at `offset`; `steps` becomes its program with the table, which is not checked. */
enum part_fault part_open(volatile const struct job *job, uint32_t offset, uint32_t magic, uint32_t bytes, gl_steps *steps);

#endif
