/* SPDX-License-Identifier: Apache-2.0
 * Lines of requests and answers by UART. A line is a word, numbers of eight hexadecimal digits or other fields, and the
 * CRC-32 of all before the last blank; docs/reference/formats.md tells them.
 */
#ifndef GRADLOOM_SOC_LINE_H
#define GRADLOOM_SOC_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Takes the bytes that have arrived, up to the end of a line that is not empty: that line without its sum if that holds, an
 * empty text if it does not, or NULL. */
const char *hear_line(void);

/* Whether a line begins with the word; `text` moves behind it. */
int take_word(const char **text, const char *word);

/* A blank and eight digits at `text`, which moves behind them; 0 if there are none. */
int take_number(const char **text, uint32_t *value);

/* A blank and `count` bytes in base64; 0 if these are other characters. */
int take_bytes(const char **text, uint8_t *bytes, uint32_t count);

/* An answer: its first word, fields, and the sum with the end of the line. */
void answer_word(const char *word);
void answer_number(uint32_t value);
void answer_text(const char *text);
void answer_bytes(const uint8_t *bytes, uint32_t count);
void answer_end(void);

/* The answer to a request that is not met. */
void answer_fault(uint32_t number, const char *why);

#endif
