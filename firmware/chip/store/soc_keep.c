/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_keep.h"

#include "gradloom_sum.h"
#include "soc_card.h"
#include "soc_sd.h"

#ifdef GL_BOARD_CARD

#define KEPT_MAGIC 0x504b4c47u /* "GLKP" */
#define LAYOUT 1u
#define BLOCK_BYTES (4 * SD_BLOCK_WORDS)
#define RECORD_WORDS (RECORD_BYTES / 4)
#define NONE 2u

/* The first words of a copy. */
enum { MAGIC, FORMAT, SEQUENCE, IDENTITY, RUNS, BYTES, WORDS_SUM, RECORDS, LOG_SUM, WHY, HEAD_SUM, HEAD_WORDS };

/* Of the two copies, the newest, its number, and records in each that are also in memory. */
static uint32_t newest, sequence, held[2];

static uint32_t blocks(uint32_t bytes)
{
    return bytes / BLOCK_BYTES + (bytes % BLOCK_BYTES != 0);
}

static uint32_t first_block(uint32_t copy)
{
    return card_area.block + copy * card_area.blocks;
}

static volatile uint32_t *log_of(volatile const struct job *job)
{
    return (volatile uint32_t *)(GL_MEMORY + job->log);
}

static const char *refuse(volatile const struct job *job)
{
    if (card_area.blocks == 0)
        return "the card has no place for it";
    return 1 + blocks(job->adapter_bytes) + blocks(RECORD_BYTES * job->records) > card_area.blocks
               ? "the card's place for it is too small" : NULL;
}

/* Whether a copy has a block that is whole and of this job. */
static int has_head(volatile const struct job *job, const uint32_t *head)
{
    return head[MAGIC] == KEPT_MAGIC && head[FORMAT] == LAYOUT && head[HEAD_SUM] == gl_sum_words(head, HEAD_SUM) &&
           head[IDENTITY] == card_area.identity && head[BYTES] == job->adapter_bytes &&
           head[RECORDS] <= job->records;
}

/* Reads what follows a copy's block, into memory or, without `store`, nowhere. Whether its sums hold. */
static int read_copy(volatile const struct job *job, uint32_t copy, const uint32_t *head, int store)
{
    uint32_t at = first_block(copy) + 1, sum = GL_SUM_START, log_sum = GL_SUM_START;

    return !sd_read(at, head[BYTES] / 4, store ? in_window(job, job->adapter) : NULL, &sum) &&
           !sd_read(at + blocks(head[BYTES]), RECORD_WORDS * head[RECORDS], store ? log_of(job) : NULL, &log_sum) &&
           ~sum == head[WORDS_SUM] && ~log_sum == head[LOG_SUM];
}

const char *keep_find(volatile const struct job *job, uint32_t *runs)
{
    uint32_t head[2][SD_BLOCK_WORDS], sum = GL_SUM_START, copy, good[2];
    const char *why = refuse(job);

    *runs = 0;
    newest = NONE;
    sequence = held[0] = held[1] = 0;
    if (why)
        return why;
    for (copy = 0; copy < 2; copy++) {
        good[copy] = !sd_read(first_block(copy), SD_BLOCK_WORDS, head[copy], &sum) && has_head(job, head[copy]);
        if (good[copy] && !read_copy(job, copy, head[copy], 0))
            good[copy] = 0;
    }
    if (!good[0] && !good[1])
        return NULL;
    copy = good[1] && (!good[0] || head[1][SEQUENCE] - head[0][SEQUENCE] < 0x80000000u);
    if (!read_copy(job, copy, head[copy], 1))
        return "it arrives damaged";
    newest = copy;
    sequence = head[copy][SEQUENCE];
    held[copy] = head[copy][RECORDS];
    *runs = head[copy][RUNS];
    return NULL;
}

const char *keep_write(volatile const struct job *job, uint32_t runs, uint32_t why)
{
    uint32_t head[HEAD_WORDS], copy = newest == 0, at = first_block(copy), bytes = job->adapter_bytes, records, from;
    volatile const uint32_t *words = in_window(job, job->adapter), *log = log_of(job);
    uint32_t sum = GL_SUM_START, other = GL_SUM_START;
    const char *failed = refuse(job);

    records = runs < job->records ? runs : job->records;
    head[MAGIC] = 0;
    if (!failed)
        failed = sd_write(at, 1, head, &other);
    if (!failed)
        failed = sd_write(at + 1, bytes / 4, words, &sum);
    /* Whole blocks of the log that this copy has already stay. */
    from = held[copy] * RECORD_BYTES / BLOCK_BYTES;
    held[copy] = 0;
    if (!failed)
        failed = sd_write(at + 1 + blocks(bytes) + from, RECORD_WORDS * records - SD_BLOCK_WORDS * from,
                          log + SD_BLOCK_WORDS * from, &other);
    if (failed)
        return failed;
    head[MAGIC] = KEPT_MAGIC;
    head[FORMAT] = LAYOUT;
    head[SEQUENCE] = sequence + 1;
    head[IDENTITY] = card_area.identity;
    head[RUNS] = runs;
    head[BYTES] = bytes;
    head[WORDS_SUM] = ~sum;
    head[RECORDS] = records;
    head[LOG_SUM] = gl_sum_words(log, RECORD_WORDS * records);
    head[WHY] = why;
    head[HEAD_SUM] = gl_sum_words(head, HEAD_SUM);
    failed = sd_write(at, HEAD_WORDS, head, &other);
    if (failed)
        return failed;
    newest = copy;
    sequence++;
    held[copy] = records;
    return NULL;
}

#else

const char *keep_find(volatile const struct job *job, uint32_t *runs)
{
    (void)job;
    *runs = 0;
    return "the board has no card";
}

const char *keep_write(volatile const struct job *job, uint32_t runs, uint32_t why)
{
    (void)job;
    (void)runs;
    (void)why;
    return "the board has no card";
}

#endif
