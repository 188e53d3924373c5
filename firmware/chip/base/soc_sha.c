/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_sha.h"

#include "soc_memory.h"

#ifdef GL_BOARD_DIGEST

/* The unit of the system on chip: rtl/soc/soc.v says what its registers are. */
enum { FOUR, ONE, END, BEGIN };

void sha_start(struct sha *sha)
{
    sha->length = 0;
    GL_BOARD_DIGEST[BEGIN] = 1;
}

void sha_bytes(struct sha *sha, volatile const uint8_t *from, uint32_t count)
{
    sha->length += count;
    for (; count && (uintptr_t)from % 4; count--)
        GL_BOARD_DIGEST[ONE] = *from++;
    for (; count >= 4; count -= 4, from += 4)
        GL_BOARD_DIGEST[FOUR] = *(volatile const uint32_t *)from;
    for (; count; count--)
        GL_BOARD_DIGEST[ONE] = *from++;
}

void sha_end(struct sha *sha, uint8_t *digest)
{
    uint32_t i, word = 0;

    (void)sha;
    GL_BOARD_DIGEST[END] = 1;
    for (i = 0; i < 32; i++) {
        if (i % 4 == 0)
            word = GL_BOARD_DIGEST[i / 4];
        digest[i] = (uint8_t)(word >> 8 * (i % 4));
    }
}

#else

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t value, int by)
{
    return value >> by | value << (32 - by);
}

static void block_of(struct sha *sha)
{
    uint32_t word[16], s[8], i;

    for (i = 0; i < 8; i++)
        s[i] = sha->state[i];
    for (i = 0; i < 64; i++) {
        const uint8_t *byte = &sha->block[4 * (i & 15)];
        uint32_t *now = &word[i & 15], before = word[(i + 14) & 15], first = word[(i + 1) & 15], sum, other;

        if (i < 16)
            *now = (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
        else
            *now += word[(i + 9) & 15] + (turned(before, 17) ^ turned(before, 19) ^ before >> 10) +
                    (turned(first, 7) ^ turned(first, 18) ^ first >> 3);
        sum = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + (s[6] ^ (s[4] & (s[5] ^ s[6]))) +
              constants[i] + *now;
        other = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + ((s[0] & s[1]) | (s[2] & (s[0] | s[1])));
        s[7] = s[6];
        s[6] = s[5];
        s[5] = s[4];
        s[4] = s[3] + sum;
        s[3] = s[2];
        s[2] = s[1];
        s[1] = s[0];
        s[0] = sum + other;
    }
    for (i = 0; i < 8; i++)
        sha->state[i] += s[i];
}

void sha_start(struct sha *sha)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint32_t i;

    for (i = 0; i < 8; i++)
        sha->state[i] = first[i];
    sha->length = 0;
}

static void put(struct sha *sha, uint8_t byte)
{
    sha->block[sha->length++ % 64] = byte;
    if (sha->length % 64 == 0)
        block_of(sha);
}

void sha_bytes(struct sha *sha, volatile const uint8_t *from, uint32_t count)
{
    while (count--)
        put(sha, *from++);
}

void sha_end(struct sha *sha, uint8_t *digest)
{
    size_t bits = 8 * sha->length, i;

    put(sha, 0x80);
    while (sha->length % 64 != 64 - sizeof bits)
        put(sha, 0);
    for (i = 0; i < sizeof bits; i++)
        put(sha, (uint8_t)(bits >> (8 * (sizeof bits - 1) - 8 * i)));
    for (i = 0; i < 32; i++)
        digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

#endif
