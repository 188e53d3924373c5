/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_card.h"

#include "gradloom_store.h"
#include "gradloom_sum.h"
#include "soc_deliver.h"
#include "soc_memory.h"
#include "soc_sd.h"
#include "soc_sha.h"
#include "soc_text.h"

struct card_area card_area;

#ifndef GL_BOARD_CARD

void card_load(void)
{
}

#else

#define MAGIC 0x44434c47u /* "GLCD" */
#define LAYOUT 1u
#define MAX_SECTIONS 12u
/* Here lies the header of a job, which may be a section of its own: the last, so that all it needs is there. */
#define RESERVED 4096u

enum { PLAIN, ADAPTER, KEPT, NOTE, DELIVERY };
/* Parts of a section of kind DELIVERY. */
#define PARTS 5u

/* Words, little-endian. */
struct section {
    uint32_t name[4]; /* sixteen characters, padded with zeros */
    uint32_t kind;    /* PLAIN: bytes at `offset`; ADAPTER: the next of a store at `offset` (gradloom_store.h); KEPT: not
                         for memory (soc_keep.h); NOTE: not for us; DELIVERY: installed words for `offset`
                         (soc_deliver.h) */
    uint32_t block;   /* where it begins on the card */
    uint32_t bytes;
    uint32_t sum; /* CRC-32 */
    uint32_t offset; /* in memory */
    uint32_t capacity; /* of the store, or bytes of the installed words */
};

/* The card's first block. */
struct header {
    uint32_t magic;
    uint32_t layout;
    uint32_t sum; /* CRC-32 of the block from the next word on */
    uint32_t sections;
    uint32_t blocks; /* of all */
    uint32_t reserved[3];
    struct section section[MAX_SECTIONS];
};

typedef char header_is_a_block[sizeof(struct header) == 4 * SD_BLOCK_WORDS ? 1 : -1];

static uint32_t blocks_of(const struct section *section)
{
    return section->bytes / (4 * SD_BLOCK_WORDS) + (section->bytes % (4 * SD_BLOCK_WORDS) != 0);
}

static const char *refuse(const struct header *header, const struct section *section)
{
    uint32_t room;

    if (section->kind > DELIVERY || section->bytes % 4)
        return "is of another kind";
    if (section->block == 0 || section->block > header->blocks ||
        blocks_of(section) > header->blocks - section->block)
        return "is outside the image";
    if (section->kind == KEPT || section->kind == NOTE)
        return NULL;
    if (section->offset == 0 && section->kind == PLAIN)
        return section->bytes > RESERVED ? "is outside the memory" : NULL;
    if (section->offset % 64 || section->offset < RESERVED || section->offset > GL_MEMORY_BYTES)
        return "is outside the memory";
    room = GL_MEMORY_BYTES - section->offset;
    if (section->kind == ADAPTER)
        room = section->capacity % 64 || room < 2 * GL_STORE_HEADER_BYTES ||
               section->capacity > room / 2 - GL_STORE_HEADER_BYTES ? 0 : section->capacity;
    if (section->kind == DELIVERY)
        return section->capacity % 64 || section->capacity > section->bytes / PARTS || section->capacity > room
                   ? "is outside the memory" : NULL;
    return section->bytes > room ? "is outside the memory" : NULL;
}

static const char *load(const struct header *header, const struct section *section)
{
    const char *why = refuse(header, section);
    uint32_t offset = section->offset, sum = GL_SUM_START;
    gl_store store;
    gl_adapter found;

    if (why)
        return why;
    if (section->kind == NOTE)
        return NULL;
    if (section->kind == KEPT) {
        card_area.block = section->block;
        card_area.blocks = blocks_of(section) / 2;
        /* What a job has learnt from another adapter is not for this one. */
        card_area.identity = header->sum ^ delivered_sum();
        return NULL;
    }
    if (section->kind == DELIVERY) {
        if (delivered((volatile uint32_t *)(GL_MEMORY + offset), &why) && !why)
            put_text("card: the installed adapter goes on\n");
        return why;
    }
    store.offset = section->offset;
    store.capacity = section->capacity;
    gl_init_mmio(&store.memory, (volatile void *)GL_MEMORY);
    if (section->kind == ADAPTER)
        offset = gl_store_begin(&store);
    why = sd_read(section->block, section->bytes / 4, (volatile uint32_t *)(GL_MEMORY + offset), &sum);
    if (why)
        return why;
    if (~sum != section->sum)
        return "its sum is wrong";
    put_text("card: ");
    put_name(section->name, sizeof section->name);
    put_text(", ");
    put_number(section->bytes);
    put_text(" bytes at ");
    put_hex(offset);
    if (section->kind == ADAPTER) {
        if (gl_store_commit(&store, section->bytes) != GL_OK || gl_store_find(&store, &found) != GL_OK ||
            found.offset != offset)
            return "memory does not keep it";
        put_text(", number ");
        put_number(found.sequence);
    }
    put_text("\n");
    return NULL;
}

/* Before sections are loaded: memory is free. */
static void deliver_to(const struct header *header)
{
    const struct section *section = header->section, *end = section + header->sections, *first;
    struct delivery_area area;
    uint8_t base[32];
    struct sha sha;

    for (; section != end; section++) {
        if (section->kind != DELIVERY || refuse(header, section))
            continue;
        for (first = header->section; first != end && (first->kind != PLAIN || first->offset != section->offset); first++)
            ;
        area.block = section->block;
        area.blocks = blocks_of(section);
        area.bytes = section->capacity;
        area.original = first == end ? 0 : first->block;
        area.image = header->sum;
        sha_start(&sha);
        sha_bytes(&sha, (const uint8_t *)header, sizeof *header);
        sha_end(&sha, base);
        deliver(&area, base, RESERVED);
    }
}

void card_load(void)
{
    struct header header;
    uint32_t *words = (uint32_t *)&header, sum = GL_SUM_START, i;
    const char *why = sd_start();
    if (why == sd_nobody) {
        put_text("card: none\n");
        return;
    }
    if (!why)
        why = sd_read(0, SD_BLOCK_WORDS, words, &sum);
    if (!why && header.magic != MAGIC)
        why = "gradloom card write did not write it";
    if (!why && (header.layout != LAYOUT || header.sections > MAX_SECTIONS))
        why = "its header is of another layout";
    sum = GL_SUM_START;
    for (i = 3; !why && i < SD_BLOCK_WORDS; i++)
        sum = gl_sum_word(sum, words[i]);
    if (!why && ~sum != header.sum)
        why = "its header's sum is wrong";
    if (why) {
        put_text("card: error: ");
        put_text(why);
        put_text("\n");
        return;
    }
    put_text("card: ");
    put_number(header.sections);
    put_text(" sections\n");
    deliver_to(&header);
    for (i = 0; i < header.sections; i++) {
        why = load(&header, &header.section[i]);
        if (why) {
            put_text("card: error: ");
            put_name(header.section[i].name, sizeof header.section[i].name);
            put_text(": ");
            put_text(why);
            put_text("\n");
            return;
        }
    }
    put_text("card: loaded\n");
}

#endif
