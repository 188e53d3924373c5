/* soc_keep.c with a card of blocks in memory.
 * Usage: keep_host ADAPTER_WORDS RECORDS EVERY RUNS...: keeps after each of RUNS runs, which have written their records.
 * Power goes after every EVERY-th: memory is lost, and what keep_find brings back must be what was kept. Exits with 1
 * where it is not, and with 2 where a block outside the place of two copies was written.
 * Usage: keep_host damaged ADAPTER_WORDS: the same where the place is too small, of another card, empty, or damaged: the
 * older copy comes back, or none. */
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

#define RECORDS 40u
#define MUST(holds) \
    if (!(holds)) \
    return fprintf(stderr, "line %d: %s\n", __LINE__, #holds), 1
/* Words of a copy's block. */
enum { SEQUENCE = 2, HEAD_SUM = 10 };

static uint32_t memory[1 << 16];
static struct job job;

/* A word of memory: records of earlier runs stay as they are. */
static uint32_t wanted(uint32_t runs, uint32_t i)
{
    return i < job.log / 4 ? runs * 100000 + i : 7 * i + 1;
}

static const char *kept(uint32_t runs)
{
    uint32_t i;

    for (i = 0; i < (job.log + RECORD_BYTES * RECORDS) / 4; i++)
        memory[i] = wanted(runs, i);
    return keep_write(&job, runs, KEPT_RUNS);
}

/* Whether what comes back is that after `runs` runs. */
static int is_found(uint32_t runs)
{
    uint32_t found, i, end = (job.log + RECORD_BYTES * (runs < RECORDS ? runs : RECORDS)) / 4;

    memset(memory, 0xff, sizeof memory);
    if (keep_find(&job, &found) || found != runs)
        return 0;
    for (i = 0; runs && i < end; i++)
        if (memory[i] != wanted(runs, i))
            return 0;
    return memory[runs ? end : 0] == 0xffffffffu;
}

static void number(uint32_t copy, uint32_t sequence)
{
    uint32_t *head = card[FIRST + copy * card_area.blocks];

    head[SEQUENCE] = sequence;
    head[HEAD_SUM] = gl_sum_words(head, HEAD_SUM);
}

static int damaged(void)
{
    uint32_t need = card_area.blocks, runs, copy, block, found;

    card_area.blocks = 0;
    MUST(!strcmp(keep_find(&job, &found), "the card has no place for it") && found == 0);
    MUST(!strcmp(keep_write(&job, 1, KEPT_RUNS), "the card has no place for it"));
    card_area.blocks = need - 1;
    MUST(!strcmp(keep_find(&job, &found), "the card's place for it is too small"));
    MUST(!strcmp(keep_write(&job, 1, KEPT_RUNS), "the card's place for it is too small"));
    card_area.blocks = need;
    MUST(is_found(0));
    for (runs = 1; runs < 60; runs += 19) {
        MUST(!kept(runs) && is_found(runs));
        for (copy = 0; copy < 2; copy++)
            /* The last block is that of the last of RECORDS records. */
            for (block = 0; block < need - (runs < RECORDS ? 1 : 0); block++) {
                uint32_t *word = &card[FIRST + copy * need + block][0];

                *word ^= 0x10;
                MUST(is_found(copy != runs / 19 % 2 ? runs : runs > 19 ? runs - 19 : 0));
                *word ^= 0x10;
            }
        MUST(is_found(runs));
    }
    /* Both are damaged. */
    card[FIRST][0] ^= 1;
    card[FIRST + need][0] ^= 1;
    MUST(is_found(0));
    card[FIRST][0] ^= 1;
    card[FIRST + need][0] ^= 1;
    MUST(is_found(58));
    /* Of another card, of another job. */
    card_area.identity++;
    MUST(is_found(0));
    card_area.identity--;
    job.adapter_bytes -= 4;
    MUST(is_found(0));
    job.adapter_bytes += 4;
    job.records = 38;
    MUST(is_found(0));
    job.records = RECORDS;
    /* Numbers that wrap: 0 is newer than the last. */
    for (copy = 0; copy < 2; copy++) {
        number(1, copy ? 0xffffffffu : 0);
        number(0, copy ? 0 : 0xffffffffu);
        MUST(is_found(copy ? 39 : 58));
    }
    /* An empty card in the place of one that has all records. */
    MUST(is_found(39) && !kept(57) && !kept(59) && is_found(59));
    memset(card, 0, sizeof card);
    MUST(is_found(0));
    MUST(!kept(58) && is_found(58) && !kept(59) && is_found(59));
    return 0;
}

int main(int count, char **given)
{
    int at, every, hostile = !strcmp(given[1], "damaged");
    uint32_t words = (uint32_t)atoi(given[hostile ? 2 : 1]), log, i, runs, found;

    host_memory = (uintptr_t)memory;
    job.adapter_bytes = 4 * words;
    job.records = hostile ? RECORDS : (uint32_t)atoi(given[2]);
    job.log = 4 * words;
    card_area.block = FIRST;
    card_area.blocks = 1 + (4 * words + 511) / 512 + (RECORD_BYTES * job.records + 511) / 512;
    card_area.identity = 7;
    if (hostile)
        return damaged();
    every = atoi(given[3]);
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
