/* SPDX-License-Identifier: Apache-2.0
 * A request is "read FIRST COUNT SUM", an answer "block NUMBER DATA SUM" for each block, or "fault NUMBER WHY SUM". Numbers
 * are eight hexadecimal digits, DATA is base64, SUM the CRC-32 of the line up to the blank before it. A request that is
 * damaged has no answer: who asks repeats it.
 */
#include "soc_serve.h"

#include "gradloom_sum.h"
#include "soc_memory.h"
#include "soc_sd.h"
#include "soc_text.h"

#if defined GL_BOARD_CARD && defined GL_BOARD_LISTEN

#define REQUEST "read "
#define DIGITS 8u
/* Of a request: where numbers begin, and its length. */
enum { FIRST = 5, COUNT = 14, SUM = 23, LENGTH = 31 };
#define MOST_BLOCKS 64u

static char line[LENGTH];
/* Characters of the line; more than there is room for: it is no request. */
static uint32_t length;
static uint32_t sum;

static void put_summed(char character)
{
    sum = gl_sum_byte(sum, (uint8_t)character);
    put_character(character);
}

static void put_summed_text(const char *text)
{
    while (*text)
        put_summed(*text++);
}

static void put_digits(uint32_t value, void (*put)(char))
{
    int shift;

    for (shift = 28; shift >= 0; shift -= 4)
        put("0123456789abcdef"[value >> shift & 15]);
}

/* The value of eight digits; `good` becomes 0 if they are none. */
static uint32_t digits_at(const char *text, int *good)
{
    uint32_t value = 0, i;

    for (i = 0; i < DIGITS; i++) {
        char each = text[i];

        if (each >= '0' && each <= '9')
            value = value << 4 | (uint32_t)(each - '0');
        else if (each >= 'a' && each <= 'f')
            value = value << 4 | (uint32_t)(each - 'a' + 10);
        else
            *good = 0;
    }
    return value;
}

/* Three bytes are four characters; two bytes at the end are three, and '='. */
static void put_base64(const uint32_t *words)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = (const uint8_t *)words;
    uint32_t at, part, i;

    for (at = 0; at < 4 * SD_BLOCK_WORDS; at += 3) {
        uint32_t left = 4 * SD_BLOCK_WORDS - at;

        part = (uint32_t)bytes[at] << 16;
        part |= left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0;
        part |= left > 2 ? bytes[at + 2] : 0;
        for (i = 0; i < 4; i++)
            put_summed(i > left ? '=' : letters[part >> (18 - 6 * i) & 63]);
    }
}

static void answer(uint32_t number)
{
    uint32_t words[SD_BLOCK_WORDS], all = GL_SUM_START;
    const char *why = sd_read(number, SD_BLOCK_WORDS, words, &all);

    sum = GL_SUM_START;
    put_summed_text(why ? "fault " : "block ");
    put_digits(number, put_summed);
    put_summed(' ');
    if (why)
        put_summed_text(why);
    else
        put_base64(words);
    put_text(" ");
    put_digits(~sum, put_character);
    put_text("\n");
}

static void request(void)
{
    uint32_t all = GL_SUM_START, first, count, wanted, i;
    int good = 1;

    for (i = 0; i < FIRST; i++)
        if (line[i] != REQUEST[i])
            return;
    for (i = 0; i < SUM - 1; i++)
        all = gl_sum_byte(all, (uint8_t)line[i]);
    first = digits_at(line + FIRST, &good);
    count = digits_at(line + COUNT, &good);
    wanted = digits_at(line + SUM, &good);
    if (!good || wanted != ~all || count > MOST_BLOCKS)
        return;
    for (i = 0; i < count; i++)
        answer(first + i);
}

void serve(void)
{
    uint32_t heard = GL_BOARD_LISTEN();
    char character = (char)heard;

    if (!(heard & GL_BOARD_HEARD))
        return;
    if (character != '\n') {
        if (length < LENGTH)
            line[length] = character;
        length += length <= LENGTH;
        return;
    }
    if (length == LENGTH)
        request();
    length = 0;
}

#else

void serve(void)
{
}

#endif
