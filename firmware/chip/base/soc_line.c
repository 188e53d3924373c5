/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_line.h"

#include "gradloom_sum.h"
#include "soc_memory.h"
#include "soc_text.h"

#if defined GL_BOARD_CARD && defined GL_BOARD_LISTEN

#define DIGITS 8u
/* A block of 512 bytes in base64 with a word, its number and the sum has 708 characters. */
#define ROOM 720u

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static char line[ROOM + 1];
/* Characters of the line; more than there is room for: it is no request. */
static uint32_t length;
/* Of the answer so far. */
static uint32_t sum;

int take_word(const char **text, const char *word)
{
    const char *at = *text;

    while (*word && *at == *word) {
        at++;
        word++;
    }
    if (*word || (*at && *at != ' '))
        return 0;
    *text = at;
    return 1;
}

int take_number(const char **text, uint32_t *value)
{
    const char *at = *text;
    uint32_t found = 0, i;

    if (*at++ != ' ')
        return 0;
    for (i = 0; i < DIGITS; i++, at++)
        if (*at >= '0' && *at <= '9')
            found = found << 4 | (uint32_t)(*at - '0');
        else if (*at >= 'a' && *at <= 'f')
            found = found << 4 | (uint32_t)(*at - 'a' + 10);
        else
            return 0;
    *text = at;
    *value = found;
    return 1;
}

static int code_of(char letter, uint32_t *code)
{
    if (letter >= 'A' && letter <= 'Z')
        *code = (uint32_t)(letter - 'A');
    else if (letter >= 'a' && letter <= 'z')
        *code = (uint32_t)(letter - 'a' + 26);
    else if (letter >= '0' && letter <= '9')
        *code = (uint32_t)(letter - '0' + 52);
    else if (letter == '+' || letter == '/')
        *code = letter == '+' ? 62 : 63;
    else
        return 0;
    return 1;
}

int take_bytes(const char **text, uint8_t *bytes, uint32_t count)
{
    const char *at = *text;
    uint32_t done = 0, part, code, i;

    if (*at++ != ' ')
        return 0;
    while (done < count) {
        uint32_t left = count - done;

        part = 0;
        for (i = 0; i < 4; i++, at++) {
            code = 0;
            if (i > left ? *at != '=' : !code_of(*at, &code))
                return 0;
            part = part << 6 | code;
        }
        for (i = 0; i < 3 && i < left; i++)
            bytes[done++] = (uint8_t)(part >> (16 - 8 * i));
    }
    *text = at;
    return 1;
}

/* The line without its sum if that holds, else an empty text. */
static const char *whole(void)
{
    uint32_t all = GL_SUM_START, wanted, i;
    const char *last;

    if (length < DIGITS + 2 || length > ROOM)
        return "";
    line[length] = 0;
    last = line + length - DIGITS - 1;
    for (i = 0; line + i != last; i++)
        all = gl_sum_byte(all, (uint8_t)line[i]);
    if (!take_number(&last, &wanted) || wanted != ~all)
        return "";
    line[length - DIGITS - 1] = 0;
    return line;
}

const char *hear_line(void)
{
    const char *found;
    uint32_t heard;

    while ((heard = GL_BOARD_LISTEN()) & GL_BOARD_HEARD) {
        if ((char)heard == '\n') {
            found = length ? whole() : NULL;
            length = 0;
            if (found)
                return found;
        } else {
            if (length < ROOM)
                line[length] = (char)heard;
            length += length <= ROOM;
        }
    }
    return NULL;
}

static void put_summed(char character)
{
    sum = gl_sum_byte(sum, (uint8_t)character);
    put_character(character);
}

void answer_word(const char *word)
{
    sum = GL_SUM_START;
    while (*word)
        put_summed(*word++);
}

void answer_number(uint32_t value)
{
    put_summed(' ');
    put_digits(value, DIGITS, put_summed);
}

void answer_text(const char *text)
{
    put_summed(' ');
    while (*text)
        put_summed(*text++);
}

/* Three bytes are four characters; two bytes at the end are three, and '='. */
void answer_bytes(const uint8_t *bytes, uint32_t count)
{
    uint32_t at, part, i;

    put_summed(' ');
    for (at = 0; at < count; at += 3) {
        uint32_t left = count - at;

        part = (uint32_t)bytes[at] << 16;
        part |= left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0;
        part |= left > 2 ? bytes[at + 2] : 0;
        for (i = 0; i < 4; i++)
            put_summed(i > left ? '=' : letters[part >> (18 - 6 * i) & 63]);
    }
}

void answer_end(void)
{
    put_text(" ");
    put_digits(~sum, DIGITS, put_character);
    put_text("\n");
}

void answer_fault(uint32_t number, const char *why)
{
    answer_word("fault");
    answer_number(number);
    answer_text(why);
    answer_end();
}

#endif
