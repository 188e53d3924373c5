/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_part.h"

#include "gradloom_sum.h"

#define LAYOUT 1u

enum part_fault part_open(volatile const struct job *job, uint32_t offset, uint32_t magic, uint32_t bytes, gl_steps *steps)
{
    volatile const struct part *part = (volatile const struct part *)in_window(job, offset);
    uint32_t program, commands;

    if (!inside(offset, bytes, job->window_bytes))
        return PART_OUTSIDE;
    if (part->magic != magic || part->layout != LAYOUT)
        return PART_LAYOUT;
    if (gl_sum_words(&part->program, (bytes - (uint32_t)offsetof(struct part, program)) / 4) != part->sum)
        return PART_SUM;
    program = part->program;
    commands = part->commands;
    if (program % 32 || commands > job->window_bytes / 32 || !inside(program, 32 * commands, job->window_bytes))
        return PART_OUTSIDE;
    steps->window = in_window(job, 0);
    steps->window_bytes = job->window_bytes;
    steps->table = part->table;
    steps->programs = 1;
    steps->offset[0] = program;
    steps->commands[0] = commands;
    steps->first = 0;
    return PART_GOOD;
}
