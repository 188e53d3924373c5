/* SPDX-License-Identifier: Apache-2.0
 * Signed adapters on the memory card: installed at start, if the card asks for it, and brought back by a rollback.
 *
 * A card's section of kind DELIVERY has five parts of equal size: the inbox, two places for words, two for the state. The
 * inbox is a block with the request, and a package from the next block on. Words are written to the place that is not in
 * use; a new state, with the next sequence number, makes them the adapter. Whoever reads takes the newest of the states
 * whose sums hold. docs/reference/formats.md tells the words; firmware/delivered.py reads and writes the same.
 */
#ifndef GRADLOOM_SOC_DELIVER_H
#define GRADLOOM_SOC_DELIVER_H

#include <stdint.h>

/* Does what the inbox asks for, with the memory from `scratch` on; `blocks` from `block` on are the section, `base` is the
 * SHA-256 of the card's first block, `image` the sum in it, `bytes` those of the words. */
void deliver(uint32_t block, uint32_t blocks, const uint8_t *base, uint32_t image, uint32_t bytes, uint32_t scratch);

/* Blocks of the inbox, and the first of them; 0: the card has none. */
uint32_t inbox(uint32_t *first);

/* The installed words to `to`; 0 without any. Otherwise their sum, which names them. */
uint32_t delivered(volatile uint32_t *to, const char **why);

/* That sum alone. */
uint32_t delivered_sum(void);

#endif
