/* SPDX-License-Identifier: Apache-2.0
 * Signed adapters on the memory card: installed at start, if the card asks for it, and brought back by a rollback.
 *
 * A card's section of kind DELIVERY has five parts of equal size: the inbox, two places for words, two for the state. The
 * inbox is a block with the request, and a package from the next block on. Words are written to the place that is not in
 * use; a new state, with the next sequence number, makes them the adapter. Whoever reads takes the newest of the states
 * whose sums hold. docs/reference/formats.md tells the words; firmware/chip/delivered.py reads and writes the same.
 */
#ifndef GRADLOOM_SOC_DELIVER_H
#define GRADLOOM_SOC_DELIVER_H

#include <stdint.h>

/* Where signed words are on the card, and of what. */
struct delivery_area {
    uint32_t block, blocks; /* the section */
    uint32_t bytes;         /* of the words */
    uint32_t original;      /* block from which the words are that came with the card */
    uint32_t image;         /* sum in the card's first block */
};

/* Does what the inbox asks for, with the memory from `scratch` on; `base` is the SHA-256 of the card's first block. */
void deliver(const struct delivery_area *area, const uint8_t *base, uint32_t scratch);

/* Whether the words in use are to be tried on the held-out text, and the share by which its loss may grow. */
int trial_due(uint32_t *bound);

/* The words in use, or those before them, to `to`. NULL, or why they are not there. */
const char *trial_words(int before, volatile uint32_t *to);

/* The words in use stay, or those before them come back; `version` is of those in use then, 0 for the card's own. */
const char *trial_end(int stays, uint32_t *version);

/* Blocks of the inbox, and the first of them; 0: the card has none. */
uint32_t inbox(uint32_t *first);

/* The installed words to `to`; 0 without any. Otherwise their sum, which names them. */
uint32_t delivered(volatile uint32_t *to, const char **why);

/* That sum alone. */
uint32_t delivered_sum(void);

#endif
