/* SPDX-License-Identifier: Apache-2.0
 * What a compiler may call where there is no C library. */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);

void *memcpy(void *to, const void *from, size_t count)
{
    unsigned char *each = to;
    const unsigned char *next = from;

    while (count--)
        *each++ = *next++;
    return to;
}

void *memset(void *to, int value, size_t count)
{
    unsigned char *each = to;

    while (count--)
        *each++ = (unsigned char)value;
    return to;
}
