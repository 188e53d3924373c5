/* SPDX-License-Identifier: Apache-2.0
 * A memory card (SD, SDHC, SDXC) in SPI mode. The header of a board that has one defines GL_BOARD_CARD and
 *
 *   gl_board_card(selected, fast)   selects the card or not, at the pace of identification or of data; forgets the sum
 *   gl_board_card_send(byte)        sends a byte
 *   gl_board_card_got()             what arrived meanwhile
 *   gl_board_card_fetch()           starts four bytes of ones
 *   gl_board_card_word()            what arrived meanwhile, the first byte lowest
 *   gl_board_card_give(word)        starts its four bytes, the lowest first
 *   gl_board_card_sum_sent()        forgets the sum; until gl_board_card it is that of what is sent
 *   gl_board_card_sum()             CRC-16 of all that has arrived, or was sent
 *   gl_board_card_tries()           how often a command is repeated for a card that does not answer
 *
 * and, where the slot's power has a switch, GL_BOARD_CARD_POWER(on), which leaves the card not selected.
 */
#ifndef GRADLOOM_SOC_SD_H
#define GRADLOOM_SOC_SD_H

#include <stdint.h>

#define SD_BLOCK_WORDS 128u
/* What sd_start tells where nothing answers. */
extern const char sd_nobody[];

/* Wakes the card up. NULL, or why it does not work. */
const char *sd_start(void);

/* Reads blocks of 512 bytes from the block `first` on and puts their first `words` words into memory, or nowhere if `to`
 * is NULL; takes them into the CRC-32 `sum`. A block that arrives damaged is read again. NULL, or what card or line have done wrong. */
const char *sd_read(uint32_t first, uint32_t words, volatile uint32_t *to, uint32_t *sum);

/* Writes `words` words, and zeros behind them up to a whole block, from the block `first` on; takes them into the CRC-32
 * `sum`. A block that arrives damaged is sent again. NULL when the card has stored all, or what card or line have done wrong. */
const char *sd_write(uint32_t first, uint32_t words, volatile const uint32_t *from, uint32_t *sum);

#endif
