/* SPDX-License-Identifier: Apache-2.0 */
#include "gradloom_store.h"

#include "gradloom_sum.h"

/* Words of a header. */
enum { MAGIC, LAYOUT, SEQUENCE, BYTES, SUM, HEADER_SUM };

static uint32_t place(const gl_store *store, uint32_t number)
{
    return store->offset + number * (GL_STORE_HEADER_BYTES + store->capacity);
}

static uint32_t word(const gl_store *store, uint32_t number, uint32_t index)
{
    return gl_read(&store->memory, place(store, number) + 4 * index);
}

static uint32_t header_sum(uint32_t sequence, uint32_t bytes, uint32_t sum)
{
    uint32_t result = gl_sum_word(GL_SUM_START, GL_STORE_LAYOUT);

    return ~gl_sum_word(gl_sum_word(gl_sum_word(result, sequence), bytes), sum);
}

static uint32_t adapter_sum(const gl_store *store, uint32_t number, uint32_t bytes)
{
    uint32_t from = place(store, number) + GL_STORE_HEADER_BYTES, sum = GL_SUM_START, i;

    for (i = 0; i < bytes; i += 4)
        sum = gl_sum_word(sum, gl_read(&store->memory, from + i));
    return ~sum;
}

static int has_header(const gl_store *store, uint32_t number)
{
    uint32_t bytes = word(store, number, BYTES);

    return word(store, number, MAGIC) == GL_STORE_MAGIC && word(store, number, LAYOUT) == GL_STORE_LAYOUT &&
           word(store, number, HEADER_SUM) ==
               header_sum(word(store, number, SEQUENCE), bytes, word(store, number, SUM)) &&
           bytes % 4 == 0 && bytes <= store->capacity;
}

/* The place of the newest whole adapter; 2: there is none. Sequence numbers go round: the newer one is ahead by less
 * than half of them. */
static uint32_t newest(const gl_store *store)
{
    int first = has_header(store, 0), second = has_header(store, 1);
    uint32_t number = second && (!first || word(store, 1, SEQUENCE) - word(store, 0, SEQUENCE) < 0x80000000u);
    int turns;

    for (turns = first + second; turns > 0; turns--) {
        if (adapter_sum(store, number, word(store, number, BYTES)) == word(store, number, SUM))
            return number;
        number ^= 1;
    }
    return 2;
}

int gl_store_find(const gl_store *store, gl_adapter *found)
{
    uint32_t number = newest(store);

    if (number == 2)
        return GL_NOT_FOUND;
    found->offset = place(store, number) + GL_STORE_HEADER_BYTES;
    found->bytes = word(store, number, BYTES);
    found->sequence = word(store, number, SEQUENCE);
    return GL_OK;
}

uint32_t gl_store_begin(const gl_store *store)
{
    uint32_t spare = newest(store) == 0;

    gl_write(&store->memory, place(store, spare), 0);
    GL_BARRIER();
    return place(store, spare) + GL_STORE_HEADER_BYTES;
}

int gl_store_commit(const gl_store *store, uint32_t bytes)
{
    uint32_t other = newest(store), spare = other == 0, sequence, sum, at = place(store, spare);

    if (bytes % 4 || bytes > store->capacity)
        return GL_ARGUMENT;
    sequence = other == 2 ? 1 : word(store, other, SEQUENCE) + 1;
    sum = adapter_sum(store, spare, bytes);
    gl_write(&store->memory, at + 4 * LAYOUT, GL_STORE_LAYOUT);
    gl_write(&store->memory, at + 4 * SEQUENCE, sequence);
    gl_write(&store->memory, at + 4 * BYTES, bytes);
    gl_write(&store->memory, at + 4 * SUM, sum);
    gl_write(&store->memory, at + 4 * HEADER_SUM, header_sum(sequence, bytes, sum));
    GL_BARRIER();
    gl_write(&store->memory, at + 4 * MAGIC, GL_STORE_MAGIC);
    GL_BARRIER();
    return GL_OK;
}
