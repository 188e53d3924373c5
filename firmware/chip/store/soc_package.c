/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_package.h"

#include <stddef.h>

#include "gradloom_sum.h"
#include "monocypher.h"
#include "soc_memory.h"
#include "soc_root.h"
#include "soc_sd.h"
#include "soc_sha.h"

#ifdef GL_BOARD_CARD

#define BLOCK_BYTES (4 * SD_BLOCK_WORDS)
/* Of a manifest: bytes that are signed, and where its fields are. */
enum { SIGNED = 448, FORMAT = 8, KIND = 10, VERSION = 24, LEAST = 28, BYTES = 32, KEY = 40, BASE = 72, PARENT = 104,
       RESULT = 136, PAYLOAD = 168, BOUND = 204 };
enum { TRUSTED = 1, REVOKED = 2 };
/* Blocks of payload that are read at once. */
#define AT_ONCE 32u
/* Words of a block of the payload, and the first byte of one: all are zero, as they are, or codes with a shift. */
#define GROUP 64u
enum { ZERO = 0x00, CODES4 = 0x40, CODES8 = 0x80, SHIFT = 0x1f, PLAIN = 0xff };

static int same(const uint8_t *a, const uint8_t *b, uint32_t count)
{
    while (count && *a == *b) {
        a++;
        b++;
        count--;
    }
    return count == 0;
}

static uint32_t word_at(volatile const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static int is_named(const uint8_t *key, const uint8_t *hash)
{
    uint8_t digest[32];
    struct sha sha;

    sha_start(&sha);
    sha_bytes(&sha, key, 32);
    sha_end(&sha, digest);
    return same(digest, hash, 32);
}

/* The key of that hash: NULL in `key`, and why it is not to be used. */
static const char *find_key(const struct delivery_state *state, const uint8_t *hash, int root_alone, uint8_t *key)
{
    uint32_t i, k, any = 0;

    for (i = 0; i < 32; i++) {
        key[i] = gl_root[ROOT_MARK + i];
        any |= key[i];
    }
    if (!any)
        return "no key is in the firmware: generate the design with --trust";
    if (is_named(key, hash))
        return NULL;
    for (k = 0; !root_alone && k < state->keys; k++)
        if (is_named(&state->key[33 * k + 1], hash)) {
            for (i = 0; i < 32; i++)
                key[i] = state->key[33 * k + 1 + i];
            return state->key[33 * k] == TRUSTED ? NULL : "the key is revoked";
        }
    return "the key is not trusted";
}

/* A float32 that is not negative, with 16 bits behind the point, and at least 1 unless it is zero. */
static uint32_t share_of(uint32_t word)
{
    uint32_t mantissa = (word & 0x7fffffu) | 0x800000u, exponent = word >> 23 & 255, found;

    if (word == 0)
        return 0;
    /* The mantissa has 23 bits behind the point. */
    if (exponent >= 127 + 15)
        return 0xffffffffu;
    found = exponent + 16 >= 127 + 23 ? mantissa << (exponent + 16 - 127 - 23)
            : exponent + 16 + 32 > 127 + 23 ? mantissa >> (127 + 23 - 16 - exponent) : 0;
    return found ? found : 1;
}

const char *package_open(struct package *package, uint32_t block, uint32_t bytes, const struct delivery_state *state,
                         const uint8_t *base)
{
    uint8_t manifest[BLOCK_BYTES] __attribute__((aligned(4))), key[32];
    uint32_t sum = GL_SUM_START, i;
    const char *why;

    if (bytes < BLOCK_BYTES)
        return "the package is shorter than a manifest";
    why = sd_read(block, SD_BLOCK_WORDS, (uint32_t *)manifest, &sum);
    if (why)
        return why;
    if (!same(manifest, (const uint8_t *)"GRADLOOM", 8))
        return "this is no package";
    /* The kind says which keys may sign; it is signed too. */
    why = find_key(state, manifest + KEY, manifest[KIND] == PACKAGE_KEYS, key);
    if (why)
        return why;
    if (crypto_eddsa_check(manifest + SIGNED, key, manifest, SIGNED))
        return "the signature does not hold";
    package->kind = manifest[KIND];
    package->version = word_at(manifest + VERSION);
    package->least = word_at(manifest + LEAST);
    package->bound = share_of(word_at(manifest + BOUND));
    package->block = block + 1;
    package->bytes = word_at(manifest + BYTES);
    package->delta = 0;
    for (i = 0; i < 32; i++) {
        package->hash[i] = manifest[PAYLOAD + i];
        package->result[i] = manifest[RESULT + i];
        package->delta |= manifest[PARENT + i];
    }
    if (manifest[FORMAT] != 1 || manifest[FORMAT + 1] || (package->kind != PACKAGE_KEYS && package->kind != PACKAGE_WORDS))
        return "the package is not for boards: sign it with --card";
    if (word_at(manifest + BYTES + 4) || package->bytes != bytes - BLOCK_BYTES)
        return "the package is cut";
    if (package->kind == PACKAGE_KEYS)
        return package->version <= state->keys_version ? "the key list is not newer than the one in use" : NULL;
    if (package->version <= state->highest || package->version < state->least)
        return "the version is not above all that were installed";
    if (!same(manifest + BASE, base, 32))
        return "the package is for another base";
    if (package->delta && (state->current > 1 || !same(manifest + PARENT, state->place[state->current].result, 32)))
        return "the change is of another adapter";
    return NULL;
}

const char *package_payload(struct package *package, uint32_t scratch, uint32_t bytes)
{
    uint32_t at = package->block, left = package->bytes, sum = GL_SUM_START, now;
    volatile uint8_t *to = (volatile uint8_t *)(GL_MEMORY + scratch);
    uint8_t digest[32];
    const char *why;
    struct sha sha;

    if (left > GL_MEMORY_BYTES / 4 || bytes > GL_MEMORY_BYTES / 4 || scratch > GL_MEMORY_BYTES / 4)
        return "the package does not fit into memory";
    package->payload = scratch;
    package->words = (scratch + left + 64) & ~63u;
    sha_start(&sha);
    while (left) {
        now = left < AT_ONCE * BLOCK_BYTES ? left : AT_ONCE * BLOCK_BYTES;
        why = sd_read(at, (now + 3) / 4, (volatile uint32_t *)to, &sum);
        if (why)
            return why;
        sha_bytes(&sha, to, now);
        at += AT_ONCE;
        to += now;
        left -= now;
    }
    sha_end(&sha, digest);
    return same(digest, package->hash, 32) ? NULL : "the payload's hash does not hold";
}

/* The code of a word, of 4 or 8 bits, as a number with a sign. */
static uint32_t code_at(volatile const uint8_t *codes, uint32_t index, int eight)
{
    uint32_t code = eight ? codes[index] : codes[index / 2] >> 4 * (index % 2) & 15;

    return eight ? (code ^ 0x80u) - 0x80u : (code ^ 8u) - 8u;
}

const char *package_words(const struct package *package, uint32_t bytes)
{
    volatile const uint8_t *from = (volatile const uint8_t *)(GL_MEMORY + package->payload), *end = from + package->bytes;
    volatile uint32_t *to = (volatile uint32_t *)(GL_MEMORY + package->words);
    uint32_t words = bytes / 4, i, k, count, size, mark, value;
    uint8_t digest[32];
    struct sha sha;

    for (i = 0; i < words; i += GROUP) {
        if (from == end)
            return "the payload has other words than this card";
        mark = *from++;
        count = words - i < GROUP ? words - i : GROUP;
        size = mark == ZERO ? 0 : mark == PLAIN ? 4 * count : mark & CODES8 ? count : count / 2;
        if ((uint32_t)(end - from) < size)
            return "the payload has other words than this card";
        for (k = 0; k < count; k++) {
            value = mark == ZERO ? 0
                    : mark == PLAIN ? word_at(from + 4 * k)
                                    : code_at(from, k, mark & CODES8) << (mark & SHIFT);
            to[i + k] = package->delta ? to[i + k] + value : value;
        }
        from += size;
    }
    if (from != end)
        return "the payload has other words than this card";
    sha_start(&sha);
    sha_bytes(&sha, (volatile const uint8_t *)to, bytes);
    sha_end(&sha, digest);
    return same(digest, package->result, 32) ? NULL : "the words' hash does not hold";
}

const char *package_keys(const struct package *package, struct delivery_state *state)
{
    volatile const uint8_t *from = (volatile const uint8_t *)(GL_MEMORY + package->payload);
    uint32_t i;

    if (package->bytes % 33 || package->bytes > sizeof state->key)
        return "the key list has more keys than there is room for";
    for (i = 0; i < package->bytes; i++)
        if (i % 33 == 0 && from[i] != TRUSTED && from[i] != REVOKED)
            return "the key list is not as gradloom writes it";
    for (i = 0; i < sizeof state->key; i++)
        state->key[i] = i < package->bytes ? from[i] : 0;
    state->keys = package->bytes / 33;
    state->keys_version = package->version;
    return NULL;
}

#endif
