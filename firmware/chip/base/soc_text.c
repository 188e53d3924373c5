/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_text.h"

#include "soc_memory.h"

/* Text that was kept: its place, the bytes there, and the characters put, which may be more. */
static char *kept;
static uint32_t kept_room, kept_length;
static int keeping;

void put_character(char character)
{
    gl_board_put(character);
    if (!keeping)
        return;
    if (kept_length < kept_room)
        kept[kept_length] = character;
    kept_length++;
}

void keep_text(char *place, uint32_t room)
{
    keeping = place != 0;
    if (!keeping)
        return;
    kept = place;
    kept_room = room;
    kept_length = 0;
}

uint32_t kept_characters(void)
{
    return kept_length < kept_room ? kept_length : kept_room;
}

void put_kept(void)
{
    uint32_t i;

    for (i = 0; i < kept_length && i < kept_room; i++)
        put_character(kept[i]);
    if (kept_length > kept_room) {
        put_text("\nerror: no room for the last ");
        put_number(kept_length - kept_room);
        put_text(" characters\n");
    }
}

void put_text(const char *text)
{
    while (*text)
        put_character(*text++);
}

void put_digits(uint32_t value, uint32_t digits, void (*put)(char))
{
    while (digits--)
        put("0123456789abcdef"[value >> 4 * digits & 15]);
}

void put_hex(uint32_t value)
{
    put_text("0x");
    put_digits(value, 8, put_character);
}

/* Decimal, by long division in steps of 16 bits: 64-bit division and shifts by a variable would need a library. */
void put_number(uint64_t value)
{
    uint32_t high = (uint32_t)(value >> 32), low = (uint32_t)value, rest;
    uint32_t limb[4] = {high >> 16, high & 0xffff, low >> 16, low & 0xffff};
    char digit[20];
    int count = 0, i;

    do {
        rest = 0;
        for (i = 0; i < 4; i++) {
            rest = rest << 16 | limb[i];
            limb[i] = rest / 10;
            rest %= 10;
        }
        digit[count++] = (char)('0' + rest);
    } while (limb[0] | limb[1] | limb[2] | limb[3]);
    while (count)
        put_character(digit[--count]);
}

void put_fixed(uint32_t word, uint32_t fraction)
{
    uint32_t size = word, rest;
    uint64_t digits;
    int count;

    if (word >> 31) {
        put_character('-');
        size = 0u - word;
    }
    put_number(size >> fraction);
    put_character('.');
    rest = fraction ? size << (32 - fraction) : 0;
    for (count = 0; count < 6; count++) {
        digits = (uint64_t)rest * 10;
        put_character((char)('0' + (uint32_t)(digits >> 32)));
        rest = (uint32_t)digits;
    }
}

void put_name(volatile const uint32_t *words, uint32_t size)
{
    uint32_t i;
    char character;

    for (i = 0; i < size; i++) {
        character = (char)(words[i / 4] >> i % 4 * 8);
        if (!character)
            break;
        put_character(character);
    }
}
