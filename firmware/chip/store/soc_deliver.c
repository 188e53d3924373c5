/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_deliver.h"

#include <stddef.h>

#include "gradloom_sum.h"
#include "soc_memory.h"
#include "soc_package.h"
#include "soc_sd.h"
#include "soc_text.h"

#ifdef GL_BOARD_CARD

#define STATE_MAGIC 0x53444c47u   /* "GLDS" */
#define REQUEST_MAGIC 0x51444c47u /* "GLDQ" */
#define LAYOUT 1u
#define PARTS 5u
#define NONE 2u
enum { INSTALL = 1, ROLLBACK = 2 };

/* Words, little-endian. */
struct request {
    uint32_t magic, kind, number, bytes, sum;
};

static struct delivery_state state, spare;
/* Blocks of a part; which of the two states is in use. */
static struct delivery_area area;
static uint32_t part_blocks, newest;

static uint32_t part(uint32_t number)
{
    return area.block + number * part_blocks;
}

static int whole(const struct delivery_state *found)
{
    return found->magic == STATE_MAGIC && found->layout == LAYOUT && found->image == area.image && found->current <= NONE &&
           found->keys <= DELIVERY_KEYS && found->sum == gl_sum_words((const uint32_t *)found, SD_BLOCK_WORDS - 1);
}

/* The newest state; without any, an empty one. */
static void find(void)
{
    uint32_t sum = GL_SUM_START, i;
    int first = !sd_read(part(3), SD_BLOCK_WORDS, (uint32_t *)&state, &sum) && whole(&state);
    int second = !sd_read(part(4), SD_BLOCK_WORDS, (uint32_t *)&spare, &sum) && whole(&spare);

    newest = second && (!first || spare.sequence - state.sequence < 0x80000000u);
    if (newest)
        state = spare;
    if (first || second)
        return;
    for (i = 0; i < SD_BLOCK_WORDS; i++)
        ((uint32_t *)&state)[i] = 0;
    state.magic = STATE_MAGIC;
    state.layout = LAYOUT;
    state.image = area.image;
    state.current = NONE;
}

static const char *commit(void)
{
    uint32_t sum = GL_SUM_START;
    const char *why;

    state.sequence++;
    state.sum = gl_sum_words((const uint32_t *)&state, SD_BLOCK_WORDS - 1);
    why = sd_write(part(newest ? 3 : 4), SD_BLOCK_WORDS, (const uint32_t *)&state, &sum);
    if (!why)
        newest ^= 1;
    return why;
}

/* Whether a place's words are those of the state; into memory, unless `to` is NULL. */
static const char *words_of(uint32_t place, volatile uint32_t *to)
{
    uint32_t sum = GL_SUM_START;
    const char *why = sd_read(part(1 + place), area.bytes / 4, to, &sum);

    return why ? why : ~sum != state.place[place].sum ? "its words are damaged" : NULL;
}

static const char *install(const struct request *request, const uint8_t *base, uint32_t scratch)
{
    struct package package;
    uint32_t place = state.current == 0, sum = GL_SUM_START, i, told;
    const char *why;

    if (request->bytes > (part_blocks - 1) * 4 * SD_BLOCK_WORDS)
        return "the package is larger than the inbox";
    why = package_open(&package, part(0) + 1, request->bytes, &state, base);
    if (!why)
        why = package_payload(&package, scratch, area.bytes);
    if (why)
        return why;
    if (package.kind == PACKAGE_KEYS)
        why = package_keys(&package, &state);
    else {
        if (package.delta)
            why = words_of(state.current, (volatile uint32_t *)(GL_MEMORY + package.words));
        if (!why)
            why = package_words(&package, area.bytes);
        if (!why)
            why = sd_write(part(1 + place), area.bytes / 4, (volatile uint32_t *)(GL_MEMORY + package.words), &sum);
        state.place[place].version = package.version;
        state.place[place].sum = ~sum;
        for (i = 0; i < 32; i++)
            state.place[place].result[i] = package.result[i];
        state.highest = package.version;
        state.least = package.least > state.least ? package.least : state.least;
        state.current = place;
        state.trial = 1;
        state.bound = package.bound;
    }
    state.request = request->number;
    told = package.version;
    if (!why)
        why = commit();
    if (why)
        return why;
    put_text(package.kind == PACKAGE_KEYS ? "install: key list, version " : "install: version ");
    put_number(told);
    put_text(", base ");
    for (i = 0; i < 8; i++)
        put_digits(base[i], 2, put_character);
    put_text("\n");
    return NULL;
}

static const char *rollback(const struct request *request)
{
    uint32_t place = state.current ^ 1;
    const char *why;

    if (state.current == NONE || state.place[place].version == 0)
        return "there is no older adapter";
    if (state.place[place].version < state.least)
        return "the older version is below the least that was signed";
    why = words_of(place, NULL);
    if (why)
        return why;
    state.current = place;
    state.trial = 0;
    state.request = request->number;
    why = commit();
    if (why)
        return why;
    put_text("rollback: version ");
    put_number(state.place[place].version);
    put_text(" is back\n");
    return NULL;
}

void deliver(const struct delivery_area *found, const uint8_t *base, uint32_t scratch)
{
    uint32_t words[SD_BLOCK_WORDS], sum = GL_SUM_START;
    const struct request *request = (const struct request *)words;
    const char *why;

    area = *found;
    part_blocks = area.blocks / PARTS;
    find();
    if (sd_read(part(0), SD_BLOCK_WORDS, words, &sum) || request->magic != REQUEST_MAGIC ||
        request->sum != gl_sum_words(words, 4) || request->number == state.request)
        return;
    why = request->kind == INSTALL ? install(request, base, scratch)
          : request->kind == ROLLBACK ? rollback(request) : "the request is of another kind";
    if (!why)
        return;
    put_text(request->kind == ROLLBACK ? "rollback: error: " : "install: error: ");
    put_text(why);
    put_text("\n");
    /* What was there, which may be in either place. */
    find();
}

int trial_due(uint32_t *bound)
{
    *bound = state.bound;
    return state.magic == STATE_MAGIC && state.current != NONE && state.trial;
}

const char *trial_words(int before, volatile uint32_t *to)
{
    uint32_t sum = GL_SUM_START, place = state.current ^ (uint32_t)before;

    /* Those that came with the card have been checked when it was loaded. */
    return state.place[place].version ? words_of(place, to) : sd_read(area.original, area.bytes / 4, to, &sum);
}

const char *trial_end(int stays, uint32_t *version)
{
    uint32_t other = state.current ^ 1;

    if (!stays) {
        /* It was signed, but a rollback does not bring it. */
        state.place[state.current].version = 0;
        state.current = state.place[other].version ? other : NONE;
    }
    state.trial = 0;
    *version = state.current == NONE ? 0 : state.place[state.current].version;
    return commit();
}

uint32_t inbox(uint32_t *first)
{
    *first = part(0);
    return part_blocks;
}

uint32_t delivered_sum(void)
{
    return state.magic == STATE_MAGIC && state.current != NONE ? state.place[state.current].sum : 0;
}

uint32_t delivered(volatile uint32_t *to, const char **why)
{
    *why = delivered_sum() ? words_of(state.current, to) : NULL;
    return delivered_sum();
}

#endif
