/* soc_keep.c with a card of blocks in memory.
 * Usage: keep_host ADAPTER_WORDS RECORDS EVERY RUNS...: keeps after each of RUNS runs, which have written their records.
 * Power goes after every EVERY-th: memory is lost, and what keep_find brings back must be what was kept. Exits with 1
 * where it is not, and with 2 where a block outside the place of two copies was written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradloom_sum.h"
#include "soc_card.h"
#include "soc_keep.h"
#include "soc_sd.h"

#define BLOCKS 256u
#define FIRST 3u

uintptr_t host_memory;
struct card_area card_area;
static uint32_t card[BLOCKS][SD_BLOCK_WORDS];

const char *sd_read(uint32_t first, uint32_t words, volatile uint32_t *to, uint32_t *sum)
{
    uint32_t i;

    for (i = 0; i < words; i++) {
        uint32_t word = card[first + i / SD_BLOCK_WORDS][i % SD_BLOCK_WORDS];

        *sum = gl_sum_word(*sum, word);
        if (to)
            to[i] = word;
    }
    return NULL;
}

const char *sd_write(uint32_t first, uint32_t words, volatile const uint32_t *from, uint32_t *sum)
{
    uint32_t i, end = card_area.block + 2 * card_area.blocks, last = (words + SD_BLOCK_WORDS - 1) / SD_BLOCK_WORDS;

    if (words && (first < card_area.block || first + last > end)) {
        fprintf(stderr, "blocks %u to %u were written\n", (unsigned)first, (unsigned)(first + last));
        exit(2);
    }
    for (i = 0; i < last * SD_BLOCK_WORDS; i++)
        card[first + i / SD_BLOCK_WORDS][i % SD_BLOCK_WORDS] = i < words ? from[i] : 0;
    for (i = 0; i < words; i++)
        *sum = gl_sum_word(*sum, from[i]);
    return NULL;
}

int main(int count, char **given)
{
    static uint32_t memory[1 << 16];
    static struct job job;
    uint32_t words = (uint32_t)atoi(given[1]), log, i, runs, found;
    int at, every = atoi(given[3]);

    host_memory = (uintptr_t)memory;
    job.adapter_bytes = 4 * words;
    job.records = (uint32_t)atoi(given[2]);
    job.log = 4 * words;
    card_area.block = FIRST;
    card_area.blocks = 1 + (4 * words + 511) / 512 + (RECORD_BYTES * job.records + 511) / 512;
    card_area.identity = 7;
    for (at = 4; at < count; at++) {
        runs = (uint32_t)atoi(given[at]);
        log = RECORD_BYTES / 4 * (runs < job.records ? runs : job.records);
        for (i = 0; i < words + log; i++)
            memory[i] = i < words ? runs * 1000 + i : i;
        if (keep_write(&job, runs, KEPT_RUNS))
            return 1;
        if ((at - 3) % every)
            continue;
        memset(memory, 0xff, sizeof memory);
        if (keep_find(&job, &found) || found != runs)
            return 1;
        for (i = 0; i < words + log; i++)
            if (memory[i] != (i < words ? runs * 1000 + i : i))
                return 1;
        if (memory[words + log] != 0xffffffffu)
            return 1;
    }
    return 0;
}
