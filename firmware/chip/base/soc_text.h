/* SPDX-License-Identifier: Apache-2.0
 * Text on the board's UART, which can be kept and sent again. */
#ifndef GRADLOOM_SOC_TEXT_H
#define GRADLOOM_SOC_TEXT_H

#include <stdint.h>

void put_character(char character);
void put_text(const char *text);
void put_hex(uint32_t value);

/* The lowest `digits` hexadecimal digits of a value, each by `put`. */
void put_digits(uint32_t value, uint32_t digits, void (*put)(char));
void put_number(uint64_t value);

/* A word with `fraction` bits behind the point, six digits, the rest cut off. */
void put_fixed(uint32_t word, uint32_t fraction);

/* Up to `size` characters that lie in words, lowest byte first, up to a zero. */
void put_name(volatile const uint32_t *words, uint32_t size);

/* From here on text is also kept in `room` bytes at `place`. With no place it is kept no longer; what there is, stays. */
void keep_text(char *place, uint32_t room);

/* Sends the kept text, and a line that says how many characters had no room. */
void put_kept(void);

/* Characters that were kept. */
uint32_t kept_characters(void);

#endif
