/* SPDX-License-Identifier: Apache-2.0
 * A request that is damaged has no answer: who asks repeats it.
 */
#include "soc_serve.h"

#include "gradloom_sum.h"
#include "soc_deliver.h"
#include "soc_infer.h"
#include "soc_line.h"
#include "soc_memory.h"
#include "soc_sd.h"

#if defined GL_BOARD_CARD && defined GL_BOARD_LISTEN

#define MOST_BLOCKS 64u

static void give(uint32_t number)
{
    uint32_t words[SD_BLOCK_WORDS], all = GL_SUM_START;
    const char *why = sd_read(number, SD_BLOCK_WORDS, words, &all);

    if (why) {
        answer_fault(number, why);
        return;
    }
    answer_word("block");
    answer_number(number);
    answer_bytes((const uint8_t *)words, sizeof words);
    answer_end();
}

/* What comes by UART goes to the inbox alone, of which only what is signed is installed. */
static void take(uint32_t number, const char *text)
{
    uint32_t words[SD_BLOCK_WORDS], all = GL_SUM_START, first, blocks = inbox(&first);
    const char *why = NULL;

    if (!take_bytes(&text, (uint8_t *)words, sizeof words) || *text)
        return;
    if (number < first || number - first >= blocks)
        why = blocks ? "the block is outside the inbox" : "the card has no inbox";
    if (!why)
        why = sd_write(number, SD_BLOCK_WORDS, words, &all);
    if (why) {
        answer_fault(number, why);
        return;
    }
    answer_word("wrote");
    answer_number(number);
    answer_end();
}

int serve(int idle)
{
    const char *text = hear_line();
    uint32_t first, count;

    if (!text)
        return 0;
    if (take_word(&text, "read") && take_number(&text, &first) && take_number(&text, &count) && !*text &&
        count <= MOST_BLOCKS) {
        for (; count; count--)
            give(first++);
    } else if (take_word(&text, "write") && take_number(&text, &first))
        take(first, text);
    else if (take_word(&text, "start") && !*text) {
        if (!idle)
            answer_fault(0, "a job runs");
        else {
            answer_word("starts");
            answer_end();
            return 1;
        }
    } else
        infer_request(text);
    return 0;
}

#else

int serve(int idle)
{
    (void)idle;
    return 0;
}

#endif
