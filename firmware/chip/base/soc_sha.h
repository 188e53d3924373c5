/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 (FIPS 180-4) of bytes that come one after the other, at least one: by the unit where the board has one, which takes
 * one message at a time. */
#ifndef GRADLOOM_SOC_SHA_H
#define GRADLOOM_SOC_SHA_H

#include <stddef.h>
#include <stdint.h>

struct sha {
    uint32_t state[8];
    uint8_t block[64];
    size_t length; /* bytes so far, whose bits it can count too: of 32 bits less than 512 MB */
};

void sha_start(struct sha *sha);
void sha_bytes(struct sha *sha, volatile const uint8_t *from, uint32_t count);

/* The digest's 32 bytes. */
void sha_end(struct sha *sha, uint8_t *digest);

#endif
