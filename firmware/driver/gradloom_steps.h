/* SPDX-License-Identifier: Apache-2.0
 * Steps of a fine-tune by patches of one program, with exponents of adapters chosen again between steps. The table of
 * patches lies in the window; firmware/chip/steps.py writes it and says what is in it.
 */
#ifndef GRADLOOM_STEPS_H
#define GRADLOOM_STEPS_H

#include "gradloom.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GL_STEPS_PROGRAMS 4u

typedef struct gl_steps {
    volatile uint32_t *window; /* its first byte, as the processor reaches it */
    uint32_t window_bytes;
    uint32_t table;            /* offset in the window */
    uint32_t programs;
    uint32_t offset[GL_STEPS_PROGRAMS], commands[GL_STEPS_PROGRAMS]; /* of each */
    uint32_t first; /* steps that were made before memory was filled: other programs need what program 0 leaves there */
} gl_steps;

/* NULL, or why the table is refused. Call it first: the other functions trust the table. */
const char *gl_steps_check(const gl_steps *steps);

/* Steps in the table. */
uint32_t gl_steps_count(const gl_steps *steps);

/* Columns of a row. */
uint32_t gl_steps_columns(const gl_steps *steps);

/* Patches a program by a row that somebody else has made, and other exponents. NULL, or why it cannot run. */
const char *gl_steps_patch(const gl_steps *steps, uint32_t program, volatile const uint32_t *row,
                           volatile const uint32_t *state);

/* Patches the program of `step`, 0 first, whose number goes to `program`. NULL, or why it cannot run. */
const char *gl_steps_prepare(const gl_steps *steps, uint32_t step, uint32_t *program);

/* Chooses exponents again after `done` steps, if it is time to. NULL, or why there are none. */
const char *gl_steps_measure(const gl_steps *steps, uint32_t done);

#ifdef __cplusplus
}
#endif

#endif
