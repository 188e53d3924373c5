/* SPDX-License-Identifier: Apache-2.0
 * A signed package (src/gradloom/delivery/manifest.py) that the memory card brings: nothing is parsed before its hash holds. */
#ifndef GRADLOOM_SOC_PACKAGE_H
#define GRADLOOM_SOC_PACKAGE_H

#include <stdint.h>

#define DELIVERY_KEYS 9u
enum { PACKAGE_KEYS = 3, PACKAGE_WORDS = 4 };

/* What is installed: a block of the card. Words are little-endian. */
struct delivery_state {
    uint32_t magic, layout, sequence, image;
    uint32_t current; /* the place in use, 0 or 1; 2: none */
    uint32_t highest; /* version of all that were installed */
    uint32_t least;   /* version that may be installed or brought back */
    uint32_t request; /* number of the last one that was done */
    uint32_t keys_version, keys;
    struct {
        uint32_t version, sum; /* of the words, CRC-32; version 0: empty */
        uint8_t result[32];    /* SHA-256 of the words */
    } place[2];
    uint8_t key[DELIVERY_KEYS * 33]; /* of each key 1 for trusted or 2 for revoked, then its bytes */
    uint8_t unused[83];
    uint32_t trial; /* 1: the words in use have not been tried on the held-out text yet */
    uint32_t bound; /* share by which its loss may grow, 16 bits behind the point; 0: any */
    uint32_t sum; /* CRC-32 of the words before */
};

typedef char state_is_a_block[sizeof(struct delivery_state) == 512 ? 1 : -1];

struct package {
    uint32_t kind, version, least, delta;
    uint32_t bound; /* as in the state */
    uint32_t block, bytes;   /* of the payload: its first block on the card */
    uint32_t payload, words; /* where payload and words are in memory */
    uint8_t hash[32], result[32];
};

/* Checks signature, key, version, base and parent. NULL, or what does not hold. */
const char *package_open(struct package *package, uint32_t block, uint32_t bytes, const struct delivery_state *state,
                         const uint8_t *base);

/* Brings the payload into the memory from `scratch` on, where `bytes` bytes of words have room behind it, and checks its
 * hash. */
const char *package_payload(struct package *package, uint32_t scratch, uint32_t bytes);

/* The words of a package into memory at `words`, where those of the parent lie if it is a delta; checks their hash. */
const char *package_words(const struct package *package, uint32_t bytes);

/* A list of keys into the state. */
const char *package_keys(const struct package *package, struct delivery_state *state);

#endif
