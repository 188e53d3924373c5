/* SPDX-License-Identifier: Apache-2.0
 * What `gradloom card write` wrote on a memory card, brought into memory; docs/guides/boards/genesys2.md tells the layout.
 */
#ifndef GRADLOOM_SOC_CARD_H
#define GRADLOOM_SOC_CARD_H

#include <stdint.h>

/* Where a job may keep what it has learnt: the first block of two copies, blocks of each, and what they begin with: the
 * sum of the card's header, which knows the sums of all sections, XOR that of the installed words. No blocks: nowhere. */
struct card_area {
    uint32_t block, blocks, identity;
};

extern struct card_area card_area;

/* Loads every section of the card that is in the slot, if any, and tells the UART about it. */
void card_load(void);

#endif
