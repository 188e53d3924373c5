/* SPDX-License-Identifier: Apache-2.0
 * CRC-32 as zlib's, of words as they lie in memory. A sum begins with GL_SUM_START and ends with its complement.
 */
#ifndef GRADLOOM_SUM_H
#define GRADLOOM_SUM_H

#include <stdint.h>

#define GL_SUM_START 0xffffffffu

extern const uint32_t gl_sum_table[256];

static inline uint32_t gl_sum_byte(uint32_t sum, uint8_t byte)
{
    return sum >> 8 ^ gl_sum_table[(sum ^ byte) & 255];
}

static inline uint32_t gl_sum_word(uint32_t sum, uint32_t word)
{
    sum ^= word;
    sum = sum >> 8 ^ gl_sum_table[sum & 255];
    sum = sum >> 8 ^ gl_sum_table[sum & 255];
    sum = sum >> 8 ^ gl_sum_table[sum & 255];
    return sum >> 8 ^ gl_sum_table[sum & 255];
}

/* The whole sum of `count` words. */
uint32_t gl_sum_words(volatile const uint32_t *words, uint32_t count);

#endif
