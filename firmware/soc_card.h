/* SPDX-License-Identifier: Apache-2.0
 * What `gradloom load` wrote on a memory card, brought into memory; docs/guides/genesys2.md tells the layout.
 */
#ifndef GRADLOOM_SOC_CARD_H
#define GRADLOOM_SOC_CARD_H

/* Loads every section of the card that is in the slot, if any, and tells the UART about it. */
void card_load(void);

#endif
