/* SPDX-License-Identifier: Apache-2.0
 * What a job has learnt, on the memory card: it survives without power.
 *
 * A card's section of kind KEPT holds two copies, the second half of it the second. A copy is a block of its own, the
 * words that the job keeps, and the log, each from a whole block on. Words of the block, little-endian: magic, layout,
 * sequence number, identity of the card's image, runs made, bytes kept, their CRC-32, records in the log, their CRC-32,
 * why it was kept, CRC-32 of the words before. Whoever writes clears the block of the copy that is not the newest, writes
 * what follows it, and the block last. Whoever reads takes the newest of the copies whose sums hold.
 * firmware/chip/kept.py reads and writes the same.
 */
#ifndef GRADLOOM_SOC_KEEP_H
#define GRADLOOM_SOC_KEEP_H

#include "soc_job.h"

/* Why words are kept. */
enum { KEPT_GOES_ON, KEPT_DONE, KEPT_RUNS, KEPT_CYCLES, KEPT_MAINS, KEPT_HEAT };

/* The newest copy into memory; `runs` are those it was made after, 0 if there is none. NULL, or why the card cannot be
 * used. */
const char *keep_find(volatile const struct job *job, uint32_t *runs);

/* A new copy, after `runs` runs. NULL, or why there is none. */
const char *keep_write(volatile const struct job *job, uint32_t runs, uint32_t why);

#endif
